"""The most valuable samples within a budget, as a `Selection`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.usual_mistakes import doubt

from .types import Selection, Values


def best_samples(
    values: Values,
    *,
    budget: int | None = None,
    above: float | None = None,
    labels: np.ndarray | None = None,
    per_class: bool = False,
) -> Selection:
    """Choose the samples of highest value, each with weight 1.

    Args:
        values: One value for each of n samples.
        budget: Most samples to choose; all if None.
        above: Only samples worth more than this; any if None.
        labels: `[n]`: the class of each. Required with `per_class`.
        per_class: Share the budget evenly: the best of each class first, then the
            second best, and so on. The last round may not suffice for all classes, and
            goes to the higher values.

    Returns:
        A `Selection`, best first, of the length of the budget or as many as there are
        above the threshold.

    Raises:
        ValueError: If neither `budget` nor `above` is given, `budget` is not from 1 to
            n, or the labels that `per_class` needs are missing or have another length.
    """
    n = len(values)
    if budget is None and above is None:
        raise ValueError("budget, above or both must be given")
    if budget is not None and not 1 <= budget <= n:
        raise ValueError(
            f"budget must be from 1 to {n}, the number of samples, got {budget}"
        )
    if labels is not None and labels.shape != (n,):
        raise ValueError(
            f"labels must be of shape {(n,)}, one for each value, got {labels.shape}"
        )
    if per_class and (labels is None or budget is None):
        raise ValueError("per_class needs budget and labels")
    order = np.argsort(values.rank())
    if above is not None:
        order = order[np.asarray(values.values)[order] > above]
    if per_class and labels is not None:
        place = np.empty(len(order), np.int64)  # of each sample within its class
        for kind in np.unique(labels):
            in_class = labels[order] == kind
            place[in_class] = np.arange(in_class.sum())
        order = order[np.sort(np.argsort(place, kind="stable")[:budget])]
    order = order[:budget]
    unknown = int(np.isnan(np.asarray(values.values)[order]).sum())
    if unknown:
        doubt(
            f"{unknown} of the {len(order)} chosen samples have a value of NaN, that "
            "is unknown: take more samples for the values, or set a smaller budget"
        )
    asked = {"budget": budget, "above": above, "per_class": per_class or None}
    shown = [f"{name}={value}" for name, value in asked.items() if value is not None]
    return Selection(
        indices=jnp.asarray(order, jnp.int32),
        weights=jnp.ones(len(order), jnp.float32),
        n_valid=jnp.asarray(len(order), jnp.int32),
        method=f"best({', '.join([*shown, f'of={values.method}'])})",
    )
