"""Other ways to match, small requests, and answers with noisy or mixed samples."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from experiments._kit.scenes.owner import new_owner
from experiments._kit.scenes.trainer import Samples, Sizes, take

from .choosing import PUBLISHED, VARIANTS, choose, shared_view
from .spurious import PAIR, draw_backgrounds, mixed

ALL = (PUBLISHED, *VARIANTS)
"""Ways to choose: as published, and variants that differ in one point."""

HARD = (4, 8, 16, 32)
"""How many hard samples the trainer shares, beside `Sizes.shared`."""

WAYS = (PUBLISHED, "retrieve", "random")
"""Ways to choose that answer requests of so many."""

ANSWERS = ("as it has them", "noise of 0.1", "noise of 0.3", "means of two")
"""What an owner sends of the samples that it chose as published: pixels in [0, 1] with
normal noise of this standard deviation, or, in place of each sample, its mean with
another one that was chosen of the class: synthetic ones, none of which it has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variants:
    """Results on the stripes, for each of S seeds.

    Accuracies are fractions in [0, 1], on held-out hard samples.

    Attributes:
        budgets: Samples that the owner may send, `[B]`.
        main: The budget of the other experiments.
        accuracy: With the choice of each of `ALL`, `[S, 4, B]`.
        useful: Share of natural samples in that choice, `[S, 4, B]`.
        random: With a random choice, `[S, B]`.
        n_hard: Hard samples of a request, ascending, `[H]`.
        by_hard: With the choice of each of `WAYS` for H hard samples, `[S, 3, H]`.
        answers: With each of `ANSWERS`, `[S, 4]`.
    """

    budgets: np.ndarray
    main: int
    accuracy: np.ndarray
    useful: np.ndarray
    random: np.ndarray
    n_hard: np.ndarray
    by_hard: np.ndarray
    answers: np.ndarray


def requests(sizes: Sizes) -> tuple[int, ...]:
    """Return how many hard samples requests have, ascending; the last has all."""
    return (*(n for n in HARD if n < sizes.shared), sizes.shared)


def variants_seed(
    data: Samples,
    sizes: Sizes,
    seed: int,
    *,
    pair: tuple[int, int] = PAIR,
    share: float = 0.1,
) -> dict[str, np.ndarray]:
    """Run the experiment once; the fields of `Variants` without their first axis.

    Trainer, owner and draws are the same as in `spurious_seed`.
    """
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    scene = draw_backgrounds(data, sizes, keys[0], pair=pair)
    trainer, shared = scene.trainer, scene.trainer.shared
    offer, is_natural = mixed(scene, sizes.offered, share)
    owner = new_owner(offer, 2, sizes, keys[1])
    gain = lambda samples: trainer.gain(samples)[0]
    view, deep = shared_view(owner, shared), shared_view(owner, shared, layers=2)
    chosen = [
        [
            choose(how, deep if how == "two layers" else view, budget, keys[2])
            for budget in sizes.budgets
        ]
        for how in ALL
    ]
    random = [choose("random", view, budget, keys[2]) for budget in sizes.budgets]
    by_hard = np.zeros((len(WAYS), len(requests(sizes))))
    for h, n in enumerate(requests(sizes)):
        request_view = shared_view(owner, take(shared, _first_of_each(shared[1], n)))
        for i, how in enumerate(WAYS):
            by_hard[i, h] = gain(
                take(offer, choose(how, request_view, sizes.main, keys[2]))
            )
    sent = take(offer, choose(PUBLISHED, view, sizes.main, keys[2]))
    return {
        "accuracy": np.array([[gain(take(offer, r)) for r in line] for line in chosen]),
        "useful": np.array([[is_natural[r].mean() for r in line] for line in chosen]),
        "random": np.array([gain(take(offer, r)) for r in random]),
        "by_hard": by_hard,
        "answers": np.array([gain(answer) for answer in answers(sent, keys[3])]),
    }


def answers(sent: Samples, key: jax.Array) -> list[Samples]:
    """Return the samples that the owner sends, for each of `ANSWERS`."""
    x, y = sent
    noise = np.asarray(jax.random.normal(key, x.shape))
    spoilt = [np.clip(x + scale * noise, 0, 1).astype(x.dtype) for scale in (0.1, 0.3)]
    means = np.empty_like(x)
    for c in np.unique(y):
        rows = np.flatnonzero(y == c)
        means[rows] = (x[rows] + x[np.roll(rows, 1)]) / 2
    return [(images, y) for images in (x, *spoilt, means)]


def _first_of_each(y: np.ndarray, n: int) -> np.ndarray:
    """Return n rows, of the classes in turns, in the order of each."""
    turn = np.zeros(len(y), int)
    for c in np.unique(y):
        turn[y == c] = np.arange(np.sum(y == c))
    return np.sort(np.argsort(turn, kind="stable")[:n])
