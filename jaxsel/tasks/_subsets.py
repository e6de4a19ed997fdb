"""Retraining on random subsets: the truth that attributions are compared with."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import as_array, check_count, check_finite
from jaxsel._inputs.show import brief
from jaxsel._results.files import load, save
from jaxsel._runs.checkpoints import Checkpoints, program_digest, run_digest
from jaxsel._runs.progress import track
from jaxsel.attribute import Output, Recipe, TrainingPlan

from ._application import check_share

# What `fold_in(key, ...)` makes draws from, beyond the number of any run.
_DRAWS, _OTHER_SEEDS = 2**31 - 1, 2**31 - 2


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class SubsetRuns:
    """Outputs of models trained on subsets of the training samples.

    Attributes:
        masks: `[m, n]` bool: the samples of each of m subsets.
        outputs: `[m, seeds, t]`: the output for each of t targets after each run on a
            subset; higher is better.
        output: Which output that is.
        same_seed: Whether all subsets have the start and the order of the same runs.
    """

    masks: np.ndarray
    outputs: np.ndarray
    output: str = dataclasses.field(default="", metadata={"static": True})
    same_seed: bool = dataclasses.field(default=False, metadata={"static": True})

    def __post_init__(self) -> None:
        masks = np.asarray(self.masks)
        outputs = np.asarray(self.outputs)
        if masks.ndim != 2 or masks.dtype != bool:
            raise ValueError(
                f"masks must be bool of shape [m, n], got {masks.dtype} of shape "
                f"{masks.shape}"
            )
        if outputs.ndim != 3 or len(outputs) != len(masks) or 0 in outputs.shape:
            raise ValueError(
                f"outputs must have shape [m, seeds, t] with m = {len(masks)}, got "
                f"{outputs.shape}"
            )
        check_finite("outputs", outputs)
        object.__setattr__(self, "masks", masks)
        object.__setattr__(self, "outputs", outputs)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file, without pickle, and return its path."""
        return save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SubsetRuns:
        """Read runs from a file that `save` wrote.

        Raises:
            ValueError: If the file holds something else, or was changed.
        """
        return load(cls, path)


def retrain_subsets(
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    subsets: int | npt.ArrayLike = 100,
    share: float = 0.5,
    seeds: int = 2,
    same_seed: bool = False,
    output: Output = "loss",
    chunk_size: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> SubsetRuns:
    """Train a model on random subsets, and record its outputs for the targets.

    The runs of `chunk_size` subsets are one `vmap`ped program. The result serves any
    number of attributions: see `lds`.

    With `same_seed` run s of each subset starts and orders its samples as run s of
    `key` does on all samples, and samples outside the subset have weight 0: an
    attribution of that run predicts this. Without it each run draws its own start and
    order, and takes `share` of the steps.

    Args:
        recipe: The model and its training.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, or targets of a regression, `[n]`.
        x_val: Samples whose outputs are recorded, the targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        key: Key of the subsets and of the runs; run s of it has `fold_in(key, s)`.
        subsets: Number of subsets, or their masks `[m, n]`.
        share: Share of the samples in each subset, below 1; unused with masks.
        seeds: Runs of each subset.
        same_seed: Whether all subsets have the start and order of the same runs.
        output: The output of a target: see `Recipe.measure`.
        chunk_size: Subsets trained together; it changes speed and memory only, up to
            rounding. None takes 100, or on CPUs 20, whose networks stay in a cache.
        checkpoint: Folder in which finished chunks are kept: a killed call resumes
            from it; another recipe, data or settings are refused.
        progress: Show a bar.

    Returns:
        Masks and outputs.

    Costs `m · seeds · share` trainings (without `same_seed`; else `m · seeds`).
    Needs memory for the parameters, optimiser state and batches of `chunk_size · seeds`
    models.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, masks are of several
            sizes without `same_seed`, a run ends in NaN, or `checkpoint` holds another
            run.

    References:
        A. Ilyas et al., Datamodels: predicting predictions from training data, ICML
        2022, section 2; S. M. Park et al., TRAK: attributing model behavior at scale,
        ICML 2023, section 2 (margins, log-odds).
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be an attribute.Recipe, got {recipe!r}")
    samples = recipe.check(x, y, x_val, y_val)
    recipe.check_output(output, samples.y)
    check_count("seeds", seeds)
    if chunk_size is None:
        chunk_size = 20 if jax.default_backend() == "cpu" else 100
    check_count("chunk_size", chunk_size)
    masks = _masks(subsets, share, len(samples.x), key)
    counts = np.unique(masks.sum(1))
    if not same_seed and len(counts) > 1:
        raise ValueError(
            "subsets must all have one size unless same_seed=True, got sizes from "
            f"{counts[0]} to {counts[-1]}"
        )
    arrays = samples.x, samples.y, samples.x_val, samples.y_val

    program = functools.partial(
        _retrain, recipe, output, seeds=seeds, same_seed=same_seed, size=int(counts[0])
    )

    first_subset = *arrays, masks[:1], np.zeros(1, np.int32), key
    form = jax.eval_shape(program, *first_subset)
    if form.shape != (1, seeds, len(samples.x_val)):
        raise ValueError(
            f"output must return one number a target, [{len(samples.x_val)}], got "
            f"{list(form.shape[2:])}"
        )
    outputs = np.full((len(masks), *form.shape[1:]), np.nan, form.dtype)
    start, saved = 0, None
    if checkpoint is not None:
        code = program_digest(program, *first_subset)
        data = jax.random.key_data(key), masks, *arrays
        saved = Checkpoints(checkpoint, run_digest({"program": code}, *data))
        start, outputs = saved.load(outputs)
    starts = range(start, len(masks), chunk_size)
    for first in track(starts, progress=progress, label="chunks of subsets"):
        stop = min(first + chunk_size, len(masks))
        # The last chunk is filled up: one program serves all.
        chunk = np.arange(first, first + min(chunk_size, len(masks))) % len(masks)
        subset = jnp.asarray(masks[chunk]), jnp.asarray(chunk, jnp.int32)
        results = program(*arrays, *subset, key)
        results = np.asarray(results)[: stop - first]
        bad = np.flatnonzero(~np.isfinite(results).all((1, 2)))
        if bad.size:
            samples.check_finite(f"a run on subset {first + bad[0]}", results)
        outputs[first:stop] = results
        if saved is not None:
            saved.save(stop, outputs)
    name = output if isinstance(output, str) else getattr(output, "__name__", "")
    return SubsetRuns(masks=masks, outputs=outputs, output=name, same_seed=same_seed)


def _masks(
    subsets: int | npt.ArrayLike, share: float, n: int, key: jax.Array
) -> np.ndarray:
    """Return the masks of subsets, `[m, n]`, drawn if they are a number."""
    if np.ndim(subsets) == 0:  # pyright: ignore[reportArgumentType]
        m, size = check_count("subsets", subsets), check_share("share", share, n)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(
            jax.random.fold_in(key, _DRAWS), jnp.arange(m)
        )
        orders = jax.vmap(jax.random.permutation, (0, None))(keys, n)
        masks = np.zeros((m, n), bool)
        np.put_along_axis(masks, np.asarray(orders)[:, :size], True, axis=1)
        return masks
    masks = np.asarray(as_array("subsets", subsets))
    if masks.ndim != 2 or masks.shape[1] != n or not len(masks):
        raise ValueError(
            f"subsets must be a number, or masks [m, n] with n = {n}, got shape "
            f"{masks.shape}"
        )
    if masks.dtype != bool:
        raise TypeError(f"subsets must be a number, or bool masks, got {masks.dtype}")
    if not masks.any(1).all():
        raise ValueError(
            f"subsets must have a sample each, but subset {np.argmin(masks.any(1))} "
            "has none"
        )
    return masks


@jit(static_argnames=("recipe", "output", "seeds", "same_seed", "size"))
def _retrain(
    recipe: Recipe,
    output: Output,
    x: jax.Array,
    y: jax.Array,
    x_val: jax.Array,
    y_val: jax.Array,
    masks: jax.Array,
    numbers: jax.Array,
    key: jax.Array,
    *,
    seeds: int,
    same_seed: bool,
    size: int,
) -> jax.Array:
    """Return the outputs of runs on each subset, `[m, seeds, t]`: a pure kernel.

    Args:
        recipe: The model and its training.
        output: Which output.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        masks: Subsets, `[m, n]`.
        numbers: Their numbers, `[m]`, by which each has keys of its own.
        key: Key of the runs.
        seeds: Runs of a subset.
        same_seed: Whether subsets share starts and orders.
        size: Samples in each subset; unused with `same_seed`.
    """
    runs = jnp.arange(seeds)
    by_number = jax.vmap(jax.random.fold_in, (None, 0))

    def outputs(plan: TrainingPlan, weights: jax.Array | None = None) -> jax.Array:
        params = recipe.follow(plan, x, y, weights)
        return recipe.measure(output, recipe.apply(params, x_val), y_val)

    if same_seed:
        plans = jax.lax.map(lambda run: recipe.plan(run, x), by_number(key, runs))
        by_subset = jax.vmap(outputs, (None, 0))
        return jax.vmap(by_subset, (0, None), 1)(plans, masks.astype(jnp.float32))
    keys = by_number(jax.random.fold_in(key, _OTHER_SEEDS), numbers)
    keys = jax.vmap(by_number, (0, None))(keys, runs)

    def plans_of(subset: tuple[jax.Array, jax.Array]) -> TrainingPlan:
        mask, keys = subset
        members = jnp.flatnonzero(mask, size=size)
        return jax.lax.map(lambda run: recipe.plan(run, x, members), keys)

    by_run = jax.vmap(jax.vmap(outputs))
    return jnp.asarray(by_run(jax.lax.map(plans_of, (masks, keys))))
