"""Figure 2b at the paper's size, with the values that need no retraining.

`python -m experiments.values.large` plants 1,000 clothes among 10,000 digits of MNIST,
whole images, and looks for them by KNN values, influence functions and G-Shapley of a
logistic regression. TMC-Shapley and leave-one-out would train it a million times.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import jaxsel
from experiments._kit.scenes.valuations import MAX
from experiments._kit.store import remembered
from jaxsel import Values, value
from jaxsel.data import load
from jaxsel.tasks import detection_curve

from .data import shrink
from .methods import PENALTY

METHODS = (MAX, "KNN-Shapley", "KNN-LOO", "Influence", "G-Shapley")

_RATE, _K = 0.1, 5
_FOREIGN = 1000


class LargeSizes(NamedTuple):
    """Training and validation points, pixels along a side, passes of G-Shapley."""

    n: int = 10_000
    n_val: int = 500
    side: int = 28
    passes: int = 256


def large_value(sizes: LargeSizes, method: str, seed: int) -> dict[str, np.ndarray]:
    """Detect the foreign images by one method.

    Returns:
        "auc" and "seconds" of wall time, compilation included; scalars.
    """
    x, y, x_val, y_val, foreign = planted_digits(sizes, seed)
    arrays = x, y, x_val, y_val
    key = jax.random.key((29 << 16) + seed)
    by: dict[str, Callable[[], Values]] = {
        MAX: lambda: jaxsel.knn_shapley(*arrays, k=_K, reduce="max"),
        "KNN-Shapley": lambda: jaxsel.knn_shapley(*arrays, k=_K),
        "KNN-LOO": lambda: jaxsel.knn_loo(*arrays, k=_K),
        "Influence": lambda: jaxsel.influence(*arrays, l2=PENALTY),
        "G-Shapley": lambda: value.g_shapley(
            value.LogisticRegression(l2=PENALTY),
            *arrays,
            key=key,
            stop=value.MaxSamples(sizes.passes),
        ),
    }
    start = time.perf_counter()
    values = np.asarray(by[method]().values, np.float64)
    seconds = time.perf_counter() - start
    auc = detection_curve(values, foreign).auc
    return {"auc": np.array(auc), "seconds": np.array(seconds)}


def planted_digits(sizes: LargeSizes, seed: int) -> tuple[np.ndarray, ...]:
    """Return digits, of which the first tenth are clothes under drawn classes.

    Returns:
        Training pixels and classes, validation pixels and classes, and which training
        points are foreign. Pixels that are the same in all training images are left
        out, since they have no scale.

    Raises:
        ValueError: If more rows are asked for than MNIST's training set has.
    """
    n, n_val = sizes.n, sizes.n_val
    digits = load("mnist", split="train")
    if n + n_val > len(digits.y):
        raise ValueError(
            f"n + n_val must be at most {len(digits.y)}, the digits of MNIST, got "
            f"{n + n_val}"
        )
    clothes = load("fashion_mnist", split=f"train[:{_FOREIGN}]").x
    rng = np.random.default_rng((29, seed))
    rows = rng.permutation(len(digits.y))[: n + n_val]
    images, labels = np.array(digits.x[rows]), np.array(digits.y[rows])
    count = round(_RATE * n)
    images[:count] = clothes[rng.permutation(_FOREIGN)[np.arange(count) % _FOREIGN]]
    labels[:count] = rng.integers(0, 10, count)
    pixels = shrink(images, sizes.side).reshape(n + n_val, -1)
    varied = np.ptp(pixels[:n], axis=0) > 0
    train, val = np.split(pixels[:, varied], [n])
    return train, labels[:n], val, labels[n:], np.arange(n) < count


def main(argv: Sequence[str] | None = None) -> None:
    """Run each method without a saved result, and print all AUCs and times."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.values.large", description=__doc__
    )
    for name, default in LargeSizes()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("repro-large"))
    options = parser.parse_args(argv)
    sizes = LargeSizes(options.n, options.n_val, options.side, options.passes)
    for name, size in sizes._asdict().items():
        if size < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {size}")
    for method in METHODS:
        result = remembered(
            options.out / f"{method}-{options.seed}.npz",
            {"sizes": sizes._asdict(), "method": method, "seed": options.seed},
            functools.partial(large_value, sizes, method, options.seed),
        )
        auc, seconds = float(result["auc"]), float(result["seconds"])
        print(f"{method}: AUC {auc:.3f} in {seconds:.1f} s", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
