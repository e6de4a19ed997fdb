"""SPU's link between parties, through a tunnel: its options, start and end, its log.

The link of SPU 0.9.5 (yacl, brpc) as tests/mpc_bridge/test_link.py finds it. A message
that can't be sent is tried again, and then the link **ends the process** with status
255, with no exception, and nothing of Python's cleaned up (yacl's
`exit_if_async_error`, which has no setting here). So `link_options` makes it try for
longer than any wait: the wait for the peer's next message ends first, in an exception.
`stop_link` is never called for the same reason: a peer that leaves a moment earlier
can't be sent its last acknowledgement. A process whose link has failed or is finished
must end by `os._exit`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpc_bridge._handshake import SessionError


def link_options(desc: Any, hosts: Sequence[str], *, timeout: float = 60.0) -> None:
    """Set addresses and timeouts on a link's description.

    Args:
        desc: An `spu.libspu.link.Desc`.
        hosts: Of all parties by rank, as `Tunnel.hosts` has them.
        timeout: Of every wait for a message, in seconds: longer than a peer's longest
            computation between two messages. A connection that breaks is made again
            every three seconds, so less than 5 is not allowed.

    Raises:
        ValueError: If the timeout is not a finite number of at least 5 seconds.
    """
    if not (math.isfinite(timeout) and timeout >= 5):
        raise ValueError(f"timeout must be finite and at least 5 s, got {timeout}")
    for i, host in enumerate(hosts):
        desc.add_party(f"party-{i}", host)
    desc.recv_timeout_ms = desc.http_timeout_ms = round(timeout * 1e3)
    retry = desc.retry_opts
    retry.retry_interval_ms = retry.retry_interval_incr_ms = 250
    retry.max_retry_interval_ms = 2000
    retry.max_retry = 60 + math.ceil(timeout)  # two seconds each: twice as long
    desc.connect_retry_times, desc.connect_retry_interval_ms = 10, 250


def connect(libspu: Any, desc: Any, rank: int, *, timeout: float = 60.0) -> Any:
    """Return a link to all peers, who have met.

    Args:
        libspu: The module `spu.libspu`.
        desc: As `link_options` left it.
        rank: Of this party.
        timeout: In seconds, for all peers together.

    Raises:
        SessionError: If there is no link by then. The engine goes on trying in a thread
            that can't be stopped: end the process.
    """
    links: list[Any] = []

    def work() -> None:
        try:
            links.append(libspu.link.create_brpc(desc, rank))
        except Exception as error:
            links.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout)
    if not links:
        raise SessionError(f"no link with the other party within {timeout:g} s")
    if isinstance(links[0], Exception):
        raise SessionError(f"no link with the other party: {one_sentence(links[0])}")
    return links[0]


def finish(link: Any, *, linger: float = 2.0) -> None:
    """Wait until every peer has reached the end; the last call on a link.

    Then it stays a moment for those who have not heard of it, and returns whether or
    not they have: a last message can't be confirmed.

    Args:
        link: As `connect` returns it.
        linger: In seconds, at most.

    Raises:
        RuntimeError: If a peer does not reach the end within the link's timeout.
    """
    link.all_gather("end")
    peers = [rank for rank in range(link.world_size) if rank != link.rank]

    def leave() -> None:
        # Only those who have heard of all others say so. A failure means nothing.
        with contextlib.suppress(Exception):
            for rank in peers:
                link.send(rank, "left")
            for rank in peers:
                link.recv(rank)

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(linger)


def leave(link: Any, *, patience: float = 10.0) -> None:
    """Do as `finish` for a session that ends early: some seconds, and no error."""

    def end() -> None:
        with contextlib.suppress(Exception):
            finish(link)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    thread.join(patience)


def quiet(libspu: Any, log: str | Path = os.devnull) -> None:
    """Send the engine's log, brpc's included, to a file, and only its errors.

    Without it each failed handshake is a line on standard error, and warnings go to
    standard output. It holds for the whole process.

    Args:
        libspu: The module `spu.libspu`.
        log: Where the lines go; they name addresses and sizes.
    """
    options = libspu.logging.LogOptions()
    options.enable_console_logger = False
    options.system_log_path = str(log)
    options.log_level = libspu.logging.LogLevel.ERROR
    if str(log) == os.devnull:
        # A full log is renamed, which must not happen to a device.
        options.max_log_file_size = 1 << 60
    libspu.logging.setup_logging(options)


def one_sentence(error: BaseException) -> str:
    """Return the text of an engine's error, without places in its source."""
    text = str(error).split("\nstacktrace")[0].removeprefix("what:").strip()
    if text.startswith("["):
        text = text.partition("] ")[2]
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]
