"""Rank owners by their answers to one request, and by all that they have."""

from __future__ import annotations

import jax
import numpy as np

from jaxsel.market import (
    Answer,
    OwnerModel,
    answer,
    make_request,
    rank,
    ranking_agreement,
)

from .owner import CHECKPOINT, Owner, gradients
from .trainer import Samples, Trainer


def appraise_owners(
    trainer: Trainer,
    owners: dict[str, Owner],
    methods: tuple[str, ...],
    budget: int,
    key: jax.Array,
) -> dict[str, np.ndarray]:
    """Send one request by each method, and rank the owners by their answers.

    The market's protocol, in one process: a request holds the shared hard samples, an
    answer the samples its owner chose; the trainer fine-tunes on each answer.
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
        agreements.append(ranking_agreement(ranking, full))
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
