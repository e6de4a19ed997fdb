"""Which posts on computers to fine-tune MiniLM on: chosen by gradients, and why.

    jaxsel models prepare minilm && jaxsel data prepare newsgroups
    python examples/choose_to_finetune.py --out shares.png

The pool has posts of 20 newsgroups, and 30 % of their labels are wrong; the target is
50 posts of the five groups on computers. Prints some of the 150 posts that gradients of
a fresh head choose, each with the target post that it serves, and draws their kinds
beside other choices. Then trains low-rank updates of MiniLM, and its head, on each.
A minute and a half of CPU time; `--epochs 0` trains nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import jax
import numpy as np
from flax import nnx

import jaxsel
from jaxsel import data, models, report, retrieve

GROUPS = np.array([1, 2, 3, 4, 5])  # comp.*
N, M, BUDGET, LENGTH = 1500, 50, 150, 48
KINDS = "computers, right label", "computers, wrong label", "other groups"


def draw(shares: dict[str, np.ndarray], figure: Any) -> None:
    """Draw the shares of kinds in each choice."""
    with report.style():
        axes = figure.add_subplot()
        lefts = np.zeros(len(shares))
        for j, kind in enumerate(KINDS):
            widths = np.array([share[j] for share in shares.values()])
            axes.barh([*shares], widths, left=lefts, label=kind)
            lefts += widths
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlabel(f"Share of {BUDGET} chosen posts")
        figure.legend(loc="outside upper center", ncols=len(KINDS))


def accuracy(target: models.Target, train: Any, test: Any, epochs: float) -> float:
    """Return the test accuracy after low-rank updates are trained on some posts."""
    model, keys = (target.graphdef, target.params), jax.random.split(jax.random.key(1))
    kernels, trained = ["*/query/kernel", "*/value/kernel"], ["*lora_?", "head/*"]
    adapted = models.add_lora(*model, 8, wrt=kernels, key=keys[0])
    recipe = {"epochs": epochs, "batch_size": 15, "learning_rate": 3e-3}
    tuned = models.finetune(*adapted, *train, wrt=trained, key=keys[1], **recipe)
    _, merged = models.merge_lora(adapted[0], tuned.params)
    logits = dataclasses.replace(target, params=merged).logits(test[0])
    return float(np.mean(logits.argmax(axis=1) == test[1]))


def main(argv: list[str] | None = None) -> dict[str, np.ndarray]:
    """Print rows and accuracies; return the shares of kinds in each choice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=float, default=5, help="of each training")
    parser.add_argument("--out", metavar="PICTURE", help="draw the choices")
    args = parser.parse_args(argv)
    key_order, key_flip = jax.random.split(jax.random.key(0))
    folder = models.prepare_model("minilm")
    model = models.load_target(folder, n_classes=20, read="mean", rngs=nnx.Rngs(0))
    posts, tests = data.load("newsgroups"), data.load("newsgroups", split="test")

    def read(dataset: data.Dataset, rows: np.ndarray) -> models.Tokens:
        texts = [str(text) for text in dataset.x[rows]]
        return models.tokenize(texts, folder / "tokenizer.json", length=LENGTH)

    order = np.asarray(jax.random.permutation(key_order, len(posts.y)))
    few = np.concatenate([order[posts.y[order] == g][-M // 5 :] for g in GROUPS])
    rows = order[~np.isin(order, few)][:N]
    labels, wrong = data.flip_labels(key_flip, posts.y[rows], 0.3, n_classes=20)
    labels, wrong = np.asarray(labels), np.asarray(wrong)
    pool, goal = (read(posts, rows), labels), (read(posts, few), posts.y[few])

    coordinates = retrieve.target_coordinates(pool, goal, network=model)
    chosen = jaxsel.select_for_finetuning(
        coordinates.candidates, coordinates.target, BUDGET, normalise=False
    ).to_numpy()
    served, cosines = coordinates.serves(chosen)
    for i in range(0, BUDGET, BUDGET // 5):
        label = np.asarray(posts.class_names)[labels[chosen[i]]]
        print(f"{cosines[i]:.2f} {label}: {posts.x[rows[chosen[i]]][:60]!r}")
        print(f"     serves {posts.x[few[served[i]]][:60]!r}")

    x, x_few = model.features(pool[0]), model.features(goal[0])
    alike = jaxsel.retrieve_nearest(x, x_few, BUDGET)
    of_label = jaxsel.retrieve_nearest(
        x, x_few, BUDGET, labels=labels, hard_labels=goal[1]
    )
    choices = {
        "random": np.arange(BUDGET),
        "nearest texts": alike.to_numpy(),
        "nearest of the label": of_label.to_numpy(),
        "gradients": chosen,
    }
    inside = np.isin(posts.y[rows], GROUPS)
    kinds = np.stack([inside & ~wrong, inside & wrong, ~inside], axis=1)
    shares = {name: kinds[choice].mean(0) for name, choice in choices.items()}
    held_out = np.flatnonzero(np.isin(tests.y, GROUPS))[::5]
    test = read(tests, held_out), tests.y[held_out]
    for name, choice in choices.items():
        parts = zip(shares[name], KINDS, strict=True)
        print(f"{name}:", ", ".join(f"{share:.0%} {kind}" for share, kind in parts))
        if args.epochs:
            train = jax.tree.map(lambda leaf, choice=choice: leaf[choice], pool)
            print(f"  test accuracy {accuracy(model, train, test, args.epochs):.0%}")
    if args.out:
        draw(shares, figure := report.new_figure(6.4, 2.2))
        figure.savefig(args.out)
    return shares


if __name__ == "__main__":
    main()
