"""Training points of which each process has its own: values are those of one device."""

import numpy as np
import pytest
from in_processes import TESTS, in_processes


@pytest.mark.slow
@pytest.mark.multihost
@pytest.mark.parametrize("count", [2, 4])
def test_processes_that_have_parts_of_the_features(tmp_path, count):
    in_processes(TESTS / "split_processes.py", count, tmp_path)
    import split_processes

    for process in range(count):
        found = np.load(tmp_path / f"{process}.npz")
        for name, wanted in split_processes.on_one_device().items():
            for axis in ("rows", "columns"):
                limit = 1e-6 * np.abs(wanted).max()
                np.testing.assert_allclose(found[f"{name} {axis}"], wanted, atol=limit)
            mine = np.split(wanted, count)[process]
            np.testing.assert_allclose(found[f"{name} split"], mine, atol=limit)
