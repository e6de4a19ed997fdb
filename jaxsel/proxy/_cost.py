"""The cost of a proxy in secret, counted from its manifest alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from jaxsel._checks import check_count, check_positive

from ._manifest import Manifest
from ._schedule import Operation, schedule


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


@dataclasses.dataclass(frozen=True)
class CostRow:
    """One operation: its rounds, and its payload by sample and by batch (weights)."""

    operation: Operation
    rounds: int
    sample_bytes: int
    batch_bytes: int


@dataclasses.dataclass(frozen=True)
class Cost:
    """The counted forward pass over `n` samples in batches.

    Bytes are payload: what one party sends plus what it receives, as CrypTen counts;
    both parties count the same. The dealer's traffic is not in them, nor the choice of
    the best samples (`choice_cost`).

    Attributes:
        rows: The operations, in order.
        n: Samples.
        batch: Samples of a batch; the last one has what is left.
        lanes: Batches that run in step, their small operations as one.
        network: The link that `seconds` is for, if any.
    """

    rows: tuple[CostRow, ...]
    n: int
    batch: int
    lanes: int = 1
    network: Network | None = None

    @property
    def batches(self) -> int:
        return -(-self.n // self.batch)

    def calls(self, row: CostRow) -> int:
        """Return how often an operation is called for all samples."""
        together = self.lanes if row.operation.coalesced else 1
        return -(-self.batches // together)

    @property
    def rounds_per_batch(self) -> int:
        return sum(row.rounds for row in self.rows)

    @property
    def bytes_per_sample(self) -> float:
        """Bytes of a full batch, over its samples."""
        shared = sum(row.batch_bytes for row in self.rows)
        return sum(row.sample_bytes for row in self.rows) + shared / self.batch

    @property
    def rounds(self) -> int:
        """Rounds for all samples, one batch (or group of lanes) after the other."""
        return sum(row.rounds * self.calls(row) for row in self.rows)

    @property
    def bytes(self) -> int:
        """Bytes for all samples."""
        shared = sum(row.batch_bytes * self.calls(row) for row in self.rows)
        return self.n * sum(row.sample_bytes for row in self.rows) + shared

    @property
    def seconds(self) -> float | None:
        """Seconds on the network for all samples; None without a network."""
        if self.network is None:
            return None
        return self.network.seconds(self.rounds, self.bytes)

    def share(self, *names: str) -> float:
        """Return the fraction of a batch's bytes that operations of these names take.

        Raises:
            ValueError: If no operation has such a name.
        """
        known = {row.operation.name for row in self.rows}
        for name in names:
            if name not in known:
                raise ValueError(f"names must be of {sorted(known)}, got {name!r}")
        total = sum(self._batch_bytes(row) for row in self.rows)
        chosen = (row for row in self.rows if row.operation.name in names)
        return sum(self._batch_bytes(row) for row in chosen) / total

    def table(self) -> str:
        """Return the operations and their sums as a table in Markdown."""
        header = ("place", "operation", "primitive", "rounds", "bytes per sample")
        lines = [
            (
                row.operation.place,
                row.operation.name,
                row.operation.kind,
                f"{row.rounds}",
                f"{self._batch_bytes(row) / self.batch:,.0f}",
            )
            for row in self.rows
        ]
        sums = (f"{self.rounds_per_batch}", f"{self.bytes_per_sample:,.0f}")
        return _markdown(header, [*lines, ("all", "", "", *sums)])

    def _batch_bytes(self, row: CostRow) -> int:
        return row.sample_bytes * self.batch + row.batch_bytes


def cost(
    manifest: Manifest,
    n: int,
    network: Network | None = None,
    *,
    batch: int = 64,
    lanes: int = 1,
) -> Cost:
    """Count the secure forward pass of a proxy on stock CrypTen.

    Args:
        manifest: The proxy.
        n: Samples to score.
        network: The link, to get seconds as well.
        batch: Samples that go through together: weights are opened once for each batch.
        lanes: Batches that run in step: operations with small operands
            (`Operation.coalesced`) are called once for all of them.

    Raises:
        ValueError: If `n`, `batch` or `lanes` is no positive count; TypeError likewise.
    """
    if not isinstance(manifest, Manifest):
        raise TypeError(f"manifest must be a Manifest, got {type(manifest).__name__}")
    n, batch = check_count("n", n), check_count("batch", batch)
    lanes = check_count("lanes", lanes)
    if network is not None and not isinstance(network, Network):
        raise TypeError(f"network must be a Network or None, got {network!r}")
    rows = []
    for operation in schedule(manifest):
        # Every count is linear in the samples.
        one, two = operation.count(1), operation.count(2)
        slope = two.bytes - one.bytes
        rows.append(CostRow(operation, one.rounds, slope, one.bytes - slope))
    return Cost(tuple(rows), n, batch, lanes, network)


def compare_costs(
    manifests: Mapping[str, Manifest],
    n: int,
    network: Network | None = None,
    *,
    batch: int = 64,
) -> str:
    """Return proxies side by side as a table in Markdown.

    Rounds are those of a batch, bytes those of a sample, and the last columns are for
    all samples. The ratio is of bytes, to the first proxy.

    Raises:
        ValueError: If there is no proxy.
    """
    if not manifests:
        raise ValueError("manifests must hold at least one proxy, got none")
    header = ["proxy", "rounds", "bytes per sample", "ratio", "GB in all"]
    header += ["hours"] if network is not None else []
    costs = {k: cost(m, n, network, batch=batch) for k, m in manifests.items()}
    first = next(iter(costs.values()))
    lines = []
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
    return _markdown(header, lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    rows = [list(header), *map(list, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = [i > 0 and rows[-1][i][:1].isdigit() for i in range(len(widths))]
    text = []
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
