"""A trainer of images: its model, its hard samples, and its gain from others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jaxsel.data import Dataset
from jaxsel.market import hard_set

from .networks import Net, new_net, steps_for

Samples = tuple[np.ndarray, np.ndarray]
"""Images in [0, 1], `[n, h, w]`, and their classes, `[n]`."""

MIN_HELD_OUT = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of an experiment.

    Attributes:
        net: Model of trainer and owners, "cnn", "mlp" or "linear".
        channels: Channels of a CNN's blocks.
        side: Pixels along a side: larger images are averaged down to it.
        own: The trainer's samples of a class that is not starved.
        kept: Share of them that it has of a starved class.
        weak: Number of starved classes.
        val: Its validation samples.
        test: Test samples.
        offered: Samples that an owner holds.
        shared: Hard samples that are shared with the owners; the others are held out.
        held_out: Fewest of those.
        budgets: Samples that an owner may send, ascending.
        main: The budget of the case studies.
        first: Steps of the trainer's first training.
        epochs: Passes of a fine-tuning over all samples; see `steps_for`.
        min_steps: Minimum number of steps.
        cycles: Steps of each cycle of the owner's training.
        rate: Learning rate of all trainings.
    """

    net: str = "cnn"
    channels: Sequence[int] = (8, 16)
    side: int = 14
    own: int = 130
    kept: float = 0.1
    weak: int = 3
    val: int = 8000
    test: int = 1000
    offered: int = 6000
    shared: int = 100
    held_out: int = MIN_HELD_OUT
    budgets: Sequence[int] = (8, 32, 128)
    main: int = 32
    first: int = 400
    epochs: int = 6
    min_steps: int = 128
    cycles: Sequence[int] = (20, 60, 180)
    rate: float = 1e-2

    def untrained(
        self,
        shape: Sequence[int],
        n_classes: int,
        key: jax.Array,
        kind: str | None = None,
    ) -> Net:
        """Return a model of trainer or owner, of `net`'s kind by default."""
        return new_net(
            kind or self.net,
            shape,
            n_classes,
            key,
            channels=self.channels,
            rate=self.rate,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
    """A trainer with a model that fails on some samples.

    Attributes:
        net: Its model.
        own: The samples that it was trained on.
        shared: The hard samples that owners are shown.
        held_out: The hard samples that measure the gain; no owner sees them.
        test: Samples of all kinds, as a check that nothing else was lost.
        sizes: Sizes of the experiment, the steps of a fine-tuning among them.
        key: Key of its minibatches: the same for all answers.
    """

    net: Net
    own: Samples
    shared: Samples
    held_out: Samples
    test: Samples
    sizes: Sizes
    key: jax.Array

    def gain(self, received: Samples) -> np.ndarray:
        """Fine-tune on its own samples and those received, and measure the accuracy.

        Callers loop over answers rather than `vmap`: on a CPU a batch of trainings took
        as long as one after the other in a single measurement (0.22 and 0.20 s for each
        of 33), and in a loop each takes the steps its samples need.

        Returns:
            Accuracy on held-out hard samples and on test samples, `[2]`.
        """
        x, y = joined(self.own, received)
        steps = steps_for(len(y), self.sizes.epochs, self.sizes.min_steps)
        return self.accuracy(self.net.trained(x, y, steps, self.key))

    def accuracy(self, net: Net) -> np.ndarray:
        """Return the accuracy on held-out hard samples and on test samples, `[2]`."""
        return np.array(
            [net.right(*samples).mean() for samples in (self.held_out, self.test)]
        )


def hire(
    own: Samples,
    val: Samples,
    test: Samples,
    *,
    wanted: np.ndarray,
    n_classes: int,
    sizes: Sizes,
    key: jax.Array,
) -> Trainer:
    """Train a model on the trainer's samples, and find its hard samples.

    Args:
        own: The trainer's samples.
        val: Its validation samples.
        test: Test samples.
        wanted: The classes it wants to improve on: hard samples are misclassified
            validation samples of these.
        n_classes: Number of classes.
        sizes: Sizes of the experiment.
        key: Key of its weights, minibatches and of the split of the hard samples.

    Raises:
        ValueError: If fewer hard samples are left to hold out than asked for.
    """
    keys = [jax.random.fold_in(key, i) for i in range(4)]
    net = sizes.untrained(own[0].shape[1:], n_classes, keys[0])
    net = net.trained(*own, sizes.first, keys[1])
    of_interest = np.flatnonzero(np.isin(val[1], wanted))
    x, y = take(val, of_interest)
    n_hard = int((~net.right(x, y)).sum())
    if n_hard < sizes.shared + sizes.held_out:
        raise ValueError(
            f"val must have at least {sizes.shared + sizes.held_out} hard samples, "
            f"{sizes.held_out} of them to hold out, but the model fails on {n_hard}"
        )
    hard = hard_set(net.logits(x), y, key=keys[2], held_out=1 - sizes.shared / n_hard)
    return Trainer(
        net=net,
        own=own,
        shared=take((x, y), hard.shared),
        held_out=take((x, y), hard.held_out),
        test=test,
        sizes=sizes,
        key=keys[3],
    )


def take(samples: Samples, rows: np.ndarray) -> Samples:
    """Return the samples at `rows`."""
    rows = np.asarray(rows)
    return samples[0][rows], samples[1][rows]


def joined(*parts: Samples) -> Samples:
    """Return the samples of all parts, one after the other."""
    x, y = zip(*parts, strict=True)
    return np.concatenate(x), np.concatenate(y)


def images(data: Dataset, side: int) -> Samples:
    """Return grey images with that many pixels along a side, averaged over squares.

    Raises:
        ValueError: If the images are not grey, or `side` does not divide theirs.
    """
    x = data.as_features().reshape(data.x.shape)
    n, height, width = (x.shape[axis] for axis in range(3))
    if x.size != n * height * width or height % side or width % side:
        raise ValueError(
            f"side must divide the sides of grey images, got {side} for {x.shape[1:]}"
        )
    squares = x.reshape(n, side, height // side, side, width // side)
    return squares.mean((2, 4)), data.y
