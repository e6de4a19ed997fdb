"""Targeted subset selection: candidates most informative about the hard samples.

Greedy choices by submodular mutual information. Facility location needs similarities
to the hard samples alone, so candidates are read in chunks, and a pass keeps those that
gain most. The gains of all others can only fall: as long as one that was kept gains
more than any of these did, it is the greedy choice, and no further pass is needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import cond, jit, while_loop
from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._inputs.rows import Rows
from jaxsel._results.types import Selection
from jaxsel.neighbors import Metric

from ._determinants import by_determinants
from ._nearest import iterate_distances
from ._retrieve import selection
from ._stream import Stream, in_float64, needs_float64, open_stream

if TYPE_CHECKING:
    import numpy.typing as npt

Objective = Literal["flqmi", "gcmi", "logdetmi"]
Similarity = Callable[[jax.Array], jax.Array]

_OBJECTIVES = ("flqmi", "gcmi", "logdetmi")
# Similarities of the candidates that a pass keeps: 64 MB, and a block at least.
_KEPT = 2**24
_BLOCK = 64  # candidates whose gains are computed together
_CACHED = 2**19  # similarities that stay in a cache of the CPU until they are summed


def retrieve_targeted(
    features: npt.ArrayLike | jax.Array | Rows,
    hard_features: npt.ArrayLike | jax.Array,
    budget: int,
    *,
    objective: Objective = "flqmi",
    eta: float = 1.0,
    l2: float = 1.0,
    similarity: Similarity | None = None,
    labels: npt.ArrayLike | jax.Array | Rows | None = None,
    hard_labels: npt.ArrayLike | jax.Array | None = None,
    metric: Metric = "cosine",
    chunk_size: int | None = None,
    progress: bool = False,
) -> Selection:
    """Choose candidates greedily by a submodular mutual information with hard samples.

    - "flqmi" (facility location): the sum over hard samples of their largest similarity
      to a chosen one, plus `eta` times the sum over chosen ones of their largest
      similarity to a hard sample. It covers the hard samples, and then repeats what is
      near one.
    - "gcmi" (graph cut): the sum of all similarities between both. It asks for
      likeness alone: what is chosen may be alike.
    - "logdetmi" (log determinants): how much the chosen ones, as observations of a
      Gaussian process with noise `l2`, tell about the hard samples, and the other
      way round. It avoids what is alike.

    Choices are those of the plain greedy algorithm, up to near-ties; of equal gains the
    lower index is first. That of "flqmi" is within 1 - 1/e of the best choice.

    Costs a pass for "gcmi", m·n·d multiply-adds and O(n) memory; and a few for "flqmi",
    as many as it takes until no candidate outside of the 2^24 / m best of a pass can
    be next, with these in memory (64 MB). For "logdetmi" the candidates must fit in the
    memory of one device, and each choice costs 4·n·d multiply-adds.

    Args:
        features: Candidates, `[n, d]`, an array or `Rows` of `data.open_rows`.
        hard_features: Hard samples in the same feature space, `[m, d]`.
        budget: How many candidates to choose.
        objective: "flqmi", "gcmi" or "logdetmi".
        eta: Of "flqmi": the weight of likeness against coverage, 0 or more. Of
            "logdetmi": how alike hard samples and candidates are taken to be, 0 to 1.
        l2: Of "logdetmi": ridge on the diagonal of the kernel.
        similarity: Of "flqmi" and "gcmi": makes similarities, 0 or more, of distances
            `[m, b]`, which are infinite between classes: a function in `jax.numpy`,
            such as `lambda d: jnp.exp(-d / scale)`. If None, the cosine, or 0 if that
            is negative; the metric "l2" needs one. Keep the function: each new one is
            compiled.
        labels: Optional classes of the candidates, `[n]`: a candidate is then like hard
            samples of its own class alone. Needs `hard_labels`. Not of "logdetmi".
        hard_labels: Classes of the hard samples, `[m]`.
        metric: "cosine", or "l2", with squared distances.
        chunk_size: Candidates at a time, or None to choose: changes speed and memory,
            not the result, up to near-ties.
        progress: Whether to show a progress bar for each pass. Not of "logdetmi".

    Returns:
        Indices `[budget]` in the order of choice, with weight 1. It ends early, and
        `n_valid` says where, once no candidate is left that adds anything.

    Raises:
        ValueError: If an array is empty, has a wrong shape, or is not finite, if
            `budget` is less than 1, if an option is unknown, out of range, missing or
            of another objective, or if similarities are negative or NaN.
        TypeError: If features are not numeric or are being traced, or are `Rows` with
            "logdetmi".

    References:
        Kothawade, Kaushal, Ramakrishnan, Bilmes and Iyer, PRISM: A rich class of
        parameterized submodular information measures for guided data subset selection,
        AAAI 2022. We deviate: their lazy choices by "logdetmi" are not those of the
        plain greedy algorithm, as it is not submodular.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> features = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> hard = np.array([[1.0, 0.1], [0.1, 1.0]])
        >>> selection = jaxsel.retrieve_targeted(features, hard, 3, eta=0)
        >>> print(selection.indices)  # a second copy would add nothing
        [0 3]
    """
    budget = check_count("budget", budget)
    check_choice("objective", objective, _OBJECTIVES)
    eta = check_positive("eta", eta, zero=True)
    l2 = check_positive("l2", l2)
    if needs_float64(features, hard_features, metric):
        with jax.enable_x64(True):
            return retrieve_targeted(
                *in_float64(features, hard_features),
                budget,
                objective=objective,
                eta=eta,
                l2=l2,
                similarity=similarity,
                labels=labels,
                hard_labels=hard_labels,
                metric=metric,
                chunk_size=chunk_size,
                progress=progress,
            )
    stream = open_stream(features, hard_features, labels, hard_labels, metric=metric)
    if objective == "logdetmi":
        _check_kernel(stream, eta, similarity)
        chosen = by_determinants(stream, budget, eta, l2)
    else:
        if similarity is None and metric != "cosine":
            raise ValueError(
                "similarity must be given for the metric 'l2', such as "
                "lambda d: jnp.exp(-d / scale), got None"
            )
        read = _Reader(stream, similarity or _cosines, chunk_size, progress)
        chosen = (
            _by_facilities(read, budget, eta)
            if objective == "flqmi"
            else _by_likeness(read, budget)
        )
    return selection(chosen, f"retrieve_targeted(objective={objective!r})")


def _check_kernel(stream: Stream, eta: float, similarity: Similarity | None) -> None:
    if isinstance(stream.features, Rows):
        raise TypeError(
            "features must be an array for 'logdetmi', which reads all candidates for "
            "each choice, got Rows: load them, or take 'flqmi'"
        )
    if eta > 1:
        raise ValueError(f"eta must be 0 to 1 for 'logdetmi', got {eta:g}")
    options = {
        "metric": stream.metric != "cosine",
        "similarity": similarity is not None,
        "labels": stream.codes is not None,
    }
    for name, is_given in options.items():
        if is_given:
            raise ValueError(
                f"{name} must be left out for 'logdetmi', whose kernel is the cosine"
            )


def _cosines(distances: jax.Array) -> jax.Array:
    return jnp.maximum(1 - distances, 0)


class _Reader(NamedTuple):
    """Reader of similarities, chunk by chunk.

    Attributes:
        stream: Candidates and hard samples.
        similarity: Makes similarities of distances.
        chunk_size: Candidates at a time, or None.
        progress: Whether to show a bar for each pass.
    """

    stream: Stream
    similarity: Similarity
    chunk_size: int | None
    progress: bool

    def chunks(self, *, summed: bool = False) -> Any:
        """Yield places, and similarities `[b, m]`, or their sums `[b]`."""
        size, stream = self.chunk_size, self.stream
        in_memory = isinstance(stream.features, np.ndarray)
        if summed and size is None and in_memory and jax.default_backend() == "cpu":
            size = max(1, _CACHED // len(stream.queries))
        for place, near in iterate_distances(
            stream, size, progress=self.progress, label="retrieve"
        ):
            alike, lowest = _similarities(
                near, similarity=self.similarity, summed=summed
            )
            if not lowest >= 0:
                raise ValueError(
                    "similarity must return numbers that are 0 or more, got "
                    f"{float(lowest):g} in rows {place.start} to {place.stop - 1}"
                )
            yield place, alike


@jit(static_argnames=("similarity", "summed"))
def _similarities(near: jax.Array, *, similarity: Similarity, summed: bool) -> Any:
    alike = similarity(near)
    # Cosines are 0 or more as they are made: to read them once more takes time.
    lowest = 0.0 if similarity is _cosines else alike.min()
    if not summed:
        return alike.T, lowest
    # As a product: XLA's sum on CPUs goes down the columns, and takes 20 times as long.
    ones = jnp.ones(alike.shape[0], alike.dtype)
    return jnp.matmul(ones, alike, precision="highest"), lowest


def _by_likeness(read: _Reader, budget: int) -> np.ndarray:
    """Return the choice by "gcmi", a modular objective: the largest gains."""
    gains = np.concatenate([np.asarray(s) for _, s in read.chunks(summed=True)])
    order = np.argsort(-gains, kind="stable")[:budget]
    return order[gains[order] > 0].astype(np.int32)


@dataclasses.dataclass
class _Kept:
    """Candidates with the largest gains of a pass, and the largest gain of the others.

    Attributes:
        gains: `[w]`; minus infinity where there are fewer.
        indices: `[w]` int32.
        alike: Their similarities to the hard samples, `[w, m]`.
        rest: The largest gain of all others.
    """

    gains: np.ndarray
    indices: np.ndarray
    alike: np.ndarray
    rest: float = -np.inf

    @classmethod
    def none(cls, room: int, m: int, dtype: np.dtype[Any]) -> _Kept:
        """Return room for some candidates."""
        gains = np.full(room, -np.inf, dtype)
        return cls(gains, np.zeros(room, np.int32), np.zeros((room, m), dtype))

    def add(self, gains: np.ndarray, alike: np.ndarray, start: int) -> None:
        """Merge a chunk that begins at `start`; call in ascending order of `start`."""
        room = len(self.gains)
        # Of equal gains the earlier ones stay.
        new = np.flatnonzero(gains > self.gains.min())
        together = np.concatenate([self.gains, gains[new]])
        indices = np.concatenate([self.indices, (start + new).astype(np.int32)])
        order = np.lexsort((indices, -together))
        best, others = order[:room], order[room:]
        # As many enter as leave: only their similarities are copied.
        entering, leaving = best[best >= room], others[others < room]
        below = np.delete(gains, new).max(initial=-np.inf)
        self.rest = float(max([self.rest, below, *together[others[:1]]]))
        self.gains[leaving] = together[entering]
        self.indices[leaving] = indices[entering]
        self.alike[leaving] = alike[new[entering - room]]

    def blocks(self) -> tuple[Any, Any, Any]:
        """Return gains, indices and similarities in blocks, by descending gain."""
        order = np.lexsort((self.indices, -self.gains)).reshape(-1, _BLOCK)
        return self.gains[order], self.indices[order], self.alike[order]


def _by_facilities(read: _Reader, budget: int, eta: float) -> np.ndarray:
    """Return the greedy choice by "flqmi"."""
    queries = read.stream.queries
    m, dtype = len(queries), queries.dtype
    room = max(1, _KEPT // m // _BLOCK)
    if not read.stream.is_iterator:
        room = min(room, -(-read.stream.n // _BLOCK))
        budget = min(budget, read.stream.n)
    room *= _BLOCK
    covered = jnp.zeros(m, dtype)
    chosen = np.zeros(0, np.int32)
    while len(chosen) < budget:
        kept = _Kept.none(room, m, np.dtype(dtype))
        for place, alike in read.chunks():
            gains = np.array(_chunk_gains(alike, covered, eta))
            in_chunk = (chosen >= place.start) & (chosen < place.stop)
            gains[chosen[in_chunk] - place.start] = -np.inf
            kept.add(gains, np.asarray(alike), place.start)
        remaining = np.int32(budget - len(chosen))
        covered, added, count = _cover(
            kept.blocks(), kept.rest, remaining, covered, eta, most=min(room, budget)
        )
        if not int(count):
            break
        chosen = np.concatenate([chosen, np.asarray(added)[: int(count)]])
    return chosen


def _gains(alike: jax.Array, covered: jax.Array, eta: float | jax.Array) -> jax.Array:
    """Return candidates' gains, given each hard sample's covered similarity."""
    new = jnp.maximum(alike - jnp.broadcast_to(covered, alike.shape), 0).sum(-1)
    return new + eta * alike.max(-1)


@jit()
def _chunk_gains(alike: jax.Array, covered: jax.Array, eta: float) -> jax.Array:
    return _gains(alike, covered, eta)


@jit(static_argnames=("most",))
def _cover(
    blocks: tuple[jax.Array, jax.Array, jax.Array],
    rest: float,
    remaining: np.int32,
    covered: jax.Array,
    eta: float,
    *,
    most: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Choose at most `remaining` from a pass while none left out can be better.

    Gains fall as hard samples are covered. They are computed anew for the block of
    candidates whose last known ones are the largest, until the largest is a new one.
    """
    gains, indices, alike = blocks

    def going(state: _Covering) -> jax.Array:
        largest = state.bounds.max()
        # The pass computed all gains, so that its first choice is exact.
        sure = (largest > rest) | (state.taken == 0)
        return (state.taken < jnp.minimum(remaining, most)) & (largest > 0) & sure

    def refresh(state: _Covering) -> _Covering:
        stale = state.known < state.taken
        i = jnp.argmax(jnp.where(stale, state.bounds, -jnp.inf))
        # Gains only fall, and the chosen keep theirs of -inf.
        fresh = jnp.minimum(_gains(alike[i], state.covered, eta), state.gains[i])
        return state._replace(
            gains=state.gains.at[i].set(fresh),
            bounds=state.bounds.at[i].set(fresh.max()),
            known=state.known.at[i].set(state.taken),
        )

    def choose(state: _Covering) -> _Covering:
        # Ties go to the lower index.
        best = state.gains == state.bounds.max()
        place = jnp.argmin(jnp.where(best, indices, jnp.iinfo(jnp.int32).max))
        i, j = place // _BLOCK, place % _BLOCK
        block_gains = state.gains[i].at[j].set(-jnp.inf)
        return _Covering(
            covered=jnp.maximum(state.covered, alike[i, j]),
            gains=state.gains.at[i].set(block_gains),
            bounds=state.bounds.at[i].set(block_gains.max()),
            known=state.known,
            chosen=state.chosen.at[state.taken].set(indices[i, j]),
            taken=state.taken + 1,
        )

    def step(state: _Covering) -> _Covering:
        stale = state.known < state.taken
        return cond(
            (stale & (state.bounds == state.bounds.max())).any(), refresh, choose, state
        )

    start = _Covering(
        covered=covered,
        gains=gains,
        bounds=gains.max(axis=1),
        known=jnp.zeros(len(gains), jnp.int32),
        chosen=jnp.zeros(most, jnp.int32),
        taken=jnp.asarray(0, jnp.int32),
    )
    end = while_loop(going, step, start)
    return end.covered, end.chosen, end.taken


class _Covering(NamedTuple):
    """The gains known so far, by blocks, and the candidates chosen.

    Attributes:
        covered: The largest similarity of each hard sample to a chosen one, `[m]`.
        gains: Upper bounds on candidates' gains, `[blocks, size]`.
        bounds: The largest gain of each block.
        known: After how many choices a block's gains were computed, `[blocks]`.
        chosen: Their indices, `[most]`.
        taken: How many are chosen.
    """

    covered: jax.Array
    gains: jax.Array
    bounds: jax.Array
    known: jax.Array
    chosen: jax.Array
    taken: jax.Array
