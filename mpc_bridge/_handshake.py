"""The handshake of two parties before any share: their terms, or a refusal.

Messages are int64 tensors on CrypTen's communicator: a header, then JSON as bytes. The
header is `[magic, protocol, kind, length]` in every version of the protocol.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

ROLES = ("model owner", "data owner", "third party")
MAGIC, PROTOCOL = 0x6A61787365, 1
_TERMS, _STOPPED = 1, 2
_LONGEST = 1 << 20  # bytes

Terms = Mapping[str, Any]


class SessionError(RuntimeError):
    """A session that ended before its result; says which role ended it and why."""


class Refused(ValueError):
    """A party's own files are refused.

    Attributes:
        rule: The rule that they break: all that the other party hears of it.
    """

    def __init__(self, rule: str, found: str = ""):
        super().__init__(f"{rule}, got {found}" if found else rule)
        self.rule = rule


def digest(content: str | bytes) -> str:
    """Return a hash that stands for public content in the terms."""
    data = content.encode() if isinstance(content, str) else content
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def stop(communicator: Any, reason: str) -> None:
    """Tell the other party, which is about to agree on terms, that there are none."""
    _exchange(communicator, _STOPPED, {"reason": reason})


def agree(communicator: Any, terms: Terms, offers: Terms) -> list[Terms]:
    """Exchange terms, which must be equal, and offers, which need not be.

    Args:
        communicator: CrypTen's.
        terms: What must be the same on both sides, by name; hashes by `digest`.
        offers: What each party proposes.

    Returns:
        The offers of the model owner and of the data owner.

    Raises:
        SessionError: If a term differs, or the other party stopped; both parties raise
            it, and nothing secret has been sent.
    """
    sent = _exchange(communicator, _TERMS, {"terms": terms, "offers": offers})
    differing = differences(*(each["terms"] for each in sent))
    if differing:
        raise SessionError("the parties do not agree: " + "; ".join(differing))
    return [each["offers"] for each in sent]


def differences(model_owner: Terms, data_owner: Terms) -> list[str]:
    """Return what differs, each with both values unless it is a hash."""
    found = []
    for name in [*model_owner, *(k for k in data_owner if k not in model_owner)]:
        one, other = (party.get(name, "none") for party in (model_owner, data_owner))
        if one == other:
            continue
        if all(str(value).startswith("sha256:") for value in (one, other)):
            found.append(f"{name} differs")
        else:
            found.append(
                f"{name}: the {ROLES[0]} has {one!r}, the {ROLES[1]} {other!r}"
            )
    return found


def _exchange(communicator: Any, kind: int, content: Terms) -> list[dict[str, Any]]:
    """Send a message, and return those of both parties in order."""
    import torch

    rank = communicator.get_rank()
    mine = json.dumps(content, allow_nan=False).encode()
    if len(mine) > _LONGEST:
        raise ValueError(f"a message has at most {_LONGEST} bytes, got {len(mine)}")
    header = torch.tensor([MAGIC, PROTOCOL, kind, len(mine)], dtype=torch.int64)
    headers = [one.tolist() for one in communicator.all_gather(header)]
    magic, protocol, kind_of_other, length = headers[1 - rank]
    other = ROLES[1 - rank]
    if magic != MAGIC:
        raise SessionError(f"the {other} is no party of jaxsel's secure run")
    if protocol != PROTOCOL:
        have = [f"the {ROLES[i]} has {headers[i][1]}" for i in range(2)]
        raise SessionError(f"the parties do not agree: protocol: {', '.join(have)}")
    if kind_of_other not in (_TERMS, _STOPPED) or not 0 <= length <= _LONGEST:
        raise SessionError(f"the {other}'s first message is not of this protocol")

    longest = max(headers[0][3], headers[1][3])
    padded = torch.zeros(longest, dtype=torch.int64)
    padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8).long()
    gathered = communicator.all_gather(padded)[1 - rank][:length]
    stopped = kind_of_other == _STOPPED
    try:
        theirs = json.loads(bytes(gathered.tolist()))
        reason = str(theirs["reason"]) if stopped else ""
        if not stopped and not all(
            isinstance(theirs[part], dict) for part in ("terms", "offers")
        ):
            raise TypeError("terms and offers must be objects")
    except (ValueError, KeyError, TypeError):
        raise SessionError(f"the {other}'s terms can't be read") from None
    if stopped and kind != _STOPPED:
        shown = "".join(c if c.isprintable() else " " for c in reason)
        raise SessionError(f"the {other} stopped: {shown[:1000]}")
    both = [dict(content), theirs]
    return both[::-1] if rank else both
