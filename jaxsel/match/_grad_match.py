"""Matching a hard set's mean gradient, class by class, by sample or by minibatch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.mesh import along
from jaxsel._inputs.checks import check_count
from jaxsel._inputs.labels import encode_labels
from jaxsel.gradients import Projected, Streamed

from ._inputs import Candidates, as_oracle, check_penalty, in_columns
from ._omp import omp
from ._pursuit import Score
from ._resident import Resident
from ._types import BUDGET, EXHAUSTED, PRECISION, TOLERANCE, Match

Labels = npt.ArrayLike | jax.Array


def grad_match(
    candidates: Candidates,
    target: Candidates,
    budget: int,
    *,
    labels: Labels | None = None,
    hard_labels: Labels | None = None,
    batch_size: int | None = None,
    l2: float = 0.5,
    positive: bool = True,
    score: Score = "omp",
    penalty: npt.ArrayLike | jax.Array | None = None,
    penalty_l2: float = 1.0,
    tol: float = 0.0,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    progress: bool = False,
) -> Match:
    """Choose weighted samples that match the mean gradient of a hard set.

    With labels, each class is matched by itself: its candidates to the mean gradient of
    its hard samples. The budget is divided among classes in proportion to their hard
    samples, as in the paper, where each hard sample gets the same number of candidates;
    see `class_budgets`.

    Args:
        candidates: An oracle of n gradients, or an array `[n, p]`.
        target: The hard set's gradients: an oracle made alike, or an array `[m, p]`.
        budget: How many samples to choose at most.
        labels: Optional `[n]`: the candidates' classes.
        hard_labels: `[m]`: the hard samples'; needed with `labels`.
        batch_size: Choose minibatches of this many consecutive samples, by their mean
            gradients, instead of single samples. That takes far fewer columns. The
            budget still counts samples. If it (with labels: the share of a class) is
            smaller than a batch, batches have that size. The last batch can be smaller.
        l2: As in `omp`.
        positive: As in `omp`.
        score: As in `omp`.
        penalty: As in `omp`; a matrix must have a row for each hard sample, `[m, n]`.
            With labels, each class uses its hard samples' rows and its candidates'
            columns. Must be None with `batch_size`.
        penalty_l2: As in `omp`.
        tol: As in `omp`, for each class.
        mesh: As in `omp`.
        axis: As in `omp`.
        progress: Whether to show bars.

    Returns:
        A `Match`. With labels, choices are in turns: the first choice of every class,
        then every second one, and so on; objective and target norm are sums over the
        classes with a share of the budget. With `batch_size`, the samples of a chosen
        minibatch share its weight evenly, and `objective` and `steps` count
        minibatches.

    Raises:
        TypeError: If an argument has the wrong type, or `batch_size` is given and
            gradients are not known one by one (`jvp`) or are `streamed`.
        ValueError: If shapes don't fit, labels are given for one side only, no hard
            sample's class is among the candidates', both are `projected`, but not
            alike, or `penalty` and `batch_size` are given.

    References:
        Killamsetty et al., GRAD-MATCH: Gradient Matching based Data Subset Selection,
        ICML 2021 (per class, and its minibatch form). Sarwar et al., Mycroft, 2024,
        section 3.1, and Eq. 2 (`penalty`).

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> hard = np.array([[1.0, 0.2], [0.2, 1.0]])  # gradients of the hard samples
        >>> match = jaxsel.grad_match(gradients, hard, 2)
        >>> print(np.sort(match.indices))
        [0 2]
    """
    mesh = along(mesh, axis)
    oracle = as_oracle("candidates", candidates, mesh)
    hard = as_oracle("target", in_columns(candidates, target), mesh)
    check_alike(oracle, hard)
    budget = check_count("budget", budget)
    psi, _ = check_penalty(penalty, penalty_l2, len(oracle), m=len(hard))
    if penalty is not None and batch_size is not None:
        raise ValueError(f"penalty must be None with batch_size={batch_size}")

    def match(rows: np.ndarray | None, hard_rows: np.ndarray | None, k: int) -> Match:
        pool = oracle if rows is None else take(oracle, rows)
        b = hard.mean() if hard_rows is None else mean_of(hard, hard_rows)
        options: Any = {"l2": l2, "positive": positive, "score": score, "tol": tol}
        options |= {"mesh": mesh, "progress": progress}
        if penalty is not None:
            psi_rows = psi if hard_rows is None or psi.ndim == 1 else psi[hard_rows]
            options["penalty"] = psi_rows if rows is None else psi_rows[..., rows]
            options["penalty_l2"] = penalty_l2
        if batch_size is None:
            return omp(pool, b, k, **options)
        size = min(check_count("batch_size", batch_size), k)
        batches = grouped(pool, size)
        batch_match = omp(batches, b, k // size, **options)
        return _ungrouped(batch_match, size, len(pool), k)

    return by_class(
        match, len(oracle), len(hard), budget, labels, hard_labels, name="grad_match"
    )


def check_alike(candidates: Any, target: Any) -> None:
    """Raise if two oracles have different projections."""
    a, b = (
        part.load(np.zeros(1, np.int64)) if isinstance(part, Streamed) else part
        for part in (candidates, target)
    )
    a, b = (part.oracle if isinstance(part, Resident) else part for part in (a, b))
    if isinstance(a, Projected) and isinstance(b, Projected):
        a.check_alike(b)


def by_class(
    match: Callable[[np.ndarray | None, np.ndarray | None, int], Match],
    n: int,
    m: int,
    budget: int,
    labels: Labels | None,
    hard_labels: Labels | None,
    *,
    name: str,
) -> Match:
    """Match all at once, or every class with its share of the budget.

    Args:
        match: From candidates' and hard samples' rows (None for all) and a budget to a
            match, whose indices count within those rows.
        n: How many candidates there are.
        m: How many hard samples.
        budget: In all.
        labels: Optional `[n]`.
        hard_labels: Optional `[m]`.
        name: Of the method.
    """
    if (labels is None) != (hard_labels is None):
        missing = "labels" if labels is None else "hard_labels"
        raise ValueError(f"{missing} must be given too, or neither")
    if labels is None or hard_labels is None:
        result = match(None, None, min(budget, n))
        return dataclasses.replace(result, method=f"{name}: {result.method}")
    y, y_hard, _ = encode_labels(labels, hard_labels)
    for what, codes, wanted in (("labels", y, n), ("hard_labels", y_hard, m)):
        if len(codes) != wanted:
            raise ValueError(f"{what} must have shape {(wanted,)}, got {codes.shape}")
    classes, counts = np.unique(y_hard, return_counts=True)
    sizes = np.array([(y == c).sum() for c in classes])
    if not sizes.any():
        raise ValueError("hard_labels has no class that labels has too")
    parts: list[tuple[np.ndarray, Match]] = []
    for c, k in zip(classes, class_budgets(counts, sizes, budget), strict=True):
        if k:
            rows = np.flatnonzero(y == c)
            parts.append((rows, match(rows, np.flatnonzero(y_hard == c), int(k))))
    method = re.sub(r"budget=\d+", f"budget={budget}", parts[0][1].method, count=1)
    return _merged(parts, f"{name} per class: {method}")


def class_budgets(counts: np.ndarray, sizes: np.ndarray, budget: int) -> np.ndarray:
    """Divide a budget among classes in proportion to `counts`, at most `sizes` each.

    Shares are rounded down. The remainder, from rounding and from classes with too few
    candidates, is divided in proportion again among the classes with candidates left.
    If all of these shares round to 0, the classes with the largest ones get one sample
    each; ties go to the first.

    Args:
        counts: Hard samples of each class, `[C]`.
        sizes: Candidates of each class, `[C]`.
        budget: How many in all.

    Returns:
        Integers `[C]` that sum to the budget, or to all candidates if they are fewer.
    """
    budgets = np.zeros(len(counts), np.int64)
    remaining = min(budget, int(sizes[counts > 0].sum()))
    while remaining:
        open_ = (budgets < sizes) & (counts > 0)
        share = np.where(open_, counts, 0) / counts[open_].sum() * remaining
        more = np.minimum(np.floor(share).astype(np.int64), sizes - budgets)
        if not more.any():
            order = np.argsort(-np.where(open_, share, -1), kind="stable")[:remaining]
            more = np.zeros_like(budgets)
            more[[c for c in order if open_[c]]] = 1
        budgets += more
        remaining -= int(more.sum())
    return budgets


def take(oracle: Any, rows: np.ndarray) -> Any:
    """Return the oracle of some rows; streamed candidates stay streamed."""
    if isinstance(oracle, Resident):
        return oracle.take(rows)
    if not isinstance(oracle, Streamed):
        return oracle.take(jnp.asarray(rows))
    return Streamed(
        lambda i: oracle.load(rows[i]),
        len(rows),
        chunk_size=oracle.chunk_size,
        progress=oracle.progress,
    )


def filled_up(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Repeat the last row up to a power of two, and return weights for the mean.

    Classes of many sizes then share the programs of a few.
    """
    n = len(rows)
    more = (1 << (n - 1).bit_length()) - n
    weights = np.where(np.arange(n + more) < n, 1 / n, 0)
    return np.pad(rows, (0, more), mode="edge"), weights.astype(np.float32)


def mean_of(oracle: Any, rows: np.ndarray) -> Any:
    """Return the mean gradient of some rows."""
    if isinstance(oracle, Resident):
        return oracle.mean(rows)
    if isinstance(oracle, Streamed):
        return take(oracle, rows).mean()
    rows, weights = filled_up(rows)
    return take(oracle, rows).combine(jnp.asarray(weights, oracle.dtype))


def grouped(oracle: Any, size: int) -> Any:
    """Return the oracle of the mean gradients of `size` consecutive candidates each."""
    if isinstance(oracle, Resident):
        return oracle.grouped(size)
    n = len(oracle)
    batches = -(-n // size)
    rows = np.arange(batches * size).reshape(batches, size)
    share = np.where(rows < n, 1.0, 0.0)
    share = jnp.asarray(share / share.sum(1, keepdims=True), oracle.dtype)
    return oracle.group(jnp.asarray(np.minimum(rows, n - 1)), share)


def _ungrouped(match: Match, size: int, n: int, budget: int) -> Match:
    """Turn chosen batches into chosen samples."""
    rank = int(match.n_valid)
    batches, weights = (np.asarray(a)[:rank] for a in (match.indices, match.weights))
    counts = np.minimum(n - batches * size, size)
    pairs = zip(batches, counts, strict=True)
    rows: list[np.ndarray] = [np.arange(b * size, b * size + c) for b, c in pairs]
    sample_weights = np.repeat(weights / counts, counts)
    chosen = np.concatenate([*rows, np.empty(0, int)])
    return _filled(match, chosen[:budget], sample_weights[:budget])


def _filled(match: Match, rows: np.ndarray, weights: np.ndarray) -> Match:
    """Return the match with other chosen rows and weights."""
    return dataclasses.replace(
        match,
        indices=jnp.asarray(rows, jnp.int32),
        weights=jnp.asarray(weights, match.weights.dtype),
        n_valid=jnp.asarray(len(rows), jnp.int32),
    )


def _merged(parts: list[tuple[np.ndarray, Match]], method: str) -> Match:
    """Interleave the classes' choices, and add up their objectives step by step."""
    turns: list[tuple[int, int]] = []
    changes: list[tuple[int, int, float]] = []
    indices: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    for c, (rows, part) in enumerate(parts):
        rank, steps = int(part.n_valid), int(part.steps)
        turns += [(turn, c) for turn in range(rank)]
        indices.append(rows[np.asarray(part.indices)[:rank]])
        weights.append(np.asarray(part.weights)[:rank])
        path = np.r_[part.target_norm, np.asarray(part.objective)[:steps]]
        changes += [(turn, c, fall) for turn, fall in enumerate(np.diff(path))]
    order = sorted(range(len(turns)), key=turns.__getitem__)
    norm = sum(float(part.target_norm) for _, part in parts)
    path = norm + np.cumsum([fall for *_, fall in sorted(changes)])
    size = sum(len(part.objective) for _, part in parts)
    codes = {int(part.status) for _, part in parts}
    first = parts[0][1]
    merged = dataclasses.replace(
        first,
        objective=jnp.asarray(
            np.pad(path, (0, max(0, size - len(path))), constant_values=np.nan),
            first.objective.dtype,
        ),
        target_norm=jnp.asarray(norm, first.objective.dtype),
        steps=jnp.asarray(len(path), jnp.int32),
        dropped=jnp.asarray(
            sum(int(part.dropped or 0) for _, part in parts), jnp.int32
        ),
        status=jnp.asarray(
            next(
                code
                for code in (PRECISION, EXHAUSTED, BUDGET, TOLERANCE)
                if code in codes
            ),
            jnp.int32,
        ),
        method=method,
    )
    rows, w = np.concatenate(indices)[order], np.concatenate(weights)[order]
    return _filled(merged, rows, w)
