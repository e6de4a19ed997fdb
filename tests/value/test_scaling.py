"""Chunks, devices and separate calls change nothing; nothing is compiled twice."""

import dataclasses
import gc
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from waits import PATIENCE

import jaxsel
from jaxsel._inputs.checks import to_float
from jaxsel.value import _linear

from . import cases

pytestmark = pytest.mark.every(3)

K = 5
# One of each form of computation: order, bands, nearest only, offset, ball, quadratic.
FORMS = [
    ("knn_shapley", "exact"),
    ("knn_shapley", "hybrid"),
    ("knn_loo", "exact"),
    ("soft_knn_shapley", "exact"),
    ("threshold_knn_shapley", "exact"),
    ("knn_regression_shapley", "exact"),
]
each_form = pytest.mark.parametrize(("name", "how"), FORMS)
each_reduce = pytest.mark.parametrize("reduce", ["mean", "max", None])


@pytest.fixture(scope="module", autouse=True)
def _bands():
    """Take bands where the exact value would cost less, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_linear, "sorts_faster", lambda: False)
        yield


@pytest.fixture(scope="module")
def data():
    return make_data()


def make_data():
    # Whole numbers: distances are exact, so that no tie depends on a chunk's shape. And
    # enough of them for the hybrid to leave some to its bands.
    return cases.grid(600, n_val=64, size=30)


def part(data, rows):
    return dataclasses.replace(
        data, x_val=data.x_val[rows], y_val=data.y_val[rows], t_val=data.t_val[rows]
    )


def same(a, b, tolerance=1e-6):
    for name in ("values", "stderr", "error_bound"):
        mine, theirs = getattr(a, name), getattr(b, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=tolerance)
    assert int(a.count) == int(b.count)
    assert (a.method, a.reduce) == (b.method, b.reduce)


@pytest.mark.slow
@each_form
def test_chunk_sizes_agree(data, name, how):
    method = cases.BY_NAME[name]
    call = lambda size: method.call(data, K, method=how, chunk_size=size)
    whole = call(None)
    for size in (1, 7, 64):
        same(call(size), whole)


@each_reduce
def test_chunk_sizes_agree_however_reduced(data, reduce):
    method = cases.BY_NAME["knn_shapley"]
    call = lambda size: method.call(data, K, reduce=reduce, chunk_size=size)
    for size in (7, 1000):
        same(call(size), call(None))


@each_form
def test_merge_equals_one_call(data, name, how):
    method = cases.BY_NAME[name]
    call = lambda data: method.call(data, K, method=how)
    one, two = (call(part(data, rows)) for rows in np.split(np.arange(64), 2))
    same(one.merge(two), call(data))


def test_merge_counts_nothing_twice(data):
    call = lambda data, **options: cases.BY_NAME["knn_shapley"].call(data, K, **options)
    one, two = (part(data, rows) for rows in np.split(np.arange(64), 2))
    with pytest.raises(ValueError, match="have both counted the 32 validation points"):
        call(one).merge(call(one, chunk_size=5))
    with pytest.raises(ValueError, match="count twice"):
        call(one).merge(call(two)).merge(call(two))
    other = dataclasses.replace(two, y=np.roll(two.y, 1))
    with pytest.raises(ValueError, match="computed from other y"):
        call(one).merge(call(other))
    closer = lambda scale: lambda d: 1 / (scale + d)
    far, near = closer(1.0), closer(2.0)
    weighted = call(one, weights=far)
    with pytest.raises(ValueError, match="other function, options or weights"):
        weighted.merge(call(two, weights=near))
    same(weighted.merge(call(two, weights=far)), call(data, weights=far))


def test_merge_of_batches_that_lack_classes():
    x, y = np.eye(4, dtype=np.float32), np.array([0, 2, 0, 2])
    call = lambda y_val: jaxsel.knn_shapley(x, y, x[:2] + y_val[0], y_val, k=1)
    merged = call(np.array([1, 2])).merge(call(np.array([0, 2])))
    assert int(merged.count) == 4


@pytest.mark.slow
@each_reduce
def test_merge_equals_one_call_however_reduced(data, reduce):
    call = lambda data: cases.BY_NAME["knn_shapley"].call(data, K, reduce=reduce)
    parts = [call(part(data, rows)) for rows in np.split(np.arange(64), [1, 20])]
    same(parts[0].merge(*parts[1:]), call(data))


@pytest.mark.every(12)
@each_form
@each_reduce
def test_eight_devices_equal_one(data, name, how, reduce):
    some, method = part(data, np.arange(13)), cases.BY_NAME[name]
    call = lambda mesh: method.call(some, K, method=how, reduce=reduce, mesh=mesh)
    mesh = jaxsel.make_mesh()
    assert mesh.size == 8
    same(call(mesh), call(None))


@pytest.mark.parametrize("n_val", [1, 8, 64])
def test_eight_devices_and_any_number_of_points(data, n_val):
    some, method = part(data, np.arange(n_val)), cases.BY_NAME["knn_shapley"]
    call = lambda mesh: method.call(some, K, mesh=mesh)
    same(call(jaxsel.make_mesh()), call(None))


@pytest.mark.parametrize("ties", ["stable", "average"])
def test_eight_devices_in_small_chunks(data, ties):
    method = cases.BY_NAME["knn_shapley"]
    one = method.call(data, K, ties=ties)
    mesh = jaxsel.make_mesh()
    same(method.call(data, K, ties=ties, mesh=mesh, chunk_size=3), one)


@pytest.mark.parametrize("sharded", [False, True])
@each_form
def test_second_call_traces_nothing(data, name, how, sharded):
    method = cases.BY_NAME[name]
    mesh = jaxsel.make_mesh() if sharded else None
    call = lambda data: method.call(data, K, method=how, mesh=mesh)
    call(data)
    other = dataclasses.replace(
        data, x=data.x[::-1].copy(), y=data.y[::-1].copy(), t=data.t[::-1].copy()
    )
    with jax.no_tracing(True):
        second = call(other)
    assert np.isfinite(second.values).all()


@pytest.mark.slow
def test_without_the_compiled_operations(data, tmp_path):
    # In a process of its own: what is compiled for a CPU is settled at the first call.
    script = """if True:
        import sys, jax
        jax.config.update("jax_num_cpu_devices", 8)
        import numpy as np
        import jaxsel
        from jaxsel import _native
        from value import cases, test_scaling
        assert not _native.available()
        data, mesh = test_scaling.make_data(), jaxsel.make_mesh()
        for name, how in test_scaling.FORMS:
            values = cases.BY_NAME[name].call(
                data, test_scaling.K, method=how, mesh=mesh
            )
            values.save(f"{sys.argv[1]}/{name}-{how}")
    """
    path = os.pathsep.join(p for p in sys.path if p)
    env = {**os.environ, "JAXSEL_NATIVE": "0", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:2000]
    for name, how in FORMS:
        pure = jaxsel.Values.load(tmp_path / f"{name}-{how}.npz")
        same(pure, cases.BY_NAME[name].call(data, K, method=how))


def test_progress_is_shown_on_demand(data, capfd):
    method = cases.BY_NAME["knn_shapley"]
    quiet = method.call(data, K, chunk_size=16)
    assert capfd.readouterr() == ("", "")
    loud = method.call(data, K, chunk_size=16, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert err != ""
    same(quiet, loud, 0)


def test_global_configuration_is_left_alone():
    assert not jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jaxsel.knn_shapley(np.eye(3), [0, 1, 0], np.eye(3), [0, 1, 1])
    assert not jax.config.jax_enable_x64  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.left_out
def test_features_are_copied_once():
    def resident():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    x = np.ones((2**20, 16), np.float32)
    gc.collect()
    before = resident()
    features = jax.block_until_ready([to_float(x) for _ in range(5)])
    assert resident() - before < 5.5 * x.nbytes
    assert features[0].dtype == np.float32
