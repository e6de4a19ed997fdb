"""QuickSelect asked in the clear: the set, the pivots, and what the answers imply."""

import numpy as np
import pytest

from jaxsel.proxy import choice_cost, declare, places, quickselect


def best(scores, k):
    """Of equal scores the lower row."""
    return np.sort(np.lexsort((np.arange(len(scores)), -scores))[:k])


def drive(scores, k, seed):
    """Return the chosen rows, and all questions with their answers."""
    steps, asked = quickselect(len(scores), k, seed=seed), []
    try:
        pivot, others = next(steps)
        while True:
            above = (scores[others] > scores[pivot]) | (
                (scores[others] == scores[pivot]) & (others < pivot)
            )
            asked.append((pivot, others, above))
            pivot, others = steps.send(above)
    except StopIteration as end:
        return end.value, asked


@pytest.mark.parametrize("seed", range(12))
def test_it_chooses_what_sorting_would(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 200))
    k = int(rng.integers(1, n + 1))
    scores = rng.integers(0, max(1, n // 2), size=n).astype(float)  # with ties
    rows, asked = drive(scores, k, seed)
    np.testing.assert_array_equal(rows, best(scores, k))
    declared = declare(scores, k, seed=seed)
    np.testing.assert_array_equal(np.flatnonzero(declared.chosen), rows)
    assert declared.passes == len(asked)
    np.testing.assert_array_equal(places(n, asked), declared.levels)


@pytest.mark.parametrize("seed", range(6))
def test_levels_follow_from_the_answers_alone(seed):
    """By the transitive closure of what was declared, scores unseen."""
    n = 30
    scores = np.random.default_rng(seed).integers(0, 20, size=n).astype(float)
    declared = declare(scores, 7, seed=seed)
    rows, asked = drive(scores, 7, seed)
    higher = np.zeros((n, n), bool)
    for pivot, others, above in asked:
        higher[others[above], pivot] = True
        higher[pivot, others[~above]] = True
    for through in range(n):
        higher |= higher[:, through : through + 1] & higher[through]
    pivots = [pivot for pivot, _, _ in asked]
    known = higher[:, pivots] + (np.arange(n)[:, None] == np.array(pivots))
    unknown = ~(known | higher[pivots].T)
    assert not unknown.any()
    np.testing.assert_array_equal(declared.levels, known.sum(1))
    # A pivot shares its level with the scores next above it.
    left = np.setdiff1d(np.arange(n), [*rows, *pivots])
    assert min(declared.levels[rows]) > max(declared.levels[left])


def test_pivots_are_the_secure_runs():
    """What mpc_bridge's choice of revision 8be871c drew and counted."""
    scores = np.random.default_rng(7).integers(0, 333, size=1000).astype(float)
    _, asked = drive(scores, 150, 7)
    assert [pivot for pivot, _, _ in asked][:4] == [625, 890, 772, 216]
    assert (len(asked), sum(len(others) for _, others, _ in asked)) == (9, 1940)


def test_passes_are_those_expected():
    scores = np.arange(300.0)
    passes = [declare(scores, 60, seed=seed).passes for seed in range(300)]
    # Standard deviation 2.6 of one, .15 of the mean.
    assert abs(np.mean(passes) - choice_cost(300, 60).passes) < 0.6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "n must be at least 1"),
        ((5, 0), "k must be at least 1"),
        ((5, 6), "k must be at most the number of scores, 5, got 6"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        next(quickselect(*arguments, seed=0))
    with pytest.raises(ValueError, match=r"scores must have shape \[n\]"):
        declare(np.zeros((2, 2)), 1, seed=0)
    with pytest.raises(ValueError, match="finite"):
        declare(np.array([0.0, np.nan]), 1, seed=0)
