"""One purchase from one pool in every way, and the models that are trained on each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.selectformer.sources import MOST, Source, deal
from jaxsel.proxy import draw_bootstrap
from jaxsel.value import Examples, LogisticRegression, ModelUtility

from .ways import WAYS, chosen

BOOTSTRAP = 0.05
BUDGETS = (0.2, 0.3, 0.4)
LARGER = (0.5, 0.7, 0.9)
"""Further budgets of a random choice, to find the one at which it is as good."""

DRAWS = 5
"""Random choices, whose mean counts."""

LEARNER = LogisticRegression(l2=0.01)
"""The target: linear on the features of a public encoder. Its penalty is the best of
six for random purchases of three of the pools, on seeds that are not in the results."""

MODEL = dataclasses.replace(LEARNER, tol=1e-2)
"""The model trained on a purchase: the same, but coarser, which takes three quarters
of the time. One in thousands of test samples may get another class."""


def trial(source: Source, seed: int, most: int = MOST) -> dict[str, np.ndarray]:
    """Return test accuracies for one seed.

    Args:
        source: Where the pool is from.
        seed: Deals the pool, and draws all else.
        most: Samples of the kept class at most.

    Returns:
        `random`, `[budgets, DRAWS]` at all budgets, larger ones too; `ways`, `[BUDGETS,
        WAYS]`; `pool`, that of all samples; `bootstrap`, that of the bootstrap set;
        `rare`, `[BUDGETS, WAYS]`: the share of what is bought, the bootstrap set
        counted, that is of another class than the kept one; `rare_offered`; `n`.
    """
    key = jax.random.key(seed)
    keys = [jax.random.fold_in(key, i) for i in range(2 + DRAWS)]
    pool = deal(source, keys[0], most)
    x, y = source.x[pool.rows], source.y[pool.rows]
    n = len(y)
    first = draw_bootstrap(keys[1], n, BOOTSTRAP)
    remaining = np.setdiff1d(np.arange(n), first)
    logits, prior = _target(source, x, y, first, remaining)
    orders = [
        remaining[np.asarray(jax.random.permutation(key, len(remaining)))]
        for key in keys[2:]
    ]

    def bought(rows: np.ndarray) -> np.ndarray:
        mask = np.zeros(n, bool)
        mask[first] = mask[rows] = True
        return mask

    random = [
        bought(order[: round(budget * n) - len(first)])
        for budget in (*BUDGETS, *LARGER)
        for order in orders
    ]
    ways = [
        bought(
            remaining[
                chosen(way, logits, x[remaining], prior, round(budget * n) - len(first))
            ]
        )
        for budget in BUDGETS
        for way in WAYS.values()
    ]
    others = [np.ones(n, bool), bought(first)]
    utility = ModelUtility(MODEL, x, y, source.x[pool.test], source.y[pool.test])
    utilities = accuracies(utility, [*random, *ways, *others])
    several = len(BUDGETS) + len(LARGER)
    split = several * DRAWS
    is_rare = y != pool.kept
    return {
        "random": utilities[:split].reshape(several, DRAWS),
        "ways": utilities[split:-2].reshape(len(BUDGETS), len(WAYS)),
        "pool": utilities[-2],
        "bootstrap": utilities[-1],
        "rare": np.array([is_rare[mask].mean() for mask in ways]).reshape(
            len(BUDGETS), len(WAYS)
        ),
        "rare_offered": is_rare.mean(),
        "n": np.array(n),
    }


def _target(
    source: Source, x: np.ndarray, y: np.ndarray, first: np.ndarray, left: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of a target trained on the bootstrap set, and its class shares.

    A class that the bootstrap set lacks has the logit of the least likely one.
    """
    data = Examples(
        x=jnp.asarray(x[first]),
        y=jnp.asarray(y[first]),
        n_classes=source.n_classes,
    )
    prepared = LEARNER.prepare(data)
    params = LEARNER.fit(prepared, jnp.ones((1, len(first))), None)
    logits = np.array(LEARNER.predict(params, jnp.asarray(x[left])))[0]
    lacking = np.bincount(y[first], minlength=source.n_classes) == 0
    logits[:, lacking] = logits[:, ~lacking].min(axis=1, keepdims=True)
    # Laplace smoothing: the log prior of a class that is lacking stays finite.
    counts = np.bincount(y[first], minlength=source.n_classes) + 1
    return logits, counts / counts.sum()


def accuracies(utility: ModelUtility, masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the utility of each purchase, a few at a time."""
    return np.concatenate(
        [
            np.asarray(utility(jnp.asarray(np.stack(masks[i : i + 8])), None))
            for i in range(0, len(masks), 8)
        ]
    )
