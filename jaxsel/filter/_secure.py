"""Sums of clients' counts, of which the server learns nothing else.

Each client adds masks to its counts: one for each pair of clients, which cancel in the
sum, and one of its own. Shares of the keys behind the masks lie with the other clients.
For those who answered, they give the server the own mask, for those who dropped out the
ones of their pairs, never both.

Safe against a server that follows the protocol but looks at all it gets, together with
fewer than `needed` clients. Not against one that makes up clients: keys come by way of
the server, and nobody signs them.

References:
    Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine
    Learning, CCS 2017, figure 4 (without signatures).
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxsel._checks import check_count
from jaxsel._wire import check_text

from ._messages import Counted, FromClient
from ._shamir import LENGTH, join, split

_SEALED = 2 * LENGTH + 16
# Every key seals one share only.
_NONCE = bytes(12)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Keys(FromClient):
    """A client's public keys.

    Attributes:
        task: The question's.
        round: The question's.
        client: The client's name.
        keys: `[2, 32]` uint8, X25519: for shares, and for masks.
    """

    keys: np.ndarray

    _kind = "keys"
    _arrays = ("keys",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bytes("keys", self.keys, (2, 32))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Pieces(FromClient):
    """What a client has of others', or for them: `others` names them."""

    others: list[str]

    _fields = ("task", "round", "client", "others")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.others
        if not isinstance(names, list) or len(set(map(str, names))) < len(names):
            raise ValueError(f"others must be a list of distinct names, got {names!r}")
        for name in names:
            check_text("a name in others", name, longest=100)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Shares(_Pieces):
    """Shares of a client's secrets, one for each other client, sealed for it.

    Attributes:
        task: The question's.
        round: The question's.
        client: The client's name.
        others: For whom they are, R names.
        sealed: `[R, 148]` uint8.
    """

    sealed: np.ndarray

    _kind = "shares"
    _arrays = ("sealed",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bytes("sealed", self.sealed, (len(self.others), _SEALED))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Revealed(_Pieces):
    """Shares that a client opens, so that the server can take masks off the sum.

    Attributes:
        task: The question's.
        round: The question's.
        client: The client's name.
        others: Whose shares they are, R names.
        shares: `[R, 66]` uint8.
    """

    shares: np.ndarray

    _kind = "revealed"
    _arrays = ("shares",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bytes("shares", self.shares, (len(self.others), LENGTH))


class SecureClient:
    """A client's part in one sum. Its methods are called in their order, once each.

    One that has refused its input can't go on: begin a new sum.

    Args:
        counted: Its answer in the clear, which nobody else gets to see.
        needed: How many clients must be left in the end for a sum to come out.
    """

    def __init__(self, counted: Counted, needed: int):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._counted = counted
        self._needed = check_count("needed", needed, minimum=2)
        self._secret = tuple(X25519PrivateKey.generate() for _ in range(2))
        self._own = secrets.token_bytes(32)
        self._keys: dict[str, Keys] = {}
        self._others: tuple[str, ...] = ()
        self._held: dict[str, bytes] = {}
        self._stage = 0

    def keys(self) -> Keys:
        """Return its public keys, for all other clients."""
        self._begin(1)
        raw = [key.public_key().public_bytes_raw() for key in self._secret]
        return Keys(**self._sender, keys=_rows(raw))

    def share(self, keys: Iterable[Keys]) -> Shares:
        """Return shares of its secrets, one for each of the others.

        Args:
            keys: Those of all clients, its own among them, as the server passes them.

        Raises:
            ValueError: If they are fewer than needed, no more than half of the clients
                are needed, two are of one client, or its own are not among them.
        """
        self._begin(2)
        for one in keys:
            _check_question(self._counted, one)
            if self._keys.setdefault(one.client, one) is not one:
                raise ValueError(
                    f"keys must be of distinct clients, got {one.client!r}"
                )
        name = self._counted.client
        if name not in self._keys or len(self._keys) < self._needed:
            raise ValueError(
                f"keys must be of {self._needed} clients or more, {name!r} among them, "
                f"got {sorted(self._keys)}"
            )
        if 2 * self._needed <= len(self._keys):
            raise ValueError(
                f"needed must be more than half of the {len(self._keys)} clients, or "
                f"the server could open both masks of one, got {self._needed}"
            )
        names = sorted(self._keys)
        parts = [
            split(int.from_bytes(secret), len(names), self._needed)
            for secret in (self._secret[1].private_bytes_raw(), self._own)
        ]
        plain = {
            other: b"".join(part[i].to_bytes(LENGTH) for part in parts)
            for i, other in enumerate(names)
        }
        self._held[name] = plain.pop(name)
        sealed = [
            self._cipher(name, other).encrypt(_NONCE, plain[other], None)
            for other in plain
        ]
        return Shares(**self._sender, others=[*plain], sealed=_rows(sealed))

    def masked(self, shares: Iterable[Shares]) -> Counted:
        """Return its counts, masked.

        Args:
            shares: Those of all clients that sent some, its own among them.

        Raises:
            ValueError: If they are of fewer clients than needed, or one can't be
                opened.
        """
        self._begin(3)
        name, key = self._counted.client, self._secret[1]
        for one in shares:
            _check_question(self._counted, one)
            if one.client == name:
                continue
            if one.client not in self._keys or name not in one.others:
                raise ValueError(f"shares of {one.client!r} are not for {name!r}")
            sealed = one.sealed[list(one.others).index(name)].tobytes()
            self._held[one.client] = _opened(
                self._cipher(one.client, name), sealed, one.client
            )
        if len(self._held) < self._needed:
            raise ValueError(
                f"shares must be of {self._needed} clients or more, got "
                f"{sorted(self._held)}"
            )
        counts = self._counted.counts.astype(np.uint32)
        total = counts + _stream(self._own, len(counts))
        for other in self._held:
            if other != name:
                public = self._keys[other].keys[1].tobytes()
                mask = _pair_mask(key, public, name, other, self._counted)
                total = total + mask if name < other else total - mask
        return dataclasses.replace(self._counted, counts=total)

    def reveal(self, survivors: Sequence[str]) -> Revealed:
        """Return shares of the own masks of survivors, and of others' mask keys.

        Args:
            survivors: Clients whose masked counts the server has.

        Raises:
            ValueError: If they are fewer than needed, or strangers are among them.
        """
        self._begin(4)
        alive = set(survivors)
        if len(alive) < self._needed or not alive <= set(self._held):
            raise ValueError(
                f"survivors must be {self._needed} clients or more of "
                f"{sorted(self._held)}, got {sorted(alive)}"
            )
        names = sorted(self._held)
        parts = [
            self._held[one][LENGTH:] if one in alive else self._held[one][:LENGTH]
            for one in names
        ]
        return Revealed(**self._sender, others=names, shares=_rows(parts))

    @property
    def _sender(self) -> dict[str, Any]:
        one = self._counted
        return {"task": one.task, "round": one.round, "client": one.client}

    def _begin(self, stage: int) -> None:
        if self._stage != stage - 1:
            raise ValueError(
                "keys, share, masked and reveal must be called in this order, once each"
            )
        self._stage = stage

    def _cipher(self, sender: str, receiver: str) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        other = receiver if sender == self._counted.client else sender
        public = self._keys[other].keys[0].tobytes()
        about = f"share {sender!r} {receiver!r}"
        return ChaCha20Poly1305(_agreed(self._secret[0], public, about, self._counted))


def open_sum(
    keys: Iterable[Keys],
    shares: Iterable[Shares],
    masked: Sequence[Counted],
    revealed: Iterable[Revealed],
    needed: int,
) -> np.ndarray:
    """Take the masks off the sum of masked counts: the server's part.

    Args:
        keys: Those that all clients were given.
        shares: Those of the clients that sent some.
        masked: The masked counts of the clients that sent some: the survivors.
        revealed: What survivors revealed.
        needed: How many clients that must be.

    Returns:
        The sum of the survivors' counts modulo 2^32, int64.

    Raises:
        ValueError: If fewer than needed sent masked counts or revealed shares, the
            messages are not of one sum, or the shares do not fit the keys.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    public = {one.client: one.keys for one in keys}
    number = {name: i + 1 for i, name in enumerate(sorted(public))}
    shared, alive = {one.client for one in shares}, [one.client for one in masked]
    revealed = list(revealed)
    for one in (*masked, *revealed):
        _check_question(masked[0], one)
    for one in masked:
        if len(one.counts) != len(masked[0].counts):
            raise ValueError(
                f"masked must have counts of one length, got {len(masked[0].counts)} "
                f"and {len(one.counts)} from {one.client!r}"
            )
    if len(set(alive)) < len(alive) or not set(alive) <= shared <= set(public):
        raise ValueError(
            "masked must be of distinct clients that sent shares, and shares of those "
            f"that sent keys, got {sorted(alive)}, {sorted(shared)}, {sorted(public)}"
        )
    strangers = {one.client for one in revealed} - set(alive)
    if strangers:
        raise ValueError(f"revealed must be of survivors, got {sorted(strangers)}")
    found: dict[str, dict[int, int]] = {name: {} for name in shared}
    answered = {one.client: one for one in revealed}
    if min(len(answered), len(alive)) < needed:
        raise ValueError(
            f"masked and revealed must be of {needed} clients or more, got "
            f"{sorted(alive)} and {sorted(answered)}"
        )
    for one in answered.values():
        for name, share in zip(one.others, one.shares, strict=True):
            if name in found:
                found[name][number[one.client]] = int.from_bytes(share.tobytes())
    total = np.zeros(len(masked[0].counts), np.uint32)
    for one in masked:
        total = total + one.counts.astype(np.uint32)
    for name in sorted(shared):
        secret = join(dict(list(found[name].items())[:needed]))
        if secret >= 1 << 256:
            raise ValueError(f"the shares of {name!r} do not fit each other")
        raw = secret.to_bytes(32)
        if name in alive:
            total = total - _stream(raw, len(total))
            continue
        key = X25519PrivateKey.from_private_bytes(raw)
        if key.public_key().public_bytes_raw() != public[name][1].tobytes():
            raise ValueError(f"the shares of {name!r} do not fit its key")
        for other in alive:
            # Survivors have added the mask of this pair, or taken it off.
            theirs = public[other][1].tobytes()
            mask = _pair_mask(key, theirs, name, other, masked[0])
            total = total - mask if other < name else total + mask
    return np.asarray(total, np.int64)


def _pair_mask(
    key: Any, public: bytes, name: str, other: str, counted: Counted
) -> np.ndarray:
    """Return the mask of two clients, the same for both of them."""
    about = f"mask {min(name, other)!r} {max(name, other)!r}"
    return _stream(_agreed(key, public, about, counted), len(counted.counts))


def _agreed(key: Any, public: bytes, about: str, counted: Counted) -> bytes:
    """Return 32 bytes that the owners of two keys agree upon, for one use."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise ValueError(f"a public key can't be used for the {about}") from error
    info = f"jaxsel.filter {counted.task} {counted.round} {about}".encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)


def _stream(key: bytes, n: int) -> np.ndarray:
    """Return n pseudorandom numbers of a key that is used for nothing else, uint32."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(4 * n)), "<u4").astype(np.uint32)


def _opened(cipher: Any, sealed: bytes, client: str) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(_NONCE, sealed, None)
    except InvalidTag as error:
        raise ValueError(f"the share of {client!r} was changed on its way") from error


def _rows(parts: Sequence[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(part, np.uint8) for part in parts])


def _check_question(counted: Counted, message: Any) -> None:
    if (message.task, message.round) != (counted.task, counted.round):
        raise ValueError(f"the message of {message.client!r} is of another round")


def _check_bytes(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != np.uint8
        or array.shape != shape
    ):
        raise ValueError(f"{name} must be uint8 of shape {list(shape)}")
