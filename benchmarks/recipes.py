"""How well recipes can be attributed: `python -m benchmarks.recipes`.

The data and subsets of `benchmarks.attribute`, and its perceptron with other
activations, batches, momenta and rates: accuracy on the targets, the linear
datamodelling score of metagradients on drops from the same runs, and of the influence
over five networks on halves, means of `--runs` runs. `--write` keeps the table as
RECIPES.md beside this file; `docs/pictures.py recipes` draws it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsel import attribute, tasks

from ._setups import DROPPED, TRAIN, digits, network, subsets
from ._threads import limit, limited
from .attribute import KEY

PAGE = Path(__file__).with_name("RECIPES.md")
TARGETS = 100
HEAD = """\
# Recipes

Made by `python -m benchmarks.recipes --write`; its docstring has the set-up. Scores
are linear datamodelling scores over {targets} targets and 100 subsets, means of {runs}
runs with the least and the greatest in brackets; accuracy is on 200 targets.

| recipe, 30 epochs | accuracy | metagradient, drop | influence of five, half |
|---|---|---|---|
"""


class Trained(NamedTuple):
    """How a perceptron is trained."""

    activation: Callable[[jax.Array], jax.Array]
    rate: float = 0.1
    momentum: float = 0.9
    batch_size: int = 50


RECIPES = {
    "ReLU, rate .1, momentum .9, batch 50 (A)": Trained(jax.nn.relu),
    "ReLU, momentum 0": Trained(jax.nn.relu, momentum=0.0),
    "ReLU, batch 250": Trained(jax.nn.relu, batch_size=250),
    "GELU": Trained(jax.nn.gelu),
    "GELU, batch 250 (B)": Trained(jax.nn.gelu, batch_size=250),
    "GELU, rate .02": Trained(jax.nn.gelu, rate=0.02),
}


def measure(
    trained: Trained, runs: int
) -> tuple[list[float], list[float], list[float]]:
    """Return accuracies and both scores, one for each run."""
    recipe = attribute.Recipe(
        network(trained.activation),
        optax.sgd(trained.rate, momentum=trained.momentum or None),
        epochs=30,
        batch_size=trained.batch_size,
    )
    data = digits()
    x, y, x_val, y_val = data
    few = x, y, x_val[:TARGETS], y_val[:TARGETS]
    halves = tasks.retrain_subsets(
        recipe, *few, key=KEY(1000), subsets=subsets(TRAIN // 2), seeds=2
    )
    masks = subsets(round((1 - DROPPED) * TRAIN))
    train = jax.jit(recipe.train)
    accuracies, drops, half = [], [], []
    for run in range(runs):
        key = KEY(run)
        params = train(jax.random.fold_in(key, 0), x, y)
        right = recipe.apply(params, jnp.asarray(x_val)).argmax(1) == y_val
        accuracies.append(float(right.mean()))
        truth = tasks.retrain_subsets(
            recipe, *few, key=key, subsets=masks, seeds=1, same_seed=True
        )
        exact = attribute.metagradient(recipe, *few, key=key, reduce=None)
        drops.append(tasks.lds(exact, truth, key=KEY(0)).mean)
        influence = attribute.network_influence(
            recipe, *few, key=key, seeds=5, reduce=None
        )
        half.append(tasks.lds(influence, halves, key=KEY(0)).mean)
    return accuracies, drops, half


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and with `--write` keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes")
    parser.add_argument("--runs", type=int, default=3, help="of each recipe (3)")
    parser.add_argument("--write", action="store_true", help="write RECIPES.md")
    args = parser.parse_args(argv)
    text = HEAD.format(targets=TARGETS, runs=args.runs)
    print(text, end="", flush=True)
    with limited():
        limit()
        for name, trained in RECIPES.items():
            accuracies, *scores = measure(trained, args.runs)
            cells = [f"{np.mean(s):.2f} ({min(s):.2f} to {max(s):.2f})" for s in scores]
            row = f"| {name} | {np.mean(accuracies):.3f} | {' | '.join(cells)} |\n"
            print(row, end="", flush=True)
            text += row
    if args.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
