"""Owners as wholes: values, weights and a purchase from one vector of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, get_args

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel.value import as_utility, estimate_semivalue

from ._inputs import (
    check_counts,
    check_names,
    check_terms,
    check_vectors,
    in_curvature,
)
from ._matching_game import MOST, Constraint, Game, owen, shapley
from ._purchase import Terms, buy_exactly, buy_greedily
from ._values import DatasetValues

_HIDDEN = 0.1  # share of a squared length that the ridge may have without a warning
_SHORT = 0.01  # of the mean squared length
_ASKED = 0.05  # of the largest squared cosine with the target
_ORDERS = 64  # of more than 20 owners, for standard errors over targets


class _Shares(NamedTuple):
    """Shapley values, their errors, how they came about, and all utilities if known."""

    values: np.ndarray
    stderr: np.ndarray | None
    method: str
    utility: np.ndarray | None


def value_datasets(
    vectors: npt.ArrayLike | jax.Array,
    target: npt.ArrayLike | jax.Array,
    *,
    counts: npt.ArrayLike | None = None,
    prices: npt.ArrayLike | None = None,
    budget: float | None = None,
    owners: Sequence[Hashable] | None = None,
    constraint: Constraint = "nonnegative",
    curvature: npt.ArrayLike | jax.Array | None = None,
    l2: float = 1e-3,
    tol: float = 0.01,
    parallel: float = 0.95,
    trainings: int = 2000,
    key: jax.Array | None = None,
) -> DatasetValues:
    """Value whole data sets by how well their mean vectors match a target together.

    Each owner sends one vector, such as its mean gradient of the buyer's model or its
    mean feature, and no sample. The buyer has the same of its own validation samples.
    With K the inner products of the vectors g and b the target, weights w minimise

        |sum_o w_o g_o - b|^2 + l2 s sum_o (m / c_o) w_o^2

    over w >= 0, s the mean squared length of the vectors, c_o the counts and m their
    mean. The utility of a set of owners is the least of this on the set, beside the
    value `|b|^2` of none: a copy of an owner's vector adds next to nothing, while its
    inner product with the target is the owner's own.

    Computed in float64. Of up to 20 owners all sets are matched: for 20 in .3 CPU
    seconds and 90 MB, with several targets .6 and 250 MB, and 3 seconds more to
    compile a program, once for each number of owners. Of more owners Shapley values are
    sampled and the purchase is greedy; a set costs some n^3 operations.

    Args:
        vectors: Owners' vectors, `[n, d]`, or `[n, c, d]`: one for each of c classes,
            matched with the same weights; zeros where an owner has none of a class.
        target: The vector to match, `[d]` or `[c, d]`; or several, `[t, d]` or
            `[t, c, d]`, such as one of each validation sample or batch: a random
            sample, of which the mean is matched and from which errors follow.
        counts: Number of samples behind each owner's vector, `[n]`: the variance of a
            mean falls with it, so that parallel vectors get weights in proportion.
            Equal if None.
        prices: Price of each data set, `[n]`, 0 or more; 1 each if None.
        budget: The most that the purchase may cost; no limit if None.
        owners: Names, n different ones; positions if None.
        constraint: "nonnegative", or "simplex": weights add up to 1 as well, so that
            the match is a mixture. A set without owners is worth 0 then too, and one
            that is further from the target than zero is has a negative utility.
        curvature: Symmetric positive definite matrix H, `[d, d]` of flat vectors, such
            as the Hessian of the buyer's loss plus a multiple of the identity. Squares
            `|v|^2` are `v'H^-1 v` then, and utilities of gradients are, as a share, how
            much the loss falls if the model takes the best Newton step `-H^-1 g` along
            a mixture g of theirs. The identity if None.
        l2: Weight of squared weights, above 0, relative to the mean squared length of
            the vectors. It makes weights unique: copies share them.
        tol: Share of the best utility within the budget that the purchase may lose
            for a lower price: at 0 even near copies are bought.
        parallel: Cosine from which owners are told as a group, above 0 and at most 1.
        trainings: Sets to match for the Shapley values of more than 20 owners.
        key: Draws these sets; needed with more than 20 owners only.

    Returns:
        A `DatasetValues`. The purchase is the cheapest set within `tol` of the best
        that the budget allows: exact up to 20 owners, of more greedy by gain over
        price, with owners dropped that are not needed. With several targets, `stderr`
        is the delta method's: utilities are differentiable in the target, with the
        match as the derivative, of more than 20 owners by 64 random orders, and with
        the error of sampling added. A single owner has its utility as
        its value; a zero vector has weight, value and gain 0; a vector equal to the
        target matches it up to the ridge.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, a number is out of range, NaN or infinite,
            names repeat, all vectors or the target are zero, `curvature` is not
            positive definite, `budget` is below every price, or `key` is missing.

    References:
        Convex Dataset Valuation, ICML 2026 (arXiv 2605.16704): weights of data sets by
        matching the target's mean gradient. We deviate: values are Shapley values of
        the matched share. Owen, Values of games with a priori unions, 1977. Milgrom and
        Segal, Envelope theorems for arbitrary choice sets, Econometrica 70, 2002.

    Examples:
        >>> import numpy as np
        >>> from jaxsel import market
        >>> vectors = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> result = market.value_datasets(vectors, [1.0, 1.0], owners="abcd")
        >>> print(result.shapley.round(2), result.groups)
        [0.25 0.25 0.5  0.  ] ((0, 1),)
        >>> print(result.weights.round(2), result.bought)
        [0.5 0.5 1.  0. ] [ True False  True False]
    """
    flat, targets = check_vectors(vectors, target)
    n = len(flat)
    names = check_names(owners, n)
    flat, targets = in_curvature(curvature, flat, targets)
    check_choice("constraint", constraint, get_args(Constraint))
    l2 = check_positive("l2", l2)
    tol = check_positive("tol", tol, zero=True)
    parallel = check_positive("parallel", parallel)
    trainings = check_count("trainings", trainings)
    if tol >= 1:
        raise ValueError(f"tol must be below 1, got {tol:g}")
    if parallel > 1:
        raise ValueError(f"parallel must be at most 1, got {parallel:g}")
    if n > MOST and key is None:
        raise ValueError(f"key must be passed for more than {MOST} owners, got None")
    terms = check_terms(prices, budget, n, tol)
    sizes = check_counts(counts, names)
    lengths = np.einsum("nd,nd->n", flat, flat)
    ridge = l2 * lengths.mean() * sizes.mean() / sizes
    aligned = flat @ targets.mean(axis=0)
    _doubt_lengths(lengths, aligned, l2, names)
    game = Game(flat, targets.mean(axis=0), ridge, constraint)
    shares = (
        _exact(game, targets) if n <= MOST else _sampled(game, targets, trainings, key)
    )
    if shares.utility is not None:
        bought = buy_exactly(shares.utility, terms)
    else:
        bought = buy_greedily(game, terms)
    return _result(game, shares, terms, bought, _Names(names, parallel))


def _doubt_lengths(
    lengths: np.ndarray, aligned: np.ndarray, l2: float, names: tuple[Any, ...]
) -> None:
    """Warn of vectors so short beside the others that the ridge hides them.

    Args:
        lengths: Squared lengths, `[n]`.
        aligned: Products with the mean target, `[n]`.
        l2: The ridge, as a share of the mean squared length.
        names: Names of the owners.
    """
    usual = lengths.mean()
    short = (lengths > 0) & (lengths < _SHORT * usual)
    # Nothing is hidden of an owner whose direction no target asks for.
    cosines = aligned**2 / np.maximum(lengths, np.finfo(float).tiny)  # up to a factor
    short &= cosines > _ASKED * cosines.max()
    hidden = np.flatnonzero(short & (l2 * usual > _HIDDEN * lengths))
    if hidden.size:
        first, longest = int(hidden[0]), int(lengths.argmax())
        doubt(
            f"vectors must be in one unit: that of owner {names[first]!r} has length "
            f"{lengths[first] ** 0.5:.3g}, and that of owner {names[longest]!r} "
            f"{lengths[longest] ** 0.5:.3g}, so that l2 keeps the former from counting "
            "in full; if the unit is the same, pass a smaller l2"
        )


class _Names(NamedTuple):
    owners: tuple[Any, ...]
    parallel: float


def _result(
    game: Game, shares: _Shares, terms: Terms, bought: np.ndarray, names: _Names
) -> DatasetValues:
    n = game.n
    single = np.eye(n, dtype=bool)
    every = np.ones((1, n), bool)
    masks = np.concatenate([every, ~single, single, bought[None], bought | single])
    utility, weights = game.match(masks)
    matched, without, alone, paid, more = np.split(
        utility, [1, n + 1, 2 * n + 1, 2 * n + 2]
    )
    cosines = _cosines(game.vectors)
    groups = _groups(cosines >= names.parallel * (1 - 1e-12))
    by_group = None
    if shares.utility is not None:
        grouped = len(groups) < n
        by_group = owen(shares.utility, groups) if grouped else shares.values
    how = "all sets" if shares.utility is not None else "greedy"
    return DatasetValues(
        owners=names.owners,
        weights=weights[0],
        shapley=shares.values,
        stderr=shares.stderr,
        by_group=by_group,
        marginal=matched[0] - without,
        alone=alone,
        bought=bought,
        gains=np.where(bought, 0.0, np.maximum(more - paid[0], 0)),
        prices=terms.prices,
        matched=float(matched[0]),
        matched_bought=float(paid[0]),
        cosines=cosines,
        groups=tuple(group for group in groups if len(group) > 1),
        undetermined=_undetermined(game),
        method=f"{shares.method}; purchase: {how}",
    )


def _exact(game: Game, targets: np.ndarray) -> _Shares:
    table = game.table(with_weights=len(targets) > 1)
    values, stderr = shapley(table.utility), None
    if len(targets) > 1:
        stderr = _errors(game, targets, values, game.fits(table))
    return _Shares(values, stderr, f"exact: {1 << game.n} sets", table.utility)


def _errors(
    game: Game, targets: np.ndarray, values: np.ndarray, fits: np.ndarray
) -> np.ndarray:
    """Return standard errors of values over targets, by the delta method, `[n]`.

    A utility v is 1 - error / |b|^2. By the envelope theorem the error's derivative is
    2 (b - match), so that v's is 2 (match - v b) / |b|^2.

    Args:
        game: The game.
        targets: Targets of which the game's is the mean, `[t, d]`.
        values: Shapley values, `[n]`.
        fits: Shapley values of the weights, `[n, n]`.
    """
    apart, t = targets - game.target, len(targets)
    moved = fits @ (game.vectors @ apart.T) - values[:, None] * (apart @ game.target)
    return 2 / game.length * np.sqrt(np.sum(moved**2, axis=1) / (t * (t - 1)))


def _sampled(
    game: Game, targets: np.ndarray, trainings: int, key: jax.Array | None
) -> _Shares:
    sets, orders = jax.random.split(_present(key))
    utility: Any = as_utility(lambda masks, _: game.match(np.asarray(masks))[0], game.n)
    values = estimate_semivalue(utility, trainings, key=sets)
    variance = np.asarray(values.stderr, np.float64) ** 2
    shares = np.asarray(values.values, np.float64)
    if len(targets) > 1:
        variance = variance + _errors(game, targets, shares, _added(game, orders)) ** 2
    return _Shares(shares, np.sqrt(variance), values.method, None)


def _added(game: Game, key: jax.Array) -> np.ndarray:
    """Return the mean change of weights by each owner in random orders, `[n, n]`."""
    n, total = game.n, np.zeros((game.n, game.n))
    for order in range(_ORDERS):
        ranks = np.asarray(jax.random.permutation(jax.random.fold_in(key, order), n))
        weights = game.match(ranks[None] < np.arange(n + 1)[:, None])[1]
        total += (weights[1:] - weights[:-1])[ranks]
    return total / _ORDERS


def _present(key: jax.Array | None) -> jax.Array:
    assert key is not None  # checked by the caller
    return key


def _cosines(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    return np.clip(unit @ unit.T, -1, 1)


def _groups(joined: np.ndarray) -> list[tuple[int, ...]]:
    """Return the connected parts of a graph, each in order."""
    n = len(joined)
    first = np.arange(n)  # the first owner of each one's part
    beside = joined | np.eye(n, dtype=bool)  # zero vectors are alone
    while True:
        nearer = np.where(beside, first[None], n).min(axis=1)
        if (nearer == first).all():
            break
        first = nearer
    return [
        tuple(o for o in range(n) if first[o] == start)
        for start in range(n)
        if first[start] == start
    ]


def _undetermined(game: Game) -> int:
    used = game.vectors.any(axis=1)
    rows = game.vectors[used] / np.sqrt(game.ridge[used])[:, None]
    spread = np.linalg.svd(rows, compute_uv=False)
    return int(used.sum() - np.sum(spread > 1))
