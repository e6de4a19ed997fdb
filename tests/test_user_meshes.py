"""Any mesh, and any of its axes: results are those of one device."""

import functools
import inspect

import jax
import mesh_cases as cases
import numpy as np
import pytest
from jax.sharding import AxisType

import jaxsel

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


@pytest.mark.every(5)  # with 24 calls: each call once
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


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_values_left_on_the_devices(reduce):
    mesh = _mesh((4, 2), ("rows", "columns"), AxisType.Explicit)
    call = cases.CALLS["value.knn_shapley"]
    found = call(mesh=mesh, axis="rows", gather=False, reduce=reduce)
    assert found.values.sharding == jax.NamedSharding(mesh, jax.P("rows"))
    shard = found.values.addressable_shards[0]
    assert shard.data.shape == (cases.N // 4,)
    cases.same(found.values, call(reduce=reduce).values)
    if reduce == "mean":
        cases.same(found.m2, call().m2)
        assert found.stderr.sharding.spec == jax.P("rows")


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
