"""KNN-Shapley of training points that no device holds: `python -m benchmarks.split`.

Eight devices of one process, each with its own part of 10M points, beside one device
that holds 1M. Each runs in a process of its own, which the number of devices needs, and
so that the peak of its memory is its own. The first validation points are compared with
a plain float64 reference.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._machine import ROOT

K, N_CLASSES, CHECKED = 10, 10, 2
RUNS = {"one device": (1_000_000, 100, 32, 1), "split": (10_000_000, 200, 32, 8)}
QUICK = {"one device": (10_000, 16, 32, 1), "split": (40_000, 16, 32, 8)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run both, print a line of JSON for each, and return 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.split")
    add = parser.add_argument
    add("--quick", action="store_true", help="tiny sizes")
    add("--size", type=int, nargs=4, metavar=("N", "M", "D", "DEVICES"))
    add("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.here:
        print(json.dumps(_measure(*args.size)))
        return 0
    runs = QUICK if args.quick else RUNS
    sizes = [args.size] if args.size else runs.values()
    rows = [_in_a_process(*size) for size in sizes]
    for row in rows:
        print(json.dumps(row))
    if len(rows) == 2:
        ratio = rows[1]["cpu_ns_a_pair"] / rows[0]["cpu_ns_a_pair"]
        print(f"CPU time a pair, split to one device: {ratio:.2f}")
    return int(any(row["error"] > 1e-5 for row in rows))


def _in_a_process(n: int, m: int, d: int, devices: int) -> dict[str, Any]:
    count = f"--xla_force_host_platform_device_count={devices}"
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": count}
    # Else glibc keeps what arrays of up to 32 MB have left, some 150 MB here.
    environment["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)
    size = [str(number) for number in (n, m, d, devices)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.split", "--here", "--size", *size],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _measure(n: int, m: int, d: int, devices: int) -> dict[str, Any]:
    """Value n points on all devices of this process."""
    import jax

    import jaxsel

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_CLASSES, d), np.float32)
    centres *= np.float32(5 / (2 * d) ** 0.5)  # as in `_knn.mixture`
    y, y_val = (rng.integers(N_CLASSES, size=rows, dtype=np.int32) for rows in (n, m))

    def draw(labels: np.ndarray, seed: int) -> np.ndarray:
        x = np.random.default_rng(seed).standard_normal((len(labels), d), np.float32)
        for start in range(0, len(x), 4096):
            x[start : start + 4096] += centres[labels[start : start + 4096]]
        return x

    share = n // devices
    x_val, options = draw(y_val, n + 1), {}
    x: Any
    if devices > 1:
        mesh = jaxsel.make_mesh()
        split = jax.NamedSharding(mesh, jax.P("data"))

        def local_rows(index: Any) -> np.ndarray:
            return draw(y[index[0]], index[0].start or 0)

        x = jax.make_array_from_callback((n, d), split, local_rows)
        options = {"mesh": mesh, "split": "training"}
    else:
        x = draw(y, 0)

    def value(count: int) -> np.ndarray:
        result = jaxsel.knn_shapley(x, y, x_val[:count], y_val[:count], k=K, **options)
        return np.asarray(result.values)

    before, start = _peak_gb(), time.perf_counter()
    value(4 * devices)  # compiles
    first = time.perf_counter() - start
    cpu, start = time.process_time(), time.perf_counter()
    value(m)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = _peak_gb()
    # As many validation points as a chunk has: a check of every device's part.
    parts = x.addressable_shards if devices > 1 else [None]
    rows = [np.asarray(part.data if part else x) for part in parts]
    wanted = _reference(rows, y, x_val[:CHECKED], y_val[:CHECKED])
    error = np.abs(value(CHECKED) - wanted).max() / np.abs(wanted).max()
    return {
        "n": n,
        "m": m,
        "d": d,
        "devices": devices,
        "share": share,
        "seconds": round(wall, 2),
        "cpu_ns_a_pair": round(cpu / (n * m) * 1e9, 2),
        "first_call_s": round(first, 1),
        "peak_gb_with_inputs_only": round(before, 2),
        "peak_gb": round(peak, 2),
        "error": float(error),
        "load": os.getloadavg()[0],
    }


def _reference(
    parts: Sequence[np.ndarray], y: np.ndarray, x_val: np.ndarray, y_val: np.ndarray
) -> np.ndarray:
    """Return KNN-Shapley values by sums of squared differences in float64, `[n]`."""
    total = np.zeros(len(y))
    rank = np.arange(1, len(y) + 1)
    for query, label in zip(x_val.astype(np.float64), y_val, strict=True):
        blocks = (
            np.square(part[start : start + 65536] - query).sum(axis=1)
            for part in parts
            for start in range(0, len(part), 65536)
        )
        order = np.argsort(np.concatenate(list(blocks)), kind="stable")
        match = (y[order] == label).astype(np.float64)
        step = (match - np.append(match[1:], 0)) / np.maximum(rank, K)
        total[order] += np.cumsum(step[::-1])[::-1]
    return total / len(x_val)


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
