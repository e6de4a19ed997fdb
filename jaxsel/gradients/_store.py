"""A store of gradients on disk, as an oracle: opened, and asked."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._inputs.chunk import first_row
from jaxsel._inputs.parameters import check_examples, check_loss, split
from jaxsel._results.types import Reduce, Values
from jaxsel._runs.fingerprint import fingerprint

from ._oracle import Oracle
from ._rows import check_chunk_size, map_rows, n_rows
from ._sketch import StoredLayer, chunk_rows_of, draw, layers_of, oracle_of, row_of
from ._store_files import map_shard, name_of, read_manifest
from ._store_scores import (
    Ask,
    by_directions,
    by_products,
    check_targets,
    solved_targets,
    squares_of,
    with_origin,
)
from ._streamed import Streamed

# Numbers in memory at once where a store is read, of a chunk's written-out products.
_ENTRIES = 1 << 24


class GradientStore(Streamed):
    """Projected gradients of n samples in a folder, mapped into memory.

    An oracle: `match`, `retrieve` and `market` take it as it is, with targets of
    `project`. Every question reads all rows once, a chunk at a time; a shard's hash is
    compared when it is first read. `write_store` and `open_store` make it.

    Attributes:
        folder: Where it is.
        n: Number of samples.
        layers: What is kept of each layer, a tuple: `path`, `inputs` and `outputs` of
            the gradient, `p` and `q` of the projection, `rank` and `size`, the numbers
            a sample.
        nbytes: Bytes of all rows.
        chunk_size: Rows in memory at once.
        progress: Whether to show a bar for each pass.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        chunk_size: int | None = None,
        progress: bool = False,
    ):
        self.folder = name_of(folder)
        size = check_chunk_size(chunk_size)
        manifest = self._manifest = read_manifest(self.folder)
        if len(manifest.shards) < manifest.n_shards:
            raise ValueError(
                f"{self.folder} is unfinished: it has {len(manifest.shards)} of "
                f"{manifest.n_shards} shards. Call write_store again, which goes on"
            )
        self.layers = manifest.layers
        written_out = sum(layer.p * layer.q for layer in self.layers)
        super().__init__(
            self._load,
            manifest.n,
            chunk_size=size or max(1, _ENTRIES // written_out),
            progress=progress,
        )
        self._shards: dict[int, np.ndarray] = {}
        self._squares: tuple[np.ndarray, ...] | None = None

    def __repr__(self) -> str:
        sample = self.nbytes / self.n / len(self.layers)
        return (
            f"GradientStore(n={self.n}, layers={len(self.layers)}, "
            f"{sample:.3g} bytes a sample a layer)"
        )

    @property
    def nbytes(self) -> int:
        itemsize = np.dtype(getattr(jnp, self._manifest.dtype)).itemsize
        return self.n * self._manifest.numbers * itemsize

    def project(
        self, loss: Any, params: Any, examples: Any, *, chunk_size: int | None = None
    ) -> Oracle:
        """Project the gradients of targets as the store's rows were projected.

        Args:
            loss: `loss(params, example) -> scalar`: that of the store, or another
                function of the same layers, such as an output.
            params: The parameters that the store was written with.
            examples: A pytree of arrays `[t, ...]`.
            chunk_size: Examples computed at once; it changes speed and memory only.

        Returns:
            An oracle of t gradients in memory, in float32 without the store's rounding:
            `Factored` if the store keeps factors, else `Dense`.

        Raises:
            TypeError: If `loss` is no hashable function.
            ValueError: If parameters, or the layers of the loss, are not those of the
                store, the examples' lengths differ, or a gradient is not finite.
        """
        check_loss(loss)
        paths, manifest = set(self._manifest.paths), self._manifest
        parameters = split(params, lambda path, leaf: path in paths)
        if fingerprint(parameters.selected, parameters.others) != manifest.params:
            raise ValueError(
                f"params must be those that {self.folder} was written with, got others"
            )
        examples = check_examples(examples)
        size = check_chunk_size(chunk_size)
        of_loss = layers_of(loss, parameters, first_row(examples), 2, None)
        ours, theirs = (
            [(layer.path, layer.inputs, layer.outputs, layer.bias) for layer in layers]
            for layers in (self.layers, of_loss)
        )
        if ours != theirs:
            raise ValueError(
                f"loss must have the layers of {self.folder}, {ours}, got {theirs}"
            )
        projections = draw(self.layers, manifest.random_key())
        rows = _projected(loss, self.layers, parameters, projections, examples, size)
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if wrong.size:
            raise ValueError(
                "examples must have finite gradients, but that of row "
                f"{wrong[0]} has NaN or infinity"
            )
        return with_origin(oracle_of(self.layers, rows), self._origin)

    def scores(
        self,
        targets: Oracle,
        *,
        damping: float | None = None,
        reduce: Reduce = "mean",
    ) -> Values:
        """Score each sample by how far a step on it lowers the targets' losses.

        By inner products g · h of gradients, or with a damping by Gauss-Newton: for
        each layer alone, with its n gradients in G `[n, p q]`,

            score = 1/n Σ_layers hᵀ (1/n GᵀG + damping · m · I)⁻¹ g,

        where m is the mean of the diagonal of 1/n GᵀG.

        Args:
            targets: t gradients, of `project`.
            damping: A share of the mean eigenvalue, above 0, or None for inner
                products. The paper takes 0.1.
            reduce: "mean" over targets, or None: a row for each.

        Returns:
            `Values`, `[n]` or `[t, n]`: products of gradients, or with a damping in
            units of the loss.

        Costs a pass over the rows, with `n · numbers · t` multiply-adds; with a damping
        `n Σ pq (t + pq)` and `Σ (pq)³` in float64, and memory for `Σ (pq)²` numbers.
        The matrices are kept for the next call.

        Raises:
            TypeError: If `targets` is no oracle of `project`.
            ValueError: If another store projected it, its shapes are not those of the
                store, or a number is out of range.

        References:
            S. K. Choe et al., What is your data worth to GPT? LLM-scale data valuation
            with influence functions, arXiv:2405.13954, equations 2 to 4 (LoGra).
        """
        check_choice("reduce", reduce, ("mean", None))
        ask = self._question(targets, damping, of_mean=reduce == "mean")
        scores = self._concatenate(ask)
        return Values(
            values=scores[0] if reduce == "mean" else scores,
            count=jnp.asarray(len(targets), jnp.int32),
            method=f"GradientStore.scores(damping={damping})",
            reduce=reduce,
        )

    def top(
        self, targets: Oracle, k: int, *, damping: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k samples of the highest score for each target, best first.

        As `scores`, with memory for one chunk and `[t, k]`. Of equal scores the lower
        row is first.

        Args:
            targets: t gradients, of `project`.
            k: How many, at most n.
            damping: As for `scores`.

        Returns:
            Rows `[t, k]`, and their scores `[t, k]`.

        Raises:
            TypeError: As for `scores`, or if `k` is no whole number.
            ValueError: As for `scores`, or if `k` is out of range.
        """
        k = check_count("k", k, maximum=self.n)
        ask = self._question(targets, damping, of_mean=False)
        rows = np.zeros((len(targets), 0), np.int64)
        best = jnp.zeros((len(targets), 0), targets.dtype)
        for places, part in self._parts():
            more = jnp.concatenate([best, ask(part)], axis=1)
            best, kept = jax.lax.top_k(more, min(k, more.shape[1]))
            numbers = np.arange(places.start, places.stop)[None]
            numbers = np.broadcast_to(numbers, (len(rows), numbers.shape[1]))
            rows = np.take_along_axis(
                np.concatenate([rows, numbers], axis=1), np.asarray(kept), 1
            )
        return rows, np.asarray(best)

    @property
    def _origin(self) -> Hashable:
        return self._manifest.params, self._manifest.draw

    def _question(self, targets: Any, damping: float | None, *, of_mean: bool) -> Ask:
        check_targets(self.layers, targets, self._origin)
        if damping is None:
            return by_products(targets, of_mean=of_mean)
        damping = check_positive("damping", damping)
        if self._squares is None:
            parts = (part for _, part in self._parts())
            self._squares = squares_of(self.layers, parts, self.n)
        solved = solved_targets(
            self.layers, targets, self._squares, damping, self.n, of_mean=of_mean
        )
        return by_directions(self.layers, solved)

    def _load(self, rows: np.ndarray) -> Oracle:
        shards, inside = np.divmod(rows, self._manifest.shard_size)
        parts: list[np.ndarray] = []
        for number in np.unique(shards):
            if number not in self._shards:
                self._shards[number] = map_shard(self.folder, self._manifest, number)
            places = inside[shards == number]
            parts.append(self._shards[number][places])
        return _in_memory(self.layers, jnp.asarray(np.concatenate(parts)))


def open_store(
    folder: str | os.PathLike[str],
    *,
    chunk_size: int | None = None,
    progress: bool = False,
) -> GradientStore:
    """Open a store of gradients that `write_store` has finished.

    Args:
        folder: Where it is. Rows are read when they are asked for.
        chunk_size: Rows in memory at once; it changes speed and memory only. None
            chooses some 64 MB of them.
        progress: Whether to show a bar for each pass.

    Returns:
        A `GradientStore`: an oracle that also answers `project`, `scores` and `top`.

    Raises:
        FileNotFoundError: If there is no store.
        TypeError: If an argument is of another kind.
        ValueError: If it is unfinished, damaged or of another version. Rows that are
            damaged are refused when they are first read.
    """
    return GradientStore(folder, chunk_size=chunk_size, progress=progress)


@jit(static_argnums=0)
def _in_memory(layers: tuple[StoredLayer, ...], rows: jax.Array) -> Oracle:
    # Compiled: a chunk is cut in two slices a layer, which took longer than the query.
    return oracle_of(layers, rows.astype(jnp.float32))


@jit(static_argnums=(0, 1, 5))
def _projected(
    loss: Any,
    layers: tuple[StoredLayer, ...],
    parameters: Any,
    projections: Any,
    examples: Any,
    chunk_size: int | None,
) -> jax.Array:
    row = row_of(loss, layers, parameters, projections, examples)
    size = chunk_rows_of(row, examples, n_rows(examples), chunk_size)
    return map_rows(jax.vmap(row), examples, size)
