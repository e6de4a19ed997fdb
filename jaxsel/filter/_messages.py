"""Messages between a server and its clients: arrays and a JSON header."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from jaxsel._files.wire import (
    Format,
    check_arrays,
    check_fields,
    check_id,
    check_text,
    pack,
    reading,
    unpacking,
    write,
)
from jaxsel._inputs.checks import check_count
from jaxsel._inputs.show import brief

from ._inputs import as_losses

FORMAT = Format("jaxsel.filter", 2)
MAX_BYTES = 1 << 26

_LARGEST = (1 << 32) - 1  # of counts, and of their sum over clients
_T = TypeVar("_T", bound="Message")


class Message:
    """A message with a form in bytes: fields of JSON's types, and arrays."""

    _kind: str
    _fields: tuple[str, ...]
    _arrays: tuple[str, ...]
    _optional: tuple[str, ...] = ()  # arrays that may be None

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes; a file adds about 1 KB, and names it lists."""
        arrays = self._parts()[1].values()
        return sum(array.nbytes for array in arrays if array is not None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file in one step, and return its path."""
        return write(FORMAT, path, self._kind, *self._parts())

    def to_bytes(self) -> bytes:
        """Return the bytes of the file that `save` writes, to send them another way."""
        return pack(FORMAT, self._kind, *self._parts())

    @classmethod
    def load(
        cls: type[_T], path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES
    ) -> _T:
        """Read a message from a file that `save` wrote.

        Args:
            path: The file.
            max_bytes: Largest file to read.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it holds anything else, is damaged or too large; the message
                names the file and the field.
        """
        names = cls._arrays + cls._optional
        with reading(FORMAT, path, cls._kind, names, max_bytes) as message:
            return cls._checked(*message)

    @classmethod
    def from_bytes(cls: type[_T], data: bytes, *, max_bytes: int = MAX_BYTES) -> _T:
        """Read a message from the bytes of `to_bytes`, or of a file that `save` wrote.

        Args:
            data: The bytes.
            max_bytes: Most bytes to read.

        Raises:
            TypeError: If `data` is no bytes.
            ValueError: If they hold anything else, are damaged or too many; the message
                names the field.
        """
        names = cls._arrays + cls._optional
        with unpacking(FORMAT, data, cls._kind, names, max_bytes) as message:
            return cls._checked(*message)

    def _parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray | None]]:
        fields = {name: getattr(self, name) for name in self._fields}
        names = self._arrays + self._optional
        return fields, {name: getattr(self, name) for name in names}

    @classmethod
    def _checked(
        cls: type[_T], fields: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> _T:
        check_fields("fields", fields, set(cls._fields))
        check_arrays(
            {n: arrays[n] for n in arrays if n not in cls._optional}, cls._arrays
        )
        return cls(**fields, **arrays)


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Question(Message):
    """Server's question to its clients: how many losses lie below each edge.

    Attributes:
        task: 32 hexadecimal digits, drawn at random for each filtering.
        round: Counted from 1.
        limit: Maximum number of losses of a client, so that sums fit 32 bits.
        edges: `[E]`, ascending and distinct, float32 or float64. In the first round,
            the benchmark's losses.
    """

    task: str
    round: int
    limit: int
    edges: np.ndarray

    _kind = "question"
    _fields = ("task", "round", "limit")
    _arrays = ("edges",)

    def __post_init__(self) -> None:
        check_id("task", self.task)
        check_count("round", self.round)
        if check_count("limit", self.limit) > _LARGEST:
            raise ValueError(f"limit must be below 2^32, got {self.limit}")
        edges = self.edges
        if not (
            isinstance(edges, np.ndarray)
            and edges.ndim == 1
            and edges.dtype in (np.float32, np.float64)
            and len(edges)
            and np.all(np.isfinite(edges))
            and np.all(edges[1:] > edges[:-1])
        ):
            raise ValueError(
                "edges must be finite, ascending and distinct, float32 or float64, of "
                "shape [E]"
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FromClient(Message):
    """Base of a client's messages in a round.

    Attributes:
        task: The question's.
        round: The question's.
        client: The client's name.
    """

    task: str
    round: int
    client: str

    _fields = ("task", "round", "client")

    def __post_init__(self) -> None:
        check_id("task", self.task)
        check_count("round", self.round)
        check_text("client", self.client, longest=100)


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Counted(FromClient):
    """A client's answer to a question.

    Attributes:
        task: The question's.
        round: The question's.
        client: The client's name.
        counts: `[2 E + 1]`, uint32: losses below the first edge, up to it, below the
            second one, and so on, and how many there are. Masked under secure
            aggregation: then they may be any numbers.
        keys: `[32]` uint8, SHA-256 of the keys by which counts are masked; None of
            counts in the clear.
    """

    counts: np.ndarray
    keys: np.ndarray | None = None

    _kind = "counts"
    _arrays = ("counts",)
    _optional = ("keys",)

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = self.counts
        if not (
            isinstance(counts, np.ndarray)
            and counts.ndim == 1
            and counts.dtype.kind in "iu"
        ):
            raise ValueError("counts must be whole numbers, of shape [2 E + 1]")
        if self.keys is not None:
            check_bytes("keys", self.keys, (32,))


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Verdict(Message):
    """Final threshold, sent by the server to its clients.

    Attributes:
        task: 32 hexadecimal digits.
        value: `[1]`, of the edges' type: losses up to this are kept.
    """

    task: str
    value: np.ndarray

    _kind = "verdict"
    _fields = ("task",)
    _arrays = ("value",)

    def __post_init__(self) -> None:
        check_id("task", self.task)
        value = self.value
        if not (
            isinstance(value, np.ndarray)
            and value.shape == (1,)
            and value.dtype in (np.float32, np.float64)
            and np.isfinite(value[0])
        ):
            raise ValueError("value must be one finite float32 or float64")

    def keeps(self, losses: npt.ArrayLike) -> np.ndarray:
        """Return which of a client's losses are kept, `[n]` of bool.

        Raises:
            ValueError: If they are not finite, or have another shape.
        """
        return as_losses("losses", losses, dtype=self.value.dtype) <= self.value


def count_losses(
    question: Question,
    losses: npt.ArrayLike,
    *,
    client: str,
    max_rounds: int = 20,
    max_edges: int = 100_000,
) -> Counted:
    """Answer a question: the client's part.

    Losses are rounded to the type of the question's edges first. Costs a sort.

    Args:
        question: The server's question.
        losses: The client's losses, `[n]`; there may be none.
        client: Its name.
        max_rounds: The last round that the client answers. The server needs 9 in
            float32 and 19 in float64 at most; more would show losses ever more exactly.
        max_edges: The most edges that it counts at; the first round has one for each
            of the benchmark's losses.

    Returns:
        The answer to send: how many losses lie below, at and between the edges.

    Raises:
        TypeError: If the losses are not numeric.
        ValueError: If they are not finite, or more than the question's limit; or if the
            question goes beyond a limit of the client: the message has both numbers.
    """
    if question.round > check_count("max_rounds", max_rounds):
        raise ValueError(
            f"max_rounds is {max_rounds}, but the question is of round {question.round}"
        )
    if len(question.edges) > check_count("max_edges", max_edges):
        raise ValueError(
            f"max_edges is {max_edges}, but the question asks for counts at "
            f"{len(question.edges)} edges"
        )
    ordered = np.sort(as_losses("losses", losses, dtype=question.edges.dtype))
    if len(ordered) > question.limit:
        raise ValueError(
            f"losses must be at most {question.limit}, the question's limit, got "
            f"{len(ordered)}"
        )
    counts = np.empty(2 * len(question.edges) + 1, np.uint32)
    counts[:-1:2] = np.searchsorted(ordered, question.edges, "left")
    counts[1::2] = np.searchsorted(ordered, question.edges, "right")
    counts[-1] = len(ordered)
    return Counted(
        task=question.task, round=question.round, client=client, counts=counts
    )


def check_bytes(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise unless `array` is an array of bytes of a shape."""
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != np.uint8
        or array.shape != shape
    ):
        raise ValueError(f"{name} must be uint8 of shape {list(shape)}")


def check_counts(question: Question, answer: Any) -> np.ndarray:
    """Return the counts of an answer that can be one, `[2 E + 1]` int64.

    Raises:
        ValueError: If it answers something else, or its counts are not possible.
    """
    if (answer.task, answer.round) != (question.task, question.round):
        raise ValueError("it answers another question")
    expected = 2 * len(question.edges) + 1
    if len(answer.counts) != expected:
        raise ValueError(f"counts must be {expected}, got {len(answer.counts)}")
    low, high = answer.counts.min(), answer.counts.max()
    if low < 0 or high > question.limit:
        raise ValueError(
            f"counts must lie between 0 and {question.limit}, the limit, got "
            f"{low if low < 0 else high}"
        )
    counts = answer.counts.astype(np.int64)
    check_ascending(counts)
    return counts


def check_ascending(counts: np.ndarray) -> None:
    """Raise if counts fall from one edge to a later one."""
    fall = np.flatnonzero(np.diff(counts) < 0)
    if fall.size:
        raise ValueError(
            f"counts must not fall, but do from {counts[fall[0]]} to "
            f"{counts[fall[0] + 1]} behind entry {fall[0]}"
        )
