"""Which training images harm a CNN? Digits, a twentieth of the labels flipped.

    python examples/harmful_images.py --out harmful.png

Scores each image by its influence on the validation loss, draws the most harmful ones,
and trains new networks without them: what is harmful is mostly a wrong label, but not
every wrong label harms. Beside it nearest neighbours, which find more wrong labels, and
a random choice. About a minute on two cores.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
import optax

import jaxsel
from jaxsel import attribute, data, models, report, tasks

REMOVED = 25


def cnn(epochs: int) -> attribute.Recipe:
    """Return a CNN of two blocks, and its training."""
    return attribute.Recipe(
        lambda rngs: models.CNN((8, 8), 10, channels=(8, 16), rngs=rngs),
        optax.sgd(0.05, momentum=0.9),
        epochs=epochs,
        batch_size=50,
    )


def loss_without(
    recipe: attribute.Recipe, samples: tuple, rows: np.ndarray, key: jax.Array
) -> tuple[float, float]:
    """Return the validation loss of networks trained without rows, and its error."""
    masks = np.ones((1, len(samples[0])), bool)
    masks[0, rows] = False
    runs = tasks.retrain_subsets(recipe, *samples, key=key, subsets=masks, seeds=10)
    losses = -runs.outputs[0].mean(1)
    return float(losses.mean()), float(losses.std(ddof=1) / len(losses) ** 0.5)


def main(argv: list[str] | None = None) -> dict[str, tuple[float, float]]:
    """Print a line for each way to remove images; return losses with their errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15, help="of each training")
    parser.add_argument("--out", metavar="PICTURE", help="draw the harmful images")
    args = parser.parse_args(argv)
    key_order, key_flip, key = jax.random.split(jax.random.key(0), 3)

    digits = data.load("digits", split="all")
    images = digits.x.reshape(-1, 8, 8).astype(np.float32) / digits.x.max()
    order = np.asarray(jax.random.permutation(key_order, len(images)))
    train, val = order[:1000], order[1000:1300]
    labels, wrong = data.flip_labels(key_flip, digits.y[train], 0.05, n_classes=10)
    labels, wrong = np.asarray(labels), np.asarray(wrong)
    x, x_val = images[train], images[val]
    samples = x, labels, x_val, digits.y[val]

    recipe = cnn(args.epochs)
    influence = attribute.network_influence(recipe, *samples, key=key, seeds=3)
    flat = x.reshape(len(x), -1), labels, x_val.reshape(len(x_val), -1), samples[3]
    neighbours = jaxsel.knn_shapley(*flat)
    drawn = np.random.default_rng(0).choice(len(x), REMOVED, replace=False)
    ways = {
        "nothing": np.arange(0),
        "random": drawn,
        "influence": influence.bottom(REMOVED),
        "neighbours": neighbours.bottom(REMOVED),
    }
    found = {}
    print(f"without {REMOVED} by   wrong labels   validation loss of 10 new networks")
    for name, rows in ways.items():
        found[name] = loss_without(recipe, samples, rows, key)
        loss, error = found[name]
        print(f"{name:<14}{wrong[rows].sum():>12}   {loss:.3f} ± {error:.3f}")
    for name, values in {"influence": influence, "neighbours": neighbours}.items():
        area = tasks.detection_curve(values, wrong).auc
        print(f"wrong labels by {name}: area under the ROC curve {area:.3f}")
    if args.out:
        worst = ways["influence"][:20]
        figure = report.plot_images(
            x[worst],
            columns=10,
            captions=[f"{labels[i]}, is {digits.y[train[i]]}" for i in worst],
            marked=wrong[worst],
        )
        figure.savefig(args.out)
    return found


if __name__ == "__main__":
    main()
