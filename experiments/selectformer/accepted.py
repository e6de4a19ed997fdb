"""Measurements over the seeds in which the guard accepted each proxy."""

from __future__ import annotations

import numpy as np

from experiments._kit.claims import Measured
from experiments._kit.words import standard_error


def where_accepted(
    key: str, values: np.ndarray, unit: str = "", *, where: str, scale: str = ""
) -> Measured:
    """Measure a claim in the seeds in which the guard accepted all its proxies.

    Args:
        key: Of the claim.
        values: Differences, `[S]`; NaN where the guard refused a proxy with every
            setting. If it did in all seeds, the claim is not tested.
        unit: Of the values.
        where: On which data.
        scale: Its size, and its models.
    """
    known = values[np.isfinite(values)]
    refused, text, other = len(values) - len(known), "", ""
    if len(known):
        error = f" ± {standard_error(known):.2f}" if len(known) > 1 else ""
        text = f"{known.mean():+.2f}{error} {unit}".rstrip()
        text += f" (refused in {refused} of {len(values)} seeds)" if refused else ""
    else:
        other = "the guard refused a proxy with every setting in all seeds"
    return Measured(
        key=key, where=where, scale=scale, values=known, said=text, other=other
    )
