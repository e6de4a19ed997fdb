"""SOURCE: the unrolled training, approximated by segments with one matrix each."""

from __future__ import annotations

import functools
import logging
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import finfo, jit, tree_map
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._results.types import Values
from jaxsel._runs.progress import track

from ._gauss_newton import Influence
from ._networks import check_trained, train_checkpoints
from ._recipe import Output, Recipe, check_recipe, name_of_output, widened
from ._results import check_convex, over_seeds
from ._source_kernel import source_scores
from ._times import segment_times

Solver = Literal["exact", "ekfac"]

_SMALL = 3000  # parameters up to which eigenvectors take a few seconds a segment
_LARGEST = 10_000  # of these they take minutes, and three matrices 2.4 GB in float64
_SHARE = 0.01  # relative error of a response that rounding of the matrix may reach

_log = logging.getLogger(__name__)


def source(
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    seeds: int = 1,
    segments: int = 3,
    checkpoints: int | None = None,
    output: Output = "loss",
    reduce: Literal["mean"] | None = "mean",
    solver: Solver | None = None,
    chunk_size: int = 64,
    progress: bool = False,
) -> Values:
    """Estimate how much each training sample changes a network, segment by segment.

    The training is divided into segments of as many steps. Within each, the gradients
    of the samples' losses and the Gauss-Newton matrix H of the mean loss are taken as
    constant, and as the means over checkpoints. Then a sample that counts a little more
    in segment l moves the parameters at its end by

        -1/n H⁻¹ (1 - exp(-t H)) g,

    with g the sample's gradient and t the time of the segment: learning rate / (1 -
    momentum), summed over its steps. Each later segment multiplies this by exp(-t H) of
    its own. The score is the sum over segments, times the gradient of the target's
    output at the end: the rise of the output due to the sample, to first order.

    One segment with one checkpoint is nearly `network_influence` with its default
    damping, 1/t. More segments follow a training that has not converged, or whose
    gradients change on the way. No damping has to be chosen. Weight decay d takes
    exp(-t d) in each segment, also of directions that H does not see.

    Args:
        recipe: The model, its loss, which is convex in the outputs, and its training by
            an optimiser whose steps are in proportion to the gradient, such as
            `optax.sgd` with momentum, a schedule or weight decay. Limits on the length
            of a gradient count as not reached.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, or targets of a regression, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        key: Key of the trainings; run s has `fold_in(key, s)`.
        seeds: Number of trainings, in one program, over which scores are averaged.
        segments: Number of segments L.
        checkpoints: Number c of checkpoints, after 1/c, 2/c, ... of the steps, a
            multiple of `segments`; None takes 2 a segment, or 1 where these are more
            than the steps.
        output: The output of a target: see `Recipe.measure`.
        reduce: "mean" over targets, which costs as much as one target, or None: a row
            for each target.
        solver: "exact", by the eigenvectors of each segment's matrix, of at most 10,000
            parameters; "ekfac", by an approximation in which layers are independent of
            each other and have eigenvectors that are Kronecker products, as in the
            paper; None for "exact" up to 3,000 parameters. Scores differ.
        chunk_size: Samples whose derivatives are in memory at once; it changes speed
            and memory only.
        progress: Show a bar.

    Returns:
        `Values`, `[n]` or `[t, n]`, in units of the output (nats of the loss): means
        over the trainings, whose number is `count`; `stderr` is the standard error
        between them, None for one. In float64 if x is, in x64 mode, or where float32
        rounds the matrix too much for the time of a segment.

    Costs the trainings and, for each run, `c n K P² / 2` multiplications with K outputs
    and P parameters, the eigenvectors of L matrices `[P, P]`, and c forward-mode passes
    over all samples for each target. With "ekfac" the passes and, for each checkpoint,
    2 K backward passes. Memory holds the parameters and optimiser states of all
    checkpoints and runs, and three matrices `[P, P]`.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, the model keeps
            statistics or draws, the optimiser rescales gradients or has several rates,
            the loss is not convex in the outputs, a training ends in NaN, or `solver`
            is "exact" above 10,000 parameters.

    References:
        J. Bae, W. Lin, J. Lorraine and R. Grosse, Training data attribution via
        approximate unrolled differentiation, NeurIPS 2024, section 3 (3 segments).
        There, the time of a step is its learning rate; here, the way that its gradient
        takes the parameters until the end, momentum included.
    """
    check_recipe(recipe)
    samples = recipe.check(x, y, x_val, y_val)
    recipe.check_output(output, samples.y)
    check_choice("reduce", reduce, ("mean", None))
    check_count("seeds", seeds)
    check_count("chunk_size", chunk_size)
    steps = recipe.steps(len(samples.x))
    check_count("segments", segments, maximum=steps)
    if checkpoints is None:
        checkpoints = 2 * segments if 2 * segments <= steps else segments
    check_count("checkpoints", checkpoints, maximum=steps)
    if checkpoints % segments:
        raise ValueError(
            f"checkpoints must be a multiple of segments={segments}, got {checkpoints}"
        )
    arrays = samples.x, samples.y, samples.x_val, samples.y_val
    params = jax.eval_shape(lambda: recipe.init(jax.random.key(0), samples.x))
    solver = _solver(solver, params)
    stops = steps * np.arange(1, checkpoints + 1, dtype=np.int32) // checkpoints
    width = checkpoints // segments
    times = segment_times(recipe, params, stops[width - 1 :: width])
    trained, _ = train_checkpoints(
        recipe, *arrays[:2], key, jax.numpy.asarray(stops), seeds=seeds
    )
    score = functools.partial(
        _score,
        recipe,
        solver=solver,
        output=output,
        of_mean=reduce == "mean",
        chunk_size=chunk_size,
    )
    scores = []
    # One run after the other: its matrices are what memory has to hold.
    for run in track(range(seeds), progress=progress, label="Runs"):
        network = tree_map(
            lambda leaf, run=run: leaf[run].reshape(segments, width, *leaf.shape[2:]),
            trained,
        )
        last = tree_map(lambda leaf: leaf[-1, -1], network)
        check_trained(recipe, samples, run, last)
        result = _exactly(score, network, arrays, times)
        check_convex(float(result.convexity), float(result.peak))
        samples.check_finite("the solution", result.scores)
        scores.append(np.asarray(result.scores, np.float64))
    approximate = ", solver=ekfac, approximate" if solver == "ekfac" else ""
    return over_seeds(
        np.stack(scores),
        reduce=reduce,
        dtype=samples.x.dtype,
        method=f"source(segments={segments}, checkpoints={checkpoints}, "
        f"output={name_of_output(output)}, networks={seeds}{approximate})",
        index=samples.row_labels,
    )


@jit(static_argnames=("recipe", "solver", "output", "of_mean", "chunk_size"))
def _score(
    recipe: Recipe,
    networks: Any,
    arrays: tuple[jax.Array, ...],
    times: jax.Array,
    decays: jax.Array,
    *,
    solver: Solver,
    output: Output,
    of_mean: bool,
    chunk_size: int,
) -> Influence:
    x, y, x_val, y_val = arrays
    return source_scores(
        recipe,
        networks,
        *(x, y, x_val, y_val),
        times,
        decays,
        solver=solver,
        output=output,
        of_mean=of_mean,
        chunk_size=chunk_size,
    )


def _exactly(
    score: Any,
    networks: Any,
    arrays: tuple[jax.Array, ...],
    times: tuple[np.ndarray, np.ndarray],
) -> Influence:
    """Score in the type of the networks, or in float64 where that rounds too much."""
    kind = jax.tree.leaves(networks)[0].dtype
    # On the host: float64 arrays are not for JAX outside of x64 mode.
    result = jax.device_get(score(networks, arrays, *(t.astype(kind) for t in times)))
    rounding = float(times[0].max() * result.peak) * finfo(kind).eps
    if kind == np.float64 or rounding < _SHARE:
        return result
    with jax.enable_x64(True):
        return jax.device_get(score(*widened((networks, arrays)), *times))


def _solver(solver: Solver | None, params: Any) -> Solver:
    """Choose the solver by the number of parameters, or check it for an exact one."""
    check_choice("solver", solver, ("exact", "ekfac", None))
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    if solver is None:
        solver = "exact" if size <= _SMALL else "ekfac"
        _log.info("source takes solver=%r for %d parameters", solver, size)
    if solver == "exact" and size > _LARGEST:
        raise ValueError(
            f'solver="exact" takes at most {_LARGEST} parameters, got {size}: use '
            'solver="ekfac"'
        )
    return solver
