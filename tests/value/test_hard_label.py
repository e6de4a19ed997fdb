"""Weighted KNN-Shapley for hard labels: enumeration, the published loop, the bound."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references as ref

import jaxsel
from benchmarks import _weighted
from jaxsel import weighted_knn_shapley
from jaxsel.value._hard_label import _by_rank, weighted_shapley

from . import cases

pytestmark = pytest.mark.every(3)


def fade(distance):
    return jnp.exp(-distance / 2)


def enumerate_votes(votes, k):
    """Value points in the order of distance, by the definition of the value."""
    n = len(votes)

    def utility(members):
        return float(sum(votes[i] for i in members[:k]) >= 0)

    values = np.zeros(n)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        for size in range(n):
            for members in itertools.combinations(others, size):
                change = utility(sorted((*members, i))) - utility(members)
                values[i] += change / (n * math.comb(n - 1, size))
    return values


def sizes(distance, weights, bits):
    if weights is None:
        return np.ones(len(distance), int)
    weight = np.asarray(weights(distance), np.float64)
    return np.round(weight / weight.max() * (2**bits - 1)).astype(int)


def enumerate_points(data, k, weights, bits, n_classes, metric="l2"):
    """Value points by each of the other classes, `[n_val, n]`; ties by index."""
    classes = np.union1d(data.y, data.y_val).tolist()
    classes += [None] * (n_classes - len(classes))
    every = []
    for point, label in enumerate(data.y_val):
        distance = ref.distances(data.x, data.x_val, metric)[point]
        order = np.argsort(distance, kind="stable")
        size = sizes(distance, weights, bits)
        total = np.zeros(data.n)
        for other in classes:
            if other == label:
                continue
            among = [i for i in order if data.y[i] in (label, other)]
            votes = [size[i] if data.y[i] == label else -size[i] for i in among]
            total[among] += enumerate_votes(votes, k)
        every.append(total / max(1, n_classes - 1))
    return np.array(every)


@pytest.mark.parametrize(
    ("n", "k", "levels"),
    [(1, 1, 3), (1, 5, 1), (2, 2, 3), (4, 9, 1), (7, 1, 3), (7, 3, 1), (7, 5, 3)],
)
@pytest.mark.left_out
def test_kernel_is_the_enumeration(n, k, levels):
    rng = np.random.default_rng([n, k])
    for _ in range(5):
        votes = rng.integers(-levels, levels + 1, n)
        distances = rng.permutation(n).astype(np.float32)
        found = weighted_shapley(distances, votes.astype(np.int32), k=k, levels=levels)
        order = np.argsort(distances)
        cases.close(np.asarray(found)[order], enumerate_votes(votes[order], k), 2e-7)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.left_out
def test_all_votes_of_four_points(k):
    """Ties of votes among them, which count as right."""
    every = np.array([*itertools.product([-1, 0, 1], repeat=4)])
    one = partial(weighted_shapley, np.arange(4.0), k=k, levels=1)
    found = jax.vmap(one)(every.astype(np.int32))
    cases.close(found, [enumerate_votes(votes, k) for votes in every], 2e-7)


@pytest.mark.parametrize("make", [cases.random, cases.grid])
@pytest.mark.parametrize(
    ("k", "weights", "bits"), [(1, fade, 2), (3, fade, 3), (4, None, 3)]
)
@pytest.mark.every(2)
def test_function_is_the_enumeration(make, k, weights, bits):
    data = make(7, 4)
    n_classes = data.n_classes
    expected = enumerate_points(data, k, weights, bits, n_classes)
    found = weighted_knn_shapley(
        *data.classes(), k=k, weights=weights, bits=bits, reduce=None
    )
    cases.close(found.values, expected, 3e-7)


@pytest.mark.left_out
def test_two_classes_and_cosine():
    data = cases.random(7, 4)
    data = cases.changed(data, y=data.y % 2, y_val=np.array([0, 1, 0, 1]))
    for metric in ("l2", "cosine"):
        expected = enumerate_points(data, 3, fade, 3, 2, metric)
        found = weighted_knn_shapley(
            *data.classes(), k=3, weights=fade, metric=metric, reduce=None
        )
        cases.close(found.values, expected, 3e-7)
    more = weighted_knn_shapley(
        *data.classes(), k=3, weights=fade, n_classes=4, reduce=None
    )
    # Against classes that nobody has every set is right.
    expected = enumerate_points(data, 3, fade, 3, 2)
    cases.close(more.values, expected / 3, 3e-7)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_published_loop_is_the_enumeration(k):
    rng = np.random.default_rng(k)
    for n in (k + 1, 7):
        votes = rng.integers(-3, 4, n)
        found = _weighted.published(votes, k, range(n))
        np.testing.assert_allclose(found, enumerate_votes(votes, k), atol=1e-12)


@pytest.mark.parametrize(("n", "k", "bits"), [(60, 5, 3), (90, 12, 2)])
@pytest.mark.left_out
def test_kernel_is_the_published_loop(n, k, bits):
    rng = np.random.default_rng(n)
    levels = 2**bits - 1
    votes = rng.integers(-levels, levels + 1, n)
    expected = _weighted.published(votes, k, range(n))
    found = weighted_shapley(
        np.arange(n, dtype=np.float32), votes.astype(np.int32), k=k, levels=levels
    )
    # Of the largest value a hundred thousandth is asked for.
    cases.close(found, expected, 1e-5 * np.abs(expected).max())


def two_classes(n, m, seed=0):
    rng = np.random.default_rng([n, seed])
    y, y_val = rng.integers(0, 2, n), rng.integers(0, 2, m)
    x, x_val = (
        (rng.normal(size=(len(c), 3)) + c[:, None]).astype(np.float32)
        for c in (y, y_val)
    )
    return x, y, x_val, y_val


def test_values_sum_to_the_utility_of_all():
    x, y, x_val, y_val = two_classes(200, 9)
    found = weighted_knn_shapley(x, y, x_val, y_val, k=5, weights=fade, reduce=None)
    distance = ref.distances(x, x_val)
    for point in range(9):
        size = sizes(distance[point], fade, 3)
        near = np.argsort(distance[point], kind="stable")[:5]
        votes = np.where(y[near] == y_val[point], size[near], -size[near])
        total = np.asarray(found.values[point], np.float64).sum()
        assert abs(total - (float(votes.sum() >= 0) - 1)) < 2e-5


@pytest.mark.parametrize("reach", [1, 5, 20, 79])
@pytest.mark.left_out
def test_the_bound_holds(reach):
    data = two_classes(80, 12)
    options = {"k": 5, "weights": fade, "reduce": None}
    exact = weighted_knn_shapley(*data, **options)
    near = weighted_knn_shapley(*data, method="hybrid", reach=reach, **options)
    error = np.abs(np.asarray(near.values) - np.asarray(exact.values))
    bound = np.asarray(near.error_bound)
    assert (error <= bound).all()
    # What it is worth: no more than some times what is left out.
    assert bound.max() <= 5 * (1 / max(5, reach) + 1 / 80) + 1e-4
    if reach == 20:
        assert error.max() > 1e-3
        assert exact.error_bound is None


@pytest.mark.left_out
def test_the_bound_is_tight_where_all_is_left_out():
    """A vote that each later point would turn: by K / (m (m - 1)) each."""
    n, k, reach = 30, 1, 10
    votes = np.r_[1, -np.ones(n - 1, int)].astype(np.int32)
    here = jnp.ones(n, bool)
    exact, _ = _by_rank(votes, here, k=k, levels=1, reach=None)
    near, bound = _by_rank(votes, here, k=k, levels=1, reach=reach)
    error = abs(float(exact[0] - near[0]))
    assert error == pytest.approx(k * (1 / reach - 1 / n), rel=1e-5)
    assert error <= bound[0] <= 1.001 * error + 1e-5


@pytest.mark.left_out
def test_a_reach_of_all_is_exact():
    data = two_classes(40, 5)
    exact = weighted_knn_shapley(*data, weights=fade)
    near = weighted_knn_shapley(*data, weights=fade, method="hybrid", reach=500)
    cases.close(near.values, exact.values, 1e-9)
    assert 0 < np.asarray(near.error_bound).max() < 1e-5


@pytest.mark.left_out
def test_order_of_rows_and_chunks():
    x, y, x_val, y_val = two_classes(60, 11)
    whole = weighted_knn_shapley(x, y, x_val, y_val, weights=fade)
    order = np.random.default_rng(0).permutation(60)
    moved = weighted_knn_shapley(x[order], y[order], x_val, y_val, weights=fade)
    cases.close(moved.values, np.asarray(whole.values)[order], 1e-7)
    first = weighted_knn_shapley(x, y, x_val[:4], y_val[:4], weights=fade)
    rest = weighted_knn_shapley(x, y, x_val[4:], y_val[4:], weights=fade, chunk_size=3)
    cases.close(first.merge(rest).values, whole.values, 1e-7)


def test_near_ties_are_settled():
    """Far from the origin float32 products can't tell which of two is nearer."""
    x = np.array([[1e4 + 1], [1e4 + 1.01], [1e4 + 3], [1e4 + 4]])
    y, x_val, y_val = [1, 0, 0, 1], np.array([[1e4]]), [0]
    found = weighted_knn_shapley(x, y, x_val, y_val, k=1)
    expected = enumerate_votes([-1, 1, 1, -1], 1)
    cases.close(found.values, expected, 2e-7)


@pytest.mark.left_out
def test_labels_of_texts_and_one_class():
    x, y, x_val, y_val = two_classes(20, 3)
    names = np.array(["cat", "dog"])
    plain = weighted_knn_shapley(x, y, x_val, y_val)
    named = weighted_knn_shapley(x, names[y], x_val, names[y_val])
    cases.close(named.values, plain.values, 0)
    alone = weighted_knn_shapley(x, 0 * y, x_val, 0 * y_val)
    assert not np.asarray(alone.values).any()


@pytest.mark.left_out
def test_zero_weights_vote_for_nobody():
    x, y, x_val, y_val = two_classes(20, 3)
    none = weighted_knn_shapley(x, y, x_val, y_val, weights=lambda d: 0 * d)
    assert not np.asarray(none.values).any()


def test_many_levels():
    """A few validation points at a time, for what each has in memory."""
    data = cases.random(7, 6)
    expected = enumerate_points(data, 2, fade, 6, data.n_classes)
    found = weighted_knn_shapley(
        *data.classes(), k=2, weights=fade, bits=6, reduce=None
    )
    cases.close(found.values, expected, 3e-7)


@pytest.mark.left_out
def test_float64_mode():
    data = two_classes(30, 4)
    plain = weighted_knn_shapley(*data, weights=fade)
    with jax.enable_x64(True):
        wide = weighted_knn_shapley(*data, weights=fade)
    cases.close(wide.values, plain.values, 1e-7)


@pytest.mark.left_out
def test_on_several_devices():
    data = two_classes(40, 16)
    plain = weighted_knn_shapley(*data, weights=fade)
    mesh = jaxsel.make_mesh(jax.devices()[:2])
    for split in ("validation", "training"):
        found = weighted_knn_shapley(*data, weights=fade, mesh=mesh, split=split)
        cases.close(found.values, plain.values, 1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be"),
        ({"bits": 0}, "bits must be"),
        ({"bits": 9}, "bits must be from 1 to 8"),
        ({"reach": 0}, "reach must be"),
        ({"ties": "average"}, "ties"),
        ({"method": "fast"}, "method"),
        ({"n_classes": 1}, "n_classes"),
        ({"weights": lambda d: 1 - d}, "zero or more"),
        ({"weights": lambda d: d / 0}, "zero or more"),
        ({"weights": lambda d: d * jnp.nan}, "zero or more"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        weighted_knn_shapley(*two_classes(10, 2), **options)


def test_soft_labels_are_refused():
    x, y, x_val, y_val = two_classes(10, 2)
    with pytest.raises(ValueError, match="must be labels"):
        weighted_knn_shapley(x, np.eye(2)[y], x_val, y_val)


@pytest.mark.left_out
def test_options_are_in_the_method():
    data = two_classes(10, 2)
    a = weighted_knn_shapley(*data, weights=fade, bits=2)
    b = weighted_knn_shapley(*data, weights=fade, bits=3)
    assert a.method != b.method
    assert "k=5, bits=2" in a.method
