import itertools
import math

import numpy as np
import pytest

from benchmarks import _knn, bench_knn

CASES = [case for case in bench_knn.cases(quick=True) if not case.platforms]


@pytest.fixture(scope="module")
def points():
    return _knn.mixture(9, 4, 3, k=2)


def test_a_slightly_wrong_result_is_noticed():
    case = CASES[0]
    inputs, peer = case.inputs(), case.contenders[-1]
    right = _knn.shapley(inputs, round(len(inputs.x_val) * peer.share))
    assert peer.check(inputs, right)["error"] == 0
    other_k = _knn.mixture(500, 50, 64, k=9)
    assert peer.check(other_k, right)["error"] > peer.limits["error"]


def test_full_size_cases_are_those_of_the_issue():
    cases = {case.name: case for case in bench_knn.cases()}
    work = {name: case.work for name, case in cases.items()}
    assert work == {
        **dict.fromkeys(["exact", "hybrid", "sort-free"], 10**7),
        **{"memory": 5 * 10**7, "million": 10**8, "gpu": 5 * 10**8},
        **dict.fromkeys(["smallest 100", "smallest 1000"], 5 * 10**8),
        "weighted": 4 * 10**5,
    }
    limits = {
        (name, target.level, target.contender, target.quantity, target.limit)
        for name, case in cases.items()
        for target in case.targets
    }
    assert limits == {
        ("exact", "must", "jaxsel", "ratio", 25),
        ("exact", "goal", "jaxsel", "ratio", 60),
        ("hybrid", "goal", "hybrid", "ratio", 90),
        ("hybrid", "must", "hybrid", "certified", 1e-2),
        ("hybrid", "must", "hybrid", "error", 1e-3),
        ("sort-free", "goal", "threshold", "ratio", 150),
        ("sort-free", "goal", "banzhaf", "ratio", 150),
        ("memory", "must", "jaxsel", "peak_mb", 200),
        ("million", "must", "jaxsel", "peak_mb", 500),
        ("million", "goal", "jaxsel", "cpu_s", 10),
        ("weighted", "goal", "weighted", "ratio", 100),
        ("gpu", "goal", "jaxsel", "rate", 5e9),
    }


# The references, by enumeration of all coalitions.


@pytest.mark.parametrize("name", ["shapley", "banzhaf"])
def test_knn_references(points, name):
    def utility(near, match):
        return match[near][: points.k].sum() / points.k

    exact = _enumerated(points, utility, banzhaf=name == "banzhaf")
    np.testing.assert_allclose(getattr(_knn, name)(points, 4), exact, atol=1e-12)


def test_threshold_reference(points):
    def utility(near, match, inside):
        near = [i for i in near if inside[i]]
        return match[near].mean() if near else 1 / points.n_classes

    exact = _enumerated(points, utility, ball=True)
    np.testing.assert_allclose(_knn.threshold(points, 4), exact, atol=1e-12)
    assert np.any(exact != 0)


def _enumerated(points, utility, *, banzhaf=False, ball=False):
    n = len(points.x)
    total = np.zeros(n)
    for query, label in zip(points.x_val, points.y_val, strict=True):
        distance = np.linalg.norm(points.x.astype(np.float64) - query, axis=1)
        match = (points.y == label).astype(np.float64)
        more = (distance <= points.radius,) if ball else ()
        order = [int(i) for i in np.argsort(distance)]
        for i in range(n):
            others = [j for j in order if j != i]
            for size in range(n):
                weight = 1 / (n * math.comb(n - 1, size))
                if banzhaf:
                    weight = 0.5 ** (n - 1)
                for chosen in itertools.combinations(others, size):
                    joined = [j for j in order if j in chosen or j == i]
                    gain = utility(joined, match, *more)
                    gain -= utility(list(chosen), match, *more)
                    total[i] += weight * gain
    return total / len(points.x_val)
