"""CrypTen as an engine: two parties, and a dealer of correlated randomness."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import io
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from jaxsel.proxy import Call, Operation, run_steps
from mpc_bridge.engines._face import (
    DATA_OWNER,
    MODEL_OWNER,
    THIRD_PARTY,
    Book,
    Count,
    Engine,
    Meeting,
    Program,
    Secret,
    Unseen,
)

from ._compat import import_crypten
from ._connect import connected, deal, explain
from ._layers import drive
from ._primitives import SECRET, cat, execute

crypten = import_crypten()

MAGIC = 0x6A61787365
_LONGEST = 1 << 20  # bytes of a message

# Words that an operation holds for each number of its operands, rounded up from what
# parties took with budgets of 256 MiB and 1 GiB: comparisons are circuits of bits.
_COMPARING = {"relu", "gelu", "abs", "max", "softmax", "log_softmax", "nonnegative"}
_COPIES = {True: 120, False: 16}


_NOTICE = """\
This is CrypTen 0.4.1 as it ships, for measurement only, between parties that trust each
other and the network:
- its masks come from a generator that is not cryptographic and has 32 bits of seed:
  whoever sees the messages, the other party too, can search for it and open all;
- its messages travel without TLS: nobody is authenticated, and anybody on the way can
  read and change them;
- parties are trusted to follow the protocol, and the third party to talk to neither;
- fixed-point truncation fails with a probability of about |x| / 2^64 each: a few scores
  of a large pool may be far off, and nothing notices."""


class CryptenEngine(Engine):
    """CrypTen as it ships, initialised in this process: secrets are its tensors."""

    exact_cut: ClassVar[bool] = False
    name: ClassVar[str] = "crypten"
    notice: ClassVar[str] = _NOTICE
    roles: ClassVar[tuple[int, ...]] = (MODEL_OWNER, DATA_OWNER, THIRD_PARTY)
    lanes: ClassVar[int] = 4
    fewest_bits: ClassVar[int] = Engine.most_bits  # its encoder has no others

    @classmethod
    @contextlib.contextmanager
    def connect(cls, rank: int, meeting: Meeting) -> Iterator[CryptenEngine]:
        with connected(rank, meeting):
            yield cls()

    @classmethod
    def serve(cls, rank: int, meeting: Meeting) -> None:
        deal(meeting)

    @classmethod
    def explain(cls, rank: int, error: BaseException) -> str | None:
        return explain(rank, error)

    @classmethod
    def versions(cls) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in ("crypten", "torch")}

    def __init__(self) -> None:
        from crypten.config import cfg

        cfg.communicator.verbose = True  # CrypTen counts only then
        self._communicator = crypten.communicator.get()
        self.rank = self._communicator.get_rank()
        self._dealer = Count()
        if crypten.mpc.ttp_required():
            self._watch_dealer()

    def exchange(self, message: bytes) -> list[bytes]:
        """Do as `Engine.exchange`: a header of numbers, then the bytes as numbers."""
        if len(message) > _LONGEST:
            raise ValueError(
                f"message must have at most {_LONGEST} bytes, got {len(message)}"
            )
        header = torch.tensor([MAGIC, len(message)], dtype=torch.int64)
        headers = [pair.tolist() for pair in self._communicator.all_gather(header)]
        for magic, length in headers:
            if magic != MAGIC or not 0 <= length <= _LONGEST:
                raise ValueError("what arrived is no message of jaxsel's secure run")
        longest = max(length for _, length in headers)
        padded = torch.zeros(longest, dtype=torch.int64)
        padded[: len(message)] = torch.tensor(list(message), dtype=torch.int64)
        gathered = self._communicator.all_gather(padded)
        try:
            return [
                bytes(buffer[:length].tolist())
                for buffer, (_, length) in zip(gathered, headers, strict=True)
            ]
        except ValueError:
            raise ValueError("what arrived is no text") from None

    def start(self, fraction_bits: int) -> None:
        if fraction_bits != self.fraction_bits:
            raise ValueError(
                f"fraction_bits must be {self.fraction_bits}, as CrypTen's encoder."
                f"precision_bits, got {fraction_bits}"
            )

    @property
    def fraction_bits(self) -> int:
        from crypten.config import cfg

        return cfg.encoder.precision_bits

    def terms(self) -> dict[str, Any]:
        from crypten.config import cfg

        return {
            "use": "measurement only",
            "provider": cfg.mpc.provider,
            "fraction bits of CrypTen": self.fraction_bits,
        }

    def share(self, owner: int, *arrays: np.ndarray | Unseen) -> tuple[Secret, ...]:
        scale, shared = 2.0**self.fraction_bits, []
        for array in arrays:
            if self.rank == owner:
                # CrypTen cuts digits off; rounded to its grid first, none is lost.
                clear = torch.tensor(np.round(np.asarray(array) * scale) / scale)
            else:  # what stands here is not looked at: only its size is
                clear = torch.zeros(array.shape)
            shared.append(crypten.cryptensor(clear, src=owner))
        return tuple(shared)

    def run(
        self, program: Program, lanes: Sequence[Sequence[Any]], book: Book
    ) -> list[Secret]:
        passes = [program.steps(cat, *map(_operand, lane)) for lane in lanes]
        operations = program.schedule()
        if operations is None:
            with book(program.place, program.name):
                return [run_steps(steps, _execute) for steps in passes]

        def booked(operation: Operation, operands: Sequence[Any]) -> Any:
            with book(operation.place, operation.name):
                return execute(SECRET, operation, operands)

        return drive(operations, passes, booked, together=True)

    def reveal(self, secret: Secret) -> np.ndarray:
        # CrypTen's own decoding is one too low just above a negative whole number.
        return (secret.reveal().double() / secret.encoder.scale).numpy()

    def dump(self, secret: Secret) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, secret.share.numpy(), allow_pickle=False)
        return buffer.getvalue()

    def load(self, data: bytes) -> Secret:
        share = np.load(io.BytesIO(data), allow_pickle=False)
        return crypten.mpc.MPCTensor.from_shares(torch.from_numpy(share))

    def join(self, secrets: Sequence[Secret]) -> Secret:
        return crypten.cat(list(secrets))

    def shape(self, secret: Secret) -> tuple[int, ...]:
        mpc = crypten.mpc
        if not isinstance(secret, mpc.MPCTensor) or secret.ptype != mpc.arithmetic:
            raise TypeError(
                f"scores must be an MPCTensor of arithmetic shares, got {type(secret)}"
            )
        return tuple(secret.size())

    def count(self) -> Count:
        return self._all() - self._dealer

    @classmethod
    def copies(cls, operation: Operation) -> int:
        # Batches that run in step each hold what their next operation takes.
        return _COPIES[operation.kind in _COMPARING] + 3 * (cls.lanes - 1)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with crypten.no_grad():
            yield

    def _all(self) -> Count:
        size = int(self._communicator.comm_bytes)
        # Parties open to each other: half of it is sent.
        return Count(self._communicator.comm_rounds, size, sent=size // 2)

    def _watch_dealer(self) -> None:
        """Tell the dealer's messages from the other party's: CrypTen adds them up."""
        from crypten.mpc.provider.ttp_provider import TTPClient

        client = TTPClient.get()
        ask = client.ttp_request

        @functools.wraps(ask)
        def counted(*args: Any, **kwargs: Any) -> Any:
            before = self._all()
            result = ask(*args, **kwargs)
            asked = self._all() - before
            # Off the parties' own, and on the dealer's.
            self._dealer -= Count(
                -asked.rounds,
                -asked.bytes,
                asked.rounds,
                asked.bytes,
                -asked.sent,
            )
            return result

        client.ttp_request = counted


def _operand(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _execute(call: Call) -> Any:
    if call.kind == "highest":
        raise ValueError(
            "leak='set' needs an engine that can shuffle in secret: spu-aby3 or "
            "spu-cheetah; CrypTen has 'rank' only"
        )
    if call.kind not in SECRET:
        raise ValueError(f"kind must be one of {sorted(SECRET)}, got {call.kind!r}")
    return SECRET[call.kind](*call.operands)
