"""A first call in a process of its own: `python -m benchmarks._fresh NAME [--quick]`.

Writes one line of JSON: seconds of CPU and of the clock, from `import jaxsel` to the
result and of the call alone, without JAX's persistent cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ._machine import ROOT


def first_call(name: str, *, quick: bool) -> dict[str, float]:
    """Run a call in a fresh process and return its figures."""
    return in_new_process("benchmarks._fresh", name, *["--quick"] * quick)


def in_new_process(module: str, *arguments: str) -> Any:
    """Run a module without JAX's persistent cache, and return its last line's JSON.

    Raises:
        RuntimeError: If it fails, with the end of what it wrote.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.strip()[-500:]
        raise RuntimeError(f"first call of {' '.join(arguments)} failed: {reason}")
    return json.loads(done.stdout.splitlines()[-1])


def _tmc(classes: int, quick: bool) -> tuple[Callable[[], Any], Callable[[Any], float]]:
    import jax
    import numpy as np

    import jaxsel
    from jaxsel import value

    rng = np.random.default_rng(0)
    n = 20 if quick else 200
    y = rng.integers(0, classes, n + 100)
    centres = rng.normal(size=(classes, 10))
    x = (centres[y] + rng.normal(size=(n + 100, 10))).astype(np.float32)
    utility = value.ModelUtility(value.LogisticRegression(), x[:n], y[:n], x[n:], y[n:])
    stop, key = value.MaxSamples(8 if quick else 64), jax.random.key(0)

    def wrong(result: Any) -> float:
        """Return the error of efficiency: sum of values against the gain of all points.

        Permutations end early where that is near: within the default tolerance.
        """
        ends = utility(np.stack([np.zeros(n, bool), np.ones(n, bool)]))
        return abs(float(result.values.sum()) - float(ends[1] - ends[0]))

    # As docs/retraining.md calls it.
    return lambda: jaxsel.tmc_shapley(utility, key=key, stop=stop), wrong


def _omp(quick: bool) -> tuple[Callable[[], Any], Callable[[Any], float]]:
    import numpy as np

    import jaxsel

    rng = np.random.default_rng(0)
    n, d, k = (40, 8, 5) if quick else (2000, 64, 50)
    x = rng.normal(size=(n, d)).astype(np.float32)
    target = x[: n // 8].sum(0)

    def wrong(result: Any) -> float:
        """Return the relative slope of the objective along the positive weights."""
        chosen = np.asarray(result.indices[: len(result)])
        rows = x[chosen].astype(np.float64)
        weights = np.asarray(result.weights[: len(result)], np.float64)
        slope = rows @ (rows.T @ weights - target) + 0.5 * weights  # l2 = .5
        return float(np.abs(slope[weights > 0]).max() / np.abs(rows @ target).max())

    return lambda: jaxsel.omp(x, target, k), wrong


def _knn(quick: bool) -> tuple[Callable[[], Any], Callable[[Any], float]]:
    import numpy as np

    import jaxsel

    rng = np.random.default_rng(0)
    n, m, d, k = (40, 5, 4, 5) if quick else (2000, 100, 32, 5)
    x, x_val = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    y, y_val = rng.integers(0, 2, n), rng.integers(0, 2, m)

    def wrong(result: Any) -> float:
        """Return by how much the sum of values differs from the mean utility of all."""
        squares = ((x_val[:, None] - x[None]) ** 2).sum(-1)
        near = np.argsort(squares, axis=1)[:, :k]
        return abs(float(result.values.sum()) - (y[near] == y_val[:, None]).mean())

    return lambda: jaxsel.knn_shapley(x, y, x_val, y_val, k=k), wrong


CALLS: dict[str, Callable[[bool], tuple[Callable[[], Any], Callable[[Any], float]]]] = {
    "tmc_shapley": lambda quick: _tmc(2, quick),
    "tmc_shapley, 3 classes": lambda quick: _tmc(3, quick),
    "omp": _omp,
    "knn_shapley": _knn,
}


def _main(name: str, quick: bool) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    import jax

    import jaxsel

    del jaxsel
    imported = time.perf_counter() - wall, time.process_time() - cpu
    call, wrong = CALLS[name](quick)
    wall, cpu = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(call())
    called = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "call_cpu_s": called[1],
        "call_wall_s": called[0],
        "all_cpu_s": imported[1] + called[1],
        "all_wall_s": imported[0] + called[0],
        "error": wrong(result),
    }


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], "--quick" in sys.argv[2:])))
