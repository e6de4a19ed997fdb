"""The result types: ranking, merging, saving, and their life as pytrees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel._results.types import Provenance, Selection, Values


def some_values(rows=None, reduce="mean", method="knn_shapley(k=5)", bound=None):
    rows = np.random.default_rng(0).normal(size=(4, 6)) if rows is None else rows
    n = len(rows)
    values = {"mean": rows.mean(0), "max": rows.max(0), None: rows}[reduce]
    return Values(
        values=jnp.asarray(values, jnp.float32),
        count=jnp.int32(n),
        m2=jnp.asarray(n * rows.var(0), jnp.float32) if reduce == "mean" else None,
        error_bound=None if bound is None else jnp.asarray(bound, jnp.float32),
        method=method,
        reduce=reduce,
    )


def some_selection():
    return Selection(
        indices=jnp.array([4, 2, 0], jnp.int32),
        weights=jnp.array([0.5, 0.25, 0.0]),
        n_valid=jnp.int32(2),
        method="omp(budget=3)",
    )


def of(*values):
    return Values(values=jnp.array(values), count=jnp.int32(1))


def assert_same(a, b):
    for field in dataclasses.fields(a):
        mine, theirs = getattr(a, field.name), getattr(b, field.name)
        if isinstance(mine, jax.Array):
            np.testing.assert_array_equal(mine, theirs, strict=True)
        else:
            assert mine == theirs


def test_ranking_breaks_ties_by_index():
    values = of(1.0, 3.0, 2.0, 3.0, 1.0)
    assert values.top(5).tolist() == [1, 3, 2, 0, 4]
    assert values.bottom(5).tolist() == [4, 0, 2, 3, 1]
    assert values.rank().tolist() == [3, 0, 2, 1, 4]
    assert values.top(2).tolist() == [1, 3]
    assert values.bottom(1).tolist() == [4]
    assert values.top(0).tolist() == []
    assert len(values) == 5


def test_unknown_values_are_last_from_both_ends():
    values = of(np.nan, 3.0, -1.0, np.nan, 2.0)
    for ranked, order in (
        (values.top, [1, 4, 2, 0, 3]),
        (values.bottom, [2, 4, 1, 0, 3]),
    ):
        assert ranked(3).tolist() == order[:3]
        with pytest.warns(UserWarning, match="k = 5 is more than the 3 of 5 values"):
            assert ranked(5).tolist() == order
    assert values.bottom(1).tolist() == [2]
    assert values.rank().tolist() == [3, 0, 2, 4, 1]
    unknown = of(np.nan, np.nan)
    assert unknown.bottom(0).tolist() == []
    for ranked in (unknown.top, unknown.bottom):
        with pytest.raises(ValueError, match=r"k must be 0, as all 2 values are NaN"):
            ranked(1)


@pytest.mark.parametrize("k", [-1, 6])
def test_ranking_refuses_more_than_there_is(k):
    for choose in (of(*range(5)).top, of(*range(5)).bottom):
        with pytest.raises(ValueError, match=f"k must be between 0 and n = 5, got {k}"):
            choose(k)


def test_ranking_needs_one_value_a_point():
    values = some_values(reduce=None)
    assert len(values) == 6
    for call in (lambda: values.top(1), values.rank, values.to_pandas):
        with pytest.raises(ValueError, match="reduce=None"):
            call()


def test_stderr():
    rows = np.random.default_rng(1).normal(size=(7, 3))
    expected = rows.std(0, ddof=1) / np.sqrt(7)
    np.testing.assert_allclose(some_values(rows).stderr, expected, rtol=1e-6)
    assert np.isnan(some_values(rows[:1]).stderr).all()
    assert some_values(rows, reduce="max").stderr is None


def test_to_pandas():
    values = some_values(bound=np.full(6, 0.5))
    frame = values.to_pandas(labels=list("abcabc"))
    assert list(frame) == ["value", "rank", "stderr", "error_bound", "label"]
    assert frame.index.name == "index"
    np.testing.assert_array_equal(frame["value"], values.values)
    np.testing.assert_array_equal(frame["stderr"], values.stderr)
    assert frame.sort_values("rank").index.tolist() == values.top(6).tolist()
    assert list(of(1.0).to_pandas()) == ["value", "rank"]


@pytest.mark.parametrize(
    "index", [("b", "a", "c"), (7, 5, 6), (2.5, None, True)], ids=str
)
def test_the_index_of_a_table(index, tmp_path):
    values = dataclasses.replace(of(1.0, 3.0, 2.0), index=index)
    frame = values.to_pandas()
    assert frame.index.tolist() == list(index)
    assert frame.index.name == "index"
    assert values.bottom(1).tolist() == [0]
    assert frame["value"].idxmin() == index[0]
    loaded = Values.load(values.save(tmp_path / "v"))
    assert_same(loaded, values)
    assert jax.jit(lambda v: v)(loaded).index == index
    assert values.merge(loaded).index == index
    with pytest.raises(ValueError, match="values whose index differs"):
        values.merge(of(1.0, 3.0, 2.0))


def test_an_index_that_no_file_holds(tmp_path):
    values = dataclasses.replace(of(1.0), index=(np.datetime64("2026-11-22"),))
    with pytest.raises(ValueError, match="index has labels.*datetime64.*index=None"):
        values.save(tmp_path / "v")
    assert not list(tmp_path.iterdir())
    dataclasses.replace(values, index=None).save(tmp_path / "v")


@pytest.mark.parametrize("reduce", ["mean", "max", None])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 5), (3, 2, 1)])
def test_merge_equals_one_call(reduce, sizes):
    rows = np.random.default_rng(2).normal(100, 1, size=(sum(sizes), 4))
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    first, *rest = (some_values(part, reduce) for part in parts)
    merged, whole = first.merge(*rest), some_values(rows, reduce)
    np.testing.assert_allclose(merged.values, whole.values, rtol=1e-6)
    assert int(merged.count) == sum(sizes)
    assert merged.reduce == reduce
    if reduce == "mean":
        np.testing.assert_allclose(merged.stderr, whole.stderr, rtol=1e-4)


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("mean", [0.75 * 0.2] * 6),
        ("max", [0.2] * 6),
        (None, [[0.2] * 6] * 3 + [[0.0] * 6]),
    ],
)
def test_merge_of_error_bounds(reduce, expected):
    rows = np.ones((4, 6))
    bound = np.full((3, 6) if reduce is None else 6, 0.2)
    merged = some_values(rows[:3], reduce, bound=bound).merge(
        some_values(rows[3:], reduce)
    )
    # Room for the rounding of the merged values, and no more.
    assert (np.asarray(merged.error_bound) >= expected).all()
    np.testing.assert_allclose(merged.error_bound, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reduce", ["mean", "max", None])
def test_merge_keeps_an_error_bound_true(reduce):
    # The merged values are rounded to float32 once more, and the bound with them.
    rng = np.random.default_rng(3)
    parts = [some_values(rng.normal(size=(n, 1000)), reduce) for n in (2, 3)]
    exact, bounded = [], []
    for part in parts:
        bound = np.float32(1e-6) * rng.uniform(size=part.values.shape).astype("f")
        exact.append(np.asarray(part.values, np.float64) + 0.999999 * bound)
        bounded.append(dataclasses.replace(part, error_bound=jnp.asarray(bound)))
    merged = bounded[0].merge(bounded[1])
    expected = {
        "mean": lambda a, b: (2 * a + 3 * b) / 5,
        "max": np.maximum,
        None: lambda a, b: np.concatenate([a, b]),
    }[reduce](*exact)
    error = np.abs(np.asarray(merged.values, np.float64) - expected)
    assert (error <= np.asarray(merged.error_bound, np.float64)).all()


def counted(part, **source):
    source = {"function": "knn_shapley", "x": "a", **source}
    return dataclasses.replace(
        some_values(), provenance=Provenance(source, tuple(part))
    )


def test_merge_counts_nothing_twice(tmp_path):
    one, two = counted(["points 1"]), counted(["points 2"])
    both = one.merge(Values.load(two.save(tmp_path / "two")))
    assert both.provenance == Provenance(
        {"function": "knn_shapley", "x": "a"}, ("points 1", "points 2")
    )
    loaded = Values.load(both.save(tmp_path / "both"))
    assert loaded.provenance == both.provenance
    for first, second in ((one, one), (two, both), (loaded, one), (one, loaded)):
        with pytest.raises(ValueError, match="both counted the points [12].*twice"):
            first.merge(second)
    assert int(loaded.merge(counted(["points 3"])).count) == 12


def test_merge_refuses_other_sources():
    with pytest.raises(ValueError, match="computed from other x, weights$"):
        counted(["1"]).merge(counted(["2"], x="b", weights="c"))


def test_merge_of_unknown_sources():
    one = counted(["points 1"])
    assert one.merge(some_values()).provenance is None
    assert some_values().merge(one).provenance is None
    # A transformation makes other values of them, without compiling anew for each.
    scale = jax.jit(lambda v: jax.tree.map(lambda a: a * 2, v))
    assert scale(one).provenance is None
    with jax.no_tracing(True):
        scale(counted(["points 2"]))
    jax.tree.map(lambda a, b: a + b, one, counted(["points 2"]))


def test_merge_of_nothing_is_the_same():
    assert_same(some_values().merge(), some_values())


def test_merge_refuses_what_differs():
    rows = np.ones((2, 6))
    for other, message in (
        (some_values(rows, "max"), "reduce differs: 'mean' and 'max'"),
        (some_values(rows, method="knn_loo(k=5)"), "method differs"),
        (some_values(rows[:, :5]), "6 points with values of 5"),
    ):
        with pytest.raises(ValueError, match=message):
            some_values(rows).merge(other)


@pytest.mark.parametrize(
    "result",
    [
        some_values(),
        some_values(reduce="max"),
        dataclasses.replace(some_values(), provenance=Provenance({"x": "1"}, ("a",))),
        some_values(reduce=None, bound=np.ones((4, 6))),
        some_selection(),
    ],
    ids=repr,
)
def test_save_and_load(result, tmp_path):
    path = result.save(tmp_path / "result")
    assert path == tmp_path / "result.npz"
    assert_same(type(result).load(path), result)
    assert [p.name for p in tmp_path.iterdir()] == ["result.npz"]
    result.save(path)  # replaces it
    assert_same(type(result).load(str(path)), result)


def test_save_keeps_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = some_values().save(tmp_path / "a.npz")

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        some_values(reduce="max").save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    assert_same(Values.load(path), some_values())


def test_load_refuses_what_it_did_not_write(tmp_path):
    some_selection().save(tmp_path / "selection.npz")
    with pytest.raises(ValueError, match="holds Selection .* expected Values"):
        Values.load(tmp_path / "selection.npz")
    np.savez(tmp_path / "other.npz", values=np.ones(3))
    with pytest.raises(ValueError, match="other.npz' was not written by jaxsel"):
        Values.load(tmp_path / "other.npz")
    np.save(tmp_path / "array.npy", np.ones(3))
    with pytest.raises(ValueError, match="array.npy' was not written by jaxsel"):
        Values.load(tmp_path / "array.npy")
    (tmp_path / "text.npz").write_text("value,rank\n")
    with pytest.raises(ValueError, match="text.npz' was not written by jaxsel"):
        Values.load(tmp_path / "text.npz")
    with pytest.raises(FileNotFoundError):
        Values.load(tmp_path / "missing.npz")


def test_load_never_unpickles(tmp_path):
    np.savez(tmp_path / "bad.npz", __jaxsel__=np.array({"kind": "Values"}, object))
    with pytest.raises(ValueError, match="not written by jaxsel|allow_pickle=False"):
        Values.load(tmp_path / "bad.npz")


@pytest.mark.parametrize("result", [some_values(), some_selection()], ids=repr)
def test_pytree(result):
    doubled = jax.jit(lambda r: jax.tree.map(lambda a: a * 2, r))(result)
    assert type(doubled) is type(result)
    assert doubled.method == result.method
    leaves, structure = jax.tree.flatten(result)
    assert_same(jax.tree.unflatten(structure, leaves), result)
    for twice, once in zip(jax.tree.leaves(doubled), leaves, strict=True):
        np.testing.assert_array_equal(twice, 2 * once)


def test_repr_under_jit():
    shown = []
    jax.jit(lambda v, s: shown.append((repr(v), repr(s))))(
        some_values(), some_selection()
    )
    assert shown == [
        (
            "Values(knn_shapley(k=5), n=6, count=?, reduce='mean')",
            "Selection(omp(budget=3), ? of 3 filled)",
        )
    ]


def test_repr_tells_the_best():
    one = "Values(unnamed, n=1, count=1, reduce='mean', best={0: 1})"
    assert repr(of(1.0)) == one
    assert "best={5: 6, 4: 5, 3: 4, 2: 3, 1: 2})" in repr(of(1, 2, 3, 4, 5, 6))
    assert "best" not in repr(some_values(reduce=None))
    chosen = some_selection()
    assert repr(chosen) == "Selection(omp(budget=3), 2 of 3 filled, best=[4, 2])"
    many = Selection(
        indices=jnp.arange(9), weights=jnp.ones(9), n_valid=jnp.int32(8), method="herd"
    )
    assert repr(many).endswith("8 of 9 filled, best=[0, 1, 2, 3, 4, ...])")
    full = dataclasses.replace(many, n_valid=jnp.int32(9))
    assert repr(full) == "Selection(herd, 9 chosen, best=[0, 1, 2, 3, 4, ...])"


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        some_values().values = jnp.zeros(6)  # type: ignore[misc]


def test_selection_length_is_what_is_filled():
    assert len(some_selection()) == 2


@pytest.mark.parametrize("labels", [None, list("abcabc"), [0, 1, 2, 0, 1, 2]])
def test_plot(labels):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = some_values().plot(labels=labels)
    assert len(axes) == 2
    assert all(isinstance(a, matplotlib.axes.Axes) for a in axes)
    assert all(a.has_data() for a in axes)
    own = plt.subplots(1, 2)[1]
    drawn = some_values(reduce="max").plot(own, labels=labels)
    assert [a is b for a, b in zip(drawn, own, strict=True)] == [True, True]
    plt.close("all")


def test_plot_needs_one_value_a_point():
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="reduce=None"):
        some_values(reduce=None).plot()
