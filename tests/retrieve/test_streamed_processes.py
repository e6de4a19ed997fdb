"""Rows of a source in several processes: each reads what its devices compare."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from retrieve_cases import M
from row_cases import D, N, arrays

import jaxsel
from jaxsel.retrieve import nearest


@pytest.mark.slow
@pytest.mark.multihost
def test_each_process_reads_its_own_rows(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    x, y = arrays()
    hard = np.random.default_rng(7).normal(size=(M, D)).astype(np.float32)
    names = np.arange(M) % 3
    np.savez(tmp_path / "data.npz", x=x, y=y, hard=hard, names=names)
    here = Path(__file__).parent
    given = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    given["PYTHONPATH"] = str(here.parents[1])
    script = here / "stream_processes.py"
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(port), process, tmp_path],
            env=os.environ | given,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in ("0", "1")
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    found = [np.load(tmp_path / f"{process}.npz") for process in (0, 1)]
    wanted = {
        "all": nearest(x, hard, 9),
        "of its class": nearest(x, hard, 9, labels=y, hard_labels=names),
    }
    for name, expected in wanted.items():
        read = []
        for each in found:
            np.testing.assert_array_equal(each[name], expected.indices)
            near = each[f"{name}, distances"]
            np.testing.assert_allclose(near, expected.distances, rtol=0, atol=1e-6)
            read.append({i for a, b in each[f"{name}, read"] for i in range(a, b)})
        # Every row once, by one of them.
        assert read[0] | read[1] == {*range(N)}
        assert not read[0] & read[1]
        assert abs(len(read[0]) - len(read[1])) < 16
    chosen = jaxsel.retrieve_nearest(x, hard, 30).indices
    for each in found:
        np.testing.assert_array_equal(each["chosen"], chosen)
        assert each["died"]
        np.testing.assert_array_equal(each["resumed"], wanted["all"].indices)
        assert each["resumed, read"].min() >= 32  # not from the beginning
    assert [each["share"].tolist() for each in found] == [[0, 51], [51, N]]
