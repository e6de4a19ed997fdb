"""Two parties on loopback for `bench_mpc`: their jobs, and the measured costs.

The correlated randomness is party 0's (CrypTen's trusted first party): the dealer of a
real run is a third process. Rounds and bytes between the two parties are the same.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import gc
import multiprocessing
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from mpc_bridge._ports import reserved_addresses

TIMEOUT = 1800  # seconds, for a start and a call
_STATUS = Path("/proc/self/status")


@dataclasses.dataclass(frozen=True)
class Score:
    """Score samples, and choose the highest if `keep` is given."""

    folder: str
    n: int
    batch: int
    keep: int | None = None


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare n pairs of numbers in one batch."""

    n: int


@dataclasses.dataclass
class Ran:
    """Cost and result of a job.

    Attributes:
        counts: Rounds, and bytes sent plus received, of each part; both parties count
            the same.
        wall_s: Of the slower party.
        cpu_s: Of both parties, all threads, the making of the randomness included.
        peak_bytes: Of the party that took more, above what it used before.
        result: Opened scores `[n]`, or outcomes of comparisons.
        rows: The chosen rows.
        passes: Of the choice.
    """

    counts: dict[str, tuple[int, int]]
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int | None = None
    result: Any = None
    rows: Any = None
    passes: int = 0


def run(job: Score | Compare) -> Ran:
    """Run a job in two processes, which start with the first one and stay.

    Raises:
        RuntimeError: If a party fails, or the two differ in a count or result.
        TimeoutError: If they take longer than `TIMEOUT`.
    """
    if not _running:
        _running.append(_Parties())
    try:
        first, second = _running[0].call(job)
    except BaseException:
        _running.pop().kill()
        raise
    pairs = ((first.result, second.result), (first.rows, second.rows))
    same = all(np.array_equal(*pair) for pair in pairs)
    if first.counts != second.counts or not same:
        raise RuntimeError(f"the parties differ: {first.counts} and {second.counts}")
    peaks = [ran.peak_bytes for ran in (first, second) if ran.peak_bytes is not None]
    return dataclasses.replace(
        first,
        wall_s=max(first.wall_s, second.wall_s),
        cpu_s=first.cpu_s + second.cpu_s,
        peak_bytes=max(peaks, default=None),
    )


@atexit.register
def close() -> None:
    """End the parties. The next job starts new ones."""
    while _running:
        _running.pop().kill()


class _Parties:
    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        (address,) = self._stack.enter_context(reserved_addresses(1))
        port = int(address.rpartition(":")[2])
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(2):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_party, args=(rank, port, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def call(self, job: Score | Compare) -> tuple[Ran, Ran]:
        deadline, answers = time.monotonic() + TIMEOUT, {}
        for pipe in self.pipes:
            with contextlib.suppress(OSError):  # what it said is still to be read
                pipe.send(job)
        while len(answers) < 2:
            waiting = [i for i in range(2) if i not in answers]
            pipes = {self.pipes[i]: i for i in waiting}
            ready = wait(list(pipes), max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"no answer after {TIMEOUT} s from {waiting}")
            for pipe in ready:
                rank = pipes[pipe]  # pyright: ignore[reportArgumentType]
                try:
                    answer = self.pipes[rank].recv()
                except EOFError:
                    raise RuntimeError(f"party {rank} ended without a word") from None
                if isinstance(answer, str):
                    raise RuntimeError(f"party {rank} failed:\n{answer}")
                answers[rank] = answer
        return answers[0], answers[1]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.pipes:
            pipe.close()
        self._stack.close()


_running: list[_Parties] = []


def _party(rank: int, port: int, pipe: Any) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RENDEZVOUS": f"tcp://127.0.0.1:{port}",
        "DISTRIBUTED_BACKEND": "gloo",
    }
    try:
        import torch

        import mpc_bridge

        crypten = mpc_bridge.import_crypten()
        from crypten.config import cfg

        torch.set_num_threads(1)
        cfg.mpc.provider = "TFP"
        crypten.init()
        while True:
            job = pipe.recv()
            comparing = isinstance(job, Compare)
            pipe.send(_compare(job) if comparing else _score(rank, job))
    except (EOFError, KeyboardInterrupt):
        pass  # the benchmark ended
    except BaseException:
        pipe.send(traceback.format_exc())


def _compare(job: Compare) -> Ran:
    import torch

    import mpc_bridge

    crypten = mpc_bridge.import_crypten()
    ledger = mpc_bridge.Ledger()
    pairs = [crypten.cryptensor(torch.from_numpy(v), src=0) for v in pairs_of(job.n)]
    ran = Ran({})
    with _measured(ran), ledger.step("", ""):
        above = pairs[0] > pairs[1]
    ran.counts["comparison"] = _counted(ledger, None)
    ran.result = above.get_plain_text().numpy()
    return ran


def pairs_of(n: int) -> np.ndarray:
    """Return n pairs of numbers, `[2, n]`, far enough apart for fixed point."""
    pairs = np.random.default_rng(0).normal(size=(2, n))
    near = np.abs(pairs[0] - pairs[1]) < 1e-3
    pairs[1, near] += 1e-2
    return pairs


def _score(rank: int, job: Score) -> Ran:
    import mpc_bridge

    ledger = mpc_bridge.Ledger()
    manifest = mpc_bridge.read_manifest(job.folder)
    module = mpc_bridge.to_crypten(job.folder if rank == 0 else manifest, ledger=ledger)
    read, ran = None, Ran({})
    if rank == 1:
        x, mask = np.load(f"{job.folder}/x.npy"), None
        if manifest.inputs.masked:
            mask = np.load(f"{job.folder}/mask.npy")
        read = lambda rows: (x[rows], None if mask is None else mask[rows])
    ledger.phase = "forward"
    with _measured(ran):
        scores = mpc_bridge.score_pool(
            module, job.n, read, batch_size=job.batch, lanes=1
        )
        if job.keep is not None:
            ledger.phase = "choice"
            chosen = mpc_bridge.choose(scores, job.keep, seed=0, ledger=ledger)
            ran.rows, ran.passes = chosen.rows, chosen.passes
    ran.counts = {part: _counted(ledger, part) for part in ("forward", "choice")}
    # Not counted: only opened to be held against those in the clear. CrypTen's decoder
    # takes 1 off some negative numbers, of -13 about one in 5,000.
    ran.result = scores.reveal().numpy() / scores.encoder.scale
    return ran


def _counted(ledger: Any, phase: str | None) -> tuple[int, int]:
    total = ledger.total(phase)
    return total.rounds, total.bytes


@contextlib.contextmanager
def _measured(ran: Ran) -> Iterator[None]:
    """Measure time and peak memory of the block, after a barrier of both parties."""
    import mpc_bridge

    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim:
            trim(0)
    before = _memory("VmRSS")
    with contextlib.suppress(OSError):  # forget the peak so far
        Path("/proc/self/clear_refs").write_text("5")
    mpc_bridge.import_crypten().communicator.get().barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    ran.cpu_s = time.process_time() - cpu
    ran.wall_s = time.perf_counter() - wall
    peak = _memory("VmHWM")
    ran.peak_bytes = None if peak is None or before is None else peak - before


def _memory(field: str) -> int | None:
    try:
        match = re.search(rf"^{field}:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def folder_for(proxy: Any, x: np.ndarray, mask: np.ndarray | None) -> str:
    """Return a new folder with a proxy and samples, for both parties to read."""
    import mpc_bridge

    folder = tempfile.mkdtemp(prefix="jaxsel-mpc-")
    mpc_bridge.export(proxy, folder)
    np.save(f"{folder}/x.npy", x)
    if mask is not None:
        np.save(f"{folder}/mask.npy", mask)
    return folder
