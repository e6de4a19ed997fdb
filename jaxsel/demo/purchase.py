"""The purchase: value five owners' offers, buy the best samples, retrain, compare."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxsel._runs.progress import track
from jaxsel.data import Dataset, load
from jaxsel.models import MLP, Params, fit, train
from jaxsel.tasks import Detection, detection_curve

from ._market import OWNERS as OWNERS, Market, appraise, choose, draw_market

_RECIPE: Any = {"steps": 400, "batch_size": 64}
_RECIPE |= {"learning_rate": 1e-2, "weight_decay": 1e-4}
_SIZES = (220, 220, 220, 220, 60)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Purchase:
    """Results of the purchase, for each of S seeds.

    Accuracies are fractions in [0, 1]; their last axis holds two of them: on the whole
    test set, and on its digits of the weak classes.
    """

    seeds: np.ndarray
    weak: np.ndarray  # the trainer's weak classes, `[S, n_weak]`
    budgets: np.ndarray  # samples bought, `[B]`
    main: int  # index of the budget that is reported
    sizes: np.ndarray  # samples that each owner offers, `[5]`
    before: np.ndarray  # accuracy of the trainer's first model, `[S, 2]`
    random: np.ndarray  # after a random purchase, `[S, B, 2]`
    chosen: np.ndarray  # after jaxsel's
    everything: np.ndarray  # after buying all that is offered, `[S, 2]`
    harmless: np.ndarray  # after buying all that has a positive value, `[S, 2]`
    n_harmless: np.ndarray  # number of those samples, `[S]`
    alone: np.ndarray  # after buying `n_alone` from one owner, `[S, 5, 2]`
    n_alone: int  # as many as the smallest owner offers
    owner_value: np.ndarray  # mean value of an owner's samples, `[S, 5]`
    owner_positive: np.ndarray  # share of them of positive value, `[S, 5]`
    owner_bought: np.ndarray  # samples bought of each at the main budget, `[S, 5]`
    detection: tuple[Detection, ...]  # of wrong labels by plain value, by seed
    gallery: Gallery  # of the first seed


class Gallery(NamedTuple):
    """Images of each owner, `[5, 2, columns, ...]`: most valuable first, then least."""

    images: np.ndarray
    given: np.ndarray
    true: np.ndarray
    values: np.ndarray


def run_purchase(
    seeds: Sequence[int] = tuple(range(10)),
    *,
    budgets: Sequence[int] = (25, 50, 100, 200, 400),
    main: int = 100,
    progress: bool = False,
) -> Purchase:
    """Run the scenario of `draw_market` on real digits, once for each seed.

    The trainer fits a small network, appraises the owners' offers on its validation
    set (`appraise`), buys within a budget (`choose`), and trains again from scratch.
    The test images serve for the final accuracies only: the rules of `appraise` and
    `choose` were chosen on seeds 100 to 119, where training images played the test set.

    Raises:
        ValueError: If there are no seeds, `main` is not a budget, or a budget exceeds
            the samples offered.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    if main not in budgets:
        raise ValueError(f"main must be one of the budgets {budgets}, got {main}")
    if not 1 <= min(budgets) <= max(budgets) <= sum(_SIZES):
        raise ValueError(
            f"budgets must be between 1 and the {sum(_SIZES)} samples offered, got "
            f"{tuple(budgets)}"
        )
    pool, test = load("digits", split="train"), load("digits", split="test")
    runs = [
        _run(seed, pool, test, budgets, main)
        for seed in track(seeds, progress=progress, label="Seeds")
    ]
    galleries = [run.pop("gallery") for run in runs]
    return Purchase(
        seeds=np.asarray(seeds),
        budgets=np.asarray(budgets),
        main=list(budgets).index(main),
        sizes=np.asarray(_SIZES),
        n_alone=min(_SIZES),
        detection=tuple(run.pop("detection") for run in runs),
        gallery=galleries[0],
        **{name: np.stack([run[name] for run in runs]) for name in runs[0]},
    )


def _run(
    seed: int, pool: Dataset, test: Dataset, budgets: Sequence[int], main: int
) -> dict[str, Any]:
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    market = draw_market(pool, key=keys[0], sizes=_SIZES)
    model = MLP(market.x.shape[1], 64, market.n_classes, rngs=nnx.Rngs(keys[1]))
    graphdef, start = nnx.split(model, nnx.Param)
    first = fit(graphdef, start, market.x_train, market.y_train, key=keys[2], **_RECIPE)
    values, plain, shares = appraise(market, graphdef, first)
    harmless = plain > 0

    # A purchase is a set of rows. One program trains on each, from the same initial
    # weights and with the same key.
    shuffled = np.asarray(jax.random.permutation(keys[3], len(values)))
    chosen = [choose(values, harmless, market.y, shares, b) for b in budgets]
    owners = range(len(OWNERS))
    purchases = {
        "before": [np.empty(0, int)],
        "random": [shuffled[:b] for b in budgets],
        "chosen": chosen,
        "everything": [shuffled],
        "harmless": [np.flatnonzero(harmless)],
        "alone": [shuffled[market.owner[shuffled] == o][: min(_SIZES)] for o in owners],
    }
    bought = [rows for group in purchases.values() for rows in group]
    weights = np.zeros((len(bought), len(market.y_train) + len(values)), np.float32)
    weights[:, : len(market.y_train)] = 1
    for i, rows in enumerate(bought):
        weights[i, len(market.y_train) + rows] = 1
    x = np.concatenate([market.x_train, market.x])
    y = np.concatenate([market.y_train, market.y])
    x_test = test.as_features()
    predicted = _predict_all(graphdef, start, x, y, weights, keys[2], x_test)
    correct = np.asarray(predicted) == test.y
    weak = np.isin(test.y, market.weak)
    accuracy = np.stack([correct.mean(1), correct[:, weak].mean(1)], axis=1)
    ends = np.cumsum([len(group) for group in purchases.values()])
    results = dict(zip(purchases, np.split(accuracy, ends[:-1]), strict=True))
    for name in ("before", "everything", "harmless"):
        results[name] = results[name][0]
    at_main = chosen[list(budgets).index(main)]
    by_owner = [market.owner == o for o in owners]
    return {
        **results,
        "weak": market.weak,
        "n_harmless": harmless.sum(),
        "owner_value": np.array([values[rows].mean() for rows in by_owner]),
        "owner_positive": np.array([harmless[rows].mean() for rows in by_owner]),
        "owner_bought": np.bincount(market.owner[at_main], minlength=len(OWNERS)),
        "detection": detection_curve(plain, market.y != market.y_true),
        "gallery": _gallery(market, values, pool.x.shape[1:3]),
    }


@functools.partial(jax.jit, static_argnames="graphdef")
def _predict_all(
    graphdef: nnx.GraphDef,
    params: Params,
    x: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    key: jax.Array,
    x_test: jax.Array,
) -> jax.Array:
    def predict(weights: jax.Array) -> jax.Array:
        trained = train(graphdef, params, x, y, weights, key, **_RECIPE)
        return jnp.argmax(nnx.merge(graphdef, trained)(x_test), axis=-1)

    return jax.vmap(predict)(weights)


def _gallery(
    market: Market, values: np.ndarray, shape: tuple[int, int], columns: int = 6
) -> Gallery:
    order = np.argsort(-values, kind="stable")
    owned = [order[market.owner[order] == o] for o in range(len(OWNERS))]
    indices = np.array([[rows[:columns], rows[-columns:]] for rows in owned])
    images = market.x[indices].reshape(*indices.shape, *shape)
    return Gallery(images, market.y[indices], market.y_true[indices], values[indices])
