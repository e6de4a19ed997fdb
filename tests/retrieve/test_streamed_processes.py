"""Rows of a source in several processes: each reads what its devices compare."""

from pathlib import Path

import numpy as np
import pytest
from in_processes import in_processes
from retrieve_cases import M
from row_cases import D, N, arrays

import jaxsel
from jaxsel.retrieve import nearest


@pytest.mark.slow
@pytest.mark.multihost
@pytest.mark.parametrize("count", [2, 4])
def test_each_process_reads_its_own_rows(count, tmp_path):
    x, y = arrays()
    hard = np.random.default_rng(7).normal(size=(M, D)).astype(np.float32)
    names = np.arange(M) % 3
    np.savez(tmp_path / "data.npz", x=x, y=y, hard=hard, names=names)
    in_processes(Path(__file__).parent / "stream_processes.py", count, tmp_path)

    found = [np.load(tmp_path / f"{process}.npz") for process in range(count)]
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
            read.append([i for a, b in each[f"{name}, read"] for i in range(a, b)])
        # Every row once, by one of them.
        assert sorted(sum(read, [])) == [*range(N)]
        sizes = [*map(len, read)]
        assert max(sizes) - min(sizes) < 16
    chosen = jaxsel.retrieve_nearest(x, hard, 30).indices
    for each in found:
        np.testing.assert_array_equal(each["chosen"], chosen)
        np.testing.assert_array_equal(each["by rank"], chosen)
        assert each["died"]
        np.testing.assert_array_equal(each["resumed"], wanted["all"].indices)
        assert each["resumed, read"].min() >= 32  # not from the beginning
    cuts = [N * process // count for process in range(count + 1)]
    shares = [each["share"].tolist() for each in found]
    assert shares == [[*pair] for pair in zip(cuts, cuts[1:], strict=False)]
