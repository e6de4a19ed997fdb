"""What an experiment's trainer is scored on: hard samples that no owner is shown."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np

from experiments._kit.scenes.trainer import Trainer, hire


@dataclasses.dataclass(frozen=True)
class Net:
    """A stand-in that has learnt some samples by heart, told by their number.

    Attributes:
        knows: The numbers, which are its samples' one feature.
    """

    knows: frozenset

    def right(self, x, y):
        del y
        return np.isin(x[:, 0], list(self.knows))

    def logits(self, x):
        # Class 1 is the truth of all samples.
        return np.eye(2)[self.right(x, None).astype(int)]

    def trained(self, x, y, steps, key):
        del y, steps, key
        return Net(self.knows | set(x[:, 0].tolist()))


def samples(*numbers):
    return np.array(numbers, float)[:, None], np.ones(len(numbers), int)


def test_the_score_is_of_the_samples_held_out():
    trainer = Trainer(
        net=Net(frozenset([0, 1, 2, 30])),
        own=samples(0, 1, 2),
        shared=samples(10, 11),
        held_out=samples(20, 21, 22, 23),
        test=samples(1, 2, 30, 31, 32),
        sizes=SimpleNamespace(epochs=1, min_steps=1),
        key=jax.random.key(0),
    )
    np.testing.assert_allclose(trainer.accuracy(trainer.net), [0, 0.6])
    # To learn the samples shown gains nothing; to learn one held out, a quarter.
    np.testing.assert_allclose(trainer.gain(trainer.shared), [0, 0.6])
    np.testing.assert_allclose(trainer.gain(samples(21, 31)), [0.25, 0.8])


def test_what_is_shown_and_what_is_held_out_are_all_hard_and_apart():
    knows = frozenset(range(1000, 1010))
    sizes = SimpleNamespace(
        untrained=lambda *_: Net(knows), shared=40, held_out=160, first=1
    )
    trainer = hire(
        samples(0, 1),
        samples(*range(900, 1110)),
        samples(0),
        wanted=np.array([1]),
        n_classes=2,
        sizes=sizes,
        key=jax.random.key(0),
    )
    shown, held_out = (
        set(part[0][:, 0]) for part in (trainer.shared, trainer.held_out)
    )
    assert len(shown) == 40
    assert shown.isdisjoint(held_out)
    assert shown | held_out == set(range(900, 1110)) - knows
