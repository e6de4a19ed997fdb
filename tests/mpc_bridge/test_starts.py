"""Meetings under load, one after the other: none may hang.

JAXSEL_STARTS says how many of each engine; 10 unless it is set.
"""

import multiprocessing
import os
import statistics
import time

import links
import pytest
from ports import free_ports
from waits import PATIENCE

pytestmark = [pytest.mark.mpc, pytest.mark.multihost, pytest.mark.slow]
STARTS = int(os.environ.get("JAXSEL_STARTS", "10"))
LONGEST = PATIENCE
BURNING = 2  # processes that compute meanwhile


def burn():
    while True:
        sum(range(100_000))


@pytest.fixture
def load():
    context = multiprocessing.get_context("spawn")
    burning = [context.Process(target=burn, daemon=True) for _ in range(BURNING)]
    for process in burning:
        process.start()
    yield
    for process in burning:
        process.kill()
        process.join()


def start_all(rank, pipe):
    """Meet at each port that comes, exchange a message and part; report the seconds."""
    import torch

    from mpc_bridge.engines import Meeting, engine_of

    torch.set_num_threads(1)
    engine = engine_of("crypten")
    for port in iter(pipe.recv, None):
        there = f"tcp://127.0.0.1:{port}"
        meeting = Meeting(session="", rendezvous=there, wait=LONGEST, hello={"a": 1})
        start = time.monotonic()
        if rank == 2:
            engine.serve(rank, meeting)
        else:
            with engine.connect(rank, meeting) as connected:
                assert connected.exchange(b"%d" % rank) == [b"0", b"1"]
        pipe.send(time.monotonic() - start)


def report(name, seconds):
    print(  # noqa: T201
        f"{name}: {len(seconds)} times, median {statistics.median(seconds):.2f} s, "
        f"longest {max(seconds):.2f} s"
    )


def test_roles_of_crypten_meet_every_time(load):
    context = multiprocessing.get_context("spawn")
    roles, pipes = [], []
    for rank in range(3):
        ours, theirs = context.Pipe()
        roles.append(
            context.Process(target=start_all, args=(rank, theirs), daemon=True)
        )
        roles[-1].start()
        theirs.close()
        pipes.append(ours)
    seconds = []
    try:
        for i in range(STARTS):
            # Chosen now: gloo's own connections take ports of the same range.
            (port,) = free_ports(1)
            for pipe in pipes:
                pipe.send(port)
            for rank, pipe in enumerate(pipes):
                # The first one imports what it needs.
                assert pipe.poll(LONGEST), f"start {i}, rank {rank}"
                seconds.append(pipe.recv())
    finally:
        for role in roles:
            role.kill()
            role.join()
    report("crypten", seconds[3:])


@pytest.mark.skipif(not links.there(), reason="needs spu")
def test_parties_of_spu_meet_every_time(load, tmp_path):
    from mpc_bridge._certs import make_all

    folders = make_all(tmp_path / "certs", ["Trainer", "Clinic"], days=1).values()
    cases = [
        {"folder": str(one), "wait": PATIENCE, "timeout": PATIENCE} for one in folders
    ]
    seconds = []
    with links.pair() as pair:
        for i in range(STARTS):
            start = time.monotonic()
            results = pair.run(*cases)
            for one, found in enumerate(results):
                assert found.get("heard") == [f"hello {1 - one} 0"], (i, found)
            seconds.append(time.monotonic() - start)
    report("spu", seconds[1:])
