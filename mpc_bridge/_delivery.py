"""The chosen rows go to the model owner, as the data owner had committed to them."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._files.npy import map_array, read_npz
from jaxsel.proxy import Manifest, Traffic

from ._config import Config, DataOwner
from ._goods import (
    PIECE,
    SALT,
    Goods,
    Offer,
    checked_column,
    delivery_size,
    receive,
)
from ._handshake import ROLES, Refused, SessionError, printable, say
from ._inputs import shapes_of
from ._journal import FOLDER
from ._ledger import Ledger
from ._private import write_private
from .engines import DATA_OWNER, MODEL_OWNER

FILE = "delivered.npz"
_KEY = "delivery.key"
_FIELD = "data_owner.deliver"
_ROWS, _STOPPED = b"r", b"!"  # the first byte of a message


class Delivery:
    """One party's part in the delivery; without `session.deliver` it does nothing."""

    def __init__(self, config: Config, rank: int, session: str):
        """Open the files to be delivered, and commit to their rows.

        Args:
            config: Of the run.
            rank: Of this party.
            session: Its hash, which tells sessions apart.

        Raises:
            Refused: If a file does not hold a row for each of the pool's.
        """
        self._config, self._rank = config, rank
        self._goods: Goods | None = None
        self._offer: Offer | None = None
        part = config.data_owner
        if config.session.deliver and rank == DATA_OWNER and part is not None:
            self._goods = open_goods(config, part, part.output / FOLDER, session)

    def offered(self) -> dict[str, Any] | None:
        """Return this party's offer: its memory, and the data owner's commitment."""
        part = self._config.part(self._rank)
        if not self._config.session.deliver or part is None:
            return None
        columns = {} if self._goods is None else self._goods.offer.to_json()
        return {"memory": part.memory, **columns}

    def agree(self, offers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Take the data owner's offer, and return it: a resumed run must have the same.

        Args:
            offers: Of all parties by rank.

        Raises:
            SessionError: If it is none, or does not fit the memory of a party: all
                parties raise it.
        """
        if not self._config.session.deliver:
            return {}
        document = offers[DATA_OWNER].get("delivery")
        offer = Offer.from_json(document, self._config.session.samples)
        keep = self._config.phases[-1].keep
        for rank in (MODEL_OWNER, DATA_OWNER):
            terms = offers[rank].get("delivery")
            memory = terms.get("memory") if isinstance(terms, dict) else None
            if type(memory) is not int or offer.size(keep) > memory:
                raise SessionError(
                    f"the delivery of {keep} rows takes {offer.size(keep)} bytes: the "
                    f"memory of the {ROLES[rank]} must be as large, got {memory!r:.40}"
                )
        self._offer = offer
        if self._rank == MODEL_OWNER:
            say(f"the data owner will deliver {keep} rows: {offer.summary()}")
        return {"delivery": offer.to_json()}

    def play(self, rows: np.ndarray, ledger: Ledger) -> None:
        """Send or receive the chosen rows, which are then in `delivered.npz`.

        Args:
            rows: Of the pool, ascending.
            ledger: Of the run.

        Raises:
            SessionError: If they are not those of the commitment, or can't be written:
                all parties raise it.
        """
        if self._offer is None:
            return
        engine, failure, reason = ledger.engine, None, ""
        ledger.phase = "delivery"
        with ledger.step("delivery", "rows"):
            try:
                self._transfer(self._offer, rows, ledger)
            except SessionError as error:
                failure, reason = error, str(error)
            except OSError as error:
                reason = "it can't write the rows that were delivered"
                failure = SessionError(f"{error.filename}: {error.strerror}")
            verdicts = engine.exchange(printable(reason).encode())
        if failure is not None:
            raise failure
        for role, verdict in zip(ROLES, verdicts, strict=False):
            if verdict:
                text = printable(verdict.decode(errors="replace"))
                raise SessionError(f"the {role} stopped: {text}")

    def terms(self) -> dict[str, str]:
        """Return the commitment, for the result."""
        return {} if self._offer is None else {"delivery": self._offer.commitment}

    def _transfer(self, offer: Offer, rows: np.ndarray, ledger: Ledger) -> None:
        engine, part = ledger.engine, self._config.part(self._rank)
        if self._goods is not None:
            try:
                self._goods.send(rows, lambda m: engine.send(MODEL_OWNER, _ROWS + m))
            except SessionError:
                engine.send(MODEL_OWNER, _STOPPED)
                raise
        elif self._rank == MODEL_OWNER and part is not None:

            def take() -> bytes:
                message = engine.receive(DATA_OWNER)
                if message[:1] != _ROWS:
                    raise SessionError("the data owner delivers nothing")
                return message[1:]

            arrays: dict[str, Any] = receive(offer, rows, take)
            path = part.output / FILE
            write_private(path, lambda file: np.savez(file, **arrays))
            say(f"{len(rows)} rows were delivered: {path}")


def open_goods(config: Config, part: DataOwner, folder: Path, session: str) -> Goods:
    """Open the data owner's files, and commit to their rows.

    Args:
        config: Of the run.
        part: The data owner's.
        folder: In which the key of the salts stays while the session is unfinished.
        session: What tells sessions apart.

    Raises:
        Refused: If a file does not hold a row for each of the pool's.
    """
    arrays, n = _open(part), config.session.samples
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) != n:
            raise Refused(
                f"{_FIELD} must hold a row for each of the {n} samples",
                f"{name!r} of shape {array.shape}",
            )
        try:
            checked_column(name, array.dtype.str, array.shape[1:])
        except ValueError as error:
            raise Refused(
                f"{_FIELD} must hold named arrays of numbers or texts of fixed length",
                f"{name!r}: {error}",
            ) from None
    try:
        return Goods(arrays, n, _key(folder / _KEY), session)
    except OSError as error:
        raise Refused("output must be a folder", str(error)) from None


def traffic(config: Config, manifest: Manifest, parties: int) -> Traffic:
    """Return the traffic of sending the chosen rows, in messages that wait for nothing.

    Args:
        config: Of the run; with the data owner's part its files are opened.
        manifest: Of the last phase, whose inputs are delivered by default.
        parties: Of the engine.

    Raises:
        Refused: If a file can't be opened.
    """
    keep, part = config.phases[-1].keep, config.data_owner
    row = 4 * math.prod(shapes_of(manifest, 1)[0].shape)
    if manifest.inputs.embed == "onehot":
        row = 8 * manifest.inputs.length  # as whole numbers, which most files have
    if part is not None and part.deliver:
        row = sum(array[:1].nbytes for array in _open(part).values())
    size = float(delivery_size(config.session.samples, keep, row))
    none = (0.0,) * (parties - 2)
    rounds = -(-size // PIECE)
    return Traffic(rounds, 1.0, (0.0, size, *none), (size, 0.0, *none))


def _open(part: DataOwner) -> dict[str, np.ndarray]:
    """Open the files to deliver, by default the inputs of the last phase."""
    files = [(path.stem, path) for path in part.deliver]
    if not files:
        last = part.inputs[-1]
        files = [("x", last.x), *([("mask", last.mask)] if last.mask else [])]
    arrays: dict[str, np.ndarray] = {}
    for name, path in files:
        try:
            more = read_npz(path) if path.suffix == ".npz" else {name: map_array(path)}
        except (OSError, ValueError) as error:
            raise Refused(f"{_FIELD} must be array files", str(error)) from None
        if twice := sorted(arrays.keys() & more.keys()):
            raise Refused(f"{_FIELD} must name each array once", f"{twice[0]!r} twice")
        arrays |= more
    return arrays


def _key(path: Path) -> bytes:
    """Return the secret of this session's salts: an interrupted one keeps it."""
    if path.exists() and len(key := path.read_bytes()) == SALT:
        return key
    key = secrets.token_bytes(SALT)
    write_private(path, key)
    return key
