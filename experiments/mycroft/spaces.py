"""Table 2 and the feature spaces: retrieval by an encoder that needs no labels.

`python -m experiments.mycroft.spaces --seeds 8` runs it, prints each claim with its
verdict, and keeps the results of each seed in a folder.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments._kit.claims import ABOVE, BELOW, Measured, SeedTest, Stated, judge
from experiments._kit.judge import Claim
from experiments._kit.scenes.owner import new_owner
from experiments._kit.scenes.starved import draw_starved
from experiments._kit.scenes.trainer import Samples, Sizes, Trainer, images, take
from experiments._kit.seeds import one_thread_each, stacked
from experiments._kit.store import remembered
from experiments.values.images import ENCODERS, FIRST
from jaxsel.data import load
from jaxsel.models import cache_folder, image_features, prepare_model
from jaxsel.retrieve import pseudo_labels, retrieve_nearest

from .choosing import PUBLISHED, choose, shared_view
from .comparing import compared
from .spurious import PAIR, SIZES, Encode, draw_backgrounds, mixed

SPACES = ("encoder", "pixels", "owner")
"""A pretrained encoder, the images themselves, and the owner's own network."""
SCENES = ("stripes", "starved")
NATURAL = 0.1
"""Share of useful samples among the owner's, before stripes."""
NEAR = 0.05
"""Accuracies within this of each other differ little."""
SIDE = 112
"""Pixels along a side that the encoder sees, for images of 14."""
STARVED = Sizes(offered=2000)
"""An owner with a third of the samples of the other experiments: all are encoded."""

_ENCODER = "EfficientNet-Lite0 in place of Unicom and of a ResNet-50"
_SPLIT = "train[:40000]"
_DATA = "fashion_mnist"


def spaces_seed(
    data: Samples,
    encode: Encode,
    seed: int,
    *,
    stripes: Sizes = SIZES,
    starved: Sizes = STARVED,
    pair: tuple[int, int] = PAIR,
) -> dict[str, np.ndarray]:
    """Retrieve by each space, with the owner's labels and without, once.

    Returns:
        "useful", `[spaces, budgets]`, the share of natural samples among those that
        labels and a space retrieve before stripes; "gained", `[spaces, budgets, 2]`,
        the accuracy with them. At the budget of the case studies, by `SCENES`:
        "unlabelled", `[2, 3, 2]`, the accuracy with samples that were chosen without
        labels and labelled by the nearest hard sample; "pseudo_right", `[2, 3]`, the
        share of right labels; "labelled", `[2, 2]`, the accuracy with what Mycroft as
        published chooses by the owner's labels.
    """
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    striped = draw_backgrounds(data, stripes, keys[0], pair=pair)
    offer, natural = mixed(striped, stripes.offered, NATURAL)
    trainer = striped.trainer
    owner = new_owner(offer, 2, stripes, keys[1])
    view = shared_view(owner, trainer.shared)
    represented = {
        "encoder": (encode(offer[0]), encode(trainer.shared[0])),
        "pixels": (_flat(offer[0]), _flat(trainer.shared[0])),
        "owner": (view.features, view.hard_features),
    }
    chosen = [
        [
            choose("retrieve", view.by(*represented[s]), b, keys[2])
            for b in stripes.budgets
        ]
        for s in SPACES
    ]
    mycroft = choose(PUBLISHED, view, stripes.main, keys[2])
    first = _without_labels(trainer, offer, represented, stripes.main, keys[2])

    scene = draw_starved(data, starved, keys[3])
    lacking, plenty = scene.trainer, scene.offer
    second_owner = new_owner(plenty, scene.n_classes, starved, keys[1])
    by_labels = choose(
        PUBLISHED, shared_view(second_owner, lacking.shared), starved.main, keys[2]
    )
    features = {
        "encoder": (encode(plenty[0]), encode(lacking.shared[0])),
        "pixels": (_flat(plenty[0]), _flat(lacking.shared[0])),
    }
    second = _without_labels(lacking, plenty, features, starved.main, keys[2])
    return {
        "useful": np.array([[natural[rows].mean() for rows in c] for c in chosen]),
        "gained": np.array(
            [[trainer.gain(take(offer, rows)) for rows in line] for line in chosen]
        ),
        "unlabelled": np.array([first[0], second[0]]),
        "pseudo_right": np.array([first[1], second[1]]),
        "labelled": np.array(
            [trainer.gain(take(offer, mycroft)), lacking.gain(take(plenty, by_labels))]
        ),
    }


def _without_labels(
    trainer: Trainer,
    offer: Samples,
    represented: Mapping[str, tuple[np.ndarray, np.ndarray]],
    budget: int,
    key: jax.Array,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose and label by the encoder and by pixels, and at random by the encoder.

    Returns:
        Accuracies, `[3, 2]`, and the share of right labels, `[3]`.
    """
    x, true = offer
    order = np.asarray(jax.random.permutation(key, len(true)))
    gained, right = [], []
    for space in ("encoder", "pixels", "random"):
        features, hard = represented["encoder" if space == "random" else space]
        near = retrieve_nearest(features, hard, budget)
        rows = np.asarray(near.indices)[: int(near.n_valid)]
        if space == "random":
            rows = order[:budget]
        labels = np.asarray(pseudo_labels(features, hard, trainer.shared[1]))[rows]
        gained.append(trainer.gain((x[rows], labels)))
        right.append(np.mean(labels == true[rows]))
    return np.array(gained), np.array(right)


CLAIMS: Mapping[str, Stated] = {
    key: Stated(
        text=text,
        where=where,
        measure=measure,
        test=test,
        differs=_ENCODER,
        family="spaces",
    )
    for key, text, where, measure, test in (
        (
            "few",
            "An ImageNet classifier's features retrieve few useful samples, fewer than "
            "chance (the paper's ResNet-50: 6 %)",
            "Section 4.3, Dogs & Wolves; chance is our bound",
            "share of useful samples less that of all",
            BELOW,
        ),
        (
            "matters",
            "The feature space matters: the owner's own network retrieves more useful "
            "samples than the encoder",
            "Section 4.3",
            "share of useful samples: the owner's network less the encoder",
            ABOVE,
        ),
        (
            "near",
            f"Missing labels cost little (within {100 * NEAR:.0f} points)",
            "Table 2; the bound is ours",
            "accuracy: retrieval without labels less Mycroft with them",
            SeedTest("within", NEAR),
        ),
        (
            "random",
            "Without labels, retrieval by the encoder is above a random choice",
            "Table 2",
            "accuracy: by the encoder less random",
            ABOVE,
        ),
        (
            "pixels",
            "Without labels, retrieval by the encoder is above that by pixels",
            "ours",
            "accuracy: by the encoder less by pixels",
            ABOVE,
        ),
    )
}
"""Claims on feature spaces and missing labels, a family of their own."""


def space_claims(
    results: Mapping[str, np.ndarray], budgets: Sequence[int]
) -> list[Claim]:
    """Judge the claims on feature spaces and on missing labels.

    Args:
        results: Of `spaces_seed`, stacked over seeds.
        budgets: Of the experiment before stripes.
    """
    return judge(CLAIMS, _measured(results, budgets))


def _measured(
    results: Mapping[str, np.ndarray], budgets: Sequence[int]
) -> Iterator[Measured]:
    b = int(np.argmin(np.abs(np.asarray(budgets) - SIZES.main)))
    useful = dict(zip(SPACES, results["useful"][:, :, b].T, strict=True))
    name = ENCODERS[FIRST].name
    stripes = "Fashion-MNIST before stripes"
    about = {
        "where": stripes,
        "scale": f"{name}, trained on ImageNet; {budgets[b]} samples",
    }
    of = {space: f"{values.mean():.0%}" for space, values in useful.items()}
    what = f"{of['encoder']} useful; less chance, {NATURAL:.0%}"
    yield compared("few", useful["encoder"] - NATURAL, what, **about)
    what = f"{of['owner']} and {of['encoder']}, by pixels {of['pixels']}; difference"
    yield compared("matters", useful["owner"] - useful["encoder"], what, **about)
    for i, where in enumerate((stripes, "Fashion-MNIST, starved classes")):
        encoder, pixels, random = results["unlabelled"][:, i, :, 0].T
        labelled = results["labelled"][:, i, 0]
        right = results["pseudo_right"][:, i].mean(0)
        about = {
            "where": where,
            "scale": f"{name}; {SIZES.main} samples, {right[0]:.0%} of pseudo-labels "
            "right",
        }
        what = (
            f"retrieval without labels {encoder.mean():.1%}, Mycroft with them "
            f"{labelled.mean():.1%}; difference"
        )
        yield compared("near", encoder - labelled, what, **about)
        for key, other in (("random", random), ("pixels", pixels)):
            what = f"{encoder.mean():.1%} and {other.mean():.1%}; difference"
            yield compared(key, encoder - other, what, **about)


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1)


def encoder(name: str = FIRST, side: int | None = SIDE) -> Encode:
    """Return an encoder of the catalogue, prepared on this machine, as a function."""
    return functools.partial(
        image_features,
        folder=prepare_model(name),
        side=side,
        cache=cache_folder("features"),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run the seeds that are not there yet, and print the claims."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.mycroft.spaces", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=8, help="how many (default: 8)")
    parser.add_argument("--out", type=Path, default=Path("repro-spaces"))
    options = parser.parse_args(argv)
    if options.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {options.seeds}")
    one_thread_each()
    read = functools.cache(lambda: images(load(_DATA, split=_SPLIT), SIZES.side))
    encode = functools.cache(encoder)
    settings: dict[str, Any] = {"encoder": FIRST, "side": SIDE, "split": _SPLIT}
    runs = []
    for seed in range(options.seeds):
        file = options.out / f"spaces-{seed}.npz"
        run = functools.partial(_run, read, encode, seed)
        runs.append(remembered(file, settings | {"seed": seed}, run))
        print(f"seed {seed}: {file}", flush=True)  # noqa: T201
    for claim in space_claims(stacked(runs), SIZES.budgets):
        p = "" if claim.p is None else f"p {claim.p:.3f}"
        line = (claim.text, claim.where, claim.scale, claim.measured, claim.test, p)
        print(" | ".join((*line, claim.verdict)))  # noqa: T201


def _run(
    read: Callable[[], Samples], encode: Callable[[], Encode], seed: int
) -> dict[str, np.ndarray]:
    return spaces_seed(read(), encode(), seed)


if __name__ == "__main__":
    main()
