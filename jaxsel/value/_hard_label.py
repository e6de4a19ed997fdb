"""Weighted KNN-Shapley for hard labels: whether weighted votes are for the right class.

With weights in whole numbers the utility of a set depends on the sum of K of them only,
so that counting sets by their sums is enough. Let the votes of the points be signed,
positive for the label of the validation point, and rank the points by distance. If the
farthest of a set's K nearest is of rank m, a nearer point i takes its place, and what
that changes depends on the sum of the other K - 1, any of the m - 2 points nearer than
m but for i. Over all sets with those K nearest, the Shapley weights sum to
1 / (m C(m - 1, K)). So with p the distribution of the sum of K - 1 random ones of these
m - 2 points,

    value of i = (sets smaller than K) + sum over m > i of K / (m (m - 1)) *
                 sum over s of p(s) (1[s + vote of i >= 0] - 1[s + vote of m >= 0])

The p of a point i depends on which vote is left out, and on nothing else of i. There
are few votes, so that all values of n points take O(n) steps.

References:
    Wang, Mittal and Jia, Efficient data Shapley for weighted nearest neighbor
    algorithms, AISTATS 2024: the utility, and an algorithm that is quadratic in n.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Bool, Float, Int32, Real

from jaxsel._devices.platform import take
from jaxsel._inputs.checks import INT32, check_choice, check_count, check_row
from jaxsel._inputs.chunk import entries
from jaxsel._results.types import Values
from jaxsel.neighbors import Exact, Metric, argsort, to_length, unsort

from ._accumulate import accumulate
from ._distance_weights import TracedWeights, trace_weights
from ._linear import Array, describe
from ._options import KnnOptions, Options, knn_value
from ._semivalue import reverse_sum, settled_argsort
from ._task import check_task

_MOST_BITS = 8
_ROUNDINGS = 4 * 2.0**-24  # of each step of a recursion of convex combinations


@knn_value
def weighted_knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    bits: int = 3,
    reach: int = 256,
    n_classes: int | None = None,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the exact Shapley value for a KNN classifier with weighted, hard votes.

    The utility of a set is 1 if its K nearest points vote for the label of the
    validation point, and 0 if they vote for another one: a vote counts as much as the
    weight of its distance, and a tie counts as right, as do the votes of the empty set.
    Weights are divided by the largest one, of all training points, and rounded to
    `2**bits` levels from 0 on. The values sum to the utility of all points less 1.

    With more than two classes the utility is the share of the other classes against
    which the label wins, each in a vote of its own, of the K nearest points that have
    one of these two labels.

    Unlike `knn_shapley(weights=...)`, which values the sum of weighted votes, this
    values the decision.

    Arguments, result and errors as for `knn_shapley`, and:

    Args:
        x: Training features, `[n, d]`.
        y: Training labels, `[n]`, no class probabilities.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels, `[m]`.
        k: Number of neighbours K.
        bits: Of the weights, 1 to 8. Costs grow by a factor of four for each.
        reach: With `method="hybrid"`, how many of the nearest points are considered.
        n_classes: Number of classes; those found in y and y_val together if None.
        **options: As for all KNN values: see `KnnOptions`; but `ties` may be "stable"
            only. `weights` must return numbers zero or more; None is equal votes. With
            `method="hybrid"` sets of points beyond `reach` are left out, and the result
            has an `error_bound`: about K / reach, however the points lie.

    Returns:
        `Values`, `[n]`. Costs about `n k**2 4**bits` operations for each validation
        point and each class but one, or `reach k**2 4**bits`.

    References:
        Wang, Mittal and Jia, AISTATS 2024. We deviate in that the values of several
        classes are averaged, not summed, over the other classes.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> import jax.numpy as jnp
        >>> values = jaxsel.weighted_knn_shapley(
        ...     x, y, x_val, y_val, k=3, weights=lambda distance: jnp.exp(-distance)
        ... )
        >>> print(values.bottom(1))
        [1]
    """
    return _values(
        x,
        y,
        x_val,
        y_val,
        k=check_count("k", k, maximum=INT32),
        bits=check_count("bits", bits),
        reach=check_count("reach", reach),
        n_classes=n_classes,
        options=Options(**options),
    )


def _values(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int,
    bits: int,
    reach: int,
    n_classes: int | None,
    options: Options,
) -> Values:
    metric, method = options.metric, options.method
    weights, chunk_size = options.weights, options.chunk_size
    check_choice("ties", options.ties, ("stable",))
    check_choice("method", method, ("exact", "hybrid"))
    if bits > _MOST_BITS:
        raise ValueError(f"bits must be from 1 to {_MOST_BITS}, got {bits}")
    task, classes = check_task(
        x,
        y,
        x_val,
        y_val,
        metric=metric,
        n_classes=n_classes,
        k=k,
        mesh=options.mesh if options.split == "training" else None,
    )
    if not classes.binary:
        raise ValueError(
            "y and y_val must be labels, got class probabilities: see knn_shapley"
        )
    n = len(task.x)
    traced, captured = (None, ()) if weights is None else trace_weights(weights, n)
    levels = 1 if weights is None else 2**bits - 1
    if chunk_size is None:
        # Entries in memory per validation point, besides its row of distances.
        held = (2 * levels + 1) * k * (2 * (k - 1) * levels + 1)
        chunk_size = max(1, 2 * entries() // max(held, 2 * n))
    values = accumulate(
        _Votes(
            k=k,
            levels=levels,
            n_classes=classes.n_classes,
            reach=min(reach, n) if method == "hybrid" else None,
            weights=traced,
            metric=metric,
        ),
        captured,
        task,
        options=dataclasses.replace(options, chunk_size=chunk_size),
        certified=method == "hybrid",
        method=describe(
            "weighted_knn_shapley",
            k=k,
            bits=None if weights is None else bits,
            metric=metric,
            method=method,
            reach=reach if method == "hybrid" else None,
            n_classes=classes.n_classes,
            weights=weights,
        ),
    )
    if not bool(jnp.isfinite(values.values).all()):
        raise ValueError(
            "weights must return finite numbers, zero or more, for all distances; it "
            "returned others for some"
        )
    return values


def weighted_shapley(
    distances: Real[jax.Array, " n"],
    votes: Int32[jax.Array, " n"],
    *,
    k: int,
    levels: int,
) -> Float[jax.Array, " n"]:
    """Value every training point for one validation point: a pure kernel.

    The utility of a set is 1 where the votes of its K nearest points sum to 0 or more,
    and 0 elsewhere. Equal distances (as float32) are ordered by index.

    Args:
        distances: Array of shape `[n]`, not negative.
        votes: Array of shape `[n]`, int32: positive for the right class, negative for
            the other one.
        k: Number of neighbours K.
        levels: The largest vote there may be.

    Returns:
        Array of shape `[n]`. Costs a sort and `O(n k**2 levels**2)`, in n steps.

    Raises:
        ValueError: If a shape is not as stated.
    """
    (n,) = check_row("distances", distances)
    check_row("votes", votes, n=n)
    order = argsort(distances)
    in_game = jnp.ones(n, bool)
    values, _ = _by_rank(take(votes, order), in_game, k=k, levels=levels, reach=None)
    return unsort(order, values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Votes:
    """The kernel for `accumulate`."""

    k: int
    levels: int
    n_classes: int
    reach: int | None
    weights: TracedWeights | None
    metric: Metric

    @property
    def orders(self) -> bool:
        """True if only the order of the distances matters."""
        return self.weights is None

    def __call__(
        self,
        captured: Any,
        distances: jax.Array,
        train: Any,
        query: Any,
        exact: Exact | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        (n,) = distances.shape
        size, fine = jnp.ones(n, jnp.int32), jnp.array(True)
        if self.weights is not None:
            weights = self.weights(captured, to_length(distances, self.metric))
            weights = jnp.broadcast_to(weights, (n,)).astype(jnp.float32)
            fine = jnp.all(jnp.isfinite(weights) & (weights >= 0))
            largest = jnp.max(weights)
            scaled = weights / jnp.where(largest > 0, largest, 1.0)
            size = jnp.round(scaled * self.levels).astype(jnp.int32)
        # Near ties matter where labels or votes differ, and the less the farther.
        kinds = (train * (self.levels + 1) + size).astype(jnp.float32)
        drop = 1 / jnp.arange(1, n + 1, dtype=jnp.float32)
        order = settled_argsort(distances, kinds, drop, exact=exact)
        label, size = take(train, order), take(size, order)
        run = partial(_by_rank, k=self.k, levels=self.levels, reach=self.reach)

        # One game of two classes against each other class; the value is their mean.
        def against(total: Any, step: jax.Array) -> tuple[Any, None]:
            other = (query + step) % self.n_classes
            votes = jnp.where(label == query, size, -size)
            game = run(votes, (label == query) | (label == other))
            game = jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), game)
            return jax.tree.map(jnp.add, total, game), None

        zero = jnp.zeros(n, jnp.float32), jnp.zeros(n, jnp.float32)
        steps = jnp.arange(1, self.n_classes, dtype=jnp.int32)
        (values, bound), _ = lax.scan(against, zero, steps)
        games = max(1, self.n_classes - 1)
        values = jnp.where(fine, unsort(order, values / games), jnp.nan)
        if self.reach is None:
            return values, None
        return values, unsort(order, bound / games)


class _State(NamedTuple):
    """Sums of j random points of those so far, and of all but one with each vote.

    Attributes:
        points: Scalar, int32: how many there are so far.
        all: `[k, s]`: the distribution of the sum of j of them, j from 0 to k - 1.
        less: `[votes, k, s]`: the same, where one point of this vote is left out.
        seen: `[votes]`: whether there is one.
    """

    points: jax.Array
    all: jax.Array
    less: jax.Array
    seen: jax.Array


def _by_rank(
    votes: Int32[jax.Array, " n"],
    in_game: Bool[jax.Array, " n"],
    *,
    k: int,
    levels: int,
    reach: int | None,
) -> tuple[jax.Array, jax.Array]:
    """Value the points in the game by rank, and bound the error.

    Args:
        votes: Signed votes, `[n]`, the nearest point's first.
        in_game: Which points are in the game, `[n]`; others are worth 0.
        k: Number of neighbours.
        levels: The largest vote.
        reach: How many points to look at; None for all.
    """
    n = len(votes)
    far = (k - 1) * levels
    sums = jnp.arange(-far, far + 1)
    kinds = jnp.arange(-levels, levels + 1)
    wins = (sums[None] + kinds[:, None] >= 0).astype(jnp.float32)  # one vote more
    start = (sums == 0).astype(jnp.float32)
    state = _State(
        points=jnp.zeros((), jnp.int32),
        all=jnp.zeros((k, len(sums)), jnp.float32).at[0].set(start),
        less=jnp.zeros((len(kinds), k, len(sums)), jnp.float32),
        seen=jnp.zeros(len(kinds), bool),
    )

    def step(state: _State, point: Any) -> tuple[_State, jax.Array]:
        vote, in_game = point
        rank = (state.points + 1).astype(jnp.float32)
        # The sum over m of the module's text: the point of rank m is the farthest of K,
        # and a nearer one with each possible vote takes its place.
        change = wins - (sums + vote >= 0).astype(jnp.float32)[None]
        flips = jnp.sum(state.less[:, k - 1] * change, axis=1)
        weight = jnp.where(
            in_game & (rank > k), k / (rank * jnp.maximum(rank - 1, 1)), 0.0
        )
        # Which of several equal votes is left out makes no difference: take the last.
        same = kinds == vote
        grown = _add(state.less, vote, state.points - 1, levels)
        less = jnp.where(same[:, None, None], state.all[None], grown)
        less = jnp.where((state.seen | same)[:, None, None], less, 0.0)
        after = _State(
            points=state.points + 1,
            all=_add(state.all, vote, state.points, levels),
            less=less,
            seen=state.seen | same,
        )
        # A scan has one length for all games: points of third classes pass without a
        # change of the state, and so without a rank.
        return _State(*map(partial(jnp.where, in_game), after, state)), weight * flips

    scanned = n if reach is None else reach
    last, taken = lax.scan(step, state, (votes[:scanned], in_game[:scanned]))
    total = jnp.sum(in_game, dtype=jnp.int32)
    n_here = jnp.maximum(total, 1).astype(jnp.float32)
    # Sets smaller than K; a vote that did not occur has no point to leave out.
    less = jnp.where(last.seen[:, None, None], last.less, last.all[None])
    gain = wins - (sums >= 0).astype(jnp.float32)[None]
    small = jnp.sum(less * gain[:, None], axis=(1, 2)) / n_here
    # Steps of ranks m > i only: `reverse_sum` leaves out the point's place itself.
    later = jax.vmap(reverse_sum, in_axes=1, out_axes=1)(taken)
    later = jnp.pad(later, ((0, n - scanned), (0, 0)))
    values = small[votes + levels] + jnp.take_along_axis(
        later, (votes + levels)[:, None], axis=1
    ).squeeze(1)
    bound = _left_out(last.points, total, k)
    bound = bound + _ROUNDINGS * k * (2 + jnp.log(n_here))
    return jnp.where(in_game, values, 0.0), jnp.where(in_game, bound, 0.0)


def _add(table: jax.Array, vote: jax.Array, count: jax.Array, levels: int) -> jax.Array:
    """Add a vote to those that may be drawn, `[..., k, s]`.

    Of count + 1 points, j have it among them with the probability j / (count + 1).
    """
    k, s = table.shape[-2:]
    drawn = jnp.arange(k, dtype=jnp.float32).reshape((1,) * (table.ndim - 2) + (k, 1))
    number = jnp.maximum(count + 1, 1).astype(jnp.float32)
    # The vote is traced, so the shift by it is a slice. Only the row of k - 1 draws
    # could lose sums at an end, and that row is dropped below.
    wide = jnp.pad(table, ((0, 0),) * (table.ndim - 1) + ((levels, levels),))
    moved = lax.dynamic_slice_in_dim(wide, levels - vote, s, axis=-1)
    # With the new point one more is drawn: rows move down by one, sums by the vote.
    moved = jnp.concatenate(
        [jnp.zeros_like(moved[..., :1, :]), moved[..., :-1, :]], axis=-2
    )
    keep = jnp.maximum(number - drawn, 0.0) / number
    # A convex combination: errors are averaged and not amplified, as `_ROUNDINGS` takes
    # for granted. Of j > count + 1 points the table is 0, and stays so.
    return keep * table + drawn / number * moved


def _left_out(count: jax.Array, total: jax.Array, k: int) -> jax.Array:
    """Bound the effect of the points beyond the nearest `count` of `total`.

    Points of rank m > count, when replaced, change K / (m (m - 1)) each at most. Added
    to that is the share of sets smaller than K not within the nearest `count`.
    """
    near, n = count.astype(jnp.float32), total.astype(jnp.float32)
    replaced = k * (1 / jnp.maximum(near, k) - 1 / jnp.maximum(n, k))
    size = jnp.arange(k, dtype=jnp.float32)

    def log_choose(m: jax.Array) -> jax.Array:
        m = jnp.maximum(m, size)
        # Without log size!, which cancels in the ratio of two.
        return gammaln(m + 1) - gammaln(m - size + 1)

    inside = jnp.where(
        size <= near - 1, jnp.exp(log_choose(near - 1) - log_choose(n - 1)), 0.0
    )
    missing = jnp.where(size <= n - 1, 1 - inside, 0.0)
    complete = near >= n
    return jnp.where(complete, 0.0, replaced + jnp.sum(missing) / jnp.maximum(n, 1))
