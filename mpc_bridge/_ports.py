"""Ports of loopback for parties that meet on this machine."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_addresses(count: int) -> Iterator[list[str]]:
    """Yield addresses on loopback at which nobody listens.

    Seconds pass before a party listens at its own. On Linux no other program is given
    the port until then, nor for as long as the context lasts: a socket stays bound to
    it, beside which one that reuses addresses can listen. Elsewhere a port is free
    when it is chosen, and may be taken before it is used.
    """
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held_socket in held:
            held_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held_socket.bind(("127.0.0.1", 0))
        addresses = [
            f"127.0.0.1:{held_socket.getsockname()[1]}" for held_socket in held
        ]
        if sys.platform != "linux":  # there, no socket can listen beside another
            stack.close()
        yield addresses
