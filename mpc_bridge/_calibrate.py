"""How long this machine computes: an engine's programs, small, run here and measured.

All parties run as processes on loopback, over the engine's own transport, on zeros. For
each phase the batch grows fourfold until its share of the time is spent; what larger
batches take follows from the last two. The parties share this machine's cores, so that
two machines are rather faster.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel.proxy import Manifest, operand_shapes

from ._ending import watch_for_end
from ._handshake import SessionError
from ._interpreter import environment
from ._private import temporary_folder
from .engines import DATA_OWNER, MODEL_OWNER, Engine, Meeting, Unseen, engine_of

LIMIT = 60.0
"""Seconds that a calibration may take, the parties' start not counted."""

_FEWEST = 64  # comparisons of a pass
_SWITCHES = 512, 32768  # of a layer: the least tried, and the most
_GROWTH = 4
_TIMES = 3


@dataclasses.dataclass(frozen=True)
class Line:
    """Seconds of a program as a piecewise linear function of its batch size.

    Attributes:
        sizes: Batch sizes, ascending.
        seconds: Measured at each size.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def at(self, size: float) -> float:
        """Return how long a size takes: between two that were tried, or beyond."""
        if len(self.sizes) == 1 or size <= self.sizes[0]:
            return self.seconds[0] * max(1.0, size / self.sizes[0])
        after = next(
            (i for i, measured in enumerate(self.sizes) if measured >= size),
            len(self.sizes) - 1,
        )
        x0, x1 = self.sizes[after - 1 : after + 1]
        y0, y1 = self.seconds[after - 1 : after + 1]
        return y0 + max(0.0, y1 - y0) * (size - x0) / (x1 - x0)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Measured seconds of a run's parts on this machine.

    Attributes:
        engine: The engine.
        phases: Scoring a batch of samples, by phase.
        compare: A pass of comparisons.
        started: Seconds of making keys and of compiling, once a session.
        switch: A layer of switches, of engines whose scores go through such.
    """

    engine: str
    phases: tuple[Line, ...]
    compare: Line
    started: float
    switch: Line | None = None

    def scoring(self, phase: int, n: int, batch: int) -> float:
        """Return the seconds of scoring n samples by batches."""
        full, remainder = divmod(n, batch)
        line = self.phases[phase]
        return full * line.at(batch) + (line.at(remainder) if remainder else 0.0)

    def choosing(self, passes: float, comparisons: float) -> float:
        """Return the seconds of passes of comparisons."""
        return passes * self.compare.at(comparisons / passes) if passes else 0.0

    def shuffling(self, layers: Sequence[int]) -> float:
        """Return the seconds of a network of switches for each of two parties."""
        if self.switch is None:
            return 0.0
        return 2 * sum(self.switch.at(size) for size in layers)


def calibrate(
    engine: str,
    manifests: Sequence[Manifest],
    batches: Sequence[int],
    *,
    limit: float = LIMIT,
) -> Calibration:
    """Measure an engine's programs on this machine.

    Args:
        engine: Its name; one of SPU's.
        manifests: Of the phases.
        batches: The largest batch to try for each.
        limit: Seconds, for all of them.

    Raises:
        SessionError: If the parties can't run here: with what one of them said.
    """
    from ._certs import make_all
    from ._ports import reserved_addresses

    kind = engine_of(engine)
    names = [f"party-{rank}" for rank in range(kind.parties)]
    with (
        temporary_folder("calibrate") as folder,
        reserved_addresses(len(names)) as addresses,
    ):
        folders = make_all(folder / "certs", names, days=1)
        job = {
            "engine": engine,
            "names": names,
            "addresses": addresses,
            "manifests": [manifest.to_json() for manifest in manifests],
            "batches": list(batches),
            "limit": limit,
            "parent": os.getpid(),
        }
        output = folder / "found.json"
        # Not pipes: one that nobody reads yet would stop its party once it is full.
        logs = [folder / f"{name}.log" for name in names]
        parties: list[subprocess.Popen[str]] = []
        ends = time.monotonic() + limit * 10
        try:
            for rank, (name, log) in enumerate(zip(names, logs, strict=True)):
                with log.open("w") as errors:
                    party = subprocess.Popen(
                        [sys.executable, "-P", "-m", f"{__package__}._calibrate"],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL,
                        stderr=errors,
                        env=environment(),
                        text=True,
                    )
                parties.append(party)
                settings = {"rank": rank, "certificates": str(folders[name])}
                assert party.stdin is not None
                with party.stdin as stdin:
                    stdin.write(json.dumps(job | settings | {"output": str(output)}))
            for party in parties:
                party.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SessionError(
                f"the calibration took more than {limit * 10:g} s"
            ) from None
        finally:
            for party in parties:
                if party.poll() is None:
                    party.kill()
                party.wait()
        outputs = [log.read_text(errors="replace") for log in logs]
        if not output.exists():
            last = next(
                (text.strip().splitlines()[-1] for text in outputs if text.strip()),
                "nothing was said",
            )
            raise SessionError(f"the calibration ended early: {last}")
        measured = json.loads(output.read_text(encoding="utf-8"))
    lines = [Line(tuple(sizes), tuple(seconds)) for sizes, seconds in measured["lines"]]
    several = len(manifests)
    compare, switch = lines[several], (*lines[several + 1 :], None)[0]
    return Calibration(
        engine, tuple(lines[:several]), compare, measured["started"], switch
    )


def _play(job: dict[str, Any]) -> None:
    """Play one party of a calibration."""
    kind, rank = engine_of(job["engine"]), job["rank"]
    meeting = Meeting(
        session="calibration",
        addresses=tuple(job["addresses"]),
        names=tuple(job["names"]),
        certificates=Path(job["certificates"]),
        timeout=job["limit"] * 5,
        wait=60.0,
    )
    with kind.connect(rank, meeting) as engine:
        engine.start(kind.most_bits)
        share = job["limit"] / (len(job["manifests"]) + 2)
        lines: list[tuple[list[int], list[float]]] = []
        started = 0.0
        for text, most in zip(job["manifests"], job["batches"], strict=True):
            run = _forward(engine, Manifest.from_json(text))
            sizes, seconds, first = _grow(engine, run, 1, most, share)
            started += first
            lines.append((sizes, seconds))
        largest = max(_FEWEST, *job["batches"])
        sizes, seconds, first = _grow(engine, _above(engine), _FEWEST, largest, share)
        lines.append((sizes, seconds))
        if kind.switches:
            run = _switched(engine)
            lines.append(_grow(engine, run, *_SWITCHES, share)[:2])
        if rank == 0:
            measured = {"lines": lines, "started": started + first}
            Path(job["output"]).write_text(json.dumps(measured), encoding="utf-8")
        engine.exchange(b"written")


def _grow(
    engine: Engine,
    made: Callable[[int], Callable[[], None]],
    least: int,
    most: int,
    share: float,
) -> tuple[list[int], list[float], float]:
    """Run a program on more and more, until the time is spent.

    Returns:
        The sizes, the seconds of each, and how much longer the first run of all took.
    """
    sizes: list[int] = []
    seconds: list[float] = []
    extra, begun, size, times = 0.0, 0.0, min(least, most), _TIMES
    while True:
        run = made(size)
        first = _timed(engine, run)  # it compiles
        begun = begun or time.perf_counter()
        median = statistics.median(_timed(engine, run) for _ in range(times))
        extra = extra or max(0.0, first - median)
        sizes.append(size)
        seconds.append(median)
        remaining = share - (time.perf_counter() - begun)
        larger = min(most, size * _GROWTH)
        predicted = Line(tuple(sizes), tuple(seconds)).at(larger)
        fits = 0 if size >= most else min(_TIMES, int(remaining / predicted) - 1)
        times = int(engine.exchange(b"%d" % max(0, fits))[0])
        if not times:
            return sizes, seconds, extra
        size = larger


def _timed(engine: Engine, run: Callable[[], None]) -> float:
    engine.exchange(b"now")
    start = time.perf_counter()
    run()
    engine.exchange(b"done")
    return time.perf_counter() - start


def _shared(engine: Engine, owner: int, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    owns = engine.rank == owner
    arrays = [np.zeros(shape) if owns else Unseen(tuple(shape)) for shape in shapes]
    return list(engine.share(owner, *arrays))


def _forward(engine: Engine, manifest: Manifest) -> Callable[[int], Callable[[], None]]:
    from ._inputs import shapes_of
    from ._ledger import Ledger
    from ._programs import Forward

    ledger, program = (
        Ledger(engine),
        Forward(manifest, engine.spare_bits, engine.watches),
    )
    weights = _shared(engine, MODEL_OWNER, [*operand_shapes(manifest).values()])

    def runner(size: int) -> Callable[[], None]:
        shapes = [unseen.shape for unseen in shapes_of(manifest, size)]

        def run() -> None:
            inputs = _shared(engine, DATA_OWNER, shapes)
            ledger.run(program, *weights, *inputs)

        return run

    return runner


def _above(engine: Engine) -> Callable[[int], Callable[[], None]]:
    from ._ledger import Ledger
    from ._programs import Above, Sum

    ledger = Ledger(engine, allow=("pivot",))

    def runner(size: int) -> Callable[[], None]:
        # Scores are nobody's own.
        parts = [_shared(engine, owner, [(size + 1,)])[0] for owner in (0, 1)]
        scores = ledger.run(Sum(), *parts)
        rows, lead = np.arange(size), np.zeros(size)

        def run() -> None:
            above = ledger.run(Above(), scores, rows, np.array([size]), lead)
            ledger.open("pivot", above)

        return run

    return runner


def _switched(engine: Engine) -> Callable[[int], Callable[[], None]]:
    from ._ledger import Ledger
    from ._network import Layer, Network
    from ._programs import Sum, Switched

    ledger = Ledger(engine)

    def runner(size: int) -> Callable[[], None]:
        layer = Layer(1, 2 * size, ((0, size),))
        net = Network(2 * size, 2 * size, (layer,))
        parts = [_shared(engine, owner, [(2 * size,)])[0] for owner in (0, 1)]
        keys = ledger.run(Sum(), *parts)
        owns = engine.rank == MODEL_OWNER
        bits = np.zeros(size, bool) if owns else Unseen((size,), bits=True)
        (stand,) = engine.share(MODEL_OWNER, bits)
        return lambda: ledger.run(Switched(net), keys, stand) and None

    return runner


if __name__ == "__main__":
    code = 0
    try:
        job = json.loads(sys.stdin.read())
        watch_for_end(f"party {job['rank']}", parent=job["parent"])
        _play(job)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
        code = 1
    sys.stderr.flush()
    os._exit(code)  # threads of a link must not keep the process
