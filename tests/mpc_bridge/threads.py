"""Parties as threads, and an engine in the clear: sessions without processes.

An exchange of these parties is what one of an engine is, and nothing is hidden: what is
shared goes to everybody as it is.
"""

import contextlib
import dataclasses
import queue
import threading

import numpy as np
from waits import PATIENCE

from mpc_bridge.engines import Count, Engine

GONE = object()


class Room:
    """Where parties meet: each message goes to all of them, in order."""

    def __init__(self, parties):
        self.parties = parties
        self.lines = {
            (one, other): queue.Queue()
            for one in range(parties)
            for other in range(parties)
        }

    def send(self, rank, message):
        for other in range(self.parties):
            self.lines[rank, other].put(message)

    def exchange(self, rank, message):
        """Return the messages of all parties by rank."""
        self.send(rank, message)
        found = [
            self.lines[other, rank].get(timeout=PATIENCE)
            for other in range(self.parties)
        ]
        for other, each in enumerate(found):
            if each is GONE:
                raise RuntimeError(f"party {other} is gone")
        return found


@dataclasses.dataclass
class Wire:
    """A party's end, with what a handshake needs of an engine."""

    room: Room
    rank: int

    def exchange(self, message):
        assert isinstance(message, bytes)
        return self.room.exchange(self.rank, message)


def together(parties, function):
    """Call `function(rank, room)` in a thread for each party; return their results.

    What a party raises is its result, and the others hear that it is gone.
    """
    room, found = Room(parties), [None] * parties

    def call(rank):
        try:
            found[rank] = function(rank, room)
        except BaseException as error:  # pytest's own are none of Exception
            found[rank] = error
            room.send(rank, GONE)

    threads = [
        threading.Thread(target=call, args=(i,), name=f"party {i}")
        for i in range(parties)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class ClearEngine(Engine):
    """An engine whose secrets are tensors in double precision that all parties have.

    Attributes:
        log: What was done, in order: "exchange", "start", "share", "run", "reveal".
    """

    name = "clear"
    notice = "It hides nothing."
    lanes = 2

    def __init__(self, rank, room):
        self.rank, self.room, self.log = rank, room, []
        self._count, self._bits = Count(), 16

    @classmethod
    @contextlib.contextmanager
    def connect(cls, rank, meeting):
        yield cls(rank, meeting)

    @classmethod
    def explain(cls, rank, error):
        return None

    @classmethod
    def versions(cls):
        return {"clear": "1"}

    def _send(self, message, size):
        self._count -= Count(rounds=-1, bytes=-size)
        return self.room.exchange(self.rank, message)

    def exchange(self, message):
        self.log.append(("exchange", message))
        return self._send(message, len(message))

    def send(self, rank, message):
        self.room.lines[self.rank, rank].put(message)

    def receive(self, rank):
        return self.room.lines[rank, self.rank].get(timeout=PATIENCE)

    def start(self, fraction_bits):
        self.log.append(("start", fraction_bits))
        self._bits = fraction_bits

    def share(self, owner, *arrays):
        import torch

        self.log.append(("share", owner))
        size = 8 * sum(int(np.prod(array.shape)) for array in arrays)
        sent = self._send(arrays if self.rank == owner else None, size)
        return tuple(torch.tensor(array, dtype=torch.double) for array in sent[owner])

    def run(self, program, lanes, book):
        import torch

        from jaxsel.proxy import run_steps
        from mpc_bridge.engines.crypten._primitives import cat

        found = []
        for lane in lanes:
            operands = [
                torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in lane
            ]
            with book(program.place, program.name):
                self.log.append(("run", program.name))
                result = run_steps(program.steps(cat, *operands), _execute)
            if result.is_floating_point():  # numbers are fixed-point ones
                result = torch.round(result * 2.0**self._bits) / 2.0**self._bits
            found.append(result)
        return found

    def reveal(self, secret):
        self.log.append(("reveal", tuple(secret.shape)))
        self._send(None, 8 * secret.numel())
        return secret.numpy()

    def dump(self, secret):
        return secret.numpy().tobytes()

    def load(self, data):
        import torch

        return torch.frombuffer(bytearray(data), dtype=torch.double)

    def join(self, secrets):
        import torch

        return torch.cat(list(secrets))

    def shape(self, secret):
        return tuple(secret.shape)

    def count(self):
        return self._count

    @classmethod
    def copies(cls, operation):
        return 1

    @classmethod
    def batch_for(cls, operations, memory):
        return max(1, memory // 1024)

    @property
    def fraction_bits(self):
        return self._bits

    def terms(self):
        return {"kind": "clear"}


def _execute(call):
    from mpc_bridge.engines.crypten._primitives import CLEAR, powers

    if call.kind == "powers":
        return powers(call.operands[0], call.degree)
    if call.kind == "highest":
        return call.operands[0].topk(call.degree).values
    if call.kind == "all":
        return call.operands[0].all(-1)
    if call.kind == "select":
        bits, numbers = call.operands
        return numbers.where(bits, numbers.new_zeros(()))
    return CLEAR[call.kind](*call.operands)
