"""Inputs of the non-linear parts of a proxy, computed in batches.

The scores of all samples' attention are more than a memory holds where texts are long:
they are made anew, batch by batch, each time that they are asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit, tree_map
from jaxsel._inputs.chunk import chunk_slices, take_rows, take_rows_at

from ._forward import Params, Seen, proxy_scores, run
from ._manifest import Manifest
from .families._attention import Scores
from .families._power_fit import CHUNK

_ENTRIES = 1 << 26  # of attention scores that one pass gives


class Observed:
    """Activations of a proxy on n samples, scores within its attention by batches.

    Args:
        params: The proxy's parameters.
        manifest: Its architecture.
        x: Embedded samples `[n, L, H]`, or features `[n, d]`.
        mask: `[n, L]`; all rows if None.

    Attributes:
        logits: `[n, C]`.
        variances: Before each norm of each layer, `[n, rows]`.
        embedded: The variances before the norm of a secret table's rows, or None.
        final: The variances before the final norm, `[n, rows]`, or None.
    """

    def __init__(
        self, params: Params, manifest: Manifest, x: np.ndarray, mask: np.ndarray | None
    ):
        self._run = functools.partial(_observe, params, manifest=manifest)
        self._x, self._mask = x, mask
        self._rows = batch_rows(manifest, len(x))
        self._whole: Any = None
        parts = [
            (logits, [layer.variances for layer in inner.layers], *inner[1:])
            for _, logits, inner in self._batches()
        ]
        self.logits, self.variances, self.embedded, self.final = jax.tree.map(
            lambda *some: np.concatenate(some), *parts
        )

    def scores(self, layer: int) -> Scores:
        """Return the scores of a layer, with the mask, batch by batch."""
        assert self._mask is not None
        for chunk, _, inner in self._batches():
            yield inner.layers[layer].scores, self._mask[chunk]

    def _batches(self) -> Iterator[tuple[slice, np.ndarray, Seen]]:
        if self._whole is not None:
            yield self._whole
            return
        n = len(self._x)
        for chunk in chunk_slices(n, self._rows):
            padded = self._run(*take_rows((self._x, self._mask), chunk, self._rows))
            count = chunk.stop - chunk.start
            logits, inner = take_rows_at(padded, slice(count))
            if count == n:  # it all fits: once is enough
                self._whole = chunk, logits, inner
            yield chunk, logits, inner


def largest(
    params: Params, manifest: Manifest, x: np.ndarray, mask: np.ndarray | None
) -> tuple[np.ndarray, Any, Seen]:
    """Return scores `[n]`, and the largest absolute logit and activations of `run`."""
    rows = batch_rows(manifest, len(x))
    scores, parts = list[np.ndarray](), list[Any]()
    for chunk in chunk_slices(len(x), rows):
        part = take_rows((x, mask), chunk, rows)
        score, *extremes = _largest(params, *part, manifest=manifest)
        scores.append(np.asarray(score)[: chunk.stop - chunk.start])
        parts.append(extremes)
    # Chunks are filled up with copies of a row, which change no maximum.
    extremes = jax.tree.map(lambda *some: np.max(np.stack(some)), *parts)
    return np.concatenate(scores), *extremes


def batch_rows(manifest: Manifest, n: int) -> int:
    """Return how many of n samples go through a proxy at once."""
    heads = sum(layer.heads for layer in manifest.layers)
    most = _ENTRIES // max(heads * manifest.inputs.length**2, 1)
    # `fit_batches` takes multiples of CHUNK.
    return min(n, max(most // CHUNK, 1) * CHUNK)


_observe = jit(static_argnames="manifest")(run)


@jit(static_argnames="manifest")
def _largest(
    params: Params, x: jax.Array, mask: jax.Array | None, *, manifest: Manifest
) -> tuple[jax.Array, jax.Array, Seen]:
    logits, inner = run(params, x, mask, manifest=manifest)
    scores = proxy_scores(params, logits, manifest=manifest)
    return scores, *tree_map(lambda array: jnp.abs(array).max(), (logits, inner))
