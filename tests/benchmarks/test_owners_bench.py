"""The benchmark of owners by one vector: its deals, its search and its table."""

import numpy as np

from benchmarks import owners
from benchmarks.owners import BUY, COPIES, HONEST, N, Result


def test_a_deal_has_copies_and_noise():
    rows = owners.deal(0)
    of = [rows.owners == o for o in range(N)]
    for copied in range(COPIES):
        first, second = of[copied], of[HONEST + copied]
        part = rows.x[: len(rows.owners)]
        np.testing.assert_allclose(part[second], part[first], atol=0.2)
        assert (part[second] != part[first]).any()
        assert (rows.y[: len(first)][second] == rows.y[: len(first)][first]).all()
    base = rows.y[len(rows.owners) :]
    counts = np.bincount(base, minlength=10)
    assert sorted(counts) == [owners.RARE] * 5 + [owners.COMMON] * 5
    assert len(rows.x_val) == len(rows.x_test) == 250


def test_the_search_ends_where_no_swap_helps():
    """On a game with a known best set that adding owners one by one misses."""
    worth = np.linspace(1, 2, N)

    def score(masks):
        masks = np.asarray(masks)
        bad = masks[:, -1] & (masks.sum(axis=1) > 1)  # the best alone, and bad company
        return masks @ worth - 5 * bad

    bought = owners.best_by_retraining(score)
    assert np.flatnonzero(bought).tolist() == [*range(N - 1 - BUY, N - 1)]


def test_gradients_are_those_of_the_log_loss():
    rows = owners.deal(1)
    sides = owners.gradients(rows)
    assert sides.owners.shape == (N, 650)
    assert sides.targets.shape == (250, 650)
    np.testing.assert_allclose(sides.hessian, sides.hessian.T, atol=1e-12)
    assert np.linalg.eigvalsh(sides.damped())[0] >= owners.DAMPING * (1 - 1e-9)
    # Copies differ by their noise only.
    first, second = sides.owners[0], sides.owners[HONEST]
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert cosine > 0.99


def test_the_table():
    run = {
        "matching": Result(0.9, 0.02, -0.01, 0, 1.5),
        "none": Result(float("nan"), 2.0, 2.0, 0, 0.0),
    }
    text = owners.as_text({"digits": [run, run]}, 100)
    assert "## Digits" in text
    assert "(2 deals, truth by 100 trainings)" in text
    assert "| matching | 0.90 (0.90 to 0.90) | +2.0% (+2.0% to +2.0%) |" in text
    assert "| none |  | +200.0%" in text
