"""How many programs the first call compiles: seconds are the benchmarks' business."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waits import PATIENCE

import jaxsel

_START = """
import collections, json
import jax, numpy as np
import jaxsel
from jaxsel import value

programs = collections.Counter()

def note(event, duration, **facts):
    # JAX has a program of its own, `stage`, to move an array.
    if event.endswith("backend_compile_duration"):
        name = facts.get("fun_name", "?").removeprefix("jit(").removesuffix(")")
        if name != "stage":
            programs[name] += 1

rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 32)).astype(np.float32)
x_val = rng.normal(size=(100, 32)).astype(np.float32)
y, y_val = rng.integers(0, 2, 2000), rng.integers(0, 2, 100)
key = jax.random.key(0)
jax.monitoring.register_event_duration_secs_listener(note)
"""
_CALLS = {
    "tmc_shapley": """
learner = value.LogisticRegression()
utility = value.ModelUtility(learner, x[:200, :10], y[:200], x_val[:, :10], y_val)
jaxsel.tmc_shapley(utility, key=key, stop=value.MaxSamples(64))
""",
    "tmc_shapley, few and many": """
learner = value.LogisticRegression()
utility = value.ModelUtility(learner, x[:90, :10], y[:90], x_val[:, :10], y_val)
for count in (20, 300):
    jaxsel.tmc_shapley(utility, key=key, stop=value.MaxSamples(count))
""",
    "tmc_shapley, three classes": """
y, y_val = rng.integers(0, 3, 200), rng.integers(0, 3, 100)
utility = value.ModelUtility(
    value.LogisticRegression(tol=1.0), x[:200, :4], y, x_val[:, :4], y_val
)
jaxsel.tmc_shapley(utility, key=key, stop=value.MaxSamples(64))
""",
    "omp": "jaxsel.omp(x, x[:300].sum(0), 50)",
    "knn_shapley": "jaxsel.knn_shapley(x, y, x_val, y_val, k=5)",
}


@pytest.mark.parametrize(
    ("call", "most", "once"),
    [
        ("tmc_shapley", 9, "kernel"),
        ("tmc_shapley, few and many", 16, "kernel"),
        ("tmc_shapley, three classes", 9, "kernel"),
        ("omp", 6, "pursue"),
        ("knn_shapley", 7, "_step"),
    ],
)
@pytest.mark.left_out
def test_a_first_call_compiles_few_programs(call, most, once):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{_START}{_CALLS[call]}\nprint(json.dumps(programs))",
        ],
        env={**os.environ, "PYTHONPATH": str(Path(jaxsel.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    programs = json.loads(done.stdout)
    assert programs[once] == 1
    assert sum(programs.values()) <= most, programs
