"""Meshes, and a run of two processes that must equal a run of one."""

import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from ports import free_ports
from waits import PATIENCE

import jaxsel

SCRIPT = textwrap.dedent(
    """
    import sys
    import numpy as np
    import jax, jaxsel

    port, process, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    jaxsel.init_multihost(f"localhost:{port}", 2, process)
    mesh = jaxsel.make_mesh()
    assert mesh.size == 4 and jax.local_device_count() == 2
    data = np.load(f"{folder}/data.npz")
    arrays = [data[name] for name in ("x", "y", "x_val", "y_val")]
    mean = jaxsel.knn_shapley(*arrays, k=3, mesh=mesh, chunk_size=8)
    rows = jaxsel.knn_shapley(*arrays, k=3, mesh=mesh, reduce=None)
    np.savez(
        f"{folder}/{process}.npz",
        mean=mean.values,
        stderr=mean.stderr,
        rows=rows.values,
    )
    """
)


@pytest.mark.slow
@pytest.mark.multihost
def test_two_processes_equal_one(tmp_path):
    rng = np.random.default_rng(0)
    x, x_val = rng.normal(size=(40, 3)), rng.normal(size=(21, 3))
    y, y_val = rng.integers(0, 3, 40), rng.integers(0, 3, 21)
    np.savez(tmp_path / "data.npz", x=x, y=y, x_val=x_val, y_val=y_val)
    (port,) = free_ports(1)
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SCRIPT, str(port)]
    processes = [
        subprocess.Popen(
            [*command, str(process), str(tmp_path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors[-2000:]

    mean = jaxsel.knn_shapley(x, y, x_val, y_val, k=3)
    rows = jaxsel.knn_shapley(x, y, x_val, y_val, k=3, reduce=None)
    for process in range(2):
        result = np.load(tmp_path / f"{process}.npz")
        np.testing.assert_allclose(result["mean"], mean.values, atol=1e-6)
        np.testing.assert_allclose(result["stderr"], mean.stderr, atol=1e-6)
        np.testing.assert_allclose(result["rows"], rows.values, atol=1e-6)


def test_mesh_over_some_devices():
    mesh = jaxsel.make_mesh(jax.devices()[:3])
    assert mesh.axis_names == ("data",)
    assert mesh.size == 3


def test_mesh_of_nothing():
    with pytest.raises(ValueError, match="devices must not be empty"):
        jaxsel.make_mesh([])


def test_mesh_without_axes():
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[0]), ())
    with pytest.raises(ValueError, match="mesh must be a mesh of devices with named"):
        jaxsel.knn_shapley([[0.0]], [0], [[1.0]], [0], mesh=mesh)
