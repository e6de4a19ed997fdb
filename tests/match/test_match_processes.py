"""Several processes, of which each has a part of the candidates: results are of one."""

from pathlib import Path

import match_processes as cases
import numpy as np
import pytest
from in_processes import in_processes

from jaxsel import gradients, match


@pytest.mark.slow
@pytest.mark.multihost
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_choose_what_one_does(processes, tmp_path):
    in_processes(Path(cases.__file__), processes, tmp_path)
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
