"""How many validation points are enough? Add them in batches until most signs are sure.

    python examples/enough_validation.py --sure 0.8

Values over disjoint validation sets merge into what one call over all of them would
give, standard errors included. So validation points can arrive in batches, and one can
stop once most values are more than two standard errors away from zero.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np

import jaxsel
from jaxsel import data


def share_sure(values: jaxsel.Values) -> float:
    """Return the share of points whose value is surely positive or negative."""
    return float(np.mean(np.abs(values.values) > 2 * np.asarray(values.stderr)))


def report(values: jaxsel.Values, wrong: jax.Array) -> None:
    """Print how sure the values are, and how many wrong labels they point to."""
    found = wrong[values.bottom(int(wrong.sum()))].mean()
    print(
        f"{int(values.count):>4} validation points: {share_sure(values):.0%} sure, "
        f"{found:.0%} of the lowest have a wrong label"
    )


def main(argv: list[str] | None = None) -> jaxsel.Values:
    """Merge batches of 32 until the share is reached, or the points run out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sure", type=float, default=0.8, help="when to stop")
    sure = parser.parse_args(argv).sure
    train, val = data.load("digits"), data.load("digits", split="test")
    x, x_val = train.as_features(), val.as_features()
    y, wrong = data.flip_labels(jax.random.key(0), train.y, 0.1, n_classes=10)

    values = jaxsel.knn_shapley(x, y, x_val[:32], val.y[:32])
    report(values, wrong)
    for start in range(32, len(val), 32):
        if share_sure(values) >= sure:
            break
        rows = slice(start, start + 32)
        values = values.merge(jaxsel.knn_shapley(x, y, x_val[rows], val.y[rows]))
        report(values, wrong)
    return values


if __name__ == "__main__":
    main()
