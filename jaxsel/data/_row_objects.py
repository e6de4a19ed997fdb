"""Rows of objects: arrays in other libraries' files, records by number, iterators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._inputs.rows import Block, RowChunk, Source
from jaxsel._runs.fingerprint import fingerprint, plain_repr

from ._row_files import Stamp

Key = str | int
_SAMPLES = 16  # rows that a description of records is made of


class Arrays(Source):
    """An array that reads slices: of NumPy, zarr, h5py, TensorStore.

    Args:
        kind: Its name in errors and checkpoints.
        array: Has `shape`, `dtype`, and slices.
        about: Its identity. If None, its contents where it is NumPy's, and some rows
            elsewhere.
        check: Raises an error if it has changed; optional.
    """

    has_labels = False

    def __init__(
        self,
        kind: str,
        array: Any,
        about: Any = None,
        check: Callable[[], None] | None = None,
    ):
        if not array.shape:
            raise ValueError(f"{kind} must hold rows, got a single number")
        self.kind, self.array, self._check = kind, array, check
        self.n, self.row_shape = int(array.shape[0]), tuple(map(int, array.shape[1:]))
        self.dtype = np.dtype(getattr(array.dtype, "numpy_dtype", array.dtype))
        if about is None and isinstance(array, np.memmap) and array.filename:
            stamp = Stamp(Path(array.filename))
            about, self._check = [*stamp.about, array.offset], stamp.check
        elif about is None and isinstance(array, np.ndarray):
            about = fingerprint(array)
        elif about is None and self.n:
            examples = [self.read(row, row + 1).features for row in _spread(self.n)]
            about = fingerprint(examples)
        shape = [self.n, *self.row_shape]
        self.about: Mapping[str, Any] = {
            "kind": kind,
            "shape": shape,
            "dtype": str(self.dtype),
            "content": about,
        }

    def read(self, start: int, stop: int) -> Block:
        part = self.array[start:stop]
        if hasattr(part, "read"):  # of TensorStore
            try:
                part = part.read().result()
            except ValueError as error:
                raise ValueError(
                    f"{self.kind}: rows {start} to {stop - 1} cannot be read: {error}"
                ) from error
        rows = np.asarray(part)
        _check_rows(self.kind, rows, stop - start, self.row_shape, start)
        return Block(rows, None)

    def verify(self) -> None:
        if self._check is not None:
            self._check()


class Paired(Source):
    """Features of one source and labels of another."""

    has_labels, labels_apart = True, True

    def __init__(self, features: Source, labels: Source):
        if features.n is None or labels.n is None:
            raise TypeError(
                "labels of an iterator must be in its elements: name them by their key"
            )
        if features.n != labels.n:
            raise ValueError(
                "features and labels must have the same number of rows, got "
                f"{features.n} and {labels.n}"
            )
        if labels.row_shape:
            raise ValueError(
                "labels must hold one number or text a row, got rows of shape "
                f"{labels.row_shape}"
            )
        self.features, self.names = features, labels
        self.n, self.row_shape = features.n, features.row_shape
        self.dtype = features.dtype
        self.about: Mapping[str, Any] = {
            **features.about,
            "labels": labels.about,
        }

    def read(self, start: int, stop: int) -> Block:
        return Block(self.read_features(start, stop), self.read_labels(start, stop))

    def read_features(self, start: int, stop: int) -> np.ndarray:
        return self.features.read_features(start, stop)

    def read_into(self, start: int, stop: int, out: np.ndarray) -> None:
        self.features.read_into(start, stop, out)

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        return self.names.read_features(start, stop)

    def place(self, row: int) -> str:
        return self.features.place(row)

    def verify(self) -> None:
        self.features.verify()
        self.names.verify()


class _Elements(Source):
    """The common part of records and iterators: how an element becomes rows."""

    def __init__(
        self,
        kind: str,
        features: Key | None,
        labels: Key | None,
        decode: Callable[[Any], Any] | None,
        batched: bool,
    ):
        self.kind, self._keys, self._decode = kind, (features, labels), decode
        self.batched, self.has_labels = batched, labels is not None

    def block(self, element: Any, row: int) -> Block:
        """Return an element as rows `[b, ...]`."""
        if self._decode is not None:
            element = self._decode(element)
        features_key, labels_key = self._keys
        features = self._pick(element, features_key, "features")
        labels = None
        if labels_key is not None:
            labels = self._pick(element, labels_key, "labels")
        if not self.batched:
            features = features[None]
            labels = None if labels is None else labels[None]
        if not features.ndim:
            raise ValueError(
                f"{self.kind} must have elements of several rows each with "
                "batched=True, got a single number"
            )
        if labels is not None and labels.shape != features.shape[:1]:
            raise ValueError(
                f"{self.kind} must have one label a row, but the element at row {row} "
                f"has features of shape {features.shape} and labels of shape "
                f"{labels.shape}"
            )
        return Block(features, labels)

    def _pick(self, element: Any, key: Key | None, name: str) -> np.ndarray:
        if key is not None:
            try:
                element = element[key]
            except (KeyError, IndexError, TypeError) as error:
                has = list(element) if isinstance(element, Mapping) else type(element)
                raise ValueError(
                    f"{name} must be a key of the elements of {self.kind}, which have "
                    f"{has}, got {key!r}"
                ) from error
        if isinstance(element, Mapping) or (
            isinstance(element, tuple) and name == "features"
        ):
            keys = list(element) if isinstance(element, Mapping) else len(element)
            raise ValueError(
                f"{name} must name one part of each element of {self.kind}, which has "
                f"{keys}: pass {name}=, and labels= for the labels"
            )
        if isinstance(element, bytes) and name == "features":
            raise TypeError(
                f"{self.kind} has elements of bytes: pass decode=, a function from "
                "bytes to arrays"
            )
        try:
            array = np.asarray(element)
        except ValueError as error:
            raise TypeError(
                f"{self.kind} must have elements that are arrays, got ragged lists"
            ) from error
        if array.dtype == object:
            raise TypeError(
                f"{self.kind} must have elements that are arrays, got "
                f"{type(element).__name__}"
            )
        return array

    def _same(self, block: Block, row: int) -> Block:
        """Return the block; raise if shape or type differ from the first row's."""
        features = block.features
        _check_rows(self.kind, features, len(features), self.row_shape, row)
        if features.dtype != self.dtype:
            raise ValueError(
                f"{self.kind} must have elements of one type, {self.dtype} as the "
                f"first, but row {row} has {features.dtype}"
            )
        return block


class Records(_Elements):
    """Records by number: a grain source or MapDataset, a TFDS source, any sequence."""

    def __init__(self, kind: str, records: Any, *, files: Any = None, **options: Any):
        super().__init__(kind, **options)
        self.records, self.n, self._files = records, len(records), files
        if not self.n:
            raise ValueError(f"{kind} must not be empty, got no records")
        first = self.block(self._element(0), 0)
        self.row_shape, self.dtype = first.features.shape[1:], first.features.dtype
        about = None
        if files is None:
            examples = [self.read(row, row + 1) for row in _spread(self.n)]
            about = fingerprint([part for block in examples for part in block])
        self.about: Mapping[str, Any] = {
            "kind": kind,
            "n": self.n,
            "shape": list(self.row_shape),
            "dtype": str(self.dtype),
            "keys": list(map(repr, self._keys)),
            "files": None if files is None else [stamp.about for stamp in files],
            "content": about,
        }

    def _element(self, row: int) -> Any:
        return self.records[np.array([row]) if self.batched else row]

    def read(self, start: int, stop: int) -> Block:
        if self.batched:
            block = self.block(self.records[np.arange(start, stop)], start)
            _check_rows(self.kind, block.features, stop - start, self.row_shape, start)
            return self._same(block, start)
        rows = range(start, stop)
        if hasattr(self.records, "__getitems__"):
            elements: Any = self.records.__getitems__(list(rows))
        else:
            elements = map(self.records.__getitem__, rows)
        blocks = [
            self._same(self.block(element, row), row)
            for row, element in zip(rows, elements, strict=True)
        ]
        features, labels = zip(*blocks, strict=True)
        return Block(
            np.concatenate(features),
            np.concatenate(labels) if self.has_labels else None,
        )

    def verify(self) -> None:
        for stamp in self._files or ():
            stamp.check()
        if len(self.records) != self.n:
            raise ValueError(
                f"{self.kind} had {self.n} records when it was opened, and has "
                f"{len(self.records)}"
            )


class Iterated(_Elements):
    """Elements that are read from the beginning: a DataLoader or IterDataset of grain.

    Iterators that have `get_state` and `set_state`, as grain's, go on where they were;
    others are read again up to there.
    """

    n = None

    def __init__(self, kind: str, iterable: Any, **options: Any):
        super().__init__(kind, **options)
        if iter(iterable) is iterable:
            raise TypeError(
                "source must begin anew each time it is iterated, as a list or a "
                f"DataLoader does, got {type(iterable).__name__}, which is used up "
                "after one pass"
            )
        self.iterable = iterable
        first = next(iter(iterable), None)
        if first is None:
            raise ValueError(f"{kind} must not be empty, got no elements")
        rows = self.block(first, 0)
        self.row_shape, self.dtype = rows.features.shape[1:], rows.features.dtype
        self.about: Mapping[str, Any] = {
            "kind": kind,
            "shape": list(self.row_shape),
            "dtype": str(self.dtype),
            "keys": list(map(repr, self._keys)),
            "batched": self.batched,
            "first": fingerprint(*rows),
            "source": plain_repr(iterable)[:1000],
        }

    def read(self, start: int, stop: int) -> Block:
        raise TypeError("an iterator can only be read by chunks")

    def chunks(
        self, chunk_size: int, begin: int, end: int | None, state: Mapping[str, Any]
    ) -> Iterator[RowChunk]:
        del begin, end
        row, skip = state["row"], int(state.get("skip", 0))
        elements = iter(self.iterable)
        if "iterator" in state:
            elements.set_state(_decode_state(state["iterator"]))
        else:
            skip = row
        is_first = "iterator" not in state
        held: list[Block] = []
        have = 0
        while True:
            before = _state_of(elements) if self.batched else None
            element = next(elements, None)
            if element is None:
                break
            block = self._same(self.block(element, row + have), row + have)
            if is_first and fingerprint(*block) != self.about["first"]:
                raise ValueError(
                    f"{self.kind} must give the same elements in each pass, but its "
                    "first is not what it was when it was opened: shuffle with a seed"
                )
            is_first = False
            size = len(block.features)
            used, skip = min(skip, size), max(0, skip - size)
            while used < size:
                stop = min(size, used + chunk_size - have)
                names = None if block.labels is None else block.labels[used:stop]
                held.append(Block(block.features[used:stop], names))
                have, used = have + stop - used, stop
                if have == chunk_size:
                    row += have
                    partly = used < size
                    state_now = before if partly else _state_of(elements)
                    after: dict[str, Any] = {"row": row}
                    if state_now is not None:
                        after |= {"iterator": state_now, "skip": used if partly else 0}
                    yield RowChunk(row - have, *_joined(held), after)
                    held, have = [], 0
        if skip:
            raise ValueError(
                f"start must be a row of {self.kind}, got {row}: it has {row - skip}"
            )
        if have:
            after = {"row": row + have}
            last = _state_of(elements)
            if last is not None:
                after |= {"iterator": last, "skip": 0}
            yield RowChunk(row, *_joined(held), after)


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    features, labels = zip(*blocks, strict=True)
    return Block(
        np.concatenate(features), None if labels[0] is None else np.concatenate(labels)
    )


def _state_of(iterator: Any) -> Any:
    """Return the state of an iterator in a form that JSON holds, or None."""
    if not hasattr(iterator, "get_state"):
        return None
    state = iterator.get_state()
    if isinstance(state, bytes):
        return {"bytes": state.decode()}
    return {"json": json.dumps(state, default=int)}


def _decode_state(state: Mapping[str, str]) -> Any:
    if "bytes" in state:
        return state["bytes"].encode()
    return json.loads(state["json"])


def _spread(n: int) -> list[int]:
    return sorted({i * (n - 1) // (_SAMPLES - 1) for i in range(_SAMPLES)})


def _check_rows(
    kind: str, found: np.ndarray, n: int, row_shape: tuple[int, ...], row: int
) -> None:
    if len(found) != n:
        raise ValueError(
            f"{kind} must return one row for each that is asked for, got {len(found)} "
            f"for {n}"
        )
    if found.shape[1:] != row_shape:
        raise ValueError(
            f"{kind} must have rows of one shape, {row_shape} as the first, but row "
            f"{row} has {found.shape[1:]}"
        )
