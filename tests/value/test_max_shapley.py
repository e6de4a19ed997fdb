"""Values of documents where the best of them serves a query."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsel
from jaxsel.data import open_rows

NAN = np.nan


def worth(scores, weights, members):
    """Return the worth of a set of columns, by the definition."""
    best = np.nan_to_num(scores[:, list(members)], nan=-1.0).max(axis=1, initial=0.0)
    return (weights * np.maximum(best, 0)).mean()


def enumerated(scores, players=None, weights=None):
    """Return Shapley values of players, each a list of columns, over all coalitions."""
    scores = np.asarray(scores, np.float64)
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights)
    players = [[i] for i in range(scores.shape[1])] if players is None else players
    n, values = len(players), np.zeros(len(players))
    for size in range(n):
        share = 1 / (n * math.comb(n - 1, size))
        for coalition in itertools.combinations(range(n), size):
            columns = [c for p in coalition for c in players[p]]
            before = worth(scores, weights, columns)
            for i in set(range(n)) - set(coalition):
                gain = worth(scores, weights, columns + players[i]) - before
                values[i] += share * gain
    return values


def table(seed, q=6, m=7):
    """Return scores with ties, negative ones, gaps, and an empty query."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(q, m)).round(1)
    scores[rng.random((q, m)) < 0.2] = NAN
    scores[1] = NAN
    scores[2, :3] = 0.7
    scores[3] = -np.abs(scores[3])
    return scores


@pytest.mark.parametrize("seed", range(4))
def test_values_are_those_of_all_coalitions(seed):
    scores = table(seed)
    values = jaxsel.max_shapley(scores)
    np.testing.assert_allclose(values.values, enumerated(scores), atol=1e-7)
    assert np.sum(values.values) == pytest.approx(
        worth(scores, 1.0, range(7)), abs=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_owners_are_players_with_all_their_documents(seed):
    scores, owners = table(seed, m=8), [*"abacbadc"]
    players = [np.flatnonzero(np.array(owners) == o).tolist() for o in "abcd"]
    weights = np.arange(6) / 2
    values = jaxsel.max_shapley(scores, owners=owners, query_weights=weights)
    assert values.index == ("a", "b", "c", "d")
    np.testing.assert_allclose(
        values.values, enumerated(scores, players, weights), atol=1e-6
    )


def test_a_copy_gains_its_owner_nothing():
    scores = np.abs(np.random.default_rng(0).normal(size=(20, 6)))
    owners = np.array([0, 0, 1, 1, 2, 2])
    once = jaxsel.max_shapley(scores, owners=owners).values
    twice = jaxsel.max_shapley(np.c_[scores, scores[:, 0]], owners=np.append(owners, 0))
    np.testing.assert_allclose(twice.values, once, rtol=1e-6)
    sums = jaxsel.max_shapley(np.c_[scores, scores[:, 0]]).by_owner([*owners, 0])
    assert sums.values[0] > once[0]


def as_lists(scores, rng):
    """Return the scores of each query in an order of its own, and their columns."""
    ids = np.stack([rng.permutation(scores.shape[1]) for _ in scores])
    return np.take_along_axis(scores, ids, axis=1), ids


@pytest.mark.parametrize("owners", [None, [*"abacbad"]])
def test_lists_with_ids_are_the_table(owners):
    scores = table(5)
    listed, ids = as_lists(scores, np.random.default_rng(0))
    ids = np.where(np.isnan(listed), -1, ids)
    weights = np.linspace(0, 2, 6)
    options = {"owners": owners, "query_weights": weights}
    expected = jaxsel.max_shapley(scores, **options)
    values = jaxsel.max_shapley(np.nan_to_num(listed, nan=9), ids=ids, **options, n=7)
    np.testing.assert_allclose(values.values, expected.values, atol=1e-7)
    np.testing.assert_allclose(values.m2, expected.m2, rtol=1e-5, atol=1e-7)
    rows = [
        jaxsel.max_shapley(*a, reduce=None, **options).values
        for a in ((scores,), (listed,))
    ]
    by_list = jaxsel.max_shapley(listed, ids=ids, reduce=None, **options, n=7)
    np.testing.assert_allclose(by_list.values, rows[0], atol=1e-7)
    np.testing.assert_allclose(rows[0].mean(0), expected.values, atol=1e-6)


def test_a_document_listed_twice_counts_by_its_best_score():
    twice = jaxsel.max_shapley(
        [[0.3, 0.9, 0.5, 0.4], [0.1, 0.2, 0.3, 0.4]],
        ids=[[0, 1, 0, 2], [2, 0, 1, -1]],
    )
    once = jaxsel.max_shapley([[0.5, 0.9, 0.4], [0.2, 0.3, 0.1]])
    np.testing.assert_allclose(twice.values, once.values, rtol=1e-6)
    np.testing.assert_allclose(twice.m2, once.m2, rtol=1e-6)


def test_without_n_the_largest_id_says_how_many():
    values = jaxsel.max_shapley([[1.0, 2.0]], ids=[[0, 4]])
    np.testing.assert_allclose(values.values, [0.5, 0, 0, 0, 1.5])
    with pytest.warns(UserWarning, match="no number above 0"):
        assert len(jaxsel.max_shapley([[1.0]], ids=[[-1]])) == 1


def test_standard_errors_are_those_of_means_over_queries():
    scores = np.random.default_rng(1).normal(size=(40, 5))
    values = jaxsel.max_shapley(scores)
    rows = np.asarray(jaxsel.max_shapley(scores, reduce=None).values)
    assert rows.shape == (40, 5)
    error = rows.std(axis=0, ddof=1) / np.sqrt(40)
    np.testing.assert_allclose(values.stderr, error, rtol=1e-5)
    assert values.count == 40


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 1000])
def test_chunks_change_nothing(chunk_size):
    rng = np.random.default_rng(2)
    scores = 1e3 + rng.normal(size=(100, 9))
    listed, ids = as_lists(scores, rng)
    weights = rng.random(100)
    for options in ({}, {"ids": ids}, {"ids": ids, "owners": [*"aabbccdda"]}):
        whole = jaxsel.max_shapley(listed, query_weights=weights, **options)
        parts = jaxsel.max_shapley(
            listed, query_weights=weights, chunk_size=chunk_size, **options
        )
        np.testing.assert_allclose(parts.values, whole.values, rtol=2e-7)
        np.testing.assert_allclose(parts.m2, whole.m2, rtol=1e-6)


def test_rows_are_read_in_chunks():
    scores = table(3, q=30)
    listed, ids = as_lists(scores, np.random.default_rng(0))
    expected = jaxsel.max_shapley(scores)
    values = jaxsel.max_shapley(open_rows(scores), chunk_size=7)
    np.testing.assert_allclose(values.values, expected.values, atol=1e-7)
    values = jaxsel.max_shapley(open_rows(listed), ids=open_rows(ids), chunk_size=7)
    np.testing.assert_allclose(values.values, expected.values, atol=1e-7)


def test_parts_merge():
    scores = table(4, q=20)
    first, second = (jaxsel.max_shapley(part) for part in (scores[:8], scores[8:]))
    whole = jaxsel.max_shapley(scores)
    merged = first.merge(second)
    np.testing.assert_allclose(merged.values, whole.values, atol=1e-7)
    np.testing.assert_allclose(merged.stderr, whole.stderr, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="both counted the 8 queries"):
        first.merge(jaxsel.max_shapley(scores[:8]))
    owned = jaxsel.max_shapley(scores[:8], owners=[*"aabbccd"])
    other = jaxsel.max_shapley(scores[8:], owners=[*"abbbccd"])
    with pytest.raises(ValueError, match="documents, or their owners"):
        owned.merge(other)


def test_float32_far_from_zero():
    rng = np.random.default_rng(3)
    scores = (1e6 + rng.normal(size=(50, 6))).astype(np.float32)
    values = jaxsel.max_shapley(scores)
    np.testing.assert_allclose(values.values, enumerated(scores), rtol=1e-7)
    rows = np.stack([enumerated(row[None]) for row in scores])
    squares = ((rows - rows.mean(0)) ** 2).sum(0)
    np.testing.assert_allclose(values.m2, squares, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "int8", "bool", "bfloat16"])
def test_types_of_scores(dtype):
    scores = jnp.asarray([[0, 1, 1], [1, 0, 0]], dtype)
    values = jaxsel.max_shapley(scores)
    np.testing.assert_allclose(values.values, [0.5, 0.25, 0.25])


def test_x64_changes_nothing():
    scores = table(0)
    with jax.enable_x64(True):
        values = jaxsel.max_shapley(scores)
    assert values.values.dtype == np.float32
    np.testing.assert_array_equal(values.values, jaxsel.max_shapley(scores).values)


REFUSED = {
    "one query": (lambda: jaxsel.max_shapley(np.ones(3)), r"scores\[None\]"),
    "no query": (
        lambda: jaxsel.max_shapley(np.ones((0, 3))),
        "scores must not be empty",
    ),
    "infinity": (
        lambda: jaxsel.max_shapley([[1.0, 2.0], [np.inf, 1.0]]),
        "query 1 has infinity",
    ),
    "text": (lambda: jaxsel.max_shapley([["a"]]), "scores must be numeric"),
    "too large": (
        lambda: jaxsel.max_shapley([[1e16]]),
        "1e-15 to 1e\\+15, got 1e\\+16",
    ),
    "n without ids": (lambda: jaxsel.max_shapley(np.ones((2, 3)), n=4), "left out"),
    "owners": (
        lambda: jaxsel.max_shapley(np.ones((2, 3)), owners=[1, 2]),
        "each of the 3 points",
    ),
    "ids": (
        lambda: jaxsel.max_shapley(np.ones((2, 2)), ids=[[0, 1], [2, 7]], n=5),
        "from 0 to 4, or -1 for none, got 7 for query 1",
    ),
    "negative ids": (
        lambda: jaxsel.max_shapley(np.ones((1, 2)), ids=[[0, -2]]),
        "got -2 for query 0",
    ),
    "shape of ids": (
        lambda: jaxsel.max_shapley(np.ones((2, 2)), ids=[[0, 1]]),
        r"the shape of scores, \(2, 2\)",
    ),
    "weights": (
        lambda: jaxsel.max_shapley(np.ones((2, 2)), query_weights=[1, 2, 3]),
        "each of the 2 queries, got 3",
    ),
    "few weights": (
        lambda: jaxsel.max_shapley(np.ones((2, 2)), query_weights=[1]),
        "query_weights must have one weight",
    ),
    "negative weights": (
        lambda: jaxsel.max_shapley(np.ones((2, 2)), query_weights=[1, -1]),
        "zero or more, got -1 for query 1",
    ),
    "reduce": (lambda: jaxsel.max_shapley([[1.0]], reduce="max"), "reduce must be one"),
    "chunk_size": (
        lambda: jaxsel.max_shapley([[1.0]], chunk_size=0),
        "chunk_size must be at least 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_fractional_ids_are_refused():
    with pytest.raises(TypeError, match="ids must be whole numbers, got float64"):
        jaxsel.max_shapley([[1.0]], ids=[[0.0]])


def test_raw_scores_are_told():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="no number above 0"):
        values = jaxsel.max_shapley(-rng.random((3, 4)))
    assert not np.any(values.values)
    scores = rng.random((60, 4))
    scores[17] *= 1e5  # a query whose scores are in another unit
    with pytest.warns(UserWarning, match="best score of query 17"):
        jaxsel.max_shapley(scores)
    jaxsel.max_shapley(scores, query_weights=1 / scores.max(axis=1))


def test_a_rare_document_keeps_its_value():
    scores = np.full((1000, 3), NAN)
    scores[:, 0], scores[5, 2] = 0.5, 1.0
    values = np.asarray(jaxsel.max_shapley(scores).values)
    np.testing.assert_allclose(values, [0.5 - 0.25e-3, 0, 0.75e-3], rtol=1e-5)
