"""The handshake of two parties before any share: their terms, or a refusal.

Messages are JSON, exchanged by the engine among all parties, in every version of the
protocol `{"protocol": number, "kind": "terms" or "stopped", ...}`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engines import Engine

ROLES = ("model owner", "data owner", "third party")
RANKS = {"model-owner": 0, "data-owner": 1, "third-party": 2}
PROTOCOL = 3
_LONGEST = 1 << 20  # bytes
_SHOWN = 1000  # characters of what another party says

FIRST_PARTY = """\
WARNING: --test-only-first-party protects nothing: the model owner makes the correlated
randomness and can read every secret of the data owner. For tests on data without
secrets."""

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


def stop(engine: Engine, reason: str) -> None:
    """Tell the others, who are about to agree on terms, that there are none."""
    _exchange(engine, "stopped", {"reason": reason})


def agree(engine: Engine, terms: Terms, offers: Terms) -> list[Terms]:
    """Exchange terms, which must be equal, and offers, which need not be.

    Args:
        engine: That connects the parties.
        terms: What must be the same on all sides, by name; hashes by `digest`.
        offers: What each party proposes.

    Returns:
        The offers of all parties, by rank.

    Raises:
        SessionError: If a term differs, or another party stopped; all parties raise
            it, and nothing secret has been sent.
    """
    sent = _exchange(engine, "terms", {"terms": terms, "offers": offers})
    differing = differences(*(message["terms"] for message in sent))
    if differing:
        problem = f"the parties do not agree: {'; '.join(differing)}"
        raise SessionError(printable(problem))
    return [message["offers"] for message in sent]


def differences(*parties: Terms, roles: Sequence[str] = ROLES) -> list[str]:
    """List the terms in which parties differ, with values unless they are hashes.

    Args:
        parties: Terms of each.
        roles: Of each.
    """
    differing = []
    names = dict.fromkeys(name for party in parties for name in party)
    for name in names:
        values = [party.get(name, "none") for party in parties]
        if all(value == values[0] for value in values):
            continue
        if all(str(value).startswith("sha256:") for value in values):
            differing.append(f"{printable(name, 60)} differs")
            continue
        have = [
            f"the {role} has {printable(repr(value), 60)}"
            if i == 0
            else f"the {role} {printable(repr(value), 60)}"
            for i, (role, value) in enumerate(zip(roles, values, strict=False))
        ]
        differing.append(f"{printable(name, 60)}: {', '.join(have)}")
    return differing


def disagreement(mine: Terms, theirs: Any, ranks: Sequence[int]) -> str | None:
    """Describe how a peer's greeting contradicts this party's terms, or None.

    Args:
        mine: What must be the same, by name.
        theirs: What the peer has said. Names that one of both leaves out are not
            compared.
        ranks: Of this party and of the peer.
    """
    if not isinstance(theirs, dict):
        return f"the {ROLES[ranks[1]]} is no party of this version of jaxsel"
    both = [
        (rank, {name: party[name] for name in mine if name in theirs})
        for rank, party in zip(ranks, (mine, theirs), strict=True)
    ]
    both.sort(key=lambda one: one[0])
    roles = [ROLES[rank] for rank, _ in both]
    differing = differences(*(terms for _, terms in both), roles=roles)
    return f"the parties do not agree: {'; '.join(differing)}" if differing else None


def printable(text: str, longest: int = _SHOWN) -> str:
    """Replace unprintable characters of a peer's text, and shorten it."""
    shown = "".join(c if c.isprintable() else " " for c in text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def _exchange(engine: Engine, kind: str, content: Terms) -> list[dict[str, Any]]:
    """Send a message, and return the messages of all parties by rank."""
    document = {"protocol": PROTOCOL, "kind": kind, **content}
    encoded = json.dumps(document, allow_nan=False).encode()
    if len(encoded) > _LONGEST:
        raise ValueError(f"a message has at most {_LONGEST} bytes, got {len(encoded)}")
    try:
        messages = engine.exchange(encoded)
    except ValueError as error:
        raise SessionError(
            f"another party is no party of jaxsel's secure run: {error}"
        ) from None
    documents = []
    for rank, message in enumerate(messages):
        documents.append(
            document if rank == engine.rank else _read(ROLES[rank], message)
        )
    differing = differences(
        *({"protocol": other.get("protocol")} for other in documents)
    )
    if differing:
        raise SessionError(f"the parties do not agree: {differing[0]}")
    if kind != "stopped":
        for role, other in zip(ROLES, documents, strict=False):
            if other["kind"] == "stopped":
                reason = printable(str(other.get("reason", "")))
                raise SessionError(f"the {role} stopped: {reason}")
    return documents


def _read(role: str, message: bytes) -> dict[str, Any]:
    try:
        if len(message) > _LONGEST:
            raise ValueError(f"more than {_LONGEST} bytes")
        document = json.loads(message)
        if document["kind"] not in ("terms", "stopped"):
            raise ValueError("kind")
        if document["kind"] == "terms" and not all(
            isinstance(document[part], dict) for part in ("terms", "offers")
        ):
            raise TypeError("terms and offers must be objects")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SessionError(
            f"the {role}'s first message is not of this protocol"
        ) from None
    return document


def say(text: str) -> None:
    """Write a line to standard error at once, for whoever runs a party."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
