"""SPU's parties meet: over TLS, each known by its certificate."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from mpc_bridge._certs import load
from mpc_bridge._handshake import ROLES, Refused, SessionError
from mpc_bridge._toml import ConfigError
from mpc_bridge.engines._face import Meeting

from ._compat import import_spu
from ._link import connect, finish, leave, link_options, one_sentence
from ._tunnel import Tunnel
from ._watch import Watch


class Connected(NamedTuple):
    """A link, and the watchdog of calls that use it."""

    link: Any
    watch: Watch | None


@contextlib.contextmanager
def connected(rank: int, parties: int, meeting: Meeting) -> Iterator[Connected]:
    """Yield a link to all parties, and flush it at the end."""
    spu = import_spu()
    with tunnel_of(rank, parties, meeting) as tunnel:
        if meeting.declines:
            tunnel.decline(meeting.declines)
            raise SessionError(meeting.declines)
        tunnel.meet(meeting.wait)
        desc = spu.link.Desc()
        desc.id = meeting.session
        link_options(desc, tunnel.hosts, timeout=meeting.timeout)
        link = None
        try:
            link = connect(spu, desc, rank, timeout=meeting.timeout)
            with _watched(tunnel, meeting) as watch:
                yield Connected(link, watch)
        except (SessionError, Refused):
            # What was sent last says why, and all end by it: let it arrive.
            if link is not None:
                leave(link)
            raise
        except RuntimeError as error:
            meaning = explain(error)
            if meaning is None or not tunnel.failure:
                raise
            raise WireError(f"{meaning}; {tunnel.failure}") from error
        with contextlib.suppress(RuntimeError):  # the results are written by now
            finish(link)


def tunnel_of(rank: int, parties: int, meeting: Meeting) -> Tunnel:
    """Return a tunnel to all parties of a session, which have not met yet.

    Raises:
        ConfigError: If addresses or certificates are missing or wrong.
        SessionError: If this party's address can't be listened at.
    """
    if len(meeting.addresses) < parties or meeting.certificates is None:
        raise ConfigError(
            f"parties must have an address for each of the {parties} that compute, and "
            "this party's part its folder of certificates"
        )
    names = meeting.names[:parties]
    peers = [name for i, name in enumerate(names) if i != rank]
    credentials = load(meeting.certificates, peers)
    if credentials.own.name != names[rank]:
        raise ConfigError(
            f"parties.{ROLES[rank].replace(' ', '_')}.name must be that of its "
            f"certificate, {credentials.own.name!r}, got {names[rank]!r}"
        )
    places = list(zip(names, meeting.addresses, strict=False))
    return Tunnel(
        credentials,
        rank=rank,
        parties=places,
        hello=meeting.hello,
        listen=meeting.listen,
        timeout=meeting.timeout,
    )


@contextlib.contextmanager
def _watched(tunnel: Tunnel, meeting: Meeting) -> Iterator[Watch | None]:
    give_up = meeting.give_up
    if give_up is None:
        yield None
        return

    def end(text: str) -> None:
        reason = f"; {tunnel.failure}" if tunnel.failure else ""
        tunnel.close()
        give_up(text + reason)

    watch = Watch(lambda: sum(tunnel.received.values()), meeting.timeout, end)
    try:
        yield watch
    finally:
        watch.close()


class WireError(RuntimeError):
    """A transport error with an explanation as its text."""


_BROKEN = re.compile(r"recv|send|link|channel|connect|timed? ?out|Get data", re.I)


def explain(error: BaseException) -> str | None:
    """Explain a transport error; None for any other error."""
    if isinstance(error, WireError):
        return str(error)
    if isinstance(error, SessionError) or not isinstance(error, RuntimeError):
        return None
    if not _BROKEN.search(str(error)):
        return None
    return (
        "another party did not answer in time, is gone or was cut off: see what it "
        f"says ({one_sentence(error)})"
    )
