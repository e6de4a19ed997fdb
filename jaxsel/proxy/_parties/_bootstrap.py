"""The bootstrap set: rows that both parties draw under a key that both chose."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import re
import secrets
from typing import Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import wrap_key_data
from jaxsel._files.codec import check_format, decode, encode, read_json, write_json
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.show import brief

Role = Literal["model owner", "data owner"]
_OTHER: dict[Role, Role] = {"model owner": "data owner", "data owner": "model owner"}
_DIGITS = re.compile(r"[0-9a-f]{64}")
_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class _KeyMessage:
    """A message of a party to the other, before they have a joint key.

    Attributes:
        role: The sender: "model owner" or "data owner".
        digits: 256 bits, as 64 hexadecimal digits.
    """

    role: Role
    digits: str

    def __post_init__(self) -> None:
        check_choice("role", self.role, [*_OTHER])
        if not isinstance(self.digits, str) or not _DIGITS.fullmatch(self.digits):
            raise ValueError("digits must be 64 hexadecimal digits")

    def to_json(self) -> str:
        """Return the message as JSON text."""
        about = {"format": f"jaxsel {type(self).__name__}", "version": _VERSION}
        return write_json({**about, **encode(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the message that `to_json` wrote.

        Raises:
            ValueError: If it is no JSON, of another kind or version, or has a field
                that is missing, unknown or out of range; it names the field.
        """
        document = read_json(text, "the message")
        check_format(document, f"jaxsel {cls.__name__}", _VERSION)
        return decode(cls, document)


@brief
class KeyCommitment(_KeyMessage):
    """SHA-256 of the number that a party has chosen, sent before either shows one."""


@brief
class KeyOpening(_KeyMessage):
    """The number that a party has chosen, sent once it has the other's commitment."""


class KeyShare:
    """One party's half of a joint key: it commits to a number, then shows it.

    Both send their `commitment`, then what `open` returns for the other's; `key` gives
    both the same key. Neither can choose it: the last to speak is bound by its
    commitment, sent before it saw the other's number. A party may still break off once
    it could know the key: a break is seen, and must not be answered by another try
    without a reason.

    Args:
        role: The party that this half belongs to.

    References:
        Blum, Coin flipping by telephone, CRYPTO 1981. The commitment is SHA-256 of 256
        random bits, which hide and bind by themselves.
    """

    def __init__(self, role: Role):
        check_choice("role", role, [*_OTHER])
        self._role: Role = role
        self._number = secrets.token_hex(32)
        self._theirs: KeyCommitment | None = None

    def __repr__(self) -> str:
        return f"KeyShare({self._role!r})"

    @property
    def commitment(self) -> KeyCommitment:
        """The first message, for the other party."""
        return KeyCommitment(
            role=self._role, digits=_committed(self._role, self._number)
        )

    def open(self, theirs: KeyCommitment) -> KeyOpening:
        """Return the second message, once the other party has committed itself.

        Args:
            theirs: The other party's commitment.

        Raises:
            ValueError: If it is of this party's role, or another one came before.
        """
        self._check_role(theirs)
        if self._theirs not in (None, theirs):
            raise ValueError(
                f"the {theirs.role} must commit itself once, and sent two commitments"
            )
        self._theirs = theirs
        return KeyOpening(role=self._role, digits=self._number)

    def key(self, theirs: KeyOpening) -> jax.Array:
        """Return the key that both parties chose, see `joint_key`.

        Args:
            theirs: The other party's number.

        Raises:
            ValueError: If that party did not commit itself, or to another number.
        """
        self._check_role(theirs)
        if self._theirs is None:
            raise ValueError(
                f"the {theirs.role} must commit itself first: call open with its "
                "commitment"
            )
        committed = _committed(theirs.role, theirs.digits)
        if not hmac.compare_digest(committed, self._theirs.digits):
            raise ValueError(
                f"the number of the {theirs.role} must be the one that it committed "
                "itself to, and is another: break off"
            )
        numbers = {self._role: self._number, theirs.role: theirs.digits}
        return joint_key(
            int(numbers["model owner"], 16), int(numbers["data owner"], 16)
        )

    def _check_role(self, theirs: _KeyMessage) -> None:
        if theirs.role != _OTHER[self._role]:
            raise ValueError(
                f"the message must be of the {_OTHER[self._role]}, got one of the "
                f"{theirs.role}"
            )


def joint_key(ours: int, theirs: int) -> jax.Array:
    """Return the key of 128 bits of two numbers, one from each party.

    For both parties in one process. Across processes, `KeyShare` exchanges the numbers
    so that the party that speaks last can't choose the key.

    Args:
        ours: The model owner's number.
        theirs: The data owner's number.

    Returns:
        A key for `draw_bootstrap`, of JAX's kind "rbg", the one that holds 128 bits.
        Numbers that `jax.random` draws with such a key depend on the platform, so that
        the parties may disagree on them.

    Raises:
        ValueError: If a number is negative, or has more than 256 bits.
    """
    for name, value in (("ours", ours), ("theirs", theirs)):
        check_count(name, value, minimum=0, maximum=2**256 - 1)
    digest = hashlib.sha256(f"jaxsel {ours} {theirs}".encode()).digest()
    return wrap_key_data(jnp.asarray(np.frombuffer(digest[:16], "<u4")), impl="rbg")


def draw_bootstrap(key: jax.Array, n: int, share: float) -> np.ndarray:
    """Return the rows of the bootstrap set, ascending: `share` of n, rounded.

    The data owner draws it under the joint key, and the model owner can check it: with
    a key of more than 64 bits by SHAKE-256, with others by `jax.random.permutation`.

    Args:
        key: The joint key, see `joint_key`.
        n: Samples of the pool.
        share: Share of them to draw.

    Raises:
        ValueError: If `share` does not lie between 0 and 1, or comes to no row.
    """
    count = bootstrap_size(n, share)
    words = np.asarray(jax.random.key_data(key)).ravel()
    if len(words) > 2:
        # The first rows by a pseudorandom number each, equal on every platform.
        stream = hashlib.shake_256(words.astype("<u4").tobytes()).digest(8 * n)
        order = np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
    else:
        order = np.asarray(jax.random.permutation(key, n))
    return np.sort(order[:count])


def bootstrap_size(n: int, share: float) -> int:
    """Return how many rows the bootstrap set has.

    Raises:
        ValueError: If `share` does not lie between 0 and 1, or comes to no row.
    """
    count = round(share * n)
    if not 0 < share < 1 or not count:
        raise ValueError(
            f"bootstrap must be a share of the pool, at least one of {n} samples, got "
            f"{share}"
        )
    return count


def _committed(role: str, number: str) -> str:
    return hashlib.sha256(f"jaxsel joint key, {role}: {number}".encode()).hexdigest()
