"""Measurements on each claim on proxies, pool by pool and on the mean of pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments._kit.claims import Measured
from experiments.selectformer.accepted import where_accepted
from experiments.selectformer.scores.trial import BUDGETS, LARGER
from experiments.selectformer.sources import NAMES

from .run import Proxies, ProxyPool
from .trial import BOOTSTRAP

TWO, ONE = "paper, 2 phases", "paper, 1 phase"
PEERS = ("MPCFormer", "Bolt")
OURS = {
    "bootstrap probe": "The probe of the labels alone",
    "probe": "The linear probe",
    "probe, margin": "The linear probe, ranked by its margin,",
}
RANDOM = 0.7
"""Budget of a random choice beside the paper's phases with the first of `BUDGETS`."""


def on_claims(result: Proxies) -> Iterator[Measured]:
    """Yield points of accuracy and leads in rank correlation.

    On the mean of pools there is one row for the paper's phases, and all of ours.
    """
    pools = [*result.pools.values()]
    settings = [
        (f"{NAMES[name]}, {pool.n.mean():,.0f} samples", [pool])
        for name, pool in result.pools.items()
    ]
    more = (*BUDGETS, *LARGER).index(RANDOM)
    for where, group in (*settings, (f"mean of {len(pools)} pools", pools)):
        bought = np.mean([pool.beyond(pool.bought) for pool in group], axis=0)
        ranks = np.mean([pool.spearman for pool in group], axis=0)
        ideal = np.mean([pool.beyond(pool.ideal)[:, 0, 0] for pool in group], axis=0)
        gain = dict(zip(result.points, bought[:, 0].T, strict=True))
        rank = dict(zip(result.points, ranks.T, strict=True))
        points = {"random": gain[TWO]}
        if group is not pools:
            usual = group[0].random.mean(axis=2)
            points |= {
                "budget": bought[:, -1, result.points.index(TWO)],
                "more": gain[TWO] - 100 * (usual[:, more] - usual[:, 0]),
                "oracle": gain[TWO] - ideal,
                "phases": gain[TWO] - gain[ONE],
                **{peer: gain[TWO] - gain[peer] for peer in PEERS},
            }
        where += f", {labels_first(group)} first"
        for point in OURS:
            points |= {
                f"{point}, random": gain[point],
                f"{point}, two": gain[point] - gain[TWO],
                f"{point}, oracle": gain[point] - ideal,
            }
            lead = rank[point] - rank[TWO]
            yield where_accepted(f"{point}, rank", lead, where=where)
        for key, values in points.items():
            yield where_accepted(key, values, "points", where=where)


def labels_first(pools: Sequence[ProxyPool]) -> str:
    """Give the sizes of pools' bootstrap sets, such as "38 to 111 labels"."""
    sizes = np.round(BOOTSTRAP * np.concatenate([pool.n for pool in pools]))
    least, most = int(sizes.min()), int(sizes.max())
    return f"{least:,} to {most:,} labels" if least < most else f"{least:,} labels"
