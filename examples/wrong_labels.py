"""Which value finds wrong labels best? Digits, a tenth of the labels flipped.

    python examples/wrong_labels.py --seeds 10

Prints the area under the ROC curve of each value (0.5 is chance, 1 perfect): mean and
standard deviation over seeds. Each seed draws 1000 training and 300 validation images
and the labels to flip. About 10 s on two cores.
"""

from __future__ import annotations

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxsel
from jaxsel import data, neighbors
from jaxsel.tasks import detection_curve

METHODS = {
    "knn_shapley": jaxsel.knn_shapley,
    "soft_knn_shapley": jaxsel.soft_knn_shapley,
    "threshold_knn_shapley": jaxsel.threshold_knn_shapley,
    "knn_banzhaf": jaxsel.knn_banzhaf,
    "knn_beta_shapley": jaxsel.knn_beta_shapley,
    'knn_shapley(reduce="max")': partial(jaxsel.knn_shapley, reduce="max"),
    "knn_loo(k=10)": partial(jaxsel.knn_loo, k=10),
    "knn_loo": jaxsel.knn_loo,
}


def detect(seed: int) -> dict[str, float]:
    """Return the area under the ROC curve of each method for one seed."""
    digits = data.load("digits", split="all")
    x, y = digits.as_features(), digits.y
    key_order, key_flip = jax.random.split(jax.random.key(seed))
    order = np.asarray(jax.random.permutation(key_order, len(y)))
    train, val = order[:1000], order[1000:1300]
    given, wrong = data.flip_labels(key_flip, y[train], 0.1, n_classes=10)

    areas = {}
    for name, method in METHODS.items():
        if method is jaxsel.threshold_knn_shapley:
            method = partial(method, radius=nearest_share(x[train], x[val], 0.05))
        values = method(x[train], given, x[val], y[val])
        areas[name] = detection_curve(values, np.asarray(wrong)).auc
    return areas


def nearest_share(x: np.ndarray, x_val: np.ndarray, share: float) -> float:
    """Return a radius within which this share of the points lies, on average."""
    squared = neighbors.distances(jnp.asarray(x), jnp.asarray(x_val[:50]))
    return float(np.sqrt(np.quantile(squared, share)))


def main(argv: list[str] | None = None) -> dict[str, np.ndarray]:
    """Print one line for each method and return the areas, `[seeds]` each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10, help="how many to average")
    seeds = parser.parse_args(argv).seeds
    runs = [detect(seed) for seed in range(seeds)]
    areas = {name: np.array([run[name] for run in runs]) for name in METHODS}
    for name, area in areas.items():
        spread = f" ± {area.std(ddof=1):.3f}" if seeds > 1 else ""
        print(f"{name:<28}{area.mean():.3f}{spread}")
    return areas


if __name__ == "__main__":
    main()
