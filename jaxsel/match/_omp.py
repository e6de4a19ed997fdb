"""Orthogonal matching pursuit over any oracle: the public function."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.mesh import along
from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel.gradients import Gradient, Streamed

from ._by_rows import applies, by_rows
from ._compute import compute
from ._float64 import (
    can_repeat,
    narrowed,
    precision_of,
    repeats,
    widened,
)
from ._host_loop import on_host
from ._inputs import (
    Candidates,
    as_oracle,
    check_penalty,
    check_target,
    check_valid,
    in_columns,
)
from ._penalised import penalise
from ._pursuit import FRESH, Score
from ._types import OVERFLOW, PRECISION, Match
from ._usable import check_products

_SCORES = ("omp", "nomp", "ols")


def omp(
    candidates: Candidates,
    target: Gradient,
    budget: int,
    *,
    l2: float = 0.5,
    positive: bool = True,
    score: Score = "omp",
    penalty: npt.ArrayLike | jax.Array | None = None,
    penalty_l2: float = 1.0,
    tol: float = 0.0,
    valid: npt.ArrayLike | jax.Array | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    progress: bool = False,
) -> Match:
    """Choose weighted candidates by orthogonal matching pursuit of a target gradient.

    Minimises `‖Σ w_i g_i − b‖² + l2 ‖w‖² + penalty_l2 ‖ψ w‖²` greedily over sets of at
    most `budget` candidates. Each step chooses a candidate by `score`, then fits the
    weights of all chosen ones again. It uses inner products only, in a pivoted form of
    the normal equations; gradients are never written out.

    Args:
        candidates: An oracle of n gradients, or an array of shape `[n, p]`. A candidate
            of an oracle whose gradient has a NaN is never chosen; an array with one is
            refused.
        target: The gradient b to match, in the oracle's form: `[p]` for an array; or
            several, stacked along a leading axis, which are matched independently.
        budget: How many to choose at most, k.
        l2: Weight λ of `‖w‖²`. It keeps one candidate from taking all the weight.
        positive: Whether weights must not be negative. Each step's fit is then exact
            non-negative least squares, and only candidates with a positive inner
            product with the residual are chosen.
        score: "omp": by the inner product with the residual. "nomp": by the share of
            the residual that the candidate alone explains, so that long gradients have
            no advantage. "ols": by how much the objective falls if all weights are
            fitted again. This is the best at equal budget, and the only one in which
            the ridge and the penalty affect the choice; it takes twice the memory.
        penalty: Optional ψ, `[n]`, not negative: larger for less desirable candidates.
            Or a matrix D, `[m, n]`, not negative, such as of distances from m hard
            samples: the term is then `‖D w‖²`. It takes part in correlations with the
            residual, so that from the second choice on it affects all scores, and it
            costs m multiply-adds for each entry of a column.
        penalty_l2: Weight λ₂ of `‖ψ w‖²` or `‖D w‖²`.
        tol: Stop once the root of the objective, relative to the target's length, is
            at most this. Below 1e-3, a match goes on in float64 at two to three times
            the cost of a step; oracles of networks stop near 1e-3 in any case.
        valid: Optional booleans, `[n]`: which candidates may be chosen.
        mesh: Devices to share the candidates among. Candidates whose arrays are spread
            over these stay there, and no process gets all of them.
        axis: Which axis of the mesh; its only one, or "data", if None.
        progress: Whether to show a bar; with a mesh there is none.

    Returns:
        A `Match`: indices in the order of choice, weights, how many there are, the
        objective after each step, and why it stopped. Candidates whose weight returned
        to zero are left out, and their places stay empty, so `n_valid` can be less than
        the budget. k steps cost k columns of the oracle and about k²n multiply-adds,
        and memory for n times k numbers, with k rounded up to a power of two; for
        gradients as rows (`dense`, `projected`; up to 16 MB, or on a mesh) and a score
        but "ols", k·n·p, and memory for k gradients. On a CPU, one match of rows of up
        to 16 million numbers is computed in float64 by a compiled operation, which
        takes n·p bytes for rows rounded to bytes: they rule out most candidates of a
        step at a fourth of the memory traffic, and the rest are computed in full.

    Raises:
        TypeError: If an argument has the wrong type, or is being traced.
        ValueError: If shapes don't fit, a number is out of range, or a squared length
            over- or underflows: in float32, of gradients longer than 1.8e19 and of
            targets shorter than 1.1e-19.

    References:
        Pati, Rezaiifar and Krishnaprasad, Orthogonal Matching Pursuit, Asilomar 1993.
        Killamsetty et al., GRAD-MATCH, ICML 2021, Algorithm 2. Sarwar et al., Mycroft,
        2024, Eq. 1, Eq. 2 (a matrix D) and Algorithm 2; it drops the most negative
        weight and solves again where this fits non-negative weights exactly. Kim and
        Park, SIAM Journal on Scientific Computing 33, 2011 (the fit).

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> target = np.array([1.0, 1.0])
        >>> match = jaxsel.omp(gradients, target, 2, l2=0.01)
        >>> print(match.indices)
        [0 2]
        >>> print(np.asarray(match.weights).round(2))
        [0.99 0.99]
    """
    mesh = along(mesh, axis)
    target = in_columns(candidates, target)
    rule: Any = {
        "l2": check_positive("l2", l2, zero=True),
        "positive": bool(positive),
        "score": score,
        "penalty": penalty,
        "penalty_l2": penalty_l2,
        "valid": valid,
        "mesh": mesh,
        "progress": progress,
    }
    budget = check_count("budget", budget)
    check_choice("score", score, _SCORES)
    tol = check_positive("tol", tol, zero=True)
    # Beyond the candidates' digits float64 would match their rounding.
    precise = max(tol, 4 * precision_of(candidates))
    if not progress and applies(candidates, target, score, penalty, mesh):
        compiled = functools.partial(by_rows, widest=jnp.result_type(float))
        with jax.enable_x64(True):
            match, _ = _match(
                candidates, target, budget, tol=precise, compiled=compiled, **rule
            )
        # After an overflow the general match follows, which names the candidate.
        if match.status != OVERFLOW:
            return match.unpadded()
    match, is_doubtful = _match(candidates, target, budget, tol=tol, **rule)
    if not is_doubtful:
        return match.unpadded()
    # On from the choices that rounding can't have changed.
    single = match.steps.ndim == 0 and mesh is None
    with jax.enable_x64(True):
        begun = first_stage(match) if single else None
        again, _ = _match(
            widened(candidates),
            widened(target),
            budget,
            tol=precise,
            begun=begun,
            **rule,
        )
        return narrowed(again).unpadded()


def _match(
    candidates: Candidates,
    target: Gradient,
    budget: int,
    *,
    l2: float,
    penalty: npt.ArrayLike | jax.Array | None,
    penalty_l2: float,
    tol: float,
    valid: npt.ArrayLike | jax.Array | None,
    mesh: jax.sharding.Mesh | None,
    progress: bool,
    begun: Match | None = None,
    compiled: Callable[..., Match] | None = None,
    **options: Any,
) -> tuple[Match, bool]:
    """Match in the type that is enabled, and tell whether to go on in float64."""
    oracle = as_oracle("candidates", candidates, mesh)
    n = len(oracle)
    psi, weight = check_penalty(penalty, penalty_l2, n)
    allowed = check_valid(valid, n)
    target, several = check_target(oracle, target)
    if psi.ndim > 1:
        extra = np.zeros(n)
        more = np.sqrt(weight) * psi.T
        pool, goal = penalise(oracle, more, target, several=several)
    else:
        extra = weight * psi**2
        pool, goal = oracle, target
    if compiled is not None:
        run = functools.partial(compiled, pool)
    elif isinstance(oracle, Streamed):
        if mesh is not None:
            raise ValueError("mesh must be None for streamed candidates")
        run = functools.partial(on_host, pool, progress=progress)
    elif progress and mesh is None:
        run = functools.partial(on_host, pool, progress=True)
    else:
        run = functools.partial(compute, pool, mesh=mesh)
    strict = compiled is None and can_repeat(oracle)
    with jax.debug_nans(False):  # errors beyond the last step are NaN by design
        match = run(
            goal,
            several=several,
            size=min(budget, n),
            l2=l2,
            extra=extra,
            valid=allowed,
            tol=tol,
            strict=strict,
            begun=begun,
            **options,
        )
    status = np.asarray(match.status)
    if compiled is None:
        is_rounded = status == PRECISION if strict else match.rounded
        if np.any(is_rounded) and repeats(True, oracle):
            return match, True
        if (status == OVERFLOW).any():
            check_products(jnp.asarray(pool.diag()), jnp.asarray(allowed))
    positive, score = options["positive"], options["score"]
    shown = f"omp(budget={budget}, l2={l2:g}, positive={positive}, score={score!r}"
    if penalty is not None:
        shown += f", penalty_l2={penalty_l2:g}"
    if psi.ndim > 1:
        shown += f", penalty of {len(psi)} rows"
    return dataclasses.replace(match, method=shown + ")"), False


def first_stage(match: Match) -> Match:
    """Cut a strict match that stopped to a size that its choices fill to a half."""
    count, size = int(match.n_valid), match.indices.shape[0]
    room = min(max(FRESH, 1 << (count - 1).bit_length()), size)
    return dataclasses.replace(
        match,
        indices=match.indices[:room],
        weights=match.weights[:room],
        objective=match.objective[:room],
    )
