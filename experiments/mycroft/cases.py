"""Mycroft's case studies: noise, missing labels, other models, retraining.

They run on the stripes of `spurious`, where a tenth of the owner's samples are of use:
the paper's claims are about owners with data of another kind than the trainer's.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from experiments._kit.scenes.networks import steps_for
from experiments._kit.scenes.owner import CHECKPOINT, Owner, new_owner
from experiments._kit.scenes.spoiling import spoilt
from experiments._kit.scenes.trainer import Samples, Sizes, joined, take
from jaxsel.retrieve import pseudo_labels, retrieve_nearest

from .choosing import PUBLISHED, SELECTORS, SPACES, choose, shared_view
from .spurious import PAIR, draw_backgrounds, mixed

RETRAINED = ("nothing", PUBLISHED, "random", "everything")
OTHER = {"cnn": "mlp", "mlp": "cnn"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cases:
    """Results of the case studies, for each of S seeds, at one budget.

    Accuracies are fractions in [0, 1]; their last axis holds two of them: on held-out
    hard samples, and on test samples of all classes.

    Attributes:
        budget: Samples that the owner may send.
        steps: Steps of the owner's training at each checkpoint, `[C]`.
        nothing: Accuracy after fine-tuning on the trainer's own samples, `[S, 2]`.
        by_spoiling: With what each of `SELECTORS` chose, and with everything, where all
            of the owner's samples are as `SPOILT` says, `[S, 3, 5, 2]`.
        right: Share of right labels in the samples sent, of the same shape but for the
            last axis; NaN where nothing was sent.
        published: With what FuncFeat as published chose, where all of the owner's
            samples are as `SPOILT` says, `[S, 3, 2]`.
        unlabelled: Without the owner's labels, by pixels: retrieval, and a random
            choice from all classes, with pseudo-labels, `[S, 2, 2]`.
        pseudo_right: Share of right pseudo-labels in those, `[S, 2]`.
        retrained: After training from scratch, with `RETRAINED`, `[S, 4, 2]`.
        tuned: The same after fine-tuning, `[S, 4, 2]`.
        steps_tuned: Steps of a fine-tuning with the chosen samples, `[S]`.
        steps_retrained: Steps of a training from scratch with it, `[S]`.
        other_model: With what each of `SPACES` chose, where the owner's model is of the
            `OTHER` kind, `[S, 3, 2]`.
        by_checkpoint: With what each of `SPACES` chose through each checkpoint of the
            owner's model, `[S, 3, C, 2]`.
    """

    budget: int
    steps: np.ndarray
    nothing: np.ndarray
    by_spoiling: np.ndarray
    right: np.ndarray
    published: np.ndarray
    unlabelled: np.ndarray
    pseudo_right: np.ndarray
    retrained: np.ndarray
    tuned: np.ndarray
    steps_tuned: np.ndarray
    steps_retrained: np.ndarray
    other_model: np.ndarray
    by_checkpoint: np.ndarray


def cases_seed(
    data: Samples,
    sizes: Sizes,
    seed: int,
    *,
    pair: tuple[int, int] = PAIR,
    share: float = 0.1,
) -> dict[str, np.ndarray]:
    """Run the case studies once; the fields of `Cases` without their first axis.

    Args:
        data: Samples to deal to trainer and owner.
        sizes: How large the experiment is.
        seed: Of all draws.
        pair: The two classes.
        share: Of the owner's samples, how many have the background that the trainer
            has never seen behind their class.
    """
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(5)]
    scene = draw_backgrounds(data, sizes, keys[0], pair=pair)
    trainer, hard = scene.trainer, scene.trainer.shared
    offer, _ = mixed(scene, sizes.offered, share)
    train = lambda samples, kind: new_owner(samples, 2, sizes, keys[1], kind=kind)
    pick = lambda how, view: choose(how, view, sizes.main, keys[2])
    gain = lambda owner, rows: trainer.gain(take(owner.samples, rows))

    accuracy, right, published = [], [], []
    owners = {s: train(o, sizes.net) for s, o in spoilt(offer, keys[3]).items()}
    clean = owners["clean"]
    for owner in owners.values():
        view = shared_view(owner, hard)
        sent = [pick(how, view) for how in SELECTORS] + [np.arange(len(offer[1]))]
        accuracy.append([gain(owner, rows) for rows in sent])
        published.append(gain(owner, pick(PUBLISHED, view)))
        true = owner.samples[1] == offer[1]
        right.append([true[rows].mean() if len(rows) else np.nan for rows in sent])
    nothing = gain(clean, np.empty(0, int))

    chosen = (pick(how, shared_view(clean, hard)) for how in (PUBLISHED, "random"))
    sets = [np.empty(0, int), *chosen, np.arange(len(offer[1]))]
    fresh = sizes.untrained(offer[0].shape[1:], 2, keys[4])
    retrained = []
    for rows in sets:
        samples = joined(trainer.own, take(offer, rows))
        # From scratch: the steps of the first training and of a fine-tuning together.
        steps = sizes.first + steps_for(len(samples[1]), sizes.epochs, sizes.min_steps)
        net = fresh.trained(*samples, steps, trainer.key)
        retrained.append(trainer.accuracy(net))

    steps_tuned = steps_for(
        len(trainer.own[1]) + sizes.main, sizes.epochs, sizes.min_steps
    )

    unlabelled, pseudo_right = _without_labels(clean, hard, sizes, keys[2])
    other = shared_view(train(offer, OTHER[sizes.net]), hard)
    by_checkpoint = np.zeros((len(SPACES), len(clean.nets), 2))
    for c in range(len(clean.nets)):
        view = shared_view(clean, hard, checkpoint=c)
        for j, how in enumerate(SPACES):
            again = c == CHECKPOINT
            by_checkpoint[j, c] = (
                accuracy[0][j] if again else gain(clean, pick(how, view))
            )
    return {
        "nothing": nothing,
        "by_spoiling": np.array(accuracy),
        "right": np.array(right),
        "published": np.array(published),
        "unlabelled": np.array([trainer.gain(sent) for sent in unlabelled]),
        "pseudo_right": pseudo_right,
        "retrained": np.array(retrained),
        "tuned": np.array([nothing, published[0], *accuracy[0][-2:]]),
        "steps_tuned": np.array(steps_tuned),
        "steps_retrained": np.array(steps_tuned + sizes.first),
        "other_model": np.array([gain(clean, pick(how, other)) for how in SPACES]),
        "by_checkpoint": by_checkpoint,
    }


def _without_labels(
    owner: Owner, hard: Samples, sizes: Sizes, key: jax.Array
) -> tuple[list[Samples], np.ndarray]:
    """Choose by pixels, by retrieval and at random, and label by the nearest sample.

    A model of the owner's would need labels to be trained on.
    """
    (x, true), (x_hard, y_hard) = owner.samples, hard
    flat, flat_hard = (a.reshape(len(a), -1) for a in (x, x_hard))
    near = retrieve_nearest(flat, flat_hard, sizes.main)
    anything = np.asarray(jax.random.permutation(key, len(x)))[: sizes.main]
    sent = [np.asarray(near.indices)[: int(near.n_valid)], anything]
    labels = np.asarray(pseudo_labels(flat, flat_hard, y_hard))
    share = np.array([np.mean(labels[rows] == true[rows]) for rows in sent])
    return [(x[rows], labels[rows]) for rows in sent], share
