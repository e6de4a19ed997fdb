"""Ports of loopback that no other test is given."""

import socket

_held = []  # as mpc_bridge._ports does; here until the tests end


def free_ports(count):
    """Return ports at which nobody listens, for what reuses addresses.

    On Linux none of them is handed out again, as a port to listen at or for a
    connection, before the tests end.
    """
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    _held.extend(held)
    return [each.getsockname()[1] for each in held]


def free_address():
    return f"127.0.0.1:{free_ports(1)[0]}"
