"""Training points split over devices: values are those of one device, and stay there.

Near ties are compared with sums of squared differences in float64.
"""

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import mesh_cases
import numpy as np
import pytest
import references as ref
from jax.sharding import AxisType

import jaxsel
from jaxsel import _native
from jaxsel._inputs import alignment
from jaxsel.neighbors import _exact, _ranks
from jaxsel.value import _linear, _split
from jaxsel.value._weights import loo_weights

from . import test_near_ties as near_ties

pytestmark = pytest.mark.filterwarnings("ignore:column . of x varies by")
path = near_ties.path
FUNCTIONS = {
    name.partition(".")[2]: call
    for name, call in mesh_cases.CALLS.items()
    if "knn" in name
}


def make_mesh(shape=(8,), names=("data",), kind=AxisType.Auto):
    count = np.prod(shape)
    types = (kind,) * len(names)
    return jax.make_mesh(shape, names, axis_types=types, devices=jax.devices()[-count:])


def same(found, wanted):
    """Equal up to float32's rounding of the largest value."""
    for name in ("values", "m2", "error_bound"):
        a, b = getattr(found, name), getattr(wanted, name)
        assert (a is None) == (b is None), name
        if a is not None and b is not None:
            limit = 1e-6 * max(1e-12, float(np.abs(b).max()))
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=limit)
    assert found.provenance == wanted.provenance
    assert found.method == wanted.method


def points(n=21, m=13, d=3, seed=0, dtype: type = np.float32):
    rng = np.random.default_rng(seed)
    x, x_val = (rng.normal(size=(rows, d)).astype(dtype) for rows in (n, m))
    y, y_val = (rng.integers(0, 3, rows) for rows in (n, m))
    y[0] = y_val[0]
    return x, y, x_val, y_val


@pytest.fixture
def steps(monkeypatch):
    """Count the steps that split training points: none would prove nothing."""
    taken, step = [], _split.ByTraining.step

    def counted(self, here, state):
        taken.append(len(self._parts.own[0].addressable_shards[0].data))
        return step(self, here, state)

    monkeypatch.setattr(_split.ByTraining, "step", counted)
    return taken


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.every(18)
def test_every_function(name, metric, steps):
    call = functools.partial(FUNCTIONS[name], metric=metric)
    same(call(mesh=make_mesh(), split="training"), call())
    assert steps == [3]  # one chunk; 24 points on 8 devices


def soften(arguments, which):
    """Give one side, or both, class probabilities in place of labels."""
    x, y, x_val, y_val = arguments
    rng = np.random.default_rng(5)
    y, y_val = (
        rng.dirichlet(np.ones(3), len(side)).astype(np.float32) if soft else side
        for side, soft in ((y, "y" in which), (y_val, "v" in which))
    )
    return x, y, x_val, y_val


OPTIONS = {
    "ties": {"ties": "average"},
    "weights": {"weights": lambda distances: jnp.exp(-distances)},
    "largest": {"reduce": "max"},
    "each": {"reduce": None},
    "a few at a time": {"chunk_size": 3},
    "k above n": {"k": 50},
}


@pytest.mark.parametrize("what", OPTIONS)
@pytest.mark.left_out
def test_options(what, steps):
    arguments, given = points(), {"k": 3, **OPTIONS[what]}
    found = jaxsel.knn_shapley(*arguments, mesh=make_mesh(), split="training", **given)
    same(found, jaxsel.knn_shapley(*arguments, **given))
    assert set(steps) == {3}
    assert (len(steps) > 1) == ("chunk_size" in given)


@pytest.mark.parametrize("which", ["y", "v", "yv"])
@pytest.mark.left_out
def test_probabilities_as_labels(which):
    arguments = soften(points(), which)
    found = jaxsel.knn_shapley(*arguments, k=3, mesh=make_mesh(), split="training")
    same(found, jaxsel.knn_shapley(*arguments, k=3))


@pytest.mark.parametrize(("n", "m"), [(5, 13), (1, 1), (21, 3), (17, 8), (300, 9)])
@pytest.mark.left_out
def test_uneven_sizes(n, m, steps):
    arguments = points(n, m)
    for call in (
        functools.partial(jaxsel.knn_shapley, k=2),
        functools.partial(jaxsel.knn_loo, k=2),
        functools.partial(jaxsel.threshold_knn_shapley, radius=1.0),
    ):
        found = call(*arguments, mesh=make_mesh(), split="training")
        same(found, call(*arguments))
    assert set(steps) == {-(-n // 8)}


MESHES = {
    "three": (((3,), ("x",)), None, 3),
    "last of two": (((2, 4), ("model", "data")), None, 4),
    "first of two, explicit": (((4, 2), ("rows", "b"), AxisType.Explicit), "rows", 4),
    "data beside it": (((2, 4), ("data", "rows"), AxisType.Explicit), "data", 2),
}


@pytest.mark.parametrize("where", MESHES)
@pytest.mark.left_out
def test_meshes(where, steps):
    shape, axis, size = MESHES[where]
    mesh, arguments = make_mesh(*shape), points()
    found = jaxsel.knn_shapley(*arguments, k=3, mesh=mesh, axis=axis, split="training")
    same(found, jaxsel.knn_shapley(*arguments, k=3))
    assert steps == [-(-21 // size)]


def test_one_device_has_nothing_to_split(steps):
    mesh, arguments = make_mesh((1,)), points()
    found = jaxsel.knn_shapley(*arguments, k=3, mesh=mesh, split="training")
    same(found, jaxsel.knn_shapley(*arguments, k=3))
    assert not steps


@pytest.mark.parametrize("reduce", ["mean", "max"])
@pytest.mark.every(2)
def test_values_left_on_the_devices(reduce):
    mesh, arguments = make_mesh((4, 2), ("rows", "b"), AxisType.Explicit), points(24)
    options = {"k": 3, "reduce": reduce}
    found = jaxsel.knn_shapley(
        *arguments, mesh=mesh, axis="rows", split="training", gather=False, **options
    )
    assert found.values.sharding == jax.NamedSharding(mesh, jax.P("rows"))
    assert found.values.addressable_shards[0].data.shape == (6,)
    same(found, jaxsel.knn_shapley(*arguments, **options))


SPREAD = {
    "rows": (jax.P("rows"), 24),
    "features": (jax.P(None, "rows"), 21),
    "everywhere": (jax.P(), 21),
}


@pytest.fixture
def kept(monkeypatch):
    """Fail where features that are spread over devices come to the host, whole."""
    real = alignment.whole

    def refuse(value):
        assert np.ndim(value) < 2 or not isinstance(value, jax.Array)
        return real(value)

    def lay_out(x, *others, **options):
        assert len(x.sharding.device_set) > 1
        return split_features(x, *others, **options)

    split_features = _split.split_features
    monkeypatch.setattr(alignment, "whole", refuse)
    monkeypatch.setattr(_split, "split_features", lay_out)


@pytest.mark.parametrize("where", SPREAD)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.left_out
def test_features_that_are_spread_already(where, kind, offset, steps, kept):
    spec, n = SPREAD[where]
    mesh = make_mesh((4, 2), ("rows", "b"), kind)
    x, *others = points(n, d=4)
    others[1] = others[1] + np.float32(offset)
    spread = jax.device_put(x + np.float32(offset), jax.NamedSharding(mesh, spec))
    options = {"mesh": mesh, "axis": "rows", "split": "training"}
    wanted = jaxsel.knn_shapley(x + np.float32(offset), *others, k=3)
    found = jaxsel.knn_shapley(spread, *others, k=3, **options)
    same(found, wanted)
    by_name = dict(zip(("y", "x_val", "y_val"), others, strict=True))
    same(jaxsel.knn_shapley(x=spread, k=3, **by_name, **options), wanted)
    assert steps == [6, 6]


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.int8, np.int32, bool])
@pytest.mark.every(4)
def test_types_of_features(dtype, metric):
    mesh = make_mesh()
    x, y, x_val, y_val = points(24)
    x, x_val = (np.asarray(jnp.asarray(3 * a).astype(dtype)) for a in (x, x_val))
    spread = jax.device_put(x, jax.NamedSharding(mesh, jax.P("data")))
    options = {"k": 3, "metric": metric}
    found = jaxsel.knn_shapley(
        spread, y, x_val, y_val, mesh=mesh, split="training", **options
    )
    same(found, jaxsel.knn_shapley(*map(np.asarray, (x, y, x_val, y_val)), **options))


def test_without_the_option_arrays_come_to_the_host(steps):
    mesh = make_mesh()
    x, *others = points(24)
    spread = jax.device_put(x, jax.NamedSharding(mesh, jax.P("data")))
    found = jaxsel.knn_shapley(spread, *others, k=3, mesh=mesh)
    same(found, jaxsel.knn_shapley(x, *others, k=3))
    assert not steps


WRONG = {
    "nan": (np.nan, "x must be finite, but row 17 has NaN or infinity"),
    "large": (1e30, "x must have features whose squares fit float32.*got 9.58e[+]29"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("spread", [False, True])
def test_features_that_are_refused(what, spread):
    wrong, message = WRONG[what]
    mesh = make_mesh()
    x, *others = points(24)
    x[17, 1] = wrong
    if spread:
        x = jax.device_put(x, jax.NamedSharding(mesh, jax.P("data")))
    with pytest.raises(ValueError, match=message):
        jaxsel.knn_shapley(x, *others, mesh=mesh, split="training")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_that_are_refused(name):
    with pytest.raises(ValueError, match="split must be 'validation' without a mesh"):
        FUNCTIONS[name](split="training")
    with pytest.raises(ValueError, match="split must be one of.*got 'both'"):
        FUNCTIONS[name](split="both", mesh=make_mesh())


@pytest.mark.left_out
def test_the_same_points_twice_are_warned_of():
    mesh = make_mesh()
    x, y, *_ = points(24)
    spread = jax.device_put(x, jax.NamedSharding(mesh, jax.P("data")))
    with pytest.warns(UserWarning, match="x_val and y_val are x and y"):
        jaxsel.knn_shapley(spread, y, x, y, mesh=mesh, split="training")


# Near ties


def close(values, exact):
    error = np.abs(np.asarray(values, np.float64) - exact).max()
    assert error < 1e-5 * np.abs(exact).max()


N = near_ties.N + 3  # devices have 76 rows each, the last one fewer


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", near_ties.SCENES)
@pytest.mark.left_out
def test_near_ties(path, name, dtype):
    arguments, mesh = near_ties.draw(name, dtype, n=N), make_mesh()
    find = {"k": near_ties.K, "mesh": mesh, "split": "training"}
    shapley = jaxsel.value.shapley_weights(N, near_ties.K)
    close(
        jaxsel.knn_shapley(*arguments, **find).values,
        near_ties.expected(arguments, shapley).mean(0),
    )
    loo = loo_weights(N, near_ties.K)
    close(
        jaxsel.knn_loo(*arguments, **find).values,
        near_ties.expected(arguments, loo).mean(0),
    )


@pytest.mark.parametrize("name", ["copies", "clusters"])
@pytest.mark.left_out
def test_averages_over_ties(path, name):
    x, y, x_val, y_val = near_ties.draw(name, n=N, m=8)
    near = near_ties.squared(x, x_val).astype(np.float32)
    omega = jaxsel.value.shapley_weights(N, near_ties.K)
    exact = ref.sorted_values(near, ref.matches(y, y_val), omega, "average").mean(0)
    find = {"k": near_ties.K, "mesh": make_mesh(), "split": "training"}
    close(jaxsel.knn_shapley(x, y, x_val, y_val, ties="average", **find).values, exact)


@pytest.mark.parametrize("name", ["clusters", "far"])
@pytest.mark.left_out
def test_near_ties_of_regression(path, name):
    x, _, x_val, _ = near_ties.draw(name, n=N, m=4)
    rng = np.random.default_rng(1)
    t, t_val = rng.normal(size=N), rng.normal(size=4)
    exact = ref.regression_values(near_ties.squared(x, x_val), t, t_val, 5).mean(0)
    find = {"k": 5, "mesh": make_mesh(), "split": "training"}
    close(jaxsel.knn_regression_shapley(x, t, x_val, t_val, **find).values, exact)


@pytest.mark.parametrize("weights", [None, lambda distances: 1 / (1 + distances)])
@pytest.mark.parametrize("offset", [3.4, 1000.0])
@pytest.mark.left_out
def test_points_on_the_border_of_a_ball(path, weights, offset):
    """Half of them are in it, half beyond: float32 distances can't tell which."""
    rng = np.random.default_rng(0)
    way = rng.normal(size=(60, 3))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    length = 2 * (1 + 1e-9 * rng.choice([-1, 1], 60))
    x, x_val = offset + length[:, None] * way, np.full((1, 3), offset)
    arguments = x, rng.integers(0, 2, 60), x_val, np.ones(1, int)
    call = functools.partial(
        jaxsel.threshold_knn_shapley, *arguments, radius=2.0, weights=weights
    )
    found = call(mesh=make_mesh(), split="training")
    inside = np.linalg.norm(x - x_val, axis=1) <= 2
    assert 20 < inside.sum() < 40
    assert ((np.asarray(found.values) != 0) == inside).all()
    same(found, call())


@pytest.fixture
def crowded(monkeypatch):
    """Room for few open points at a time, and few ranks of weight."""
    monkeypatch.setattr(_exact, "_FEW", 16)
    for module in (_exact, _ranks):
        monkeypatch.setattr(module, "NEAR", 64)
        monkeypatch.setattr(module, "STRIDE", 8)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("ties", ["stable", "average"])
@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("name", ["far", "copies"])
@pytest.mark.left_out
def test_more_open_points_than_ranks_of_weight(crowded, name, built, ties, monkeypatch):
    thorough, step = [], _split._step

    def watched(*operands, **given):
        thorough.append(given["thorough"])
        return step(*operands, **given)

    monkeypatch.setattr(_split, "_step", watched)
    if not built:
        monkeypatch.setattr(_native, "available", lambda: False)
    x, y, x_val, y_val = near_ties.draw(name, n=N)
    near = near_ties.squared(x, x_val)
    if ties == "average":
        near = near.astype(np.float32)
    omega = jaxsel.value.shapley_weights(N, 5)
    exact = ref.sorted_values(near, ref.matches(y, y_val), omega, ties).mean(0)
    find = {"k": 5, "mesh": make_mesh((3,)), "split": "training", "ties": ties}
    close(jaxsel.knn_shapley(x, y, x_val, y_val, **find).values, exact)
    assert thorough[0] is False
    assert name != "far" or thorough == [False, True]


@pytest.mark.parametrize("name", ["far", "line"])
@pytest.mark.left_out
def test_bounds_hold(path, name, monkeypatch):
    monkeypatch.setattr(_linear, "sorts_faster", lambda: False)
    arguments = near_ties.draw(name, n=N)
    exact = near_ties.expected(arguments, jaxsel.value.shapley_weights(N, 5))
    found = jaxsel.knn_shapley(
        *arguments,
        k=5,
        method="hybrid",
        reduce=None,
        mesh=make_mesh(),
        split="training",
    )
    error = np.abs(np.asarray(found.values, np.float64) - exact)
    assert (error <= found.error_bound).all()
    assert np.shape(found.error_bound) == exact.shape


def test_distances_asked_of_the_devices_that_have_the_points():
    rng = np.random.default_rng(0)
    x, x_val = rng.normal(size=(10, 4)), rng.normal(size=(4, 4))
    mesh = make_mesh((4,))
    index = rng.integers(0, 10, (4, 7)).astype(np.int32)
    padded = np.pad(x, ((0, 2), (0, 0))).view(np.uint32)

    def ask(points, index):
        none = jnp.zeros(0, jnp.float32)
        exact = _exact.Exact(
            points, x_val.view(np.uint32), none, none, False, axis="data"
        )
        with jax.enable_x64(True):
            found = _exact.true_distances(exact, index[0])
            return jax.lax.bitcast_convert_type(found, jnp.uint32)[None]

    split = jax.P("data")
    call = jax.shard_map(
        ask, mesh=mesh, in_specs=(split, split), out_specs=split, check_vma=False
    )
    found = np.asarray(jax.jit(call)(padded, index)).view(np.float64)[..., 0]
    wanted = ((x[index] - x_val[:, None]) ** 2).sum(-1)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


# Memory


@pytest.mark.left_out
def test_no_device_has_the_features_of_another(monkeypatch):
    """Neither before the step, nor within it: there are rows of n, but not n of d."""
    n, d = 96, 7
    arguments, mesh = points(n, 16, d, dtype=np.float64), make_mesh()
    programs, step = [], cast(Any, _split._step)

    def watched(*operands, **options):
        for array in jax.live_arrays():
            if array.ndim == 2 and len(array.sharding.device_set) > 1:
                held = array.addressable_shards[0].data.shape
                assert held[1] not in (d, 2 * d) or held[0] <= max(16, n // 8), held
        compiled = step.lower(*operands, **options).compile()
        programs.append(compiled)
        return step(*operands, **options)

    monkeypatch.setattr(_split, "_step", watched)
    jaxsel.knn_shapley(*arguments, mesh=mesh, split="training", chunk_size=16)
    (program,) = programs
    text = program.as_text()
    assert f"f32[{n // 8},{d}]" in text
    assert f"u32[{n // 8},{2 * d}]" in text
    for kind, width in (("f32", d), ("u32", 2 * d), ("f64", d)):
        assert f"{kind}[{n},{width}]" not in text


# Compiled operations


@pytest.mark.skipif(not _native.available(), reason="not built")
@pytest.mark.parametrize("average", [False, True])
def test_values_of_a_known_order(average):
    rng = np.random.default_rng(0)
    near = rng.integers(0, 5, (3, 40)).astype(np.float32)
    gains = rng.normal(size=(3, 40)).astype(np.float32)
    omega = 1 / np.arange(1, 41)
    table = jaxsel.value.rank_table(omega)
    order = np.argsort(near, axis=1, kind="stable").astype(np.int32)
    sorted_ = np.take_along_axis(near, order, axis=1)

    def one(order, near, gains):
        return _native.ranked(
            order, near if average else None, gains, table.weight, table.drop
        )

    found = jax.jit(jax.vmap(one))(order, sorted_, gains)
    ties = "average" if average else "stable"
    wanted = ref.sorted_values(near, gains, omega, ties)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    with pytest.raises(ValueError, match="ranked needs rows of one length"):
        _native.ranked(order[0, :3], None, gains[0], table.weight, table.drop)


@pytest.mark.left_out
def test_a_constant_far_from_all_other_features_changes_nothing():
    """Rows that only fill up the last devices count for no feature's bounds."""
    data, mesh = np.random.default_rng(0), make_mesh()
    x, x_val = (data.normal(size=(n, 3)).astype(np.float32) for n in (10, 4))
    y, y_val = np.arange(10) % 2, np.arange(4) % 2
    add = lambda a: np.hstack([a, np.full((len(a), 1), -(2.0**63), np.float32)])
    on_all = jax.device_put(add(x), jax.NamedSharding(mesh, jax.P()))
    options = {"k": 3, "mesh": mesh, "split": "training"}
    found = jaxsel.knn_shapley(on_all, y, add(x_val), y_val, **options).values
    expected = jaxsel.knn_shapley(x, y, x_val, y_val, k=3).values
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-6)
