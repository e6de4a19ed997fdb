"""Training points of which each process has its own: values are those of one device."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import mesh_cases
import numpy as np
import pytest


@pytest.mark.slow
@pytest.mark.multihost
@pytest.mark.parametrize("count", [2, 4])
def test_processes_that_have_parts_of_the_features(tmp_path, count):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    tests = Path(mesh_cases.__file__).parent
    given = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    given["PYTHONPATH"] = f"{tests.parent}{os.pathsep}{tests}"
    script = [sys.executable, tests / "split_processes.py", str(port), str(count)]
    processes = [
        subprocess.Popen(
            [*script, str(process), tmp_path],
            env=os.environ | given,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(count)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=500)
            assert process.returncode == 0, errors[-2000:]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    import split_processes

    for process in range(count):
        found = np.load(tmp_path / f"{process}.npz")
        for name, wanted in split_processes.on_one_device().items():
            for axis in ("rows", "columns"):
                limit = 1e-6 * np.abs(wanted).max()
                np.testing.assert_allclose(found[f"{name} {axis}"], wanted, atol=limit)
            mine = np.split(wanted, count)[process]
            np.testing.assert_allclose(found[f"{name} split"], mine, atol=limit)
