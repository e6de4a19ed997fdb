"""Rows of a store of gradients, computed from examples that are read in chunks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import tree_map
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel._inputs.parameters import Loss, Parameters, example_loss
from jaxsel._runs.checkpoints import program_digest
from jaxsel._runs.fingerprint import fingerprint

from ._sketch import Projections, StoredLayer, chunk_rows_of, row_of, sketched

_HASHED = 256  # examples at a time


class StoreRows:
    """Rows of a store, in its type, computed from examples in chunks of one shape."""

    def __init__(
        self,
        loss: Loss,
        layers: tuple[StoredLayer, ...],
        parameters: Parameters,
        projections: Projections,
        examples: Any,
        dtype: str,
    ):
        self.examples = examples
        self._fixed = loss, layers, parameters, projections
        self._dtype = np.dtype(getattr(jnp, dtype))

    def chunk(self, n: int, chunk_size: int | None) -> int:
        """Return how many of n examples are computed at once."""
        first = read(self.examples, slice(0, 1))
        return chunk_rows_of(row_of(*self._fixed, first), first, n, chunk_size)

    def digest(self, rows: slice[int, int]) -> str:
        """Return a digest of some examples, however they are read."""
        n = rows.stop - rows.start
        parts = (
            fingerprint(read(self.examples, within(rows, part)))
            for part in chunk_slices(n, _HASHED)
        )
        return fingerprint(*parts)

    def __call__(self, rows: slice[int, int], chunk: int) -> np.ndarray:
        part = take_rows(read(self.examples, rows), slice(None), chunk)
        kept = np.asarray(sketched(*self._fixed, part))[: rows.stop - rows.start]
        with np.errstate(over="ignore"):
            stored = kept.astype(self._dtype)
        wrong = np.flatnonzero(~np.isfinite(stored.astype(np.float32)).all(axis=1))
        if wrong.size:
            beyond = np.isfinite(kept[wrong[0]]).all()
            problem = f"numbers beyond {self._dtype}" if beyond else "NaN or infinity"
            raise ValueError(
                "examples must have finite gradients, but that of row "
                f"{rows.start + wrong[0]} has {problem}: leave it out, or rescale the "
                "loss"
            )
        return stored


def read(examples: Any, rows: slice[int, int]) -> Any:
    """Return some examples, in memory of the host."""

    def part_of(leaf: Any) -> np.ndarray:
        return np.asarray(leaf[rows])

    return tree_map(part_of, examples)


def within(rows: slice[int, int], part: slice[int, int]) -> slice[int, int]:
    return slice(rows.start + part.start, rows.start + part.stop)


def length_of(examples: Any) -> int:
    """Return the number of examples; arrays are not read."""
    shapes = [getattr(leaf, "shape", None) for leaf in jax.tree.leaves(examples)]
    lengths = {shape[0] if shape else 0 for shape in shapes}
    if len(lengths) != 1 or not all(lengths):
        raise ValueError(
            "examples must be one or more arrays with the same first axis, one entry a "
            f"sample, got {shapes or 'none'}"
        )
    return lengths.pop()


def digest_of_loss(loss: Loss, parameters: Parameters, example: Any) -> str:
    form = parameters.form

    def of(selected: Any, others: Any, example: Any) -> jax.Array:
        return example_loss(loss, Parameters(selected, others, form), selected, example)

    return program_digest(of, parameters.selected, parameters.others, example)
