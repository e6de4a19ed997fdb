"""Leave-one-out values by retraining."""

from __future__ import annotations

from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit
from jaxsel._results.types import Values
from jaxsel._runs.progress import track

from ._evaluator import Evaluator
from ._failures import tell
from ._run_options import PlayerOptions, run_options
from ._utility import Utility


@run_options(PlayerOptions)
def loo(
    utility: Utility,
    *,
    key: jax.Array | None = None,
    **options: Unpack[PlayerOptions],
) -> Values:
    """Return the loss of utility without each training point.

    Exact, at the cost of n + 1 utilities, but a weak signal: leaving out one of many
    points hardly changes a model, so most values are zero or noise.

    Args:
        utility: The worth of coalitions: a `ModelUtility`, or made by `as_utility`.
        key: Source of the utility's key; needed by utilities that draw, such as those
            of a `FlaxLearner`.
        **options: Owners, batches, devices and progress: see `RunOptions`.

    Returns:
        `Values`, `[n]`, exact: `count` is 1, and there is no standard error.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the utility is not finite, or `key` is missing.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import value
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array([0, 1, 0, 1, 1, 1])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [0.14], [1.06]]), np.array([0, 0, 1])
        >>> learner = value.KNN(k=3)
        >>> utility = value.ModelUtility(
        ...     learner, x, y, x_val, y_val, metric="likelihood"
        ... )
        >>> values = jaxsel.loo(utility)
        >>> print(values.bottom(1))
        [1]
    """
    work = Evaluator(utility, key, options, draws=False)
    n = work.n
    full, params = work.evaluate(jnp.ones((1, n), bool))
    rows = -(-n // -(-n // work.rows))  # about as many in every call
    without = [
        # All start from the model of all points, from which they hardly differ.
        work.evaluate(_all_but(first, count=rows, n=n), (params, np.zeros(rows, int)))[
            0
        ]
        for first in track(
            range(0, n, rows),
            progress=options.get("progress", False),
            label="loo",
            total=-(-n // rows),
        )
    ]
    tell(work.failures)
    worth = np.concatenate(without)[:n]
    return Values(
        values=jnp.asarray(full[0] - worth, jnp.float32),
        count=jnp.asarray(1, jnp.int32),
        method="loo",
        index=work.index,
    )


@jit(static_argnames=("count", "n"))
def _all_but(first: jax.Array | int, *, count: int, n: int) -> jax.Array:
    """Leave out points first, first + 1, ...; rows beyond the n-th have all of them."""
    return (first + jnp.arange(count))[:, None] != jnp.arange(n)[None]
