"""The effect of removing the samples of the highest scores, by retraining."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._results.types import Values
from jaxsel.attribute import Recipe, TrainingPlan

from ._application import check_share
from ._lds import scores_of

_DRAWS = 2**31 - 6  # folded into the key of random sets: no run has this number


class Effect(NamedTuple):
    """Changes of targets after samples are removed, with standard errors.

    Attributes:
        rise: Rise of the targets' mean loss.
        rise_stderr: Its standard error, over targets, runs and sets of samples.
        flipped: Share of the targets whose predicted class changes, of the same run
            with all samples; NaN for a regression.
        flipped_stderr: Its standard error.
    """

    rise: float
    rise_stderr: float
    flipped: float
    flipped_stderr: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RemovalEffect:
    """Effects of removing top samples, and as many at random, on retrained networks.

    Attributes:
        top: Without the samples of the highest scores.
        random: Without as many at random.
        removed: Number of samples removed.
        by: "target" or "sum".
        by_target: Rise of each target's loss without the top samples, `[t]`.
    """

    top: Effect
    random: Effect
    removed: int
    by: str
    by_target: np.ndarray

    def __repr__(self) -> str:
        parts = (
            f"{name}: loss {effect.rise:+.3g} ± {effect.rise_stderr:.2g}, "
            f"{effect.flipped:.1%} ± {effect.flipped_stderr:.1%} flip"
            for name, effect in (("top", self.top), ("random", self.random))
        )
        return (
            f"RemovalEffect({'; '.join(parts)}; {self.removed} removed by {self.by}, "
            f"{len(self.by_target)} targets)"
        )


def removal_effect(
    values: Values | npt.ArrayLike,
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    share: float = 0.01,
    by: Literal["target", "sum"] = "target",
    seeds: int = 5,
    draws: int = 10,
    chunk_size: int = 25,
) -> RemovalEffect:
    """Measure how much targets lose without the samples of the highest scores.

    Networks are trained again without them, and compared with the same runs, of one
    start and order, on all samples: removed ones have weight 0. As many are removed at
    random for comparison.

    Args:
        values: Scores of the training samples for each target, `[t, n]`, higher for
            samples that help; or one a sample, `[n]`, with `by="sum"`.
        recipe: The model and its training.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, or targets of a regression, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        key: Key of the runs, of which s has `fold_in(key, s)`, and, apart from those,
            of the random sets. Attributions of a run are judged on that run with the
            same key, and on networks of other seeds with another.
        share: Share of the samples that is removed.
        by: "target" removes each target's own top samples, and looks at that target;
            "sum" removes samples of the highest sum over targets, and looks at all.
        seeds: Runs without each set.
        draws: Random sets.
        chunk_size: Sets that are left out of trainings together, `seeds` networks each;
            it changes speed and memory only, up to rounding.

    Returns:
        Rises of the mean loss and shares of flipped predictions. Their standard errors
        add the variances of the means over targets, over runs and over random sets:
        rather too wide than too narrow.

    Costs `seeds (1 + draws + t)` trainings, or `seeds (2 + draws)` by the sum.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, or a run ends in
            NaN.

    References:
        A. Ilyas et al., Datamodels: predicting predictions from training data, ICML
        2022, section 4.1 (brittleness); S. M. Park et al., TRAK: attributing model
        behavior at scale, ICML 2023, section 5 (counterfactuals).
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be an attribute.Recipe, got {recipe!r}")
    samples = recipe.check(x, y, x_val, y_val)
    check_choice("by", by, ("target", "sum"))
    for name, count in (("seeds", seeds), ("draws", draws), ("chunk_size", chunk_size)):
        check_count(name, count)
    scores, n, t = scores_of(values), len(samples.x), len(samples.x_val)
    allowed = [(t, n)] if by == "target" else [(t, n), (n,)]
    if scores.shape not in allowed:
        raise ValueError(
            f"values must have shape {' or '.join(map(str, allowed))} with by={by!r}, "
            f"got {scores.shape}"
        )
    removed = check_share("share", share, n)
    if by == "sum":
        scores = scores.reshape(-1, n).sum(0, keepdims=True)
    top = np.argsort(-scores, axis=1, kind="stable")[:, :removed]
    keys = jax.random.split(jax.random.fold_in(key, _DRAWS), draws)
    orders = jax.vmap(lambda key: jax.random.permutation(key, n))(keys)
    masks = np.ones((1 + draws + len(top), n), np.float32)
    sets = np.concatenate([np.asarray(orders)[:, :removed], top])
    np.put_along_axis(masks[1:], sets, 0, axis=1)
    arrays = samples.x, samples.y, samples.x_val, samples.y_val
    measured = _retrain(
        recipe, *arrays, jnp.asarray(masks), key, seeds=seeds, chunk_size=chunk_size
    )
    losses, classes = (np.asarray(part) for part in measured)
    samples.check_finite("a run", losses)
    rises = losses[1:].astype(np.float64) - losses[:1]
    flips = (classes[1:] != classes[:1]).astype(np.float64)
    if not jnp.issubdtype(samples.y.dtype, jnp.integer):
        flips[:] = np.nan
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for change in (rises, flips):
        of_top = change[draws:]
        if by == "target":
            of_top = np.diagonal(of_top, axis1=0, axis2=2)[None]
        parts.append((of_top, change[:draws]))
    (top_rises, random_rises), (top_flips, random_flips) = parts
    return RemovalEffect(
        top=Effect(*mean_and_error(top_rises), *mean_and_error(top_flips)),
        random=Effect(*mean_and_error(random_rises), *mean_and_error(random_flips)),
        removed=removed,
        by=by,
        by_target=top_rises.mean((0, 1)),
    )


def mean_and_error(changes: np.ndarray) -> tuple[float, float]:
    """Return the mean, and its error over every axis with two entries or more.

    Args:
        changes: Of sets, runs and targets, `[sets, seeds, t]`, which are crossed: the
            variance of the mean is at most the sum, over axes, of the variance of the
            means along the axis divided by its length.
    """
    variance, axes = 0.0, range(changes.ndim)
    for axis in axes:
        size = changes.shape[axis]
        if size > 1:
            means = changes.mean(tuple(other for other in axes if other != axis))
            variance += means.var(ddof=1) / size
    return float(changes.mean()), float(variance**0.5)


@jit(static_argnames=("recipe", "seeds", "chunk_size"))
def _retrain(
    recipe: Recipe,
    x: jax.Array,
    y: jax.Array,
    x_val: jax.Array,
    y_val: jax.Array,
    masks: jax.Array,
    key: jax.Array,
    *,
    seeds: int,
    chunk_size: int,
) -> tuple[jax.Array, jax.Array]:
    """Return losses and predicted classes of runs on each subset, `[m, seeds, t]`."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(seeds))
    plans = jax.lax.map(lambda run: recipe.plan(run, x), keys)

    def of_subset(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        def of_run(plan: TrainingPlan) -> tuple[jax.Array, jax.Array]:
            outputs = recipe.apply(recipe.follow(plan, x, y, mask), x_val)
            return recipe.losses(outputs, y_val), outputs.argmax(1)

        return jax.vmap(of_run)(plans)

    return jax.lax.map(of_subset, masks, batch_size=chunk_size)
