"""Server's side of secure aggregation: unmasks the sum, names who corrupts it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from jaxsel._inputs.checks import check_count

from ._messages import Counted, FromClient
from ._secure import (
    check_question,
    commitment,
    keys_digest,
    mask_stream,
    masked_digest,
    pair_mask,
    share_name,
)
from ._secure_messages import Keys, Revealed, Shares
from ._shamir import LENGTH, join

_M = TypeVar("_M", bound=FromClient)


def open_sum(
    keys: Iterable[Keys],
    shares: Iterable[Shares],
    masked: Sequence[Counted],
    revealed: Iterable[Revealed],
    needed: int,
) -> np.ndarray:
    """Take the masks off the sum of masked counts: the server's part.

    Every revealed share is checked against its dealer's commitment, and so is the
    secret that they give.

    Args:
        keys: Keys that were passed to all clients.
        shares: Shares of the clients that sent them, as passed to all clients.
        masked: Masked counts of the survivors that clients were told.
        revealed: Shares that survivors revealed.
        needed: Minimum number of clients, as passed to clients.

    Returns:
        The sum of the survivors' counts modulo 2^32, int64.

    Raises:
        TypeError: If `needed` is no whole number.
        ValueError: If fewer than needed sent masked counts, or revealed a share of some
            client; if messages are not of one sum, or came too late; if `keys` or
            `masked` are not what clients were given and sent; or if shares do not fit
            the commitments to them, or the key or seed they should give. Says
            whose they are. Where one client revealed wrong shares, the sum can be
            opened without what it revealed, if the others are enough.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    check_count("needed", needed, minimum=2)
    public, dealt = _by_client("keys", keys), _by_client("shares", shares)
    answered = _by_client("revealed", revealed)
    alive = [message.client for message in masked]
    if min(len(answered), len(alive)) < needed:
        raise ValueError(
            f"masked and revealed must be of {needed} clients or more, got "
            f"{sorted(alive)} and {sorted(answered)}"
        )
    for message in (*masked, *public.values(), *dealt.values(), *answered.values()):
        check_question(masked[0], message)
    _check_senders(public, dealt, masked, answered)
    by_dealer = _shares_that_fit(dealt, alive, answered)
    for name, by_holder in by_dealer.items():
        if not by_holder:
            raise ValueError(
                f"shares of {name!r} came too late: nobody revealed any. Leave them out"
            )
        if len(by_holder) < needed:
            silent = sorted(set(answered) - set(by_holder))
            raise ValueError(
                f"the shares of {name!r} that were revealed must be {needed}, got "
                f"{len(by_holder)}: {silent} left theirs out"
            )
    number = {name: i + 1 for i, name in enumerate(sorted(public))}
    total = np.zeros(len(masked[0].counts), np.uint32)
    for message in masked:
        total = total + message.counts.astype(np.uint32)
    for name in sorted(dealt):
        # Its own share last: nobody has committed to that.
        held = sorted(by_dealer[name], key=lambda who: (who == name, who))[:needed]
        secret = join({number[who]: by_dealer[name][who] for who in held})
        raw = secret.to_bytes(LENGTH)[-32:]
        key = X25519PrivateKey.from_private_bytes(raw)
        if name in alive:
            actual = commitment(masked[0], f"seed {name!r}", raw)
            bound = dealt[name].seed
        else:
            actual = key.public_key().public_bytes_raw()
            bound = public[name].keys[1]
        # Shares that lie on no polynomial of this degree may join to any number below
        # 2^521, of which `raw` keeps the last 32 bytes only.
        if secret >= 1 << 256 or actual != bound.tobytes():
            raise ValueError(
                f"the shares of {name!r}, though it committed to them, do not give its "
                f"{'seed' if name in alive else 'key'}. Begin a new sum without it, if "
                f"{needed} is the number of needed clients that all were given"
            )
        if name in alive:
            total = total - mask_stream(raw, len(total))
            continue
        for other in alive:
            # Survivors have added the mask of this pair, or taken it off.
            theirs = public[other].keys[1].tobytes()
            mask = pair_mask(key, theirs, name, other, masked[0])
            total = total - mask if other < name else total + mask
    return np.asarray(total, np.int64)


def _by_client(name: str, messages: Iterable[_M]) -> dict[str, _M]:
    by_name: dict[str, _M] = {}
    for message in messages:
        if by_name.setdefault(message.client, message) is not message:
            raise ValueError(
                f"{name} must be of distinct clients, got two of {message.client!r}"
            )
    return by_name


def _check_senders(
    public: Mapping[str, Keys],
    dealt: Mapping[str, Shares],
    masked: Sequence[Counted],
    answered: Mapping[str, Revealed],
) -> None:
    """Raise if messages cannot all be of one sum."""
    alive = [message.client for message in masked]
    for message in masked:
        if len(message.counts) != len(masked[0].counts):
            raise ValueError(
                f"masked must have counts of one length, got {len(masked[0].counts)} "
                f"and {len(message.counts)} from {message.client!r}"
            )
    if len(set(alive)) < len(alive) or not set(alive) <= set(dealt) <= set(public):
        raise ValueError(
            "masked must be of distinct clients that sent shares, and shares of those "
            f"that sent keys, got {sorted(alive)}, {sorted(dealt)}, {sorted(public)}"
        )
    strangers = set(answered) - set(alive)
    if strangers:
        raise ValueError(f"revealed must be of survivors, got {sorted(strangers)}")
    all_keys = keys_digest(masked[0], public)
    for message in (*dealt.values(), *masked):
        if message.keys is None or not np.array_equal(message.keys, all_keys):
            raise ValueError(
                "keys must be those that all clients were given, but "
                f"{message.client!r} has a hash of others: open the sum with the keys "
                "that it got, or begin a new one"
            )
    for message in masked:
        sent = answered.get(message.client)
        if sent is not None and sent.masked.tobytes() != masked_digest(message):
            raise ValueError(
                f"masked counts of {message.client!r} must be those that it sent, and "
                "were changed since"
            )
    for name, message in dealt.items():
        if {name, *message.others} != set(public):
            raise ValueError(
                f"keys must be those that all clients were given: {name!r} dealt to "
                f"{sorted(message.others)}, but keys are of {sorted(public)}"
            )
    for name, message in answered.items():
        unknown = set(message.others) - set(dealt)
        if unknown:
            raise ValueError(
                f"shares must be all that clients were given: {name!r} revealed those "
                f"of {sorted(unknown)} too"
            )


def _shares_that_fit(
    dealt: Mapping[str, Shares],
    alive: Collection[str],
    answered: Mapping[str, Revealed],
) -> dict[str, dict[str, int]]:
    """Return the revealed shares by dealer and holder, checked against commitments.

    They must be shares of the seeds of survivors, and of the keys of the others.
    """
    by_dealer: dict[str, dict[str, int]] = {name: {} for name in dealt}
    wrong: dict[str, list[str]] = {}
    late: dict[str, list[str]] = {}
    for holder, message in answered.items():
        for dealer, share in zip(message.others, message.shares.tolist(), strict=True):
            by_dealer[dealer][holder] = int.from_bytes(bytes(share))
            if dealer == holder:
                continue
            row = dealt[dealer].others.index(holder)
            bound = dict(
                zip(("key", "seed"), dealt[dealer].commitments[row], strict=True)
            )
            kinds = [
                kind
                for kind in bound
                if bound[kind].tobytes()
                == commitment(message, share_name(kind, dealer, holder), bytes(share))
            ]
            if not kinds:
                wrong.setdefault(holder, []).append(dealer)
            elif kinds != ["seed" if dealer in alive else "key"]:
                late.setdefault(dealer, []).append(holder)
    if wrong:
        raise ValueError(
            "; ".join(
                f"the shares of {', '.join(map(repr, dealers))} do not fit their "
                f"commitments where {holder!r} revealed them"
                for holder, dealers in wrong.items()
            )
            + f". Open the sum without what {', '.join(map(repr, wrong))} revealed"
        )
    if late:
        raise ValueError(
            "; ".join(
                f"masked counts of {dealer!r} "
                + ("came too late: " if dealer in alive else "are missing: ")
                + f"{', '.join(map(repr, holders))} revealed its "
                + ("key, as of one that dropped out" if dealer in alive else "seed")
                for dealer, holders in late.items()
            )
            + ". masked must be of the survivors that clients were told"
        )
    return by_dealer
