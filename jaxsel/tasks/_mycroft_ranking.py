"""Five owners, of whom one request tells who is worth having (Appendix F)."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from jaxsel.data import color_jitter, crop_and_flip, perspective
from jaxsel.market import (
    Answer,
    OwnerModel,
    agreement,
    answer,
    make_request,
    rank,
)

from ._mycroft_owner import CHECKPOINT, Owner, gradients, new_owner
from ._mycroft_spurious import PAIR, draw_backgrounds, mixed
from ._mycroft_trainer import Samples, Sizes, Trainer

OFFERS = {
    "DO-1": "a tenth natural samples",
    "DO-2": "those of DO-1, all cropped, tilted and in another contrast",
    "DO-3": "both classes before no background at all",
    "DO-4": "a hundredth natural samples",
    "DO-5": "no natural samples",
}
"""What the five owners have, in the manner of the paper's."""

METHODS = ("func_feat", "retrieve", "random")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owners:
    """How the owners are ranked, for each of S seeds.

    Attributes:
        budget: Samples that each may send.
        nothing: Accuracy on held-out hard samples after fine-tuning on the trainer's
            own samples alone, `[S]`.
        accuracy: The same with what each owner sent, `[S, 3, 5]`, see `METHODS`.
        everything: With all that each owner has, `[S, 5]`.
        spearman: Rank correlation of each method's accuracies with those of
            everything, `[S, 3]`; NaN where all owners are equal.
        kendall: Kendall's tau-b, likewise.
    """

    budget: int
    nothing: np.ndarray
    accuracy: np.ndarray
    everything: np.ndarray
    spearman: np.ndarray
    kendall: np.ndarray


def owners_seed(
    data: Samples, sizes: Sizes, seed: int, *, pair: tuple[int, int] = PAIR
) -> dict[str, np.ndarray]:
    """Rank the owners once; the fields of `Owners` without their first axis."""
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    scene = draw_backgrounds(data, sizes, keys[0], pair=pair)
    trainer, n = scene.trainer, sizes.offered
    rich = mixed(scene, n, 0.1)[0]
    stock = {
        "DO-1": rich,
        "DO-2": (disturb(rich[0], keys[3]), rich[1]),
        "DO-3": scene.plain,
        "DO-4": mixed(scene, n, 0.01)[0],
        "DO-5": mixed(scene, n, 0.0)[0],
    }
    owners = {
        name: new_owner(samples, 2, sizes, jax.random.fold_in(keys[1], i))
        for i, (name, samples) in enumerate(stock.items())
    }
    return appraise_owners(trainer, owners, METHODS, sizes.main, keys[2])


def disturb(x: np.ndarray, key: jax.Array) -> np.ndarray:
    """Crop, mirror, tilt and change the contrast of all images, `[n, h, w]`."""
    images = x[..., None]
    for i, change in enumerate((crop_and_flip, color_jitter, perspective)):
        images, _ = change(jax.random.fold_in(key, i), images, 1.0)
    return np.asarray(images)[..., 0]


def appraise_owners(
    trainer: Trainer,
    owners: dict[str, Owner],
    methods: tuple[str, ...],
    budget: int,
    key: jax.Array,
) -> dict[str, np.ndarray]:
    """Send one request by each method, and rank the owners by their answers.

    The market's protocol, in one process: a request holds the shared hard samples, an
    answer what its owner chose; the trainer fine-tunes on each answer.
    """
    names = list(owners)
    nothing = trainer.gain((trainer.own[0][:0], trainer.own[1][:0]))[0]
    full = {name: trainer.gain(owner.samples)[0] for name, owner in owners.items()}
    accuracy, agreements = [], []
    for how in methods:
        request = make_request(
            budget=budget, method=how, x=trainer.shared[0], y=trainer.shared[1], key=key
        )
        answers = [
            answer(
                request,
                *owner.samples,
                owner=name,
                model=as_model(owner),
                max_share=1.0,  # the budget is the limit, as in the paper
                key=jax.random.fold_in(key, i),
            )
            for i, (name, owner) in enumerate(owners.items())
        ]
        ranking = rank(answers, lambda a: trainer.gain(received(a))[0])
        score = dict(zip(ranking.owners, ranking.mean.tolist(), strict=True))
        accuracy.append([score[name] for name in names])
        agreements.append(agreement(ranking, full))
    return {
        "nothing": np.array(nothing),
        "accuracy": np.array(accuracy),
        "everything": np.array([full[name] for name in names]),
        "spearman": np.array([a.spearman for a in agreements]),
        "kendall": np.array([a.kendall for a in agreements]),
    }


def firsts(scores: np.ndarray, full: np.ndarray) -> int:
    """Count the seeds in which the owner that is best by `full` is first by `scores`.

    It must be alone on top on both sides: a tie is no hit.

    Args:
        scores: An accuracy with each owner's answer, `[S, O]`.
        full: The same with all that each owner has, `[S, O]`.
    """
    same = scores.argmax(1) == full.argmax(1)
    for table in (scores, full):
        same &= (table == table.max(1, keepdims=True)).sum(1) == 1
    return int(same.sum())


def received(answer: Answer) -> Samples:
    """Return the samples of an answer."""
    if answer.x is None or answer.y is None:
        raise ValueError("answer must hold samples with labels")
    return answer.x, answer.y


def as_model(owner: Owner) -> OwnerModel:
    """Return an owner's early checkpoint as its answers use it."""
    net = owner.nets[CHECKPOINT]
    return OwnerModel(
        oracle=lambda x, y: gradients(net, (x, y)),
        features=net.features,
    )
