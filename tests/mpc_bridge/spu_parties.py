"""Parties of SPU in one process: threads, and a link in memory. Nothing is counted."""

import atexit
import functools
import shutil
import tempfile
import threading

from mpc_bridge.engines.spu import (
    Aby3Engine,
    CheetahEngine,
    WideAby3Engine,
    import_spu,
)
from mpc_bridge.engines.spu._log import Traffic

ENGINES = {"spu-cheetah": CheetahEngine, "spu-aby3": Aby3Engine}
WIDE = "spu-aby3-128"
KINDS = ENGINES | {WIDE: WideAby3Engine}
BITS = 18

_sessions = [0]


class _Unread(Traffic):
    """All parties write one log: whose line is whose can't be told."""

    def read(self, *, at_once=False):
        pass


@functools.cache
def _traffic():
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return _Unread(folder)


def play(engine, function, *args, bits=None):
    """Call `function(engine, *args)` for each party at once; return all results.

    Args:
        engine: Name of the engine.
        function: Gets the engine of a party, started.
        args: For all parties.
        bits: Fraction bits; as many as the engine is best given if None.
    """
    kind = KINDS[engine]
    spu, traffic = import_spu(), _traffic()
    _sessions[0] += 1
    found, errors = [None] * kind.parties, []

    def party(rank):
        try:
            desc = spu.link.Desc()
            desc.id = f"session {_sessions[0]}"
            desc.recv_timeout_ms = 120_000
            for i in range(kind.parties):
                desc.add_party(f"{i}", f"memory {_sessions[0]} {i}")
            made = kind(spu.link.create_mem(desc, rank), traffic)
            made.start(kind.most_bits if bits is None else bits)
            found[rank] = function(made, *args)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=party, args=(rank,)) for rank in range(kind.parties)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def score(engine, proxy, x, mask, **options):
    """Return the opened scores of samples, in a party's place."""
    from mpc_bridge import Ledger, score_pool
    from mpc_bridge._scoring import share_proxy

    ledger = Ledger(engine, allow=("scores", "outside"))
    arrays = proxy.arrays() if engine.rank == 0 else None
    shared = share_proxy(proxy.manifest, ledger=ledger, arrays=arrays)
    read = None
    if engine.rank == 1:
        read = lambda rows: (x[rows], None if mask is None else mask[rows])
    return ledger.open("scores", score_pool(shared, len(x), read, **options))
