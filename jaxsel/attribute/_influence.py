"""Influence of training samples on any network, by Gauss-Newton steps."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import finfo, jit, tree_map
from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._results.types import Values

from ._damping import default_damping
from ._ekfac_influence import ekfac_influence
from ._gauss_newton import Influence, gauss_newton
from ._gauss_newton_cg import CgInfluence, gauss_newton_cg
from ._networks import trained_networks
from ._recipe import (
    Output,
    Recipe,
    check_recipe,
    name_of_output,
    widened,
)
from ._results import check_convex, over_seeds

Solver = Literal["exact", "cg", "ekfac"]

_LARGEST = 20_000  # rows of a matrix, which takes 3.2 GB in float64
# Conjugate gradients pay above this many rows, if there are enough for each target: for
# digits and a perceptron they cost a tenth of the exact solve for one target, and as
# much for 100 targets with 10 classes.
_SMALL, _A_TARGET = 1000, 300
_STATED = {
    "exact": "",
    "cg": ", solver=cg",
    "ekfac": ", solver=ekfac, approximate",
}
"""How a result's `method` states the solver."""
_SHARE = 0.01  # of the damping, that rounding of the matrix may reach


def network_influence(
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array | None = None,
    seeds: int = 1,
    params: Sequence[Any] | None = None,
    damping: float | None = None,
    output: Output = "loss",
    reduce: Literal["mean"] | None = "mean",
    solver: Solver | None = None,
    tol: float = 1e-4,
    chunk_size: int = 64,
) -> Values:
    """Estimate how much each training sample changes a network's outputs for targets.

    The score of a sample is the rise of a target's output due to it, to first order:
    with the damped Gauss-Newton matrix H of the mean training loss, a sample's gradient
    g and the gradient h of a target's output,

        score = -1/n hᵀ H⁻¹ g.

    H is factorised exactly, in the space of the P parameters or of the n·K outputs of
    the samples, whichever is smaller; where that costs more, conjugate gradients solve
    for the targets, or for their mean alone. `solver="ekfac"` replaces H by an
    approximation that needs no solve: its scores differ from the exact ones. Where
    float32 rounds H by more than a hundredth of the damping, as with columns on raw
    scales, all is computed in float64.

    Networks of several seeds differ, and so do their scores: for questions on networks
    of other seeds take the mean over a few, `seeds=5`; see `tasks.retrain_subsets`.
    Try `output="log_odds"` for such a mean, of losses too: a loss answers most in the
    networks that doubt the target, and these outweigh the others.

    Args:
        recipe: The model, its loss, which is convex in the outputs, and its training.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, or targets of a regression, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        key: Key of the trainings; run s has `fold_in(key, s)`. None with `params`.
        seeds: Number of networks, trained in one program.
        params: Networks that are trained already, a pytree of parameters each.
        damping: Added to H's diagonal. None takes 1/T, with T the way that a constant
            gradient of 1 takes each parameter in the training: for SGD the sum of
            learning rate / (1 - momentum) over its steps, so that directions which the
            training does not reach are damped. Of optimisers that rescale gradients,
            such as Adam, T is unknown, and the damping must be stated.
        output: The output of a target: see `Recipe.measure`.
        reduce: "mean" over targets, or None: a row for each target.
        solver: "exact"; "cg" for conjugate gradients; None for the one of these that
            costs less; or "ekfac", an approximation: layers are independent of each
            other, and dense and convolution layers have eigenvectors that are Kronecker
            products. All other parameters, such as scales of norms and embeddings, are
            independent.
        tol: Of conjugate gradients: residual at which a solution is good, relative to
            that of a solution of 0, in the norm of M⁻¹, with M the root of the
            approximation of "ekfac". M changes the number of steps alone. The norm of
            a target's errors is about 2 tol of that of its scores.
        chunk_size: Samples whose derivatives `[K, P]`, or `[P]` with conjugate
            gradients, are in memory at once; it changes speed and memory only.

    Returns:
        `Values`, `[n]` or `[t, n]`, in units of the output (nats of the loss): means
        over the networks, whose number is `count`; `stderr` is the standard error
        between networks, None for one.

    Costs the trainings and, for each network, `n K P min(P, n K) / 2` multiplications,
    and a factorisation of `min(P, n K)` rows. Conjugate gradients cost, for each step,
    a forward and a backward pass over all samples for each target, or for their mean
    alone with `reduce="mean"`, and 2 K backward passes and the eigenvectors of layers'
    second moments, `[in, in]` and `[out, out]`, before the first. "ekfac" costs these,
    and one forward-mode pass over all samples for each target, or above 50 targets the
    samples' gradients and P multiplications for each pair. Targets are solved together
    where their vectors, of P numbers, fit into a fourth of the device's memory, or a
    third of the host's, and else block after block, with as many passes.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, the model keeps
            statistics or draws, the loss is not convex in the outputs, a training ends
            in NaN, the damping is needed, or `solver` is "exact" and P and n K are
            both above 20,000.

    Warns:
        UserWarning: If conjugate gradients end before they reach `tol`.

    References:
        P. W. Koh and P. Liang, Understanding black-box predictions via influence
        functions, ICML 2017, equation 2; J. Martens, New insights and perspectives on
        the natural gradient method, JMLR 21 (2020), section 8 (Gauss-Newton); R. Grosse
        et al., Studying large language model generalization with influence functions,
        arXiv:2308.03296, section 2.1 (damped, as the response of the training) and
        2.2 (EK-FAC); T. George et al., Fast approximate natural gradient descent in a
        Kronecker-factored eigenbasis, NeurIPS 2018, section 3.
    """
    check_recipe(recipe)
    samples = recipe.check(x, y, x_val, y_val)
    recipe.check_output(output, samples.y)
    check_choice("reduce", reduce, ("mean", None))
    check_count("seeds", seeds)
    check_count("chunk_size", chunk_size)
    arrays = samples.x, samples.y, samples.x_val, samples.y_val
    trained = trained_networks(recipe, samples, key, seeds, params)
    count = len(jax.tree.leaves(trained)[0])
    solved = 1 if reduce == "mean" else len(samples.x_val)
    solver = _solver(solver, recipe, trained, samples.x, solved)
    check_positive("tol", tol)
    if damping is None:
        damping = default_damping(recipe, trained, len(samples.x))
    check_positive("damping", damping)
    solve: Any = functools.partial(
        _solve,
        recipe,
        solver=solver,
        output=output,
        of_mean=reduce == "mean",
        tol=float(tol),
        chunk_size=chunk_size,
    )
    # On the host: float64 arrays are not for JAX outside of x64 mode.
    result = jax.device_get(solve(trained, *arrays, damping))
    if result.scores.dtype == np.float32 and not _is_exact(result, damping, tol):
        with jax.enable_x64(True):
            wide = widened((trained, *arrays))
            result = jax.device_get(solve(*wide, damping))
    scores = np.asarray(result.scores, np.float64)
    least = float(np.min(result.convexity))
    peak = float(np.max(result.peak)) if isinstance(result, Influence) else 1.0
    check_convex(least, peak)
    samples.check_finite("the solution", scores)
    if isinstance(result, CgInfluence) and not _is_exact(result, damping, tol):
        residual = float(np.max(result.residual))
        warnings.warn(
            f"conjugate gradients ended after {int(np.max(result.steps))} steps with a "
            f"relative residual of {residual:.2g}, above tol={tol:g}: raise damping, "
            f"which is {damping:.3g}",
            stacklevel=2,
        )
    name = name_of_output(output)
    return over_seeds(
        scores,
        reduce=reduce,
        dtype=samples.x.dtype,
        method=f"network_influence(damping={damping:.4g}, output={name}, "
        f"networks={count}{_STATED[solver]})",
        index=samples.row_labels,
    )


@jit(static_argnames=("recipe", "solver", "output", "of_mean", "tol", "chunk_size"))
def _solve(
    recipe: Recipe,
    trained: Any,
    x: jax.Array,
    y: jax.Array,
    x_val: jax.Array,
    y_val: jax.Array,
    damping: float,
    *,
    solver: Solver,
    output: Output,
    of_mean: bool,
    tol: float,
    chunk_size: int,
) -> Influence | CgInfluence:
    """Solve for one network after the other, so that memory holds one matrix."""
    options: dict[str, Any] = {"output": output, "chunk_size": chunk_size}
    kernel: Any = gauss_newton
    if solver != "exact":
        kernel = ekfac_influence
        options |= {"of_mean": of_mean}
    if solver == "cg":
        kernel = gauss_newton_cg
        options |= {"tol": tol}
    return jax.lax.map(
        lambda params: kernel(recipe, params, x, y, x_val, y_val, damping, **options),
        trained,
    )


def _is_exact(result: Influence | CgInfluence, damping: float, tol: float) -> bool:
    """Return whether rounding, and the end of a solve, leave scores as they are."""
    if isinstance(result, CgInfluence):
        return bool(np.max(result.residual) <= 2 * tol)
    rounding = float(np.max(result.peak)) * finfo(result.scores.dtype).eps
    return rounding < _SHARE * damping


def _solver(
    solver: Solver | None, recipe: Recipe, trained: Any, x: jax.Array, targets: int
) -> Solver:
    """Choose the solver by its cost, or check the size of an exact one."""
    check_choice("solver", solver, ("exact", "cg", "ekfac", None))
    if solver in ("cg", "ekfac"):
        return solver
    network = tree_map(lambda leaf: leaf[0], trained)
    size = sum(leaf.size for leaf in jax.tree.leaves(network))
    outputs = jax.eval_shape(recipe.apply, network, x[:1]).shape[1]
    rows = min(size, outputs * len(x))
    if solver is None:
        dear = rows > _SMALL and rows * outputs > _A_TARGET * targets
        return "cg" if dear or rows > _LARGEST else "exact"
    if rows <= _LARGEST:
        return "exact"
    raise ValueError(
        f'solver="exact" takes at most {_LARGEST} parameters, or outputs for all '
        f'samples of x, got {size} and {outputs * len(x)}: use solver="cg"'
    )
