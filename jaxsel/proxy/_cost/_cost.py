"""The cost of a proxy in secret, counted from its manifest alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel._inputs.show import brief
from jaxsel.proxy._manifest import Manifest

from ._choosing import outside_count
from ._models import MODELS
from ._operands import Operation
from ._schedule import schedule
from ._traffic import EngineName, Traffic, check_engine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A link between the two parties.

    Attributes:
        bandwidth: Bytes per second in each direction.
        latency: Seconds for a message to arrive, one way.
        one_way_per_round: How many such latencies a round takes: 1 on a plain socket,
            2 by asynchronous sends of gloo, 4 by CrypTen's all-reduce.
    """

    bandwidth: float
    latency: float
    one_way_per_round: float = 4.0

    def __post_init__(self) -> None:
        check_positive("bandwidth", self.bandwidth)
        check_positive("latency", self.latency, zero=True)
        check_positive("one_way_per_round", self.one_way_per_round)

    def seconds(self, rounds: float, payload: float) -> float:
        """Return how long this many rounds and payload bytes take, without computing.

        Half of the payload, sent plus received, goes each way at the same time.
        """
        waiting = rounds * self.latency * self.one_way_per_round
        return waiting + payload / 2 / self.bandwidth

    def wait(self, traffic: Traffic, engine: EngineName = "crypten") -> float:
        """Return how long an engine's messages take, without computing.

        CrypTen's rounds take `one_way_per_round` latencies each; SPU's waits are
        counted in latencies.
        """
        latencies = self.one_way_per_round if engine == "crypten" else 1.0
        waiting = traffic.waits * self.latency * latencies
        return waiting + traffic.one_way / self.bandwidth


@brief
@dataclasses.dataclass(frozen=True)
class CostRow:
    """The traffic of one operation, for a full batch and for all samples."""

    operation: Operation
    one_batch: Traffic
    all: Traffic


@brief
@dataclasses.dataclass(frozen=True)
class Cost:
    """The counted forward pass over `n` samples in batches.

    Bytes are payload, sent plus received by a party, as engines count them. On
    CrypTen and Cheetah both parties count the same; on ABY3 it is the owner who has
    more, in expectation. The dealer's traffic is not in them, nor the choice of the
    best samples (`choice_cost`).

    Attributes:
        rows: The operations, in order.
        n: Samples.
        batch_size: Samples of a batch; the last one has the rest.
        lanes: Batches that run in step, their small operations as one.
        network: The link that `seconds` is for, if any.
        engine: The engine.
    """

    rows: tuple[CostRow, ...]
    n: int
    batch_size: int
    lanes: int = 1
    network: Network | None = None
    engine: EngineName = "crypten"

    @property
    def batches(self) -> int:
        """Batches that hold all samples."""
        return -(-self.n // self.batch_size)

    @property
    def one_batch(self) -> Traffic:
        """The traffic of a full batch."""
        return Traffic.sum(row.one_batch for row in self.rows)

    @property
    def all(self) -> Traffic:
        """The traffic of all samples, one batch (or lanes) after the other."""
        return Traffic.sum(row.all for row in self.rows)

    @property
    def rounds_per_batch(self) -> int:
        """Rounds of a full batch."""
        return round(self.one_batch.rounds)

    @property
    def bytes_per_sample(self) -> float:
        """Bytes of a full batch, over its samples."""
        return self.one_batch.bytes / self.batch_size

    @property
    def rounds(self) -> int:
        """Rounds for all samples, one batch (or group of lanes) after the other."""
        return round(self.all.rounds)

    @property
    def bytes(self) -> int:
        """Bytes for all samples."""
        return round(self.all.bytes)

    @property
    def seconds(self) -> float | None:
        """Seconds on the network for all samples; None without a network."""
        return (
            None if self.network is None else self.network.wait(self.all, self.engine)
        )

    def share(self, *names: str) -> float:
        """Return the fraction of a batch's bytes that operations of these names take.

        Raises:
            ValueError: If no operation has such a name.
        """
        known = {row.operation.name for row in self.rows}
        for name in names:
            if name not in known:
                raise ValueError(f"names must be of {sorted(known)}, got {name!r}")
        chosen = (row.one_batch for row in self.rows if row.operation.name in names)
        return Traffic.sum(chosen).bytes / self.one_batch.bytes

    def table(self) -> str:
        """Return the operations and their sums as a table in Markdown."""
        header = ("place", "operation", "primitive", "rounds", "bytes per sample")
        lines = [
            (
                row.operation.place,
                row.operation.name,
                row.operation.kind,
                f"{row.one_batch.rounds:,.0f}",
                f"{row.one_batch.bytes / self.batch_size:,.0f}",
            )
            for row in self.rows
        ]
        sums = (f"{self.rounds_per_batch}", f"{self.bytes_per_sample:,.0f}")
        return markdown(header, [*lines, ("all", "", "", *sums)])


def cost(
    manifest: Manifest,
    n: int,
    network: Network | None = None,
    *,
    engine: EngineName = "crypten",
    batch_size: int = 64,
    lanes: int = 1,
) -> Cost:
    """Count the secure forward pass of a proxy.

    Args:
        manifest: The proxy.
        n: Samples to score.
        network: The link, to get seconds as well.
        engine: "crypten"; "spu-cheetah", two parties; "spu-aby3", two and a helper;
            "spu-aby3-128", the same with twice the bits.
        batch_size: Samples that go through together: weights are opened once for
            each batch.
        lanes: Batches that run at once. CrypTen calls operations with small operands
            (`Operation.coalesced`) once for all of them; on ABY3 their latencies pass
            together.

    Returns:
        Rounds and bytes of each operation; their sums are its properties. On SPU's
        engines at 18 fraction bits, of 128 bits at 40; the guide to costs says how near
        they are.

    Raises:
        ValueError: If `n`, `batch_size` or `lanes` is not positive, there is no such
            engine, or it has no lanes.
        TypeError: If one of them is not a whole number, or `manifest` or `network`
            is something else.
    """
    if not isinstance(manifest, Manifest):
        raise TypeError(f"manifest must be a Manifest, got {type(manifest).__name__}")
    n, batch_size = check_count("n", n), check_count("batch_size", batch_size)
    lanes, engine = check_count("lanes", lanes), check_engine(engine)
    if lanes > 1 and engine == "spu-cheetah":
        raise ValueError(f"lanes must be 1 with engine {engine!r}, got {lanes}")
    if network is not None and not isinstance(network, Network):
        raise TypeError(f"network must be a Network or None, got {network!r}")
    if engine == "crypten":
        rows = [_on_crypten(op, n, batch_size, lanes) for op in schedule(manifest)]
    else:
        rows = _on_spu(manifest, engine, n, batch_size, lanes)
        if manifest.watched:  # once, of all samples
            counted = outside_count(engine, n)
            compared = Operation("scores", "outside", "nonnegative", ((n,),))
            rows.append(CostRow(compared, counted * 0, counted))
    return Cost(tuple(rows), n, batch_size, lanes, network, engine)


def _on_crypten(op: Operation, n: int, batch_size: int, lanes: int) -> CostRow:
    # Every count is linear in the samples.
    of_one, of_two = op.count(1), op.count(2)
    slope = of_two.bytes - of_one.bytes
    shared = of_one.bytes - slope  # of weights, once a call
    together = lanes if op.coalesced else 1
    batches = -(-n // batch_size)
    calls = -(-batches // together)
    return CostRow(
        op,
        Traffic.equal(of_one.rounds, (slope * batch_size + shared) / 2),
        Traffic.equal(of_one.rounds * calls, (slope * n + shared * calls) / 2),
    )


def _on_spu(
    manifest: Manifest, engine: EngineName, n: int, batch_size: int, lanes: int
) -> list[CostRow]:
    model = MODELS[engine]
    full, remainder = divmod(n, batch_size)
    rows: list[CostRow] = []
    for op in model.schedule(manifest):
        batch = model.traffic(op, batch_size)
        last = model.traffic(op, remainder) if remainder else batch * 0
        total = batch * full + last
        if op.kind != "share":  # inputs are shared one batch after the other
            together = full % lanes > 0  # the last batch, and a full one
            waits = batch.waits * -(-full // lanes) + (0 if together else last.waits)
            total = dataclasses.replace(total, waits=waits)
        rows.append(CostRow(op, batch, total))
    return rows


def compare_costs(
    manifests: Mapping[str, Manifest],
    n: int,
    network: Network | None = None,
    *,
    engine: EngineName = "crypten",
    batch_size: int = 64,
) -> str:
    """Return proxies side by side as a table in Markdown.

    Rounds are those of a batch, bytes those of a sample, and the last columns are for
    all samples. The ratio is of bytes, to the first proxy.

    Args:
        manifests: The proxies, by the names to show.
        n: Samples to score.
        network: The link; without it there is no column of hours.
        engine: As in `cost`.
        batch_size: Samples that go through together.

    Raises:
        ValueError: If there is no proxy.
    """
    if not manifests:
        raise ValueError("manifests must hold at least one proxy, got none")
    header = ["proxy", "rounds", "bytes per sample", "ratio", "GB in all"]
    header += ["hours"] if network is not None else []
    costs = {
        k: cost(m, n, network, engine=engine, batch_size=batch_size)
        for k, m in manifests.items()
    }
    first = next(iter(costs.values()))
    lines: list[list[str]] = []
    for name, counted in costs.items():
        line = [
            name,
            f"{counted.rounds_per_batch:,}",
            f"{counted.bytes_per_sample:,.0f}",
            f"{counted.bytes_per_sample / first.bytes_per_sample:.2g}",
            _figure(counted.bytes / 1e9),
        ]
        if counted.seconds is not None:
            line.append(_figure(counted.seconds / 3600))
        lines.append(line)
    return markdown(header, lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    rows = [list(header), *map(list, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = [i > 0 and rows[-1][i][:1].isdigit() for i in range(len(widths))]
    text: list[str] = []
    for row in rows:
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        )
        text.append(f"| {' | '.join(cells)} |")
    rule = [
        "-" * (width + 1) + (":" if number else "-")
        for width, number in zip(widths, numbers, strict=True)
    ]
    return "\n".join([text[0], f"|{'|'.join(rule)}|", *text[1:]])
