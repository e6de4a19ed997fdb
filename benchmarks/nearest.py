"""KNN values of jaxsel and of shapiq: `python -m benchmarks.nearest --shapiq PYTHON`.

Compares exact KNN-Shapley, threshold and weighted values: whether they are equal, and
the CPU time on one thread for ten validation points. shapiq explains one validation
point a call, in a Python loop over training points; it needs Python 3.12 and an
environment of its own, see `errors.py`. The weighted value is compared at one level of
weights, where both packages round alike, and on fewer points, as shapiq's algorithm is
quadratic. `--write` keeps the table as NEAREST.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jaxsel

from . import _knn

N, FEW, M, D, K = 10_000, 200, 10, 32, 5
IN_BALL = 100  # points within the radius at most
WIDE = 0.05  # share of all pairs within the wide radius
EQUAL = 1e-6  # of the largest value
HERE = Path(__file__).parent
TITLES = {
    "knn": "exact KNN-Shapley",
    "threshold": "threshold KNN-Shapley",
    "wide": "the same, a wide radius",
    "weighted": "weighted KNN-Shapley, hard labels",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, and return 1 if values differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nearest")
    add = parser.add_argument
    add("--shapiq", metavar="PYTHON", required=True, help="interpreter with shapiq")
    add("--n", type=int, default=N, help=f"training points ({N})")
    add("--write", action="store_true", help="write NEAREST.md")
    args = parser.parse_args(argv)
    points = make_points(args.n)
    version, theirs, peer_seconds = of_shapiq(args.shapiq, points)
    # The empty set is worth 1 in jaxsel, as a tie is, and 0 in shapiq; Shapley values
    # spread the difference evenly over all points.
    theirs["weighted"] = theirs["weighted"] - 1 / points["few"]
    rows: list[tuple[str, float, float, float]] = []
    exact, off = closed_form(points), {"shapiq": 0.0, "jaxsel": 0.0}
    for name, call in calls(points).items():
        values, seconds = _timed(call)
        if name == "wide":
            sides = {"jaxsel": values, "shapiq": theirs[name]}
            off = {side: _gap(got, exact) for side, got in sides.items()}
        gap = _gap(theirs[name], values)
        rows.append((name, gap, seconds, peer_seconds[name]))
    text = as_text(rows, len(points["x"]), version, off)
    print(text)
    if args.write:
        (HERE / "NEAREST.md").write_text(text)
    # C(n, points in the ball) overflows in shapiq 1.8.0 within the wide radius.
    return int(any(gap > EQUAL for name, gap, _, _ in rows if name != "wide"))


def make_points(n: int) -> dict[str, Any]:
    """Draw two classes of Gaussian clouds, and the radius of the threshold value."""
    drawn = _knn.mixture(n, M, D, k=K)
    x, x_val = np.asarray(drawn.x), np.asarray(drawn.x_val)
    squares = ((x[None] - x_val[:, None]) ** 2).sum(2, dtype=np.float64)
    lengths = np.sqrt(np.sort(squares, axis=1))
    # Halfway between two points: packages may place one on the radius differently.
    last = min(IN_BALL, n - 1)
    near = lengths[lengths[:, last].argmin(), last - 1 : last + 1].mean()
    wide = np.sqrt(np.quantile(squares, WIDE))
    return {
        "x": x,
        "y": np.asarray(drawn.y) % 2,
        "x_val": x_val,
        "y_val": np.asarray(drawn.y_val) % 2,
        "k": K,
        "few": min(FEW, n),
        "bits": 0,
        "radius": float(near),
        "wide": float(wide),
    }


def calls(points: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return our three values as calls without arguments."""
    x, y, x_val, y_val = (points[name] for name in ("x", "y", "x_val", "y_val"))
    few, k, near, wide = (points[name] for name in ("few", "k", "radius", "wide"))
    close: Any = lambda distance: distance.min() / distance  # noqa: E731
    return {
        "knn": lambda: jaxsel.knn_shapley(x, y, x_val, y_val, k=k),
        "threshold": lambda: jaxsel.threshold_knn_shapley(
            x, y, x_val, y_val, radius=near
        ),
        "wide": lambda: jaxsel.threshold_knn_shapley(x, y, x_val, y_val, radius=wide),
        "weighted": lambda: jaxsel.weighted_knn_shapley(
            x[:few], y[:few], x_val, y_val, k=k, bits=1, weights=close
        ),
    }


def _timed(call: Callable[[], Any]) -> tuple[np.ndarray, float]:
    """Return values in float64, and the least CPU time of three calls after one."""
    values = np.asarray(call().values, np.float64)
    rounds: list[float] = []
    for _ in range(3):
        start = time.process_time()
        np.asarray(call().values)
        rounds.append(time.process_time() - start)
    return values, min(rounds)


def closed_form(points: dict[str, Any]) -> np.ndarray:
    """Return the threshold values within the wide radius, by their formula.

    It is written out in docs/knn-values.md, for two classes; all in float64.
    """
    x, y, x_val, y_val = (points[name] for name in ("x", "y", "x_val", "y_val"))
    values = np.zeros(len(x))
    for query, label in zip(x_val, y_val, strict=True):
        squares = ((np.float64(x) - query) ** 2).sum(1)
        inside = np.sqrt(squares) <= points["wide"]
        gains = (y == label) & inside
        b, right = inside.sum(), gains.sum()
        if b > 1:
            rest = (gains - (right - gains) / (b - 1)) * np.sum(1 / np.arange(2, b + 1))
            values[inside] += ((gains - 0.5 + rest) / b)[inside]
        else:
            values[inside] += (gains - 0.5)[inside]
    return values / len(x_val)


def _gap(values: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(values - exact).max() / np.abs(exact).max())


def of_shapiq(
    python: str, points: dict[str, Any]
) -> tuple[str, dict[str, np.ndarray], dict[str, float]]:
    """Return the version of shapiq, its values and its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "points.npz", Path(folder) / "values.npz"
        np.savez(path, **points)
        done = subprocess.run(
            [python, str(HERE / "_shapiq_nearest.py"), str(path), str(out)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        values = dict(np.load(out))
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["version"], values, answer["seconds"]


def as_text(
    rows: list[tuple[str, float, float, float]],
    n: int,
    version: str,
    off: dict[str, float],
) -> str:
    """Return NEAREST.md; `off` is the error within the wide radius, by package."""
    lines = [
        "# KNN values of two packages",
        "",
        f"Made by `python -m benchmarks.nearest --shapiq PYTHON --write`: {M} "
        f"validation points, {D} features, K = {K}, two classes; CPU time on one "
        f"thread, the least of three calls, of jaxsel after a first one that compiles. "
        f"The weighted value of shapiq {version} is timed once. "
        "The difference is the largest one, as a share of the largest value; that of "
        "weighted values after 1/n is taken off shapiq's, in which the empty set is "
        "worth 0 rather than 1. Within the wide radius, shapiq's binomial coefficients "
        "overflow: against the closed form in float64 it is off by "
        f"{off['shapiq']:.0e} of the largest value, and jaxsel by {off['jaxsel']:.0e}.",
        "",
        "| value | training points | difference | jaxsel, ms | shapiq, ms | times |",
        "|---|---|---|---|---|---|",
    ]
    for name, gap, ours, peer in rows:
        size = min(FEW, n) if name == "weighted" else n
        times = f"{peer / ours:.0f}" if gap <= EQUAL else "differs: not compared"
        lines.append(
            f"| {TITLES[name]} | {size} | {gap:.0e} | {1e3 * ours:.3g} | "
            f"{1e3 * peer:.4g} | {times} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
