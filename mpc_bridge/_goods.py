"""Rows of a pool that are committed to before a choice, and checked after it.

Before the choice, the data owner commits to the rows of its files: a SHA-256 over a
hash of each row, which covers the row's number, its content and a random salt of 32
bytes. The commitment is among what both parties agree on. After the choice, the data
owner sends the hashes of all rows, and salts and contents of the chosen ones. The model
owner hashes them: they are those that the data owner had when neither knew the choice.
Of other rows it gets hashes only, whose salts it does not learn.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._handshake import SessionError

ROWS = "pool_rows"
"""Name of the array that says which rows of the pool were delivered."""

SALT, _HASH = 32, 32  # bytes
_COLUMN = ":salt"  # no name of an array
_ROW, _POOL = b"jaxsel delivered row 1\0", b"jaxsel delivered pool 1\0"
PIECE = 1 << 20  # bytes of a message
_CHUNK = 1 << 24  # bytes of rows that are hashed at once
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_DTYPE = re.compile(
    r"\|(b1|i1|u1|S[1-9]\d{0,8})|[<>]([iu][248]|f[248]|c8|c16|U[1-9]\d{0,7})"
)
_COMMITMENT = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_FIELDS, _MOST_AXES = 64, 8
_LARGEST = 1 << 30  # bytes of a row

Send = Callable[[bytes], None]
Receive = Callable[[], bytes]


@dataclasses.dataclass(frozen=True)
class Column:
    """An array that is delivered: its name, and dtype and shape of a row."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of a row."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Offer:
    """The rows that a data owner commits to.

    Attributes:
        n: Rows of the pool.
        columns: The arrays.
        commitment: A hash of all rows with their salts.
    """

    n: int
    columns: tuple[Column, ...]
    commitment: str

    @property
    def row(self) -> np.dtype[Any]:
        """A row and its salt, without gaps."""
        fields = [(c.name, c.dtype, c.shape) for c in self.columns]
        return np.dtype([(_COLUMN, np.uint8, (SALT,)), *fields])

    def size(self, keep: int) -> int:
        """Return the bytes of a delivery of `keep` rows."""
        return delivery_size(self.n, keep, sum(c.size for c in self.columns))

    def to_json(self) -> dict[str, Any]:
        """Return the offer as JSON can hold it."""
        columns = [[c.name, c.dtype, list(c.shape)] for c in self.columns]
        return {"commitment": self.commitment, "columns": columns}

    @staticmethod
    def from_json(document: Any, n: int) -> Offer:
        """Read an offer of another party.

        Raises:
            SessionError: If it is none.
        """
        try:
            commitment, columns = document["commitment"], document["columns"]
            if not _COMMITMENT.fullmatch(commitment):
                raise ValueError("the commitment is no hash")
            if not 1 <= len(columns) <= _MOST_FIELDS:
                raise ValueError(f"{len(columns)} arrays")
            offer = Offer(
                n, tuple(checked_column(*column) for column in columns), commitment
            )
            if len({column.name for column in offer.columns}) < len(columns):
                raise ValueError("two arrays of one name")
            if sum(column.size for column in offer.columns) >= _LARGEST:
                raise ValueError(f"rows of {_LARGEST} bytes or more")
        except (KeyError, TypeError, ValueError) as error:
            raise SessionError(
                f"the data owner's offer to deliver can't be read: {error!s:.200}"
            ) from None
        return offer

    def summary(self) -> str:
        """Return the arrays in words."""
        return ", ".join(
            f"{c.name} ({np.dtype(c.dtype).name} {list(c.shape)})" for c in self.columns
        )


def delivery_size(n: int, keep: int, row: int) -> int:
    """Return the bytes of a delivery: hashes of all rows, salts and rows of some."""
    return n * _HASH + keep * (SALT + row)


class Goods:
    """The data owner's rows, and the salted hashes that prove them.

    Attributes:
        offer: The public part: arrays and commitment.
    """

    def __init__(
        self, arrays: Mapping[str, np.ndarray], n: int, key: bytes, session: str
    ):
        """Commit to the rows of arrays; reads all of them once.

        Args:
            arrays: By name, `[n, ...]` each.
            n: Rows of the pool.
            key: 32 secret bytes, from which salts are derived.
            session: What tells sessions apart: salts of two have nothing in common.
        """
        self._arrays, self._key, self._session = arrays, key, session.encode()
        columns = tuple(
            Column(name, array.dtype.str, array.shape[1:])
            for name, array in arrays.items()
        )
        self.offer = Offer(n, columns, "")
        step = max(1, _CHUNK // self.offer.row.itemsize)
        self._hashes = b"".join(
            digest
            for start in range(0, n, step)
            for digest in _row_hashes(
                range(start, min(n, start + step)),
                self._rows(np.arange(start, min(n, start + step))),
            )
        )
        commitment = _root(self.offer, self._hashes)
        self.offer = dataclasses.replace(self.offer, commitment=commitment)

    def send(self, rows: np.ndarray, send: Send) -> None:
        """Send the chosen rows, in pieces.

        Raises:
            SessionError: If a file has changed since the commitment.
        """
        chosen = self._rows(rows)
        for row, digest in zip(rows.tolist(), _row_hashes(rows, chosen), strict=True):
            if digest != self._hashes[row * _HASH : (row + 1) * _HASH]:
                raise SessionError(
                    f"row {row} of data_owner.deliver has changed since the session "
                    "began: nothing is delivered"
                )
        content = self._hashes + chosen.tobytes()
        for start in range(0, len(content), PIECE):
            send(content[start : start + PIECE])

    def _rows(self, rows: np.ndarray) -> np.ndarray:
        content = np.empty(len(rows), self.offer.row)
        salts = [self._salt(row) for row in rows.tolist()]
        content[_COLUMN] = np.frombuffer(b"".join(salts), np.uint8).reshape(-1, SALT)
        for name, array in self._arrays.items():
            content[name] = array[rows]
        return content

    def _salt(self, row: int) -> bytes:
        message = struct.pack("<Q", row) + self._session
        return hmac.digest(self._key, message, "sha256")


def receive(offer: Offer, rows: np.ndarray, take: Receive) -> dict[str, np.ndarray]:
    """Receive the chosen rows, and check them against the commitment.

    Args:
        offer: On which the parties agreed before the choice.
        rows: That were chosen, ascending.
        take: Return the next message.

    Returns:
        The arrays by name, a row for each of `rows`, in their order, and `pool_rows`.

    Raises:
        SessionError: If anything else arrives.
    """
    size, content = offer.size(len(rows)), bytearray()
    while len(content) < size:
        piece = take()
        if len(piece) != min(PIECE, size - len(content)):
            raise SessionError(
                f"the delivery of {len(rows)} rows has {size} bytes, in pieces of "
                f"{PIECE}; the data owner sends a piece of {len(piece)}"
            )
        content += piece
    hashes = bytes(content[: offer.n * _HASH])
    if not hmac.compare_digest(_root(offer, hashes), offer.commitment):
        raise SessionError(
            "the data owner's hashes of rows are not those that it committed to "
            "before the choice"
        )
    chosen = np.frombuffer(content, offer.row, offset=len(hashes))
    for row, digest in zip(rows.tolist(), _row_hashes(rows, chosen), strict=True):
        if digest != hashes[row * _HASH : (row + 1) * _HASH]:
            raise SessionError(
                f"what the data owner delivers for row {row} is not what it committed "
                "to before the choice"
            )
    arrays = {c.name: chosen[c.name].copy() for c in offer.columns}
    return {ROWS: np.asarray(rows, np.int64), **arrays}


def _row_hashes(
    rows: Sequence[int] | np.ndarray, content: np.ndarray
) -> Iterator[bytes]:
    """Yield a hash of each row: its number, its salt and its arrays."""
    data, size = memoryview(content.tobytes()), content.dtype.itemsize
    for i, row in enumerate(rows):
        digest = hashlib.sha256(_ROW)
        digest.update(struct.pack("<Q", row))
        digest.update(data[i * size : (i + 1) * size])
        yield digest.digest()


def _root(offer: Offer, hashes: bytes) -> str:
    """Return the commitment to all rows, and to names and types of their arrays."""
    columns = json.dumps([offer.n, offer.to_json()["columns"]]).encode()
    content = hashlib.sha256(_POOL)
    content.update(struct.pack("<Q", len(columns)))
    content.update(columns)
    content.update(hashes)
    return f"sha256:{content.hexdigest()}"


def checked_column(name: Any, dtype: Any, shape: Sequence[Any]) -> Column:
    """Return a column if another party can be offered it.

    Raises:
        ValueError: If not: names the entry that is wrong.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == ROWS:
        raise ValueError(f"name {name!r:.80}")
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError(f"dtype {dtype!r:.40}")
    if len(shape) > _MOST_AXES or any(
        type(length) is not int or not 1 <= length < 2**31 for length in shape
    ):
        raise ValueError(f"shape {shape!r:.80}")
    column = Column(name, dtype, tuple(shape))
    if column.size >= _LARGEST:
        raise ValueError(f"rows of {column.size} bytes")
    return column
