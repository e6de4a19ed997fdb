import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

from benchmarks import _matching, bench_match

CASES = bench_match.cases(quick=True)


@pytest.mark.left_out
def test_a_slightly_wrong_choice_is_noticed():
    case = CASES[0]
    pool, ours = case.inputs(), case.contenders[0]
    match = ours.make(pool)()
    figures = functools.partial(_matching.figures, pool, l2=0.5, positive=True)
    right = figures(match.indices, match.weights)
    off = figures(match.indices, match.weights * 1.001)
    other = figures((match.indices + 1) % len(pool.features), match.weights)
    unknown = figures(match.indices, match.weights * np.nan)
    limits = ours.limits
    assert all(right[name] <= limit for name, limit in limits.items())
    assert off["kkt"] > limits["kkt"]
    assert off["missed"] == 0
    assert other["behind"] > limits["behind"]
    assert other["missed"] > limits["missed"]
    assert not unknown["behind"] <= limits["behind"]
    assert not unknown["kkt"] <= limits["kkt"]


def test_full_size_cases_are_those_of_the_issue():
    cases = {case.name: case for case in bench_match.cases()}
    assert {name: case.work for name, case in cases.items()} == {
        "factored": 10_000 * 128,
        "food": 50_000 * 128,
        "small": 10_000 * 128,
        "past the rank": 10_000 * 512,
        "many": 10_000 * 512,
        "million": 1_000_000 * 64,
        "jvp MLP": 4096,
        "jvp CNN": 4096,
    }
    limits = {
        (name, target.level, target.contender, target.quantity, target.limit)
        for name, case in cases.items()
        for target in case.targets
    }
    assert limits == {
        ("factored", "must", "jaxsel", "ratio", 6),
        ("factored", "goal", "jaxsel", "ratio", 10),
        ("food", "must", "jaxsel", "cpu_s", 4),
        ("food", "goal", "jaxsel", "cpu_s", 2),
        ("food", "must", "jaxsel", "peak_mb", 570),
        ("small", "goal", "unconstrained", "ratio", 1),
        ("small", "goal", "unconstrained, tol", "ratio", 1),
        ("past the rank", "goal", "unconstrained", "ratio", 1),
        ("past the rank", "goal", "unconstrained, tol", "ratio", 1),
        ("many", "goal", "jaxsel", "cpu_s", 1),
        ("many", "goal", "jaxsel", "kkt", 1e-6),
        ("million", "goal", "jaxsel", "cpu_s", 30),
        ("jvp MLP", "must", "jvp", "ratio", 10),
        ("jvp MLP", "goal", "jvp", "ratio", 15),
    }


@pytest.mark.parametrize("l2", [0.0, 0.5])
@pytest.mark.parametrize("positive", [True, False])
def test_the_reference_is_matching_pursuit(l2, positive):
    pool = _matching.rows(40, 24, k=12, seed=1)
    answer = _matching.reference(pool, l2=l2, positive=positive)
    rows, target = pool.features.astype(np.float64), pool.target.astype(np.float64)
    chosen, weights = [], np.empty(0)
    for _ in range(pool.k):
        score = rows @ (target - weights @ rows[chosen])
        score = score if positive else np.abs(score)
        score[chosen] = -np.inf
        if positive and score.max() <= 0:
            break
        chosen.append(int(np.argmax(score)))
        tall = np.vstack([rows[chosen].T, np.sqrt(l2) * np.eye(len(chosen))])
        wide = np.append(target, np.zeros(len(chosen)))
        solve = nnls if positive else functools.partial(np.linalg.lstsq, rcond=None)
        weights = solve(tall, wide)[0]
    np.testing.assert_array_equal(answer.indices, np.array(chosen)[weights != 0])
    expected = np.sum((wide - tall @ weights) ** 2)
    np.testing.assert_allclose(answer.objective, expected, rtol=1e-9, atol=1e-12)


def test_products_are_those_of_the_gradients_written_out():
    pool = _matching.last_layer(50, 3, 16, k=4)
    matrix = _matching.written_out(pool).astype(np.float64)
    gram = matrix @ matrix.T
    ids = np.array([3, 41])
    for found, expected in (
        (_matching.columns(pool, ids), gram[ids]),
        (_matching.lengths(pool), np.diagonal(gram)),
        (
            _matching.correlations(pool, pool.target),
            matrix @ pool.target.reshape(-1).astype(np.float64),
        ),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_files_hold_the_candidates_and_go_with_the_pool():
    pool = _matching.last_layer(40, 3, 16, k=4, files=True)
    kept = _matching.last_layer(40, 3, 16, k=4)
    folder = Path(pool.folder)
    for found, expected in zip(
        pool.load(np.arange(5, 9)),
        (kept.errors[5:9], kept.features[5:9]),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    assert len(list(folder.iterdir())) == 2
    del pool
    assert not folder.exists()


def test_every_case_and_contender_has_a_name_of_its_own():
    for names in (
        [case.name for case in CASES],
        *([x.name for x in case.contenders] for case in CASES),
    ):
        assert not [a for a, b in itertools.combinations(names, 2) if a == b]
