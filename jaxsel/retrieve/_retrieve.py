"""Retrieval with coverage: for each hard sample, candidates near it.

References:
    Mycroft: Towards Effective and Efficient External Data Augmentation, section 3.2 and
    Algorithm 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import along, is_on, whole
from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import as_array, check_count
from jaxsel._results.types import Selection
from jaxsel._runs.progress import track
from jaxsel.neighbors import Metric

from ._chunks import rows_at_once
from ._coverage import Turns, chosen_from
from ._nearest import find_nearest, iterate_distances
from ._saved import check_folder, of_pass, saved_pass
from ._stream import Stream, in_float64, needs_float64, open_stream

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from jaxsel._inputs.rows import Rows

# Most entries of all lists of neighbours together, at 8 bytes each.
_LISTS = 2**22
# Neighbours in the first lists, for each one of the budget: lists overlap.
_SPARE = 2


def retrieve_nearest(
    features: npt.ArrayLike | jax.Array | Rows,
    hard_features: npt.ArrayLike | jax.Array,
    budget: int,
    *,
    labels: npt.ArrayLike | jax.Array | Rows | None = None,
    hard_labels: npt.ArrayLike | jax.Array | None = None,
    metric: Metric = "cosine",
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 64,
    progress: bool = False,
) -> Selection:
    """Choose candidates that look like the hard samples, and cover all of these.

    Each hard sample lists its candidates, nearest first. Rank by rank, hard samples are
    visited in the order of their distance at that rank. Each adds its candidate of that
    rank, if it is new, until `budget` are chosen.

    Candidates are read in chunks, so `features` may be a memory-mapped file larger than
    memory, or `Rows`, which a thread reads ahead. One pass costs m·n·d multiply-adds
    and memory for a chunk. It finds 2·budget/m neighbours for each hard sample. If the
    lists overlap so much that they run out, another pass finds twice as many. If the
    lists would be too long for memory (m times their length above 4 million: budgets
    above 2 million, or smaller ones if hard samples are very similar), a slower method
    with the same result reads the candidates once for every few hard samples, on one
    device, in O(n) memory. It brings candidates that are spread over devices to the
    host.

    Args:
        features: Candidates, `[n, d]`, an array or `Rows` of `data.open_rows`. An array
            that is spread over the devices of `mesh`, such as of
            `jax.make_array_from_process_local_data`, stays there.
        hard_features: Hard samples in the same feature space, `[m, d]`.
        budget: How many candidates to choose.
        labels: Optional classes of the candidates, `[n]`: a hard sample then lists only
            those of its own class. Needs `hard_labels`. Of `Rows`, their `labels`.
        hard_labels: Classes of the hard samples, `[m]`.
        metric: "cosine" or "l2".
        chunk_size: Candidates at a time, or None to choose: changes speed and memory,
            not the result, up to near-ties.
        mesh: Devices that share the candidates of each chunk, as `make_mesh` returns
            them, or None for one.
        axis: Which axis of the mesh; its only one, or "data", if None.
        checkpoint: Folder in which to keep the lists so far, or None. A call that was
            cut off goes on from there when it is repeated, with the same result. The
            slower method keeps 12 bytes a candidate, and its share of a pass.
        checkpoint_every: Chunks between two saves.
        progress: Whether to show a progress bar.

    Returns:
        Indices `[budget]` in the order of choice, with weight 1. If there are fewer
        candidates than `budget` (of the right classes), it has all of them, and
        `n_valid` says how many. Equal distances are ordered by index.

    Raises:
        ValueError: If an array is empty, has a wrong shape, or is not finite, if
            `budget` is less than 1, if only one of the labels is given, if a source
            changed, if `checkpoint` holds another search, or if an iterator's budget
            needs the slower method.
        TypeError: If features are not numeric or are being traced.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation,
        Algorithm 3. The public code can return more than the budget.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> features = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> hard = np.array([[1.0, 0.05], [0.1, 1.0]])
        >>> selection = jaxsel.retrieve_nearest(features, hard, 2)
        >>> print(np.sort(selection.indices))  # one for each hard sample
        [0 2]
    """
    budget = check_count("budget", budget)
    check_count("checkpoint_every", checkpoint_every)
    mesh = along(mesh, axis)
    if not is_on(features, mesh) and needs_float64(features, hard_features, metric):
        with jax.enable_x64(True):
            return retrieve_nearest(
                *in_float64(features, hard_features),
                budget,
                labels=labels,
                hard_labels=hard_labels,
                metric=metric,
                chunk_size=chunk_size,
                mesh=mesh,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
                progress=progress,
            )
    stream = open_stream(
        features, hard_features, labels, hard_labels, metric=metric, mesh=mesh
    )
    m = len(stream.queries)
    # A list of `limit` has enough for the whole budget, or all that there are.
    limit = budget if stream.is_iterator else min(stream.n, budget)
    k = min(limit, -(-_SPARE * budget // m))
    while m * k <= _LISTS:
        near = find_nearest(
            stream,
            k,
            chunk_size=chunk_size,
            mesh=mesh,
            checkpoint=of_pass(checkpoint, k),
            checkpoint_every=checkpoint_every,
            progress=progress,
            label="retrieve",
        )
        indices, n_valid = chosen_from(near.distances, near.indices, budget=limit)
        # A list shorter than k, or padded with infinity, holds all that count.
        short = near.distances.shape[1] < k
        more = not short and bool(jnp.isfinite(near.distances[:, -1]).any())
        if int(n_valid) == limit or k == limit or not more:
            break
        k = min(limit, 2 * k)
    else:
        if stream.is_iterator:
            raise ValueError(
                f"budget must be at most {_LISTS // 2} for candidates of an iterator, "
                f"and less if hard samples are very similar, got {budget}: pass rows "
                "of a source with a length"
            )
        check_folder(checkpoint, stream, mesh)
        stream = dataclasses.replace(stream, features=whole(stream.features))
        indices = _by_rank(
            stream,
            limit,
            chunk_size=chunk_size,
            checkpoint=of_pass(checkpoint, None),
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        n_valid = len(indices)
    return selection(
        np.asarray(indices)[: int(n_valid)],
        f"retrieve_nearest(metric={metric!r})",
    )


def pseudo_labels(
    features: npt.ArrayLike | jax.Array | Rows,
    hard_features: npt.ArrayLike | jax.Array,
    hard_labels: npt.ArrayLike | jax.Array,
    *,
    metric: Metric = "cosine",
    chunk_size: int | None = None,
    progress: bool = False,
) -> np.ndarray:
    """Give each candidate the label of the hard sample nearest to it.

    For owners whose samples have no labels. Costs m·n·d multiply-adds, and memory for
    one chunk.

    Args:
        features: Candidates, `[n, d]`, an array or `Rows`.
        hard_features: Hard samples, `[m, d]`.
        hard_labels: Labels of the hard samples, `[m, ...]`, of any type.
        metric: "cosine" or "l2".
        chunk_size: Candidates at a time, or None to choose.
        progress: Whether to show a progress bar.

    Returns:
        Array of shape `[n, ...]`, of the type of `hard_labels`. Of hard samples at
        equal distance the first decides.

    Raises:
        ValueError: If an array is empty, has a wrong shape, or is not finite.
        TypeError: If features are not numeric or are being traced.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> features = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> hard = np.array([[1.0, 0.05], [0.1, 1.0], [-1.0, 0.1]])
        >>> print(jaxsel.pseudo_labels(features, hard, ["cat", "dog", "owl"]))
        ['cat' 'cat' 'dog' 'owl']
    """
    if needs_float64(features, hard_features, metric):
        with jax.enable_x64(True):
            return pseudo_labels(
                *in_float64(features, hard_features),
                hard_labels,
                metric=metric,
                chunk_size=chunk_size,
                progress=progress,
            )
    stream = open_stream(features, hard_features, None, None, metric=metric)
    names = np.asarray(as_array("hard_labels", hard_labels))
    if names.ndim == 0 or len(names) != len(stream.queries):
        raise ValueError(
            f"hard_labels must hold one label for each of the {len(stream.queries)} "
            f"hard samples, got shape {names.shape}"
        )
    nearest: list[np.ndarray] = [
        np.asarray(_first_nearest(near))
        for _, near in iterate_distances(
            stream, chunk_size, progress=progress, label="pseudo_labels"
        )
    ]
    return names[np.concatenate(nearest)]


def selection(indices: np.ndarray, method: str) -> Selection:
    """Return a `Selection` with equal weights."""
    return Selection(
        indices=jnp.asarray(indices, jnp.int32),
        weights=jnp.ones(len(indices), jnp.float32),
        n_valid=jnp.asarray(len(indices), jnp.int32),
        method=method,
    )


@jit()
def _first_nearest(near: jax.Array) -> jax.Array:
    """Return the row of the least of each column `[b]`, the first of equals."""

    def fold(state: Any, row: jax.Array) -> tuple[Any, None]:
        least, place, number = state
        place = jnp.where(row < least, number, place)
        return (jnp.minimum(least, row), place, number + 1), None

    # Row by row: XLA's argmin on CPUs goes down the columns, in 20 times as long.
    start = near[0], jnp.zeros(near.shape[1], jnp.int32), jnp.int32(0)
    return jax.lax.scan(fold, start, near)[0][1]


def _by_rank(
    stream: Stream,
    budget: int,
    *,
    chunk_size: int | None,
    checkpoint: os.PathLike[str] | None,
    checkpoint_every: int,
    progress: bool,
) -> np.ndarray:
    """Choose at most `budget` candidates by `Turns`, in O(n) memory."""
    n, m = stream.n, len(stream.queries)
    group = max(1, _LISTS // n)
    rows = rows_at_once(stream.hard(slice(group)), chunk_size=chunk_size, devices=1)
    shape = ("by rank", rows, group)
    saved = saved_pass(checkpoint, checkpoint_every, stream, shape)
    dtype = np.asarray(stream.queries).dtype
    turns, first, done = Turns.none(n, dtype), 0, 0
    part = nothing = np.zeros((1, 1), dtype)
    if (kept := saved.load()) is not None:
        # Copies, for what orbax reads is not to be written to.
        arrays = {name: np.array(array) for name, array in kept[0].items()}
        part, (first, done) = arrays.pop("part"), kept[1]
        turns = Turns(**arrays)

    def folded() -> Iterator[int]:
        """Yield hard samples after folding in their distances, a few in each pass."""
        nonlocal part, done
        for start in range(first, m, group):
            few = stream.hard(slice(start, start + group))
            near = np.empty((len(few.queries), n), dtype)
            if done:
                near[:, :done] = part
            for place, near_part in iterate_distances(few, chunk_size, start=done):
                near[:, place] = near_part
                if saved.count():
                    part = np.ascontiguousarray(near[:, : place.stop])
                    saved.save({**vars(turns), "part": part}, (start, place.stop))
            part, done = nothing, 0
            for i, row in enumerate(near):
                turns.fold(start + i, row)
                yield start + i
        saved.save({**vars(turns), "part": nothing}, (m, 0))

    for _ in track(folded(), progress=progress, label="retrieve", total=m - first):
        pass
    return turns.first(budget)
