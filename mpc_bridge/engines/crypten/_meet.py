"""Rendezvous of CrypTen's roles: a store in which each publishes its terms.

The model owner serves torch's `TCPStore`, at the rendezvous' own address: at a loopback
address nobody else can reach it, where torch by itself listens on all interfaces. Each
role writes what must be the same for all, and reads what the others wrote; one that
finds a difference writes why it ends. Only then does CrypTen, which waits half an hour
for whoever is missing, hear of the store.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import ipaddress
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import torch.distributed
from torch.distributed.rendezvous import register_rendezvous_handler

from mpc_bridge._handshake import ROLES, SessionError, disagreement, printable
from mpc_bridge.engines._face import MODEL_OWNER, Meeting

SCHEME = "jaxsel"
URL = f"{SCHEME}://met"
"""The rendezvous for `init_process_group`, once `store_of` has met."""

_ANSWER = datetime.timedelta(seconds=10)
_LINGER = 15.0  # seconds, for those who are starting
_PAUSE = 0.05
_ENDED = "ended"

# Public in torch's documentation, but its stubs do not export it.
_STORE: Any = vars(torch.distributed)["TCPStore"]

_met: list[Any] = []


@contextlib.contextmanager
def store_of(
    rank: int, ranks: tuple[int, ...], meeting: Meeting, hello: Mapping[str, Any]
) -> Iterator[None]:
    """Meet, and hold the store that `URL` stands for.

    Args:
        rank: Of this role.
        ranks: Of all roles of the session, by what this one knows.
        meeting: Where, and how long to wait.
        hello: What must be the same for all, by name; names that one side leaves out
            are not compared.

    Raises:
        SessionError: At once, if the rendezvous is none, the role is taken, or a hello
            differs; after `meeting.wait`, if somebody has not come.
    """
    host, port = address_of(meeting.rendezvous or "")
    where, end = f"tcp://{host}:{port}", time.monotonic() + meeting.wait
    if rank == MODEL_OWNER:
        store = _serve(host, port)
    else:
        store = _reach(host, port, end, meeting.wait)
    try:
        _meet(_Board(store, rank), ranks, dict(hello), where, end, meeting.wait)
    except RuntimeError as error:
        if isinstance(error, SessionError):
            raise
        raise SessionError(
            f"the {ROLES[MODEL_OWNER]} has left {where} before all had come"
        ) from error
    _met[:] = [store]
    try:
        yield
    finally:
        _met.clear()


def address_of(rendezvous: str) -> tuple[str, int]:
    """Return host and port of "tcp://host:port"."""
    parts = urlsplit(rendezvous)
    if not parts.hostname or not parts.port:
        raise ValueError(f"rendezvous must be 'tcp://host:port', got {rendezvous!r}")
    return parts.hostname, parts.port


def loopback_interface(rendezvous: str) -> str | None:
    """Return the interface of a rendezvous on this machine alone; None of another."""
    try:
        infos = socket.getaddrinfo(*address_of(rendezvous), type=socket.SOCK_STREAM)
    except OSError:
        return None
    if not all(ipaddress.ip_address(info[4][0]).is_loopback for info in infos):
        return None
    return next(
        (name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None
    )


class _Board:
    """The store as one role uses it."""

    def __init__(self, store: Any, rank: int):
        self._store, self.rank = store, rank

    def write(self, name: str, text: str) -> str:
        """Write an entry unless it exists, and return the stored text."""
        return self._store.compare_set(f"jaxsel/{name}", "", text).decode(
            errors="replace"
        )

    def read(self, name: str) -> str | None:
        if not self._store.check([f"jaxsel/{name}"]):
            return None
        return self._store.get(f"jaxsel/{name}").decode(errors="replace")


def _meet(
    board: _Board,
    ranks: tuple[int, ...],
    hello: dict[str, Any],
    where: str,
    end: float,
    wait: float,
) -> None:
    rank, others = board.rank, [other for other in ranks if other != board.rank]
    greeting = json.dumps({**hello, "nonce": secrets.token_hex(8)})
    if board.write(f"hello {rank}", greeting) != greeting:
        raise SessionError(f"another {ROLES[rank]} is at {where} already")
    reason = None
    while reason is None:
        arrived: list[int] = []
        if (reason := board.read(_ENDED)) is None:
            compared = _compare(board, hello)
            if isinstance(compared, str):
                reason = board.write(_ENDED, compared)
            else:
                arrived = compared
        if reason is None and {*others} <= {*arrived}:
            board.write(f"ready {rank}", "yes")
            if all(board.read(f"ready {other}") for other in others):
                return
        if reason is None and time.monotonic() > end:
            missing = " and ".join(
                f"the {ROLES[r]}" for r in others if r not in arrived
            )
            reason = (
                f"{missing or 'one role'} has not come to {where} (waited {wait:g} s)"
            )
            reason = board.write(_ENDED, reason)
        time.sleep(_PAUSE)
    board.write(f"left {rank}", "yes")
    if rank == MODEL_OWNER:  # whose store it is: all that come soon should hear
        stay = time.monotonic() + _LINGER
        while time.monotonic() < stay:
            came = {r for r in range(len(ROLES)) if board.read(f"hello {r}")}
            if all(board.read(f"left {r}") for r in came.union(ranks)):
                break
            time.sleep(_PAUSE)
    raise SessionError(printable(reason))


def _compare(board: _Board, hello: dict[str, Any]) -> list[int] | str:
    """Return the ranks that have arrived, or a description of differing terms."""
    arrived = []
    for rank in range(len(ROLES)):
        text = None if rank == board.rank else board.read(f"hello {rank}")
        if text is None:
            continue
        theirs = None
        with contextlib.suppress(ValueError, RecursionError):
            theirs = json.loads(text)
        if problem := disagreement(hello, theirs, (board.rank, rank)):
            return problem
        arrived.append(rank)
    return arrived


def _serve(host: str, port: int) -> Any:
    """Return the store that this process serves, at no other address than the host's.

    A host that is none of this machine's own, such as a router's, is reached by others
    only: then all interfaces listen.
    """
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SessionError(f"{host!r} can't be found: {error.strerror}") from None
    family, address = places[0][0], places[0][4]
    try:
        try:
            listener = socket.create_server(address[:2], family=family)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            listener = socket.create_server(("", port))
    except OSError as error:
        raise SessionError(
            f"this party can't listen at {host}:{port}: {error.strerror or error}"
        ) from None
    handle = listener.detach()
    try:
        return _STORE(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=_ANSWER,
            master_listen_fd=handle,
        )
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(handle)
        raise


def _reach(host: str, port: int, end: float, wait: float) -> Any:
    """Return the model owner's store, as soon as there is one."""
    pause, failures = 0.1, 0
    while True:
        reason = ""
        try:
            socket.create_connection((host, port), timeout=5).close()
        except socket.gaierror as error:
            raise SessionError(f"{host!r} can't be found: {error.strerror}") from None
        except OSError as error:
            reason, failures = str(error.strerror or error), 0
        else:
            with contextlib.suppress(RuntimeError):
                return _STORE(
                    host,
                    port,
                    is_master=False,
                    wait_for_workers=False,
                    timeout=_ANSWER,
                )
            failures += 1
        if failures == 2:
            raise SessionError(
                f"what answers at tcp://{host}:{port} is not the rendezvous of the "
                f"{ROLES[MODEL_OWNER]}"
            )
        if time.monotonic() > end:
            raise SessionError(
                f"the {ROLES[MODEL_OWNER]} can't be reached at tcp://{host}:{port}: "
                f"{reason} (waited {wait:g} s)"
            )
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


def _handler(url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Give `init_process_group` the store that was met at."""
    query = dict(pair.split("=") for pair in urlsplit(url).query.split("&"))
    yield _met[0], int(query["rank"]), int(query["world_size"])


register_rendezvous_handler(SCHEME, _handler)
