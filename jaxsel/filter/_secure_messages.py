"""Messages of secure aggregation: the server learns the sum and nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxsel._files.wire import check_text
from jaxsel._inputs.show import brief

from ._messages import FromClient, check_bytes
from ._shamir import LENGTH

SEALED = 2 * LENGTH + 16
"""Bytes of two shares, sealed."""


@brief
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
        check_bytes("keys", self.keys, (2, 32))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Pieces(FromClient):
    """Pieces that a client holds for the clients named in `others`, or from them."""

    others: list[str]

    _fields = ("task", "round", "client", "others")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.others
        if not isinstance(names, list) or len(set(map(str, names))) < len(names):
            raise ValueError(f"others must be a list of distinct names, got {names!r}")
        for name in names:
            check_text("a name in others", name, longest=100)


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Shares(_Pieces):
    """Shares of a client's secrets, one for each other client, sealed for it.

    Attributes:
        task: The question's.
        round: The question's.
        client: The client's name.
        others: For whom they are, R names.
        sealed: `[R, 148]` uint8.
        commitments: `[R, 2, 32]` uint8, SHA-256: to each one's share of the mask key,
            and of the seed of the own mask.
        seed: `[32]` uint8, SHA-256: to that seed.
        keys: `[32]` uint8, SHA-256 of the keys of all clients, as this one got them.
    """

    sealed: np.ndarray
    commitments: np.ndarray
    seed: np.ndarray
    keys: np.ndarray

    _kind = "shares"
    _arrays = ("sealed", "commitments", "seed", "keys")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bytes("sealed", self.sealed, (len(self.others), SEALED))
        check_bytes("commitments", self.commitments, (len(self.others), 2, 32))
        check_bytes("seed", self.seed, (32,))
        check_bytes("keys", self.keys, (32,))


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Revealed(_Pieces):
    """Shares that a client opens, so that the server can take masks off the sum.

    Attributes:
        task: The question's.
        round: The question's.
        client: The client's name.
        others: Names of the R clients that dealt the shares.
        shares: `[R, 66]` uint8.
        masked: `[32]` uint8, SHA-256 of the masked counts that the client sent.
    """

    shares: np.ndarray
    masked: np.ndarray

    _kind = "revealed"
    _arrays = ("shares", "masked")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bytes("shares", self.shares, (len(self.others), LENGTH))
        check_bytes("masked", self.masked, (32,))
