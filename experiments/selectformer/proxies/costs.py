"""Secure cost of each point, for a pool and a link as large as the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jaxsel.proxy import EngineName, Front, Network, search_schedule

from .points import SEARCHED, Point
from .run import Proxies

ROWS, BOUGHT = 42_000, 0.2
"""Samples of the paper's pool of SST-2, and the share that is bought."""

NETWORK = Network(bandwidth=100e6, latency=0.1, one_way_per_round=1.0)
"""The paper's link: 100 MB/s, 100 ms."""

ENGINES: tuple[EngineName, ...] = ("crypten", "spu-cheetah", "spu-aby3")


ENGINE: EngineName = "spu-aby3"
"""Engine of the search for schedules, and of the hours in figures."""


class Price(NamedTuple):
    """Cost of a point: payload of one owner in bytes, and hours of messages."""

    bytes: float
    hours: float


def prices(
    result: Proxies, pool: str, points: Mapping[str, Point]
) -> dict[str, dict[str, Price]]:
    """Count the cost of each point on each engine.

    Args:
        result: Holds the manifests of the candidates to count.
        pool: Name of the pool that they are from.
        points: By name.
    """
    by_engine: dict[str, dict[str, Price]] = {}
    for engine in ENGINES:
        front = search(result, pool, engine, points=points, phases=1)
        by_engine[engine] = {
            name: Price(0.0, 0.0) if points[name].published else Price(s.bytes, s.hours)
            for name, s in front.compared.items()
        }
    return by_engine


def search(
    result: Proxies,
    pool: str,
    engine: EngineName,
    *,
    points: Mapping[str, Point],
    phases: int = 3,
) -> Front:
    """Search for schedules, with the points beside them.

    Args:
        result: Holds the scores that schedules are judged by.
        pool: Name of the pool.
        engine: Counts the hours.
        points: To compare, by name.
        phases: At most.
    """
    return search_schedule(
        result.rehearsal(pool, searched=SEARCHED),
        ROWS,
        round(BOUGHT * ROWS),
        network=NETWORK,
        engine=engine,
        max_phases=phases,
        compare={name: point.phases for name, point in points.items()},
    )
