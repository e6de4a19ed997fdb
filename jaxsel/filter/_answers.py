"""Consistency checks of clients' answers in the clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ._bits import to_place
from ._messages import check_ascending

Asked = tuple[np.ndarray, np.ndarray]
"""Edges `[E]` and counts at them `[2 E + 1]`."""

TIMES_MEDIAN = 20
"""Losses that a client may have in the clear, over the median client's, by default."""


def claimed(asked: Sequence[Asked]) -> int:
    """Return the number of losses that a client claims."""
    return int(asked[-1][1][-1])


def outsized(answers: Mapping[str, Sequence[Asked]]) -> dict[str, str]:
    """Return who claims far more losses than the median client, and that it does."""
    claims = {name: claimed(asked) for name, asked in answers.items()}
    # Clients without losses would draw the median, and with it the limit, towards 0.
    median = float(np.median([n for n in claims.values() if n] or [0]))
    return {
        name: f"it claims {n} losses, more than {TIMES_MEDIAN} times the {median:g} of "
        "the median client: declare max_losses if clients may have that many"
        for name, n in claims.items()
        if n > TIMES_MEDIAN * median
    }


def check_agreement(asked: Sequence[Asked]) -> None:
    """Raise if counts at different edges contradict one another."""
    totals = {int(counts[-1]) for _, counts in asked}
    if len(totals) > 1:
        raise ValueError(f"counts must end with the same number, got {sorted(totals)}")
    edges = np.concatenate([np.repeat(points, 2) for points, _ in asked])
    # Counts alternate: below an edge, then up to it.
    side = np.arange(len(edges)) % 2
    counts = np.concatenate([cumulative[:-1] for _, cumulative in asked])
    # Equal edges by their counts: unequal answers at one edge then show as such below,
    # not as counts that fall.
    order = np.lexsort((counts, side, edges))
    check_ascending(counts[order])
    edges, side, counts = edges[order], side[order], counts[order]
    twice = (edges[1:] == edges[:-1]) & (side[1:] == side[:-1])
    if np.any(np.diff(counts)[twice]):
        raise ValueError("counts must be the same at an edge that is asked for again")
    place = to_place(edges)
    if np.any((np.diff(place) == 1) & (np.diff(counts) > 0)):
        raise ValueError("counts must not rise between two neighbouring floats")
    least, most = to_place(np.array([-np.inf, np.inf], edges.dtype))
    # Beyond the extreme finite floats only infinities are left.
    if (place[0] == least + 1 and counts[0]) or (
        place[-1] == most - 1 and counts[-1] < totals.pop()
    ):
        raise ValueError("counts must be of finite losses")
