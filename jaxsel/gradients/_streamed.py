"""Streamed candidates: read chunk by chunk for each query of the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import check_count
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._runs.progress import track

from ._oracle import Gradient, Oracle

Load = Callable[[np.ndarray], Oracle]


class Streamed(Oracle):
    """Candidates in a file, or in any source that can be read by index.

    Every question reads all candidates once, a chunk at a time. Not a pytree: it does
    not pass through `jax.jit`. `jaxsel.match` asks for several columns at a time, to
    read less often.

    Attributes:
        load: From indices `[m]`, ascending, to the oracle of those candidates.
        n: How many there are.
        chunk_size: How many are in memory at once.
        progress: Whether to show a bar for each pass.
    """

    def __init__(self, load: Load, n: int, *, chunk_size: int, progress: bool = False):
        self.load = load
        self.n = n
        self.chunk_size = chunk_size
        self.progress = progress

    def __len__(self) -> int:
        return self.n

    def diag(self) -> Float[jax.Array, " n"]:
        return self._concatenate(_diag)

    def corr(self, v: Gradient) -> Float[jax.Array, " n"]:
        return self._concatenate(lambda part: _corr(part, v))

    def gram(self, atoms: Any) -> Float[jax.Array, "m n"]:
        return self._concatenate(lambda part: _gram(part, atoms))

    def combine(self, weights: Float[jax.Array, " n"]) -> Gradient:
        total = None
        for rows, part in self._parts():
            term = part.combine(jnp.asarray(weights)[rows])
            total = term if total is None else jax.tree.map(jnp.add, total, term)
        return total

    def take(self, indices: npt.ArrayLike | jax.Array | slice) -> Any:
        every = np.arange(self.n)
        rows = every[indices if isinstance(indices, slice) else np.asarray(indices)]
        # Sources are read in ascending order, and every candidate once.
        order, back = np.unique(rows, return_inverse=True)
        return self._loaded(order).take(jnp.asarray(back))

    @property
    def dtype(self) -> Any:
        return self._loaded(np.zeros(1, np.int64)).dtype

    def _parts(self) -> Iterator[tuple[slice[int, int], Oracle]]:
        slices = chunk_slices(self.n, self.chunk_size)
        for rows in track(slices, progress=self.progress, label="Chunks"):
            yield rows, self._loaded(np.arange(rows.start, rows.stop))

    def _loaded(self, rows: np.ndarray) -> Oracle:
        part = self.load(rows)
        if len(part) != len(rows):
            raise ValueError(
                f"load must return one candidate for each index, got {len(part)} for "
                f"{len(rows)}"
            )
        return part

    def _concatenate(self, ask: Callable[[Oracle], jax.Array]) -> jax.Array:
        answers = [np.asarray(ask(part)) for _, part in self._parts()]
        return jnp.asarray(np.concatenate(answers, axis=-1))


@jit()
def _diag(part: Oracle) -> jax.Array:
    return part.diag()


@jit()
def _corr(part: Oracle, v: Gradient) -> jax.Array:
    return part.corr(v)


@jit()
def _gram(part: Oracle, atoms: Any) -> jax.Array:
    return part.gram(atoms)


def streamed(
    load: Load, n: int, *, chunk_size: int = 4096, progress: bool = False
) -> Streamed:
    """Return an oracle over candidates that are not in memory.

    Args:
        load: From indices `[m]`, ascending, to the oracle of those candidates. With
            arrays in files: `lambda i: factored(errors[i], features[i])`, where both
            were opened by `numpy.load(path, mmap_mode="r")`. With a TFDS data source,
            read the samples at `i` and run the model over them.
        n: How many candidates there are.
        chunk_size: How many to load at once.
        progress: Whether to show a bar for each pass over the candidates.

    Returns:
        An oracle for the functions of `jaxsel.match`. Holds one chunk.

    Raises:
        TypeError: If `load` can't be called, or a number is none.
        ValueError: If a number is below 1.
    """
    if not callable(load):
        raise TypeError(f"load must be a function of indices, got {load!r}")
    check_count("n", n)
    return Streamed(
        load, n, chunk_size=check_count("chunk_size", chunk_size), progress=progress
    )
