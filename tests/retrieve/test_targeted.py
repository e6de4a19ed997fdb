"""Targeted choices against the plain greedy algorithm in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
from retrieve_cases import chosen, points
from row_cases import arrays, make

from jaxsel.retrieve import _targeted, retrieve_targeted

N, M, K = 300, 7, 50


def units(x):
    x = np.asarray(x, np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def cosines(x, hard):
    return np.maximum(units(x) @ units(hard).T, 0)


def greedy(worth, n, budget):
    """Choose what adds most, until nothing does; of equal gains the lower index."""
    found, before = [], 0.0
    while len(found) < budget:
        gains = [-1.0 if i in found else worth([*found, i]) - before for i in range(n)]
        best = int(np.argmax(np.round(gains, 9)))
        if gains[best] < 1e-9:
            break
        found.append(best)
        before = worth(found)
    return found


def facilities(alike, eta):
    return lambda some: alike[some].max(0).sum() + eta * alike[some].max(1).sum()


def facilities_alone(alike, eta):
    return alike.sum(1) + eta * alike.max(1)


def determinants(x, hard, eta, l2):
    x, hard = units(x), units(hard)
    kernel, across = x @ x.T, x @ hard.T
    inverse = np.linalg.inv(hard @ hard.T + l2 * np.eye(len(hard)))
    given = kernel - eta**2 * across @ inverse @ across.T

    def worth(some):
        here = np.ix_(some, some)
        noise = l2 * np.eye(len(some))
        return (
            np.linalg.slogdet(kernel[here] + noise)[1]
            - np.linalg.slogdet(given[here] + noise)[1]
        )

    return worth


@pytest.fixture(params=["all", "few"])
def kept(request, monkeypatch):
    """Let a pass keep all candidates, or 64: then it takes several."""
    if request.param == "few":
        monkeypatch.setattr(_targeted, "_KEPT", 1)
    return request.param


@pytest.mark.parametrize("eta", [0.0, 0.1, 1.0])
@pytest.mark.left_out
def test_facilities(eta, kept):
    x, hard = points(N, M)
    expected = greedy(facilities(cosines(x, hard), eta), N, K)
    found = retrieve_targeted(x, hard, K, eta=eta, chunk_size=70)
    assert chosen(found) == expected
    assert found.method == "retrieve_targeted(objective='flqmi')"
    # Without likeness there is soon nothing to add.
    assert (len(found) < K) == (eta == 0)


def test_passes_until_nothing_left_out_can_be_next(kept, monkeypatch):
    """More than one where few are kept, but not one a choice."""
    passes = []
    read = _targeted._Reader.chunks
    monkeypatch.setattr(
        _targeted._Reader, "chunks", lambda self: passes.append(1) or read(self)
    )
    x, hard = points(N, M)
    retrieve_targeted(x, hard, K, eta=0.1)
    assert len(passes) == 1 if kept == "all" else 1 < len(passes) < K / 2


def test_equal_gains_are_ordered_by_index(kept):
    """Each candidate twice, and all of them alike in fours."""
    x, hard = points(20, M)
    x = np.tile(x, (15, 1))
    expected = greedy(facilities(cosines(x, hard), 1.0), N, K)
    assert chosen(retrieve_targeted(x, hard, K, chunk_size=33)) == expected


@pytest.mark.every(3)
@pytest.mark.parametrize("objective", ["flqmi", "gcmi"])
def test_one_candidate_many_times(objective, kept):
    """A pass then leaves out what is as good as what it kept."""
    x, hard = points(1, M)
    found = retrieve_targeted(x.repeat(N, axis=0), hard, K, objective=objective)
    assert chosen(found) == [*range(K)]


def test_the_best_come_first_and_the_rest_is_left_out(kept):
    """No chunk but the first brings one that is kept."""
    n = 320  # five chunks
    x, hard = points(n, M)
    alike = cosines(x, hard)
    order = np.argsort(-facilities_alone(alike, 1.0), kind="stable")
    expected = greedy(facilities(alike[order], 1.0), n, K)
    assert chosen(retrieve_targeted(x[order], hard, K, chunk_size=64)) == expected


@pytest.mark.parametrize("objective", ["flqmi", "gcmi"])
@pytest.mark.every(4)
def test_all_candidates(objective, kept):
    """But for those that are like no hard sample."""
    x, hard = points(N, M)
    found = chosen(retrieve_targeted(x, hard[:2], 2 * N, eta=0.3, objective=objective))
    positive = np.flatnonzero(cosines(x, hard[:2]).max(1) > 0)
    assert len(positive) < N
    assert sorted(found) == positive.tolist()


@pytest.mark.every(3)
@pytest.mark.parametrize("objective", ["flqmi", "gcmi"])
def test_classes(objective, kept):
    """A candidate is like hard samples of its own class alone."""
    x, hard = points(N, M)
    labels, hard_labels = np.arange(N) % 4, np.arange(M) % 3
    alike = cosines(x, hard) * (labels[:, None] == hard_labels)
    options = {"objective": objective, "labels": labels, "hard_labels": hard_labels}
    found = chosen(retrieve_targeted(x, hard, K, **options))
    if objective == "flqmi":
        assert found == greedy(facilities(alike, 1.0), N, K)
    else:
        assert found == np.argsort(-alike.sum(1), kind="stable")[:K].tolist()
    assert not (labels[found] == 3).any()


def kernel(distances):
    return jnp.exp(-distances / 8)


@pytest.mark.every(3)
@pytest.mark.parametrize("objective", ["flqmi", "gcmi"])
def test_a_similarity_of_ones_own(objective, kept):
    x, hard = points(N, M)
    far = ((x[:, None].astype(np.float64) - hard) ** 2).sum(-1)
    alike = np.exp(-far / 8)
    options = {"objective": objective, "metric": "l2", "similarity": kernel}
    found = chosen(retrieve_targeted(x, hard, K, **options))
    if objective == "flqmi":
        assert found == greedy(facilities(alike, 1.0), N, K)
    else:
        assert found == np.argsort(-alike.sum(1), kind="stable")[:K].tolist()


@pytest.mark.parametrize(
    ("eta", "l2"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.05), (0.0, 1.0)]
)
@pytest.mark.left_out
def test_determinants(eta, l2):
    x, hard = points(N, M)
    options = {"objective": "logdetmi", "eta": eta, "l2": l2}
    found = chosen(retrieve_targeted(x, hard, 30, **options))
    # Unrelated hard samples are told nothing about.
    expected = greedy(determinants(x, hard, eta, l2), N, 30)
    assert found == expected
    assert (len(found) == 0) == (eta == 0)


def test_determinants_of_all_candidates():
    x, hard = points(40, M)
    found = chosen(retrieve_targeted(x, hard, 99, objective="logdetmi"))
    assert sorted(found) == [*range(40)]


@pytest.mark.parametrize("objective", ["flqmi", "gcmi"])
@pytest.mark.parametrize("kind", ["npy folder", "grain iterator"])
@pytest.mark.every(8)
def test_rows(kind, objective, kept, tmp_path):
    x, y = arrays()
    hard = points(1, M, x.shape[1])[1]
    rows = make(kind, tmp_path, x, y)
    expected = chosen(retrieve_targeted(x, hard, 20, objective=objective))
    assert chosen(retrieve_targeted(rows, hard, 20, objective=objective)) == expected


def test_refusals(tmp_path):
    x, hard = points(N, M)

    def refused(match, error=ValueError, features=x, budget=5, **options):
        with pytest.raises(error, match=match):
            retrieve_targeted(features, hard, budget, **options)

    refused("budget must be at least 1, got 0", budget=0)
    refused("objective must be one of 'flqmi', .* got 'fl'", objective="fl")
    refused("eta must be .* got -1", eta=-1)
    refused("similarity must be given for the metric 'l2'", metric="l2")
    refused("similarity must return numbers .* got -", similarity=lambda d: 1 - 3 * d)
    refused("got nan in rows 0 to", similarity=lambda d: d * jnp.nan)
    refused("labels is given, so hard_labels must be", labels=np.zeros(N))
    bad = x.copy()
    bad[3, 2] = np.nan
    refused("features must be finite, but row 3", features=bad)
    deep = {"objective": "logdetmi"}
    refused("features must be finite .* row 3", features=bad, **deep)
    refused("eta must be 0 to 1 for 'logdetmi', got 2", eta=2, **deep)
    refused("l2 must be .* got 0", l2=0, **deep)
    refused("metric must be left out for 'logdetmi'", metric="l2", **deep)
    refused("similarity must be left out", similarity=kernel, **deep)
    labels = {"labels": np.zeros(N), "hard_labels": np.zeros(M)}
    refused("labels must be left out", **labels, **deep)
    rows = make("npy folder", tmp_path, *arrays())
    hard = points(1, M, arrays()[0].shape[1])[1]
    refused("features must be an array for 'logdetmi'", TypeError, rows, **deep)
