"""Sums of clients' counts, of which the server learns nothing else.

Each client adds masks to its counts: one for each pair of clients, which cancel in the
sum, and one of its own. Shares of the keys behind the masks lie with the other clients.
For those who answered, they give the server the own mask, for those who dropped out the
ones of their pairs, never both.

Safe against a server that follows the protocol but looks at all it gets, together with
fewer than `needed` clients. Not against one that makes up clients: keys come by way of
the server, and nobody signs them.

Clients commit to the shares that they deal, so that one that deals or reveals others is
named, and the sum is not opened wrongly. Shares and masked counts carry a hash of the
keys of all clients, and revealed shares a hash of the masked counts: a client that got
others is noticed before a sum comes out. Wrong counts of a client can't be noticed.

References:
    Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine
    Learning, CCS 2017, figure 4 (without signatures).
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from jaxsel._files.wire import check_arrays, check_fields, check_text, pack, unpacking
from jaxsel._inputs.checks import check_count

from ._messages import FORMAT, MAX_BYTES, Counted, FromClient, check_bytes
from ._secure_messages import Keys, Revealed, Shares
from ._shamir import LENGTH, split

# Every key seals one share only.
_NONCE = bytes(12)
_STATE = "state of a client"


class SecureClient:
    """A client's part in one sum. Its methods are called in their order, once each.

    One that has refused its input can't go on: begin a new sum.

    Args:
        counted: Its answer in the clear, which nobody else gets to see.
        needed: How many clients must be left in the end for a sum to come out.
    """

    def __repr__(self) -> str:
        return f"SecureClient({self._counted.client!r}, stage {self._stage})"

    def __init__(self, counted: Counted, needed: int):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._counted = counted
        self._needed = check_count("needed", needed, minimum=2)
        self._secret = tuple(X25519PrivateKey.generate() for _ in range(2))
        self._own = secrets.token_bytes(32)
        self._sent = bytes(32)
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
            keys: Keys of all clients, its own among them, as the server passes them.

        Raises:
            ValueError: If they are fewer than needed, no more than half of the clients
                are needed, two are of one client, or its own are not among them as
                it sent them.
        """
        self._begin(2)
        for message in keys:
            check_question(self._counted, message)
            if self._keys.setdefault(message.client, message) is not message:
                raise ValueError(
                    f"keys must be of distinct clients, got {message.client!r}"
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
        public = _rows([key.public_key().public_bytes_raw() for key in self._secret])
        if not np.array_equal(self._keys[name].keys, public):
            raise ValueError(f"keys of {name!r} were changed on their way")
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
        bound = [
            _rows(_commitments(self._counted, name, other, both))
            for other, both in plain.items()
        ]
        seed = commitment(self._counted, f"seed {name!r}", self._own)
        return Shares(
            **self._sender,
            others=[*plain],
            sealed=_rows(sealed),
            commitments=np.stack(bound),
            seed=_rows([seed])[0],
            keys=self._keys_digest(),
        )

    def masked(self, shares: Iterable[Shares]) -> Counted:
        """Return its counts, masked.

        Args:
            shares: Shares of all clients that sent them, its own among them.

        Raises:
            ValueError: If they are of fewer clients than needed, or one can't be
                opened, does not fit its commitments, or is of a client that got other
                keys: the client that dealt it is named.
        """
        self._begin(3)
        name, key = self._counted.client, self._secret[1]
        all_keys = self._keys_digest()
        for message in shares:
            check_question(self._counted, message)
            if not np.array_equal(message.keys, all_keys):
                raise ValueError(
                    f"shares of {message.client!r} must be by the keys that {name!r} "
                    "got, but it got others: begin a new sum"
                )
            if message.client == name:
                continue
            if message.client not in self._keys or name not in message.others:
                raise ValueError(f"shares of {message.client!r} are not for {name!r}")
            row = message.others.index(name)
            both = _opened(
                self._cipher(message.client, name),
                message.sealed[row].tobytes(),
                message.client,
            )
            bound = _commitments(self._counted, message.client, name, both)
            if b"".join(bound) != message.commitments[row].tobytes():
                raise ValueError(
                    f"the share of {message.client!r} does not fit its commitments: "
                    "begin a new sum without it"
                )
            self._held[message.client] = both
        if len(self._held) < self._needed:
            raise ValueError(
                f"shares must be of {self._needed} clients or more, got "
                f"{sorted(self._held)}"
            )
        counts = self._counted.counts.astype(np.uint32)
        total = counts + mask_stream(self._own, len(counts))
        for other in self._held:
            if other != name:
                public = self._keys[other].keys[1].tobytes()
                mask = pair_mask(key, public, name, other, self._counted)
                # Opposite signs on both sides: the mask cancels in the sum modulo 2^32.
                total = total + mask if name < other else total - mask
        masked = dataclasses.replace(self._counted, counts=total, keys=all_keys)
        self._sent = masked_digest(masked)
        return masked

    def reveal(self, survivors: Sequence[str]) -> Revealed:
        """Return shares of the own masks of survivors, and of others' mask keys.

        Args:
            survivors: Clients of the masked counts that the server has.

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
            self._held[client][LENGTH:]
            if client in alive
            else self._held[client][:LENGTH]
            for client in names
        ]
        sent = _rows([self._sent])[0]
        return Revealed(**self._sender, others=names, shares=_rows(parts), masked=sent)

    def to_bytes(self) -> bytes:
        """Return all that the client knows, to go on in another process.

        They hold its keys and counts: nobody else may see these bytes, and they must be
        replaced by newer ones before the result of a method is sent. A client that goes
        on twice from the same bytes may open both of its masks.
        """
        held = sorted(self._held)
        known = sorted(self._keys)
        secret = [*(key.private_bytes_raw() for key in self._secret), self._own]
        fields = {
            **self._sender,
            "needed": self._needed,
            "stage": self._stage,
            "known": known,
            "held": held,
        }
        arrays = {
            "counts": self._counted.counts,
            "secret": _rows(secret),
            # One row of zeros in front: there may be no keys to stack yet.
            "keys": np.stack([np.zeros((2, 32), np.uint8)] + _public(self._keys)),
            "shares": _rows([bytes(2 * LENGTH), *(self._held[n] for n in held)]),
            "sent": _rows([self._sent])[0],
        }
        return pack(FORMAT, _STATE, fields, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> SecureClient:
        """Return the client that `to_bytes` stored.

        Args:
            data: The bytes.

        Raises:
            ValueError: If it is anything else, or damaged.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        names = ("counts", "secret", "keys", "shares", "sent")
        with unpacking(FORMAT, data, _STATE, names, MAX_BYTES) as (fields, arrays):
            check_arrays(arrays, names)
            check_fields(
                "fields",
                fields,
                {"task", "round", "client", "needed", "stage", "known", "held"},
            )
            known, held = (_names(name, fields[name]) for name in ("known", "held"))
            for name, shape in (
                ("secret", (3, 32)),
                ("keys", (1 + len(known), 2, 32)),
                ("shares", (1 + len(held), 2 * LENGTH)),
                ("sent", (32,)),
            ):
                check_bytes(name, arrays[name], shape)
            sender = {name: fields[name] for name in ("task", "round", "client")}
            client = cls(Counted(**sender, counts=arrays["counts"]), fields["needed"])
            *secret, client._own = (row.tobytes() for row in arrays["secret"])
            client._secret = tuple(map(X25519PrivateKey.from_private_bytes, secret))
            for name, pair in zip(known, arrays["keys"][1:], strict=True):
                identity: dict[str, Any] = sender | {"client": name}
                client._keys[name] = Keys(**identity, keys=pair)
            for name, both in zip(held, arrays["shares"][1:], strict=True):
                client._held[name] = both.tobytes()
            client._stage = check_count("stage", fields["stage"], minimum=0)
            client._sent = arrays["sent"].tobytes()
            return client

    @property
    def stage(self) -> int:
        """Number of its methods that were called: 4 after `reveal`."""
        return self._stage

    @property
    def _sender(self) -> dict[str, Any]:
        counted = self._counted
        return {"task": counted.task, "round": counted.round, "client": counted.client}

    def _keys_digest(self) -> np.ndarray:
        return keys_digest(self._counted, self._keys)

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


def _names(field: str, value: Any) -> list[str]:
    """Return distinct names of clients that came from a file."""
    if not isinstance(value, list):
        raise ValueError(f"{field} must be a list of names")
    listed = cast("list[Any]", value)
    names = [check_text(f"a name in {field}", name, longest=100) for name in listed]
    if len(set(names)) < len(names):
        raise ValueError(f"{field} must be distinct names")
    return names


def commitment(counted: FromClient, about: str, secret: bytes) -> bytes:
    """Return the hash that commits a client to a secret of 32 bytes or more."""
    info = f"jaxsel.filter {counted.task} {counted.round} {about}".encode()
    return hashlib.sha256(info + b"\0" + secret).digest()


def keys_digest(counted: FromClient, keys: Mapping[str, Keys]) -> np.ndarray:
    """Return the hash that binds messages to the keys of all clients, `[32]` uint8."""
    parts = [
        f"{len(name)}:{name}".encode() + keys[name].keys.tobytes()
        for name in sorted(keys)
    ]
    return _rows([commitment(counted, "keys of all", b"".join(parts))])[0]


def masked_digest(masked: Counted) -> bytes:
    """Hash a client's masked counts."""
    raw = masked.counts.astype("<u4").tobytes()
    return commitment(masked, f"masked {masked.client!r}", raw)


def share_name(kind: str, dealer: str, holder: str) -> str:
    """Name a share for its commitment; `kind` is "key" or "seed"."""
    return f"{kind} share {dealer!r} {holder!r}"


def _commitments(
    counted: FromClient, dealer: str, holder: str, both: bytes
) -> list[bytes]:
    """Return the commitments to a holder's shares of a dealer's key and seed."""
    return [
        commitment(counted, share_name(kind, dealer, holder), part)
        for kind, part in (("key", both[:LENGTH]), ("seed", both[LENGTH:]))
    ]


def pair_mask(
    key: Any, public: bytes, name: str, other: str, counted: Counted
) -> np.ndarray:
    """Return the mask of two clients, the same for both of them."""
    about = f"mask {min(name, other)!r} {max(name, other)!r}"
    return mask_stream(_agreed(key, public, about, counted), len(counted.counts))


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


def mask_stream(key: bytes, n: int) -> np.ndarray:
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


def _public(keys: Mapping[str, Keys]) -> list[np.ndarray]:
    """Return public keys, `[2, 32]` each, in the order of names."""
    return [keys[name].keys for name in sorted(keys)]


def _rows(parts: Sequence[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(part, np.uint8) for part in parts])


def check_question(counted: Counted, message: Any) -> None:
    if (message.task, message.round) != (counted.task, counted.round):
        raise ValueError(f"the message of {message.client!r} is of another round")
