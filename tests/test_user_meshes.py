"""Any mesh, and any of its axes: results are those of one device."""

import functools
import inspect
from pathlib import Path

import jax
import mesh_cases as cases
import numpy as np
import pytest
from in_processes import in_processes
from jax.sharding import AxisType

import jaxsel
from jaxsel import retrieve
from jaxsel.retrieve import _stream

each_call = pytest.mark.parametrize("name", cases.CALLS)


def _mesh(shape, names, kind):
    count = np.prod(shape)
    return jax.make_mesh(
        shape, names, axis_types=(kind,) * len(names), devices=jax.devices()[-count:]
    )


MESHES = {
    # Eight devices, of which pairs do the same work.
    "last of two": (((2, 4), ("model", "data"), AxisType.Auto), None),
    "first of two": (
        ((4, 2), ("rows", "columns"), AxisType.Explicit),
        "rows",
    ),
    "data beside it": (((2, 4), ("data", "rows"), AxisType.Explicit), "rows"),
    # Three of the eight, none of them the default device.
    "some devices": (((3,), ("x",), AxisType.Auto), None),
    "some devices, explicit": (((3,), ("x",), AxisType.Explicit), "x"),
}


def test_all_functions_that_take_a_mesh_are_here():
    assert cases.discovered() == {*cases.CALLS}


@each_call
def test_axis_follows_mesh(name):
    room, _, function = name.partition(".")
    signature = inspect.signature(getattr(getattr(jaxsel, room), function))
    axis = [*signature.parameters].index("axis")
    assert [*signature.parameters][axis - 1] == "mesh"
    assert signature.parameters["axis"].default is None


@functools.cache
def _on_one_device(name):
    return cases.CALLS[name]()


@pytest.mark.every(53)  # with 36 calls: each mesh comes, with some of the calls
@each_call
@pytest.mark.parametrize("where", MESHES)
def test_any_mesh_changes_nothing(name, where):
    mesh, axis = MESHES[where]
    found = cases.CALLS[name](mesh=_mesh(*mesh), axis=axis)
    cases.same(found, _on_one_device(name))


@each_call
def test_wrong_axes_are_refused(name):
    call = cases.CALLS[name]
    two = _mesh((2, 4), ("rows", "columns"), AxisType.Auto)
    wrong = (
        (
            {"mesh": two, "axis": "data"},
            "axis must be one of.*'rows', 'columns', got",
        ),
        ({"mesh": two}, "axis must name.*one of 'rows', 'columns'"),
        ({"axis": "data"}, "axis must be None without a mesh, got 'data'"),
        ({"mesh": "all"}, "mesh must be a mesh of devices with named axes.*'all'"),
    )
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            call(**options)


@pytest.mark.parametrize(
    ("axis", "size", "reduce"), [("rows", 4, "mean"), ("columns", 2, "max")]
)
def test_values_left_on_the_devices(axis, size, reduce):
    mesh = _mesh((4, 2), ("rows", "columns"), AxisType.Explicit)
    call = cases.CALLS["value.knn_shapley"]
    found = call(mesh=mesh, axis=axis, gather=False, reduce=reduce)
    assert found.values.sharding == jax.NamedSharding(mesh, jax.P(axis))
    shard = found.values.addressable_shards[0]
    assert shard.data.shape == (cases.N // size,)
    cases.same(found.values, call(reduce=reduce).values)
    if reduce == "mean":
        cases.same(found.m2, call().m2)
        assert found.stderr.sharding.spec == jax.P(axis)


def test_values_that_cannot_stay_there():
    call = functools.partial(cases.CALLS["value.knn_shapley"], gather=False)
    with pytest.raises(ValueError, match="gather must be True without a mesh"):
        call()
    with pytest.raises(ValueError, match="gather must be True with reduce=None"):
        call(mesh=jaxsel.make_mesh(), reduce=None)
    with pytest.raises(ValueError, match="that 5 devices share evenly, got 24"):
        call(mesh=jaxsel.make_mesh(jax.devices()[:5]))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_samples_that_are_spread_already(kind):
    mesh = _mesh((2, 4), ("rows", "columns"), kind)
    rows = jax.NamedSharding(mesh, jax.P("rows"))
    x, y = (jax.device_put(array, rows) for array in (cases.X, cases.Y))
    options = {"mesh": mesh, "axis": "columns"}
    found = jaxsel.knn_shapley(x, y, cases.X_VAL, cases.Y_VAL, k=3, **options)
    cases.same(found, _on_one_device("value.knn_shapley"))


SPREAD = {  # how candidates lie on a mesh of "rows" and "columns"
    "as they are split": jax.P("rows"),
    "another way": jax.P(None, "columns"),
    "everywhere": jax.P(),
}


@pytest.fixture
def kept(monkeypatch):
    """Fail where what is spread over devices comes to the host, but for results."""
    real = _stream.whole

    def refuse(value):
        assert not isinstance(value, jax.Array), "candidates must stay on the devices"
        return real(value)

    monkeypatch.setattr(_stream, "whole", refuse)


@pytest.mark.parametrize("where", SPREAD)
@pytest.mark.parametrize("name", ["retrieve.nearest", "retrieve.retrieve_nearest"])
@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.every(12)
def test_candidates_stay_on_the_devices(name, where, metric, kept):
    mesh = _mesh((4, 2), ("rows", "columns"), AxisType.Explicit)
    for n in (cases.N, 18):  # 4 devices share 18 unevenly
        x = np.pad(cases.X[:n], ((0, 0), (0, 1)))
        spec = jax.P() if n == 18 else SPREAD[where]
        features = jax.device_put(x, jax.NamedSharding(mesh, spec))
        call = functools.partial(
            cases.CALLS[name], labels=cases.Y[:n], hard_width=4, metric=metric
        )
        found = call(features, mesh=mesh, axis="rows")
        cases.same(found, call(x))


@pytest.mark.parametrize(
    ("wrong", "metric", "message"),
    [
        (np.nan, "l2", "features must be finite, but row 17 has NaN or infinity"),
        (1e30, "l2", "absolute values up to .* but row 17 has larger ones"),
    ],
)
def test_candidates_there_that_are_refused(wrong, metric, message, kept):
    mesh = _mesh((4,), ("rows",), AxisType.Auto)
    x = np.array(cases.X)
    x[17, 1] = wrong
    features = jax.device_put(x, jax.NamedSharding(mesh, jax.P("rows")))
    with pytest.raises(ValueError, match=message):
        cases.CALLS["retrieve.nearest"](features, mesh=mesh, metric=metric)


@pytest.mark.slow
@pytest.mark.multihost
def test_processes_that_have_parts_of_the_arrays(tmp_path):
    in_processes(Path(__file__).parent / "mesh_processes.py", 2, tmp_path)
    x, y, x_val, y_val = cases.shared()
    values = jaxsel.knn_shapley(x, y, x_val, y_val, k=3).values
    labels = {"labels": y, "hard_labels": y_val, "metric": "l2"}
    wanted = {
        "mean": values,
        "nearest": retrieve.nearest(x, x_val, 5).indices,
        "of its class": retrieve.nearest(x, x_val, 5, **labels).indices,
        "chosen": jaxsel.retrieve_nearest(x, x_val, 9).indices,
    }
    for name in cases.BY_PARTS:
        result = jax.tree.leaves(cases.by_parts(name, lambda array: array))
        wanted |= {f"{name} {place}": leaf for place, leaf in enumerate(result)}
    for process in range(2):
        found = np.load(tmp_path / f"{process}.npz")
        assert len(found.files) == 2 * len(wanted) + 1
        for name, array in wanted.items():
            for axis in ("rows", "columns"):
                cases.same(found[f"{name} {axis}"], array)
        cases.same(found["split"], np.split(np.asarray(values), 2)[process])
