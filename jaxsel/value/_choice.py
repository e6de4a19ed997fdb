"""Semivalues from a number of trainings, by the estimator that errs least."""

from __future__ import annotations

import logging
from typing import Any, Literal, Unpack, get_args

import jax

from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._results.types import Values

from ._adjusted import adjusted_semivalue
from ._exact import Kind, exact_semivalue
from ._msr import banzhaf
from ._owner_utility import by_owner
from ._permutation import beta_shapley, tmc_shapley
from ._run_options import RunOptions, run_options
from ._stopping import MaxSamples
from ._utility import Utility

_LOG = logging.getLogger(__name__)

Method = Literal["auto", "exact", "adjusted", "plain"]

# The adjusted estimate errs less from about this many trainings a player on; measured
# up to the number of players for which its model has all terms.
_TRAININGS, _PLAYERS = 4, 128
_FEWEST = 96  # two samples of two trainings for each of its groups of sizes


@run_options(RunOptions)
def estimate_semivalue(
    utility: Utility,
    trainings: int,
    *,
    key: jax.Array,
    kind: Kind = "shapley",
    alpha: float = 16.0,
    beta: float = 1.0,
    method: Method = "auto",
    **options: Unpack[RunOptions],
) -> Values:
    """Estimate a semivalue of each training point within a budget of trainings.

    Takes the estimator that had the least error at equal trainings where we measured
    (`python -m benchmarks.errors`). With "auto" that is

    - "exact", `exact_semivalue`: if there are no more coalitions than trainings;
    - "adjusted", `adjusted_semivalue`: with at least 4 trainings a player, and 96 in
      all, of at most 128 players;
    - "plain" else: `tmc_shapley`, `banzhaf` or `beta_shapley`.

    `Values.method` says which it was. Call the estimator itself for other options, such
    as stopping rules.

    Args:
        utility: The worth of coalitions: a `ModelUtility`, or made by `as_utility`.
        trainings: At most how many coalitions to train, those of no points and of all
            not counted; a single sample may take a few more.
        key: Draws the samples, and is the source of the utility's own key.
        kind: "shapley"; "banzhaf", where all coalitions count alike; or "beta".
        alpha: First parameter of "beta", in the convention of Kwon and Zou.
        beta: Second parameter of "beta".
        method: "auto", "exact", "adjusted" or "plain".
        **options: Owners, batches, devices, checkpoint and executor: see `RunOptions`.
            With method "exact" no checkpoint and no executor are allowed.

    Returns:
        `Values`, `[n]`, or one for each owner.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an option is unknown, out of range or not of the method, if
            "exact" is asked for of more than 20 players, the utility is not finite, or
            the folder holds another run.

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import value
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array([0, 1, 0, 1, 1, 1])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [0.14], [1.06]]), np.array([0, 0, 1])
        >>> learner = value.NearestCentroid()
        >>> utility = value.ModelUtility(learner, x, y, x_val, y_val)
        >>> values = jaxsel.estimate_semivalue(utility, 100, key=jax.random.key(0))
        >>> print(values.method)  # 6 points have only 64 coalitions
        exact_semivalue(kind='shapley')
    """
    trainings = check_count("trainings", trainings)
    check_choice("kind", kind, ("shapley", "banzhaf", "beta"))
    check_choice("method", method, get_args(Method))
    shared: dict[str, Any] = {**options}
    if (owners := shared.pop("owners")) is not None:
        utility = by_owner(utility, owners)
    chosen = _method(utility.n, trainings) if method == "auto" else method
    _LOG.info(
        "%s estimates %s values of %d players by at most %d trainings",
        *(chosen, kind, utility.n, trainings),
    )
    semivalue: dict[str, Any] = {"kind": kind}
    if kind == "beta":
        semivalue |= {"alpha": alpha, "beta": beta}
    if chosen == "exact":
        checkpoint, executor = shared.pop("checkpoint"), shared.pop("executor")
        if method == "exact" and not (checkpoint is executor is None):
            raise ValueError(
                "checkpoint and executor must be left out with method='exact'"
            )
        return exact_semivalue(utility, key=key, **semivalue, **shared)
    if chosen == "adjusted":
        samples = trainings if kind == "beta" else trainings // 2
        stop = MaxSamples(max(1, samples))
        return adjusted_semivalue(utility, key=key, **semivalue, stop=stop, **shared)
    if kind == "banzhaf":
        return banzhaf(utility, key=key, stop=MaxSamples(trainings), **shared)
    stop = MaxSamples(max(1, trainings // max(1, utility.n - 1)))
    if kind == "shapley":
        return tmc_shapley(utility, key=key, stop=stop, **shared)
    return beta_shapley(utility, key=key, alpha=alpha, beta=beta, stop=stop, **shared)


def _method(players: int, trainings: int) -> Method:
    if players <= 20 and 2**players <= trainings:
        return "exact"
    enough = max(_FEWEST, _TRAININGS * players)
    return "adjusted" if trainings >= enough and players <= _PLAYERS else "plain"
