"""Semivalues by enumeration of every coalition."""

from __future__ import annotations

from typing import Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import check_choice
from jaxsel._results.types import Values
from jaxsel._runs.progress import track

from ._evaluator import Evaluator
from ._failures import tell
from ._run_options import PlayerOptions, run_options
from ._utility import Utility
from ._weights import check_beta

Kind = Literal["shapley", "banzhaf", "beta"]
_MOST = 20


@run_options(PlayerOptions)
def exact_semivalue(
    utility: Utility,
    *,
    kind: Kind = "shapley",
    alpha: float = 16.0,
    beta: float = 1.0,
    key: jax.Array | None = None,
    **options: Unpack[PlayerOptions],
) -> Values:
    """Return a semivalue of each of at most 20 training points, exactly.

    Use it for checks, or for a few owners of points (`owners=`): it calls the utility
    with all 2**n coalitions.

    Args:
        utility: The worth of coalitions: a `ModelUtility`, or made by `as_utility`.
        kind: "shapley"; "banzhaf", where all coalitions count alike; or "beta".
        alpha: First parameter of "beta", in the convention of Kwon and Zou.
        beta: Second parameter of "beta".
        key: Source of the utility's key; needed by utilities that draw, such as those
            of a `FlaxLearner`.
        **options: Owners, batches, devices and progress: see `RunOptions`.

    Returns:
        `Values`, `[n]`, exact: `count` is the 2**(n - 1) coalitions to which each point
        is added, and there is no standard error.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If there are more points, an option is unknown or out of range, or
            `key` is missing.

    References:
        Kwon and Zou, Beta Shapley, AISTATS 2022, equations 3 and 5. Wang and Jia, Data
        Banzhaf, AISTATS 2023.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import value
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array([0, 1, 0, 1, 1, 1])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [0.14], [1.06]]), np.array([0, 0, 1])
        >>> learner = value.NearestCentroid()
        >>> utility = value.ModelUtility(learner, x, y, x_val, y_val)
        >>> values = jaxsel.exact_semivalue(utility, kind="banzhaf")
        >>> print(values.bottom(1))
        [1]
    """
    check_choice("kind", kind, ("shapley", "banzhaf", "beta"))
    check_beta(alpha, beta)
    work = Evaluator(utility, key, options, draws=False)
    n, total = work.n, 1 << work.n
    if n > _MOST:
        raise ValueError(
            f"utility must be of at most {_MOST} points to enumerate its coalitions, "
            f"got utility.n = {n}"
        )
    rows = min(work.rows, total)
    parts = [
        work(_members(first, count=rows, n=n))
        for first in track(
            range(0, total, rows),
            progress=options.get("progress", False),
            label="coalitions",
            total=-(-total // rows),
        )
    ]
    tell(work.failures)
    table = np.concatenate(parts)[:total]
    index = np.arange(total)
    size = np.bitwise_count(index)
    weights = _weights(n, kind, alpha, beta)
    values = np.empty(n)
    for i in range(n):
        without = index[index >> i & 1 == 0]
        gained = table[without | 1 << i] - table[without]
        values[i] = gained @ weights[size[without]]
    method = f"exact_semivalue(kind={kind!r}"
    if kind == "beta":
        method += f", alpha={alpha:g}, beta={beta:g}"
    return Values(
        values=jnp.asarray(values, jnp.float32),
        count=jnp.asarray(total // 2, jnp.int32),
        method=method + ")",
        index=work.index,
    )


@run_options(PlayerOptions)
def exact_shapley(
    utility: Utility,
    *,
    key: jax.Array | None = None,
    **options: Unpack[PlayerOptions],
) -> Values:
    """Return the Shapley value of each of at most 20 training points, exactly.

    Arguments, result and errors as for `exact_semivalue`, with `kind="shapley"`.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import value
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array([0, 1, 0, 1, 1, 1])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [0.14], [1.06]]), np.array([0, 0, 1])
        >>> learner = value.NearestCentroid()
        >>> utility = value.ModelUtility(learner, x, y, x_val, y_val)
        >>> values = jaxsel.exact_shapley(utility)
        >>> print(values.bottom(1))
        [1]
        >>> print(f"{values.values.sum():.2f}")  # accuracy of all points, less 1/2
        0.50
    """
    return exact_semivalue(utility, key=key, **options)


def _weights(n: int, kind: Kind, alpha: float, beta: float) -> np.ndarray:
    """Return the weight of one coalition by its size, `[n]`."""
    if kind == "banzhaf":
        return np.full(n, 0.5 ** (n - 1))
    if kind == "shapley":
        alpha = beta = 1.0
    size = np.arange(n)
    scale = special.betaln(beta, alpha)
    return np.exp(special.betaln(size + beta, n - 1 - size + alpha) - scale)


@jit(static_argnames=("count", "n"))
def _members(first: jax.Array | int, *, count: int, n: int) -> jax.Array:
    """Return the coalitions of which the bits of first, first + 1, ... are members."""
    return (first + jnp.arange(count))[:, None] >> jnp.arange(n)[None] & 1 == 1
