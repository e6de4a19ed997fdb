"""Several processes, of which each has a part of the candidates: results are of one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import match_processes as cases
import numpy as np
import pytest

from jaxsel import gradients, match


@pytest.mark.slow
@pytest.mark.multihost
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_choose_what_one_does(processes, tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    here = Path(__file__).parent
    given = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    given["PYTHONPATH"] = f"{here.parents[1]}{os.pathsep}{here}"
    run = [sys.executable, here / "match_processes.py", str(port), str(processes)]
    started = []
    try:
        for process in map(str, range(processes)):
            with (tmp_path / f"{process}.txt").open("w") as errors:
                command, env = [*run, process, tmp_path], os.environ | given
                started.append(subprocess.Popen(command, env=env, stderr=errors))
        for number, process in enumerate(started):
            process.wait(timeout=500)
            errors = (tmp_path / f"{number}.txt").read_text()
            assert process.returncode == 0, errors[-2000:]
    finally:
        for process in started:
            process.kill()
            process.wait()

    wanted = cases.results(lambda array: array, lambda array: array)
    refused = cases.refusals(lambda array: array)
    assert len(refused) == 5
    losses = np.split(wanted["losses 0"], processes)
    alone = match.log_det(gradients.dense(cases.X), cases.K).indices
    for process in range(processes):
        found = np.load(tmp_path / f"{process}.npz")
        for axis in ("rows", "columns"):
            names = [name for name in found.files if name.startswith(axis)]
            assert len(names) == (len(wanted) if axis == "rows" else 5)
            for name in names:
                array = wanted[name.removeprefix(f"{axis} ")]
                np.testing.assert_allclose(found[name], array, 1e-4, 2e-5, err_msg=name)
        assert found["refusals"].tolist() == refused.tolist()
        np.testing.assert_allclose(found["split"], losses[process], rtol=1e-5)
        np.testing.assert_array_equal(found["no mesh"], alone)
