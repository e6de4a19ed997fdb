"""The engine of published proxies: the data owner alone, in the clear.

A linear probe is recovered from what any protocol declares of a choice
(`jaxsel.proxy.leakage`). Publishing it gives up little more, and costs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.proxy import Operation, run_steps
from mpc_bridge._handshake import SessionError
from mpc_bridge.engines._face import (
    DATA_OWNER,
    Book,
    Count,
    Engine,
    Meeting,
    Program,
    Secret,
    Unseen,
)
from mpc_bridge.engines._operand import Operand, cat, execute

_NOTICE = """\
The proxies are published, and run by the data owner in the clear:
- the data owner sees what the model owner looks for;
- nothing proves that it ran them: it can choose as it likes, and say otherwise;
- the model owner sees the chosen rows' numbers alone, and the appraisal."""

_COPIES = 8  # words for each number of an operation


class PublishedEngine(Engine):
    """One party, which has everything: its secrets are arrays."""

    name: ClassVar[str] = "published"
    notice: ClassVar[str] = _NOTICE
    roles: ClassVar[tuple[int, ...]] = (DATA_OWNER,)
    most_bits: ClassVar[int] = 30
    published: ClassVar[bool] = True
    rank = DATA_OWNER

    def __init__(self) -> None:
        self._fraction_bits = self.most_bits

    @classmethod
    @contextlib.contextmanager
    def connect(cls, rank: int, meeting: Meeting) -> Iterator[PublishedEngine]:
        yield cls()

    @classmethod
    def explain(cls, rank: int, error: BaseException) -> str | None:
        return None

    @classmethod
    def versions(cls) -> dict[str, str]:
        return {"jax": jax.__version__}

    def exchange(self, message: bytes) -> list[bytes]:
        return [message, message]

    def start(self, fraction_bits: int) -> None:
        self._fraction_bits = fraction_bits

    @property
    def fraction_bits(self) -> int:
        return self._fraction_bits

    def terms(self) -> dict[str, Any]:
        return {"protocol": "none: the proxies are published"}

    def share(self, owner: int, *arrays: np.ndarray | Unseen) -> tuple[Secret, ...]:
        return tuple(np.asarray(array, np.float64) for array in arrays)

    def run(
        self, program: Program, lanes: Sequence[Sequence[Any]], book: Book
    ) -> list[Secret]:
        with jax.enable_x64(True):
            return [self._run(program, lane) for lane in lanes]

    def _run(self, program: Program, operands: Sequence[Any]) -> np.ndarray:
        steps = program.steps(
            cat, *(Operand(jnp.asarray(operand)) for operand in operands)
        )
        result = np.asarray(run_steps(steps, execute).array)
        if result.dtype.kind != "f":
            return result
        if not np.isfinite(result).all():
            row = int(np.argmin(np.isfinite(result)))
            raise SessionError(
                f"a proxy's scores must be finite, got {result[row]} in row {row} of a "
                f"batch of {len(result):,}: it overflows there. The data owner can "
                "exclude rows unlike the others"
            )
        # To the same grid as other engines: equal scores are equal.
        return np.round(result * 2.0**self._fraction_bits) / 2.0**self._fraction_bits

    def reveal(self, secret: Secret) -> np.ndarray:
        return secret

    def dump(self, secret: Secret) -> bytes:
        return secret.astype("<f8").tobytes()

    def load(self, data: bytes) -> Secret:
        return np.frombuffer(data, "<f8")

    def join(self, secrets: Sequence[Secret]) -> Secret:
        return np.concatenate(secrets)

    def shape(self, secret: Secret) -> tuple[int, ...]:
        if not isinstance(secret, np.ndarray):
            raise TypeError(f"scores must be an array, got {type(secret)}")
        return secret.shape

    def count(self) -> Count:
        return Count()

    @classmethod
    def copies(cls, operation: Operation) -> int:
        return _COPIES
