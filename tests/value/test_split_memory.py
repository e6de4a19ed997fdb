"""Memory of a chunk where training points are split, in a process of its own.

After many other programs in one process XLA fuses less: 29 bytes a pair, not 23.
"""

import os
import subprocess
import sys

import pytest

_MEASURE = """
import sys
import numpy as np
import jaxsel
from jaxsel.value import _split

n, asked, step, programs = 20_000, sys.argv[1] == "True", _split._step, []

def watched(*operands, plan, thorough):
    given = {"plan": plan, "thorough": asked}
    programs.append(step.lower(*operands, **given).compile())
    return step(*operands, **given)

_split._step = watched
rng = np.random.default_rng(0)
x, x_val = (rng.normal(size=(rows, 3)).astype(np.float32) for rows in (n, 8))
y, y_val = (rng.integers(0, 3, rows) for rows in (n, 8))
mesh = jaxsel.make_mesh()
jaxsel.knn_shapley(x, y, x_val, y_val, mesh=mesh, split="training", chunk_size=8)
print(programs[0].memory_analysis().temp_size_in_bytes / n)
"""


@pytest.mark.left_out
@pytest.mark.parametrize(("thorough", "most"), [(False, 25), (True, 65)])
def test_memory_of_rows_in_flight(thorough, most):
    """As docs/scaling.md says: 17 and 57 bytes a pair, and some without fusion."""
    devices = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(thorough)],
        env=os.environ | {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout.split()[-1]) < most
