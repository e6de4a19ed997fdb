"""Two parties on loopback that stay up, to run functions of test modules in CrypTen.

Nothing here imports JAX, and neither should a test module whose functions run in the
parties, at its top: they import it, and start the faster.
"""

import atexit
import contextlib
import importlib.util
import multiprocessing
import os
import sys
import time
import traceback
from multiprocessing.connection import wait

import pytest
from ports import free_ports
from waits import PATIENCE

EMULATED, EXACT = 2e-3, 5e-2
"""Errors of the largest score, or of 1: CrypTen's logarithm is right to 2 %."""

needs_spu = pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)
"""Marks a test, or in `pytestmark` a module, of SPU's engines.

Its package is only looked for: its `__init__` does not import beside a new jaxlib.
"""

_running = {}


def both(function, *args, dealer=False):
    """Call `function(rank, *args)` in both parties at once; return both results.

    The parties start with the first call, which takes seconds, and stay for all test
    modules, until the tests end, `close`, or a failure. Arguments and results are
    pickled: no tensors.

    Args:
        function: A function of a module that the parties can import.
        args: For both parties.
        dealer: With CrypTen's trusted third party, as a third process. Without, party 0
            makes the correlated randomness, which is faster.

    Raises:
        RuntimeError: If a party fails, with its traceback.
        TimeoutError: If they take longer than 120 seconds.
    """
    if dealer not in _running:
        _running[dealer] = _Parties(dealer)
    try:
        return _running[dealer].call(function, args)
    except BaseException:
        _running.pop(dealer).kill()
        raise


@atexit.register
def close():
    """End the parties. The next call starts new ones."""
    while _running:
        _running.popitem()[1].close()


def error_bound(score, values):
    """Return how far secure scores may be from those in the clear.

    Args:
        score: Of the manifest.
        values: The scores in the clear.
    """
    exact = score.secure.family == "exact" and score.kind != "margin"
    return (EXACT if exact else EMULATED) * max(1, abs(values).max())


def secret(ring):
    """Return CrypTen's sharing of fixed-point numbers, given as whole ring elements."""
    import torch

    import mpc_bridge

    values = torch.tensor(
        [int(element) / 2**16 for element in ring], dtype=torch.double
    )
    return mpc_bridge.import_crypten().cryptensor(values, src=0)


class _Parties:
    def __init__(self, dealer):
        (port,) = free_ports(1)
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(3 if dealer else 2):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_party, args=(rank, port, dealer, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def call(self, function, args):
        deadline, answers = time.monotonic() + PATIENCE, {}
        for pipe in self.pipes[:2]:
            with contextlib.suppress(OSError):  # what it said is still to be read
                pipe.send(sys.path)
                pipe.send((function, args))
        # A dealer says something only when it fails.
        ranks = dict(
            zip(self.pipes, ["party 0", "party 1", "the dealer"], strict=False)
        )
        while len(answers) < 2:
            waiting = [pipe for pipe in self.pipes if ranks[pipe] not in answers]
            ready = wait(waiting, max(deadline - time.monotonic(), 0))
            if not ready:
                names = ", ".join(ranks[pipe] for pipe in waiting)
                raise TimeoutError(f"no answer after {PATIENCE:g} s from {names}")
            for pipe in ready:
                try:
                    failed, result = pipe.recv()
                except EOFError:
                    raise RuntimeError(f"{ranks[pipe]} ended without a word") from None
                if failed:
                    raise RuntimeError(f"{ranks[pipe]} failed:\n{result}")
                answers[ranks[pipe]] = result
        return answers["party 0"], answers["party 1"]

    def close(self):
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(timeout=PATIENCE)
        self.kill()

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        for pipe in self.pipes:
            pipe.close()


def _party(rank, port, dealer, pipe):
    try:
        _serve(rank, port, dealer, pipe)
    except (EOFError, KeyboardInterrupt):
        pass  # the tests ended
    except BaseException:
        pipe.send((True, traceback.format_exc()))


def _serve(rank, port, dealer, pipe):
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RENDEZVOUS": f"tcp://127.0.0.1:{port}",
        "DISTRIBUTED_BACKEND": "gloo",
    }
    import torch

    import mpc_bridge

    crypten = mpc_bridge.import_crypten()
    from crypten.config import cfg

    torch.set_num_threads(1)
    cfg.mpc.provider = "TTP" if dealer else "TFP"
    if rank == 2:
        crypten.mpc.provider.TTPServer()
        return
    crypten.init()
    try:
        while True:
            sys.path[:] = pipe.recv()
            function, args = pipe.recv()
            result = function(rank, *args)
            if dealer:  # a ledger watches it; the next one starts afresh
                client = crypten.mpc.provider.ttp_provider.TTPClient.get()
                vars(client).pop("ttp_request", None)
            pipe.send((False, result))
    except EOFError:
        crypten.uninit()
