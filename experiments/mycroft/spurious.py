"""A planted spurious correlation, in the manner of Dogs & Wolves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from experiments._kit.scenes.owner import CHECKPOINT, new_owner
from experiments._kit.scenes.starved import deal
from experiments._kit.scenes.trainer import Samples, Sizes, Trainer, hire, joined, take

from .choosing import PUBLISHED, SPACES, View, choose, shared_view
from .sizes import FULL

Encode = Callable[[np.ndarray], np.ndarray]
"""From images to features `[n, d]`."""

PAIR = (0, 3)
"""The classes of Fashion-MNIST that play dogs and wolves: T-shirts and dresses."""

SIZES = Sizes(
    own=250, val=1500, test=1000, offered=2000, shared=50, budgets=(8, 32, 128)
)
FULL_SIZES = dataclasses.replace(
    FULL,
    own=250,
    val=1500,
    test=1000,
    offered=2000,
    shared=50,
    budgets=FULL.budgets[:5],
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spurious:
    """Results on the planted correlation, for each of S seeds.

    Accuracies are fractions in [0, 1]; their last axis holds two of them: on held-out
    hard samples, all of them natural, and on test samples, half of them natural.
    "Useful" is the share of natural samples, with the background that the trainer has
    never seen behind their class, among those that were sent; NaN where there are none.

    Attributes:
        budgets: Samples that the owner may send, `[B]`.
        steps: Steps of the owner's training at each checkpoint, `[C]`.
        natural_before: Accuracy of the trainer's model on natural samples, `[S]`.
        spurious_before: The same on spurious ones, `[S]`.
        n_held_out: Held-out hard samples, `[S]`.
        nothing: Accuracy after fine-tuning on the trainer's own samples, `[S, 2]`.
        everything: With all that the owner has, `[S, 2]`.
        accuracy: With the chosen samples, `[S, 4, B, 2]`, see `SELECTORS`.
        sent: How many samples that was, `[S, 4, B]`.
        useful: Share of natural samples in them, `[S, 4, B]`.
        useful_by_checkpoint: The same for each checkpoint that the owner may look
            through, `[S, 3, C, B]`, see `SPACES`.
        useful_by_pixels: The same where retrieval compares pixels, `[S, B]`.
        published: Accuracy with the choice of FuncFeat as published, `[S, B, 2]`.
        published_useful: Share of natural samples in that, `[S, B]`.
    """

    budgets: np.ndarray
    steps: np.ndarray
    natural_before: np.ndarray
    spurious_before: np.ndarray
    n_held_out: np.ndarray
    nothing: np.ndarray
    everything: np.ndarray
    accuracy: np.ndarray
    sent: np.ndarray
    useful: np.ndarray
    useful_by_checkpoint: np.ndarray
    useful_by_pixels: np.ndarray
    published: np.ndarray
    published_useful: np.ndarray


def on_background(x: np.ndarray, vertical: np.ndarray, key: jax.Array) -> np.ndarray:
    """Put stripes behind images, vertical or horizontal, where these are darker.

    Each image has an offset of its own.

    Args:
        x: Images in 0..1 or bytes, `[n, side, side]`, or `[n, side, side, c]`.
        vertical: Which stripes are vertical, `[n]`.
        key: Of the offsets.
    """
    if x.dtype == np.uint8:
        x = x / np.float32(255)
    n, side = x.shape[:2]
    width = max(1, side // 7)
    offset = np.asarray(jax.random.randint(key, (n, 1), 0, 2 * width))
    line = 0.6 * ((np.arange(side) + offset) // width % 2)
    behind = np.where(vertical[:, None, None], line[:, None, :], line[:, :, None])
    behind = behind.reshape(behind.shape + (1,) * (x.ndim - 3))
    return np.maximum(x, behind).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backgrounds:
    """A trainer that saw each class before one background only, and who has the others.

    Attributes:
        trainer: The trainer.
        natural: Samples on the background of the other class: pools for owners.
        spurious: Samples on the background of their class in the trainer's data.
        plain: The samples of `natural` without a background.
        before: Accuracy of the trainer's model on natural and spurious samples, `[2]`.
    """

    trainer: Trainer
    natural: Samples
    spurious: Samples
    plain: Samples
    before: np.ndarray


def draw_backgrounds(
    data: Samples,
    sizes: Sizes,
    key: jax.Array,
    *,
    pair: tuple[int, int] = PAIR,
    encode: Encode | None = None,
) -> Backgrounds:
    """Deal samples of two classes out, none of them twice.

    The trainer's own samples of the first class are before vertical stripes and those
    of the second before horizontal ones. Its validation samples, in which it finds the
    hard ones, are the other way round. Pools for owners have both classes in halves.

    Args:
        data: Images and classes.
        sizes: How large the experiment is.
        key: Of all draws.
        pair: The two classes.
        encode: Maps images to the networks' inputs; the images themselves if None.

    Raises:
        ValueError: If there are too few samples.
    """
    see = (lambda images: images) if encode is None else encode
    x, y = take(data, np.flatnonzero(np.isin(data[1], pair)))
    y = (y == pair[1]).astype(y.dtype)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(y)))
    own_rows, order = deal(y, order, np.full(2, sizes.own))
    pools = []
    for _ in range(2):
        rows, order = deal(y, order, np.full(2, sizes.offered // 2))
        pools.append(rows.reshape(2, -1).T.ravel())  # classes take turns
    if len(order) < sizes.val + sizes.test:
        raise ValueError(f"data must hold more samples of classes {pair}, got {len(y)}")
    val, test = np.split(order[: sizes.val + sizes.test], [sizes.val])
    stripes = jax.random.fold_in(key, 2)

    def before(rows: np.ndarray, natural: np.ndarray | bool) -> Samples:
        striped = on_background(x[rows], (y[rows] == 0) ^ natural, stripes)
        return see(striped), y[rows]

    trainer = hire(
        before(own_rows, False),
        before(val, True),
        before(test, np.arange(len(test)) % 2 == 0),
        wanted=np.arange(2),
        n_classes=2,
        sizes=sizes,
        key=jax.random.fold_in(key, 1),
    )
    natural, spurious = (
        trainer.net.right(*before(test, b)).mean() for b in (True, False)
    )
    return Backgrounds(
        trainer=trainer,
        natural=before(pools[0], True),
        spurious=before(pools[1], False),
        plain=(see(x[pools[0]]), y[pools[0]]),
        before=np.array([natural, spurious]),
    )


def mixed(scene: Backgrounds, size: int, share: float) -> tuple[Samples, np.ndarray]:
    """Return an owner's samples, and which of them are natural."""
    n = round(share * size)
    parts = (scene.natural, np.arange(n)), (scene.spurious, np.arange(size - n))
    return joined(*(take(*part) for part in parts)), np.arange(size) < n


def spurious_seed(
    data: Samples,
    sizes: Sizes,
    seed: int,
    *,
    pair: tuple[int, int] = PAIR,
    share: float = 0.1,
    encode: Encode | None = None,
) -> dict[str, np.ndarray]:
    """Run the experiment once; the fields of `Spurious` without their first axis.

    With `encode`, its outputs stand for pixels.
    """
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(3)]
    scene = draw_backgrounds(data, sizes, keys[0], pair=pair, encode=encode)
    trainer = scene.trainer
    offer, is_natural = mixed(scene, sizes.offered, share)
    owner = new_owner(offer, 2, sizes, keys[1])

    def rows(how: str, view: View) -> list[np.ndarray]:
        return [choose(how, view, budget, keys[2]) for budget in sizes.budgets]

    def useful(chosen: list[np.ndarray]) -> np.ndarray:
        return np.array([is_natural[r].mean() if len(r) else np.nan for r in chosen])

    views = [
        shared_view(owner, trainer.shared, checkpoint=c) for c in range(len(owner.nets))
    ]
    through = [[rows(how, view) for view in views] for how in SPACES]
    by_pixels = views[0].by(offer[0], trainer.shared[0])
    chosen = [line[CHECKPOINT] for line in through]
    chosen.append(rows("random", views[0]))
    published = rows(PUBLISHED, views[CHECKPOINT])
    return {
        "natural_before": scene.before[0],
        "spurious_before": scene.before[1],
        "n_held_out": np.array(len(trainer.held_out[1])),
        "nothing": trainer.gain(take(offer, np.empty(0, int))),
        "everything": trainer.gain(offer),
        "accuracy": np.array(
            [[trainer.gain(take(offer, r)) for r in line] for line in chosen]
        ),
        "sent": np.array([[len(r) for r in line] for line in chosen]),
        "useful": np.array([useful(line) for line in chosen]),
        "useful_by_checkpoint": np.array(
            [[useful(r) for r in line] for line in through]
        ),
        "useful_by_pixels": useful(rows("retrieve", by_pixels)),
        "published": np.array([trainer.gain(take(offer, r)) for r in published]),
        "published_useful": useful(published),
    }
