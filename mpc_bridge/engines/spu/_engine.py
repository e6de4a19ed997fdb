"""SPU as an engine: two parties alone, or two and a helper."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import jax
import numpy as np

from jaxsel.proxy import MODELS, Operation, Steps, check_engine
from mpc_bridge._framing import pack, unpack
from mpc_bridge._handshake import ROLES, SessionError
from mpc_bridge._private import temporary_folder
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

from ._compat import import_spu
from ._connect import connected, explain
from ._log import Traffic
from ._lower import SHORTEST, compile_program, described, padded
from ._opening import Openings
from ._shares import bit_share, hidden, packed, unpacked
from ._watch import Watch

# Words that an operation holds for each number of its operands, rounded up from what
# parties took. Comparisons are circuits of bits, and functions are made of them.
_HELD: tuple[tuple[set[str], dict[str, int]], ...] = (
    ({"matmul", "share", "zero"}, {"ABY3": 16, "CHEETAH": 16}),
    ({"scale", "mul", "square", "powers"}, {"ABY3": 24, "CHEETAH": 64}),
    ({"nonnegative", "relu", "abs", "max"}, {"ABY3": 56, "CHEETAH": 400}),
)
_HELD_BY_FUNCTIONS = {"ABY3": 80, "CHEETAH": 700}
_DRAWN = 32  # random bytes of each party that tell sessions apart


class SpuSecret:
    """An array in SPU's memory: this party's shares of it.

    Attributes:
        name: In the runtime.
        shape: Of the array.
        dtype: Of its numbers in programs.
    """

    def __init__(
        self, engine: SpuEngine, name: str, shape: tuple[int, ...], dtype: Any
    ):
        self.name, self.shape, self.dtype = name, shape, np.dtype(dtype)
        weakref.finalize(self, engine.forget, name).atexit = False


@dataclasses.dataclass(frozen=True)
class _Join(Program):
    """Several scores one after the other."""

    place: ClassVar[str] = "scores"
    name: ClassVar[str] = "join"

    def steps(self, cat: Callable[[Sequence[Any]], Any], *operands: Any) -> Steps:
        return cat(operands)
        yield


@dataclasses.dataclass(frozen=True)
class _Sum(Program):
    """A private array as shares: its sum with a zero that is shared."""

    place: ClassVar[str] = "inputs"
    name: ClassVar[str] = "share"

    def steps(self, cat: Callable[[Sequence[Any]], Any], *operands: Any) -> Steps:
        return operands[0] + operands[1]
        yield


class SpuEngine(Engine):
    """One party of an SPU protocol on a link.

    Attributes:
        protocol: As SPU names it.
        private: Whose arrays never leave them, not even as shares: a product with one
            takes its owner's number as it is.
        spread: Whose arrays the protocol makes shares of: it sends a third of what
            they take as messages. The others', which are shared once, are sent.
    """

    most_bits: ClassVar[int] = 18
    spare_bits: ClassVar[int] = 4
    watches: ClassVar[bool] = True
    own_process: ClassVar[bool] = True
    protocol: ClassVar[str]
    private: ClassVar[tuple[int, ...]] = (MODEL_OWNER, DATA_OWNER)
    spread: ClassVar[tuple[int, ...]] = ()

    def __init__(self, link: Any, traffic: Traffic, watch: Watch | None = None):
        self._link, self._traffic, self._watch = link, traffic, watch
        self.rank = link.rank
        self._config: Any = None
        self._runtime: Any = None
        self._others: list[Any] = []  # runtimes, on links of their own
        self._zero: SpuSecret | None = None
        self._fraction_bits = 0
        self._names = (f"v{i}" for i in itertools.count())
        self._compiled: dict[Any, bytes] = {}

    @classmethod
    @contextlib.contextmanager
    def connect(cls, rank: int, meeting: Meeting) -> Iterator[SpuEngine]:
        with temporary_folder("spu") as folder:
            traffic = Traffic(folder)
            with connected(rank, cls.parties, meeting) as (link, watch):
                yield cls(link, traffic, watch)

    @classmethod
    def explain(cls, rank: int, error: BaseException) -> str | None:
        return explain(error)

    @classmethod
    def versions(cls) -> dict[str, str]:
        return {"spu": import_spu()._get_version()}

    def exchange(self, message: bytes) -> list[bytes]:
        return self._gather(message, range(self._link.world_size))

    def send(self, rank: int, message: bytes) -> None:
        self._send(rank, message)

    def receive(self, rank: int) -> bytes:
        return self._receive(rank)

    def start(self, fraction_bits: int) -> None:
        spu = import_spu()
        config = spu.RuntimeConfig()
        config.protocol = getattr(spu.ProtocolKind, self.protocol)
        config.field = getattr(spu.FieldType, f"FM{self.ring}")
        config.fxp_fraction_bits = fraction_bits
        # Arrays of one party stay there: what nobody else has need not be shared.
        config.experimental_enable_colocated_optimization = True
        config.fxp_exp_mode = (
            spu.RuntimeConfig.EXP_PADE
        )  # 15 times nearer than Taylor's
        config.enable_pphlo_profile = True  # the engine counts its messages only then
        self._config, self._fraction_bits = config, fraction_bits
        self._runtime = spu.RuntimeWrapper(self._link, config)
        self._io = spu.IoWrapper(self._link.world_size, config)
        drawn = self.exchange(secrets.token_bytes(_DRAWN))
        self._openings = Openings(self.rank, drawn, self._send, self._receive)

    @property
    def fraction_bits(self) -> int:
        return self._fraction_bits

    def terms(self) -> dict[str, Any]:
        return {"protocol of SPU": self.protocol, "ring": self.ring}

    def share(self, owner: int, *arrays: np.ndarray | Unseen) -> tuple[Secret, ...]:
        return tuple(self._share(owner, array) for array in arrays)

    def _share(self, owner: int, array: np.ndarray | Unseen) -> SpuSecret:
        secret, owns = import_spu().Visibility.VIS_SECRET, self.rank == owner
        if owner in (*self.private, *self.spread):
            # What a party does not have stands as zeros, which no message fills.
            values = np.asarray(array, np.float64) if owns else np.zeros(array.shape)
            values = np.ascontiguousarray(values)
            share = self._io.MakeShares(values, secret, owner)[self.rank]
        elif owns:
            values = np.ascontiguousarray(array, np.float64)
            shares = self._io.MakeShares(values, secret, -1)
            for rank, part in enumerate(shares):
                if rank != self.rank:
                    self._send(rank, packed(part))
            share = shares[self.rank]
        else:
            values = np.ascontiguousarray(np.zeros(array.shape))
            like = self._io.MakeShares(values, secret, -1)[self.rank]
            with self._sent_by(owner):
                share = unpacked(self._receive(owner), like)
        shared = self._named(share, array.shape, np.float64)
        if owner not in self.spread:
            return shared
        if self._zero is None:
            none = np.zeros(()) if self.rank == MODEL_OWNER else Unseen(())
            self._zero = self._share(MODEL_OWNER, none)
        return self._run(_Sum(), (shared, self._zero))

    def run(
        self, program: Program, lanes: Sequence[Sequence[Any]], book: Book
    ) -> list[Secret]:
        with book(program.place, program.name):
            if self.lanes == 1:
                return [self._run(program, operands) for operands in lanes]
            return list(self._run_all(program, lanes))

    def _run(self, program: Program, operands: Sequence[Any]) -> SpuSecret:
        return self._run_all(program, [operands])[0]

    def _run_all(
        self, program: Program, lanes: Sequence[Sequence[Any]]
    ) -> list[SpuSecret]:
        """Run a program on several batches at once, each in a runtime of its own."""
        spu = import_spu()
        while len(self._others) < len(lanes) - 1:
            link = self._link.spawn()
            self._others.append(spu.RuntimeWrapper(link, self._config))
        runtimes = [self._runtime, *self._others]
        prepared = [self._prepared(program, operands) for operands in lanes]
        for other, (executable, _) in zip(self._others, prepared[1:], strict=False):
            for name in executable.input_names:
                other.SetVar(name, self._runtime.GetVar(name))
        with contextlib.nullcontext() if self._watch is None else self._watch.call():
            if len(lanes) == 1:
                self._runtime.Run(prepared[0][0])
            else:
                # They start together, or what one sent before another is not counted.
                gate = threading.Barrier(len(lanes))

                def run(runtime: Any, executable: Any) -> None:
                    gate.wait()
                    runtime.Run(executable)

                with ThreadPoolExecutor(len(lanes)) as pool:
                    calls = [
                        pool.submit(run, runtime, executable)
                        for runtime, (executable, _) in zip(
                            runtimes, prepared, strict=False
                        )
                    ]
                for call in calls:
                    call.result()
        self._traffic.read(at_once=len(lanes) > 1)
        for other, (executable, _) in zip(self._others, prepared[1:], strict=False):
            (name,) = executable.output_names
            self._runtime.SetVar(name, other.GetVar(name))
            for variable in {*executable.input_names, name}:
                other.DelVar(variable)
        return [self._owned(executable.output_names[0]) for executable, _ in prepared]

    def _prepared(
        self, program: Program, operands: Sequence[Any]
    ) -> tuple[Any, list[SpuSecret]]:
        """Return a program compiled for these operands, and secrets to keep alive."""
        names, described_, public, kept = [], [], [], []
        for i, operand in enumerate(operands):
            secret = isinstance(operand, SpuSecret)
            if not secret:
                if i in program.padded:
                    operand = padded(operand, operands[0].shape[0])
                operand = self._publish(operand)
                kept.append(operand)
            names.append(operand.name)
            described_.append(jax.ShapeDtypeStruct(operand.shape, operand.dtype))
            public.append(not secret)
        key = program, tuple((d.shape, d.dtype) for d in described_), tuple(public)
        if key not in self._compiled:
            self._compiled[key] = compile_program(program, described_, public)
        executable = import_spu().Executable()
        executable.name = program.name
        executable.input_names = names
        executable.output_names = [next(self._names)]
        executable.code = self._compiled[key]
        return executable, kept

    def _publish(self, array: np.ndarray) -> SpuSecret:
        spu = import_spu()
        shape = described(array)
        values = np.ascontiguousarray(array, shape.dtype)
        shares = self._io.MakeShares(values, spu.Visibility.VIS_PUBLIC, -1)
        return self._named(shares[self.rank], values.shape, shape.dtype)

    def reveal(self, secret: Secret) -> np.ndarray:
        share = self._runtime.GetVar(secret.name)
        shares = self._openings.open(share, math.prod(secret.shape))
        opened = np.asarray(self._io.Reconstruct(shares))
        if opened.dtype.kind == "f":
            return opened.astype(np.float64)
        return opened.astype(bool if opened.dtype.kind == "b" else np.int64)

    def dump(self, secret: Secret) -> bytes:
        head = json.dumps({"shape": secret.shape, "dtype": secret.dtype.str}).encode()
        return pack([head, packed(self._runtime.GetVar(secret.name))])

    def load(self, data: bytes) -> Secret:
        try:
            first, second = unpack(data)
            head, share = json.loads(first), unpacked(second)
        except (ValueError, RuntimeError):
            raise ValueError("data must be shares that were kept before") from None
        return self._named(share, tuple(head["shape"]), head["dtype"])

    def join(self, secrets: Sequence[Secret]) -> Secret:
        if len(secrets) == 1:
            return secrets[0]
        return self._run(_Join(), secrets)

    def shape(self, secret: Secret) -> tuple[int, ...]:
        if not isinstance(secret, SpuSecret):
            raise TypeError(f"scores must be a secret of SPU, got {type(secret)}")
        return secret.shape

    def count(self) -> Count:
        return self._traffic.count()

    @classmethod
    def copies(cls, operation: Operation) -> int:
        for kinds, held in _HELD:
            if operation.kind in kinds:
                return held[cls.protocol]
        return _HELD_BY_FUNCTIONS[cls.protocol]

    @classmethod
    def lanes_for(cls, operations: Sequence[Operation]) -> int:
        return MODELS[check_engine(cls.name)].lanes_for(tuple(operations))

    @classmethod
    def batch_for(cls, operations: Sequence[Operation], memory: int) -> int:
        return super().batch_for(operations, memory // cls.lanes_for(operations))

    @classmethod
    def batch_of(cls, n: int, most: int, lanes: int) -> int:
        return min(n, most, max(-(-n // lanes), SHORTEST))

    def forget(self, name: str) -> None:
        """Delete an array from SPU's memory."""
        if self._runtime is not None:
            self._runtime.DelVar(name)

    def _named(self, share: Any, shape: tuple[int, ...], dtype: Any) -> SpuSecret:
        name = next(self._names)
        self._runtime.SetVar(name, share)
        return SpuSecret(self, name, shape, dtype)

    def _owned(self, name: str) -> SpuSecret:
        meta = self._runtime.GetVarMeta(name)
        spu = import_spu()
        kinds = {
            spu.DataType.DT_I1: np.bool_,
            spu.DataType.DT_I32: np.int32,
            spu.DataType.DT_I64: np.int64,
        }
        dtype = kinds.get(meta.data_type, np.float64)
        return SpuSecret(self, name, tuple(meta.shape.dims), dtype)

    @contextlib.contextmanager
    def _sent_by(self, rank: int) -> Iterator[None]:
        """Name the sender of a message that can't be read in the block."""
        try:
            yield
        except ValueError as error:
            raise SessionError(
                f"the {ROLES[rank]} did not send the shares that were due: {error}"
            ) from None

    def _send(self, rank: int, message: bytes) -> None:
        self._link.send_async(rank, message)
        self._traffic.add(sent=len(message))

    def _receive(self, rank: int) -> bytes:
        message = self._link.recv(rank)
        self._traffic.add(rounds=1, received=len(message))
        return message

    def _gather(self, message: bytes, ranks: Iterable[int]) -> list[bytes]:
        """Send a message to all others; return the messages of all parties by rank."""
        others = [rank for rank in ranks if rank != self.rank]
        for rank in others:
            self._send(rank, message)
        received = {rank: self._receive(rank) for rank in others}
        return [received.get(rank, message) for rank in ranks]


_HONEST = """\
- parties are trusted to follow the protocol: one that does not can spoil the result and
  learn more;
- what is opened says something: which rows are chosen reveals a linear probe, see
  jaxsel.proxy.leakage."""


class CheetahEngine(SpuEngine):
    """Two parties and nobody else: homomorphic encryption and oblivious transfer."""

    name: ClassVar[str] = "spu-cheetah"
    notice: ClassVar[str] = (
        f"SPU 0.9.5, Cheetah, between two parties, over TLS:\n{_HONEST}"
    )
    protocol: ClassVar[str] = "CHEETAH"
    switches: ClassVar[bool] = True  # 16 bytes each; SPU's shuffle takes 340

    def _share(self, owner: int, array: np.ndarray | Unseen) -> SpuSecret:
        bits = array.bits if isinstance(array, Unseen) else array.dtype == np.bool_
        if not bits:
            return super()._share(owner, array)
        # SPU shares private bits as numbers, and takes 460 bytes to make bits of each.
        if not isinstance(array, Unseen):
            message, own_bits = hidden(array)
            self._send(1 - owner, message)
        else:
            own_bits = np.frombuffer(self._receive(owner), np.uint8)
        with self._sent_by(owner):
            share = bit_share(self._io, own_bits, array.shape)
        return self._named(share, array.shape, np.bool_)


class Aby3Engine(SpuEngine):
    """Two parties and a helper, who must collude with neither: replicated shares."""

    name: ClassVar[str] = "spu-aby3"
    notice: ClassVar[str] = (
        "SPU 0.9.5, ABY3, between two parties and a helper, over TLS:\n"
        f"{_HONEST}\n"
        "- the helper must collude with neither party: with one of them it can open "
        "all."
    )
    roles: ClassVar[tuple[int, ...]] = (MODEL_OWNER, DATA_OWNER, THIRD_PARTY)
    parties: ClassVar[int] = 3
    lanes: ClassVar[int] = MODELS["spu-aby3"].lanes
    most_bits: ClassVar[int] = 22
    protocol: ClassVar[str] = "ABY3"
    # A product with an array that is private would share it, each product anew.
    private: ClassVar[tuple[int, ...]] = ()
    spread: ClassVar[tuple[int, ...]] = (DATA_OWNER,)


class WideAby3Engine(Aby3Engine):
    """ABY3 with numbers of 128 bits: 22 digits more for twice the bytes."""

    name: ClassVar[str] = "spu-aby3-128"
    ring: ClassVar[int] = 128
    most_bits: ClassVar[int] = 40
    spare_bits: ClassVar[int] = 0
