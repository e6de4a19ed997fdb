"""Retrieval by features against slow references, faiss, and at the edges."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_retrieval as slow
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from retrieve_cases import BUDGET, METRICS, D, M, N, chosen, classes, points

from jaxsel import make_mesh
from jaxsel.retrieve import (
    _retrieve,
    coverage,
    empty_nearest,
    merge_nearest,
    nearest,
    retrieve_nearest,
)
from jaxsel.retrieve._coverage import Turns


@METRICS
@pytest.mark.every(2)
def test_as_the_reference(metric):
    x, hard = points()
    for seed in range(3):
        x, hard = points(seed=seed)
        found = chosen(retrieve_nearest(x, hard, BUDGET, metric=metric))
        assert found == slow.retrieve(x, hard, BUDGET, metric)
        assert len(found) == BUDGET


@pytest.mark.left_out
def test_more_hard_samples_than_budget():
    x, hard = points(60, 40)
    found = chosen(retrieve_nearest(x, hard, 15))
    assert found == slow.retrieve(x, hard, 15, "cosine")


@METRICS
def test_classes(metric):
    x, hard = points()
    given = classes()
    expected = slow.retrieve(x, hard, BUDGET, metric, *given.values())
    assert chosen(retrieve_nearest(x, hard, BUDGET, metric=metric, **given)) == expected
    # Text, and whole numbers of another type, will do as well.
    names = {key: np.array(list("dbca"))[value] for key, value in given.items()}
    assert chosen(retrieve_nearest(x, hard, BUDGET, metric=metric, **names)) == expected
    given["labels"] = given["labels"].astype(np.float64)
    assert chosen(retrieve_nearest(x, hard, BUDGET, metric=metric, **given)) == expected
    halves = {key: value / 2 for key, value in given.items()}
    assert (
        chosen(retrieve_nearest(x, hard, BUDGET, metric=metric, **halves)) == expected
    )


@pytest.mark.left_out
def test_a_budget_above_what_the_classes_have():
    x, hard = points()
    given = classes()
    every = retrieve_nearest(x, hard, N, **given)
    assert chosen(every) == slow.retrieve(x, hard, N, "cosine", *given.values())
    assert len(every) == np.sum(given["labels"] < 3) < N


@pytest.mark.parametrize("n_valid", [0, 3])
def test_few_candidates_of_a_class(n_valid):
    x, hard = points()
    y = np.arange(N) < n_valid
    found = retrieve_nearest(x, hard, BUDGET, labels=y, hard_labels=np.ones(M, bool))
    assert sorted(chosen(found)) == list(range(n_valid))


@pytest.mark.slow
def test_a_budget_of_everything():
    x, hard = points(20, 3)
    every = chosen(retrieve_nearest(x, hard, 20))
    assert every == slow.retrieve(x, hard, 20, "cosine")
    assert sorted(every) == list(range(20))
    more = retrieve_nearest(x, hard, 100)
    assert chosen(more) == every
    assert len(more) == len(more.indices) == 20


@pytest.mark.left_out
def test_lists_grow_when_exhausted(monkeypatch):
    """Hard samples that are all alike share their neighbours: lists must be long."""
    x, hard = points(m=1)
    hard = np.repeat(hard, M, axis=0)
    lengths = []
    whole = _retrieve.find_nearest

    def watched(stream, k, **options):
        lengths.append(k)
        return whole(stream, k, **options)

    monkeypatch.setattr(_retrieve, "find_nearest", watched)
    found = chosen(retrieve_nearest(x, hard, BUDGET))
    assert lengths == [10, 20, 40]
    assert found == slow.retrieve(x, hard[:1], BUDGET, "cosine")


@pytest.mark.left_out
@METRICS
@pytest.mark.parametrize("with_labels", [False, True])
def test_without_memory_for_lists(metric, with_labels, monkeypatch):
    x, hard = points()
    labels = classes() if with_labels else {}
    expected = slow.retrieve(x, hard, N, metric, *labels.values())
    for room in (2 * N, 1):  # two hard samples at a time, or one
        monkeypatch.setattr(_retrieve, "_LISTS", room)
        found = retrieve_nearest(x, hard, N, metric=metric, chunk_size=100, **labels)
        assert chosen(found) == expected


def test_from_lists_to_ranks(monkeypatch):
    """Lists of 10 fit, lists of 20 do not."""
    x, hard = points(m=1)
    hard = np.repeat(hard, M, axis=0)
    monkeypatch.setattr(_retrieve, "_LISTS", 10 * M)
    found = chosen(retrieve_nearest(x, hard, BUDGET))
    assert found == slow.retrieve(x, hard[:1], BUDGET, "cosine")


@METRICS
@pytest.mark.left_out
def test_chunks_do_not_matter(metric):
    x, hard = points()
    expected = chosen(retrieve_nearest(x, hard, BUDGET, metric=metric))
    for chunk_size in (7, 64, N - 1, 5000):
        again = retrieve_nearest(x, hard, BUDGET, metric=metric, chunk_size=chunk_size)
        assert chosen(again) == expected


@METRICS
@pytest.mark.left_out
def test_blocks_do_not_matter(metric):
    """Wide features, so that a chunk has several blocks and a rest."""
    x, hard = points(300, 4, d=4096)
    found = retrieve_nearest(x, hard, 20, metric=metric)
    assert chosen(found) == slow.retrieve(x, hard, 20, metric)


def test_forms_do_not_matter():
    x, hard = points()
    expected = chosen(retrieve_nearest(x, hard, BUDGET, metric="l2"))
    forms = [
        x.astype(np.float64),
        np.asfortranarray(x),
        np.repeat(x, 2, axis=0)[::2],
        jnp.asarray(x),
        x.tolist(),
    ]
    for form in forms:
        assert chosen(retrieve_nearest(form, hard, BUDGET, metric="l2")) == expected
    half = jnp.asarray(x, jnp.bfloat16)
    found = chosen(retrieve_nearest(half, hard, BUDGET, metric="l2"))
    assert found == slow.retrieve(np.asarray(half, np.float64), hard, BUDGET, "l2")


@pytest.mark.parametrize("offset", range(17))
def test_features_are_read_in_place_wherever_they_start(offset):
    """Blocks start at multiples of 64 bytes, whatever the array's address and width."""
    rng = np.random.default_rng(0)
    memory = rng.normal(size=5000 + 17).astype(np.float32)
    x, hard = memory[offset : offset + 5000].reshape(-1, 5), memory[:20].reshape(4, 5)
    expected = np.sort(slow.distances(x, hard, "l2"), axis=1)[:, :10]
    found = nearest(x, hard, 10, metric="l2", chunk_size=130)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("metric", "given"), [("l2", {}), ("cosine", classes())])
def test_eight_devices(metric, given):
    """A chunk of 104 candidates, and 32 in the last: none on most devices."""
    x, hard = points()
    options = {"metric": metric, "mesh": make_mesh(), "chunk_size": 104}
    one = retrieve_nearest(x, hard, BUDGET, metric=metric, **given)
    assert chosen(retrieve_nearest(x, hard, BUDGET, **options, **given)) == chosen(one)
    expected = nearest(x, hard, 10, metric=metric, **given)
    found = nearest(x, hard, 10, **options, **given)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)


@pytest.mark.left_out
def test_more_neighbours_than_a_device_has():
    x, hard = points(20, 3)
    found = chosen(retrieve_nearest(x, hard, 20, mesh=make_mesh(jax.devices()[:3])))
    assert found == slow.retrieve(x, hard, 20, "cosine")


@METRICS
def test_a_memory_mapped_file(metric, tmp_path):
    x, hard = points()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = chosen(retrieve_nearest(x, hard, BUDGET, metric=metric))
    for chunk_size in (None, 64):
        found = retrieve_nearest(
            mapped, hard, BUDGET, metric=metric, chunk_size=chunk_size
        )
        assert chosen(found) == expected


def test_only_a_chunk_is_ever_read():
    """An array on disk that says how much of it was asked for at a time."""

    class Watched(np.ndarray):
        longest = 0

        def __getitem__(self, key):
            part = super().__getitem__(key)
            if isinstance(key, slice) and self.ndim == 2:
                Watched.longest = max(Watched.longest, len(part))
            return part

    x, hard = points()
    x = x.astype(np.float64).view(Watched)
    # np.asarray drops the subclass: hand it over below the checks.
    stream = _retrieve.open_stream(np.zeros((1, D)), hard, None, None, metric="l2")
    stream = dataclasses.replace(stream, features=x)
    found = _retrieve.find_nearest(stream, 10, chunk_size=64, mesh=None, progress=False)
    assert Watched.longest == 60  # four even chunks
    expected = nearest(np.asarray(x), hard, 10, metric="l2")
    np.testing.assert_array_equal(found.indices, expected.indices)


def test_as_faiss():
    faiss = pytest.importorskip("faiss")
    x, hard = points()
    index = faiss.IndexFlatL2(D)
    index.add(x)
    near, indices = index.search(hard, 10)
    found = nearest(x, hard, 10, metric="l2", chunk_size=64)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, near, rtol=1e-4)
    index = faiss.IndexFlatIP(D)
    index.add(x / np.linalg.norm(x, axis=1, keepdims=True))
    _, indices = index.search(hard, 10)
    np.testing.assert_array_equal(nearest(x, hard, 10).indices, indices)


# Ties


@pytest.mark.left_out
def test_equal_distances_go_by_index():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, size=(N, D)).astype(np.float32)
    hard = rng.integers(0, 3, size=(M, D)).astype(np.float32)
    expected = slow.retrieve(x, hard, BUDGET, "l2")
    for option in ({}, {"chunk_size": 64}, {"mesh": make_mesh(), "chunk_size": 104}):
        assert (
            chosen(retrieve_nearest(x, hard, BUDGET, metric="l2", **option)) == expected
        )


def test_hard_samples_at_equal_distance_go_by_number():
    x = np.array([[3.0, 0], [0, 3], [-3, 0]], np.float32)
    hard = np.array([[0.0, 4], [4, 0], [-4, 0]], np.float32)
    assert chosen(retrieve_nearest(x, hard, 3, metric="l2")) == [1, 0, 2]


# Numbers


def test_an_offset_costs_nothing():
    x, hard = points()
    far_x, far_hard = x.astype(np.float64) + 1e6, hard.astype(np.float64) + 1e6
    expected = chosen(retrieve_nearest(x, hard, BUDGET, metric="l2"))
    assert chosen(retrieve_nearest(far_x, far_hard, BUDGET, metric="l2")) == expected


@pytest.mark.parametrize(
    "form", [np.float32, np.uint8, np.int64, np.float64, jnp.float32, jnp.bfloat16]
)
def test_centred_by_the_hard_samples(form):
    """On the device where float32 holds the features exactly, else before."""
    x, hard = (np.round(8 * a) + 128 for a in points())
    expected = slow.retrieve(x, hard, BUDGET, "l2")
    x = jnp.asarray(x, form) if form in (jnp.float32, jnp.bfloat16) else x.astype(form)
    for option in ({}, {"mesh": make_mesh(), "chunk_size": 104}):
        assert (
            chosen(retrieve_nearest(x, hard, BUDGET, metric="l2", **option)) == expected
        )


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_cosine_knows_no_scale(scale):
    x, hard = points()
    rows = np.random.default_rng(0).uniform(0.5, 2, size=(N, 1)).astype(np.float32)
    expected = chosen(retrieve_nearest(x, hard, BUDGET))
    scaled, far_hard = (x * rows) * np.float32(scale), hard * np.float32(scale)
    assert chosen(retrieve_nearest(scaled, far_hard, BUDGET)) == expected


def test_zero_rows_are_at_cosine_distance_one():
    x, hard = points(20, 2)
    x[3] = 0
    found = nearest(x, hard, 20)
    assert (np.asarray(found.distances)[np.asarray(found.indices) == 3] == 1).all()


@pytest.mark.left_out
def test_float64_where_it_is_on():
    x, hard = points(200, 4)
    with jax.enable_x64(True):
        x, hard = x.astype(np.float64), hard.astype(np.float64)
        for form in (x, jnp.asarray(x)):
            found = nearest(form, hard, 10, metric="l2", chunk_size=70)
            assert found.distances.dtype == np.float64
            expected = np.sort(slow.distances(x, hard, "l2"))[:, :10]
            np.testing.assert_allclose(found.distances, expected, rtol=1e-12)


@pytest.mark.left_out
def test_float64_without_memory_for_lists(monkeypatch):
    """Distances that float32 can't tell apart."""
    order = np.random.default_rng(0).permutation(20)
    x, hard = 1 + 1e-10 * order[:, None], np.zeros((1, 1))
    with jax.enable_x64(True):
        by_lists = chosen(retrieve_nearest(x, hard, 20, metric="l2"))
        monkeypatch.setattr(_retrieve, "_LISTS", 1)
        by_rank = chosen(retrieve_nearest(x, hard, 20, metric="l2"))
    assert by_lists == by_rank == np.argsort(order).tolist()


def test_nearest_fills_up_with_nothing():
    x, hard = points(5, 2)
    found = nearest(x, hard, 4, labels=[0, 1, 1, 1, 1], hard_labels=[0, 2])
    np.testing.assert_array_equal(found.indices, [[0, -1, -1, -1], [-1] * 4])
    assert np.isinf(found.distances).sum() == 7
    assert nearest(x, hard, 9).indices.shape == (2, 5)


def test_nothing_is_traced_twice():
    x, hard = points()
    retrieve_nearest(x, hard, BUDGET)
    with jax.no_tracing(True):
        retrieve_nearest(x + 1, hard, BUDGET)


@pytest.mark.parametrize("room", [_retrieve._LISTS, 1])
def test_progress_is_on_standard_error(room, capsys, monkeypatch):
    monkeypatch.setattr(_retrieve, "_LISTS", room)
    x, hard = points()
    retrieve_nearest(x, hard, BUDGET, progress=True)
    output = capsys.readouterr()
    assert "retrieve" in output.err
    assert not output.out
    retrieve_nearest(x, hard, BUDGET)
    assert not capsys.readouterr().err


# Kernels


_cover = jax.jit(coverage, static_argnames="budget")


@settings(max_examples=100, deadline=None)
@given(arrays(np.float32, (4, 9), elements=st.sampled_from([0, 1, 2, 3, np.inf])))
@pytest.mark.parametrize("budget", [1, 5, 9])
@pytest.mark.every(3)
def test_both_ways_to_cover_agree(budget, near):
    """Lists of all candidates, and one hard sample after the other."""
    n = near.shape[1]
    order = np.argsort(near, axis=1, kind="stable").astype(np.int32)
    lists = np.take_along_axis(near, order, axis=1)
    by_list, n_valid = _cover(lists, order, budget=budget)
    turns = Turns.none(n, near.dtype)
    for h, row in enumerate(near):
        turns.fold(h, row)
    by_rank = turns.first(budget)
    count = len(by_rank)
    assert n_valid == count == min(budget, np.isfinite(near).any(axis=0).sum())
    assert by_list[:count].tolist() == by_rank.tolist()
    # Again as the algorithm is written.
    expected = []
    for rank in range(n):
        for h in np.argsort(lists[:, rank], kind="stable"):
            if np.isfinite(lists[h, rank]) and order[h, rank] not in expected:
                expected.append(order[h, rank])
    assert by_rank.tolist() == expected[:budget]


@METRICS
@pytest.mark.left_out
def test_merging_in_any_chunks(metric):
    x, hard = points(100, 4)
    if metric == "cosine":
        hard /= np.linalg.norm(hard, axis=1, keepdims=True)
    merge = jax.jit(merge_nearest, static_argnames="metric")
    found = empty_nearest(4, 12)
    for start, stop in ((0, 5), (5, 60), (60, 100)):
        found = merge(found, x[start:stop], hard, start, metric=metric)
    expected = slow.distances(x, hard, metric)
    order = np.argsort(expected, axis=1)[:, :12]
    np.testing.assert_array_equal(found.indices, order)
    expected = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-4, atol=1e-6)
    odd = np.arange(100) % 2 == 1
    found = merge(empty_nearest(4, 12), x, hard, 7, odd, metric=metric)
    assert ((np.asarray(found.indices) - 7) % 2 == 1).all()
