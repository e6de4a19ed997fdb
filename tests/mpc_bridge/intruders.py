"""Strangers at an open port: what a scanner, a wrong program or an attacker sends.

    for name in attack("127.0.0.1", port, stranger=folder):
        ...  # the session goes on

None of them has a key that a party trusts.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from waits import PATIENCE

_ANSWER = 0.3  # seconds; most get none
_Address = tuple[str, int]


def attack(
    host: str, port: int, *, stranger: Path | None = None, only: str | None = None
) -> Iterator[str]:
    """Do each thing once, and yield its name; connections left open end at the end.

    Args:
        host: Of the port.
        port: The open port.
        stranger: A folder with `key.pem` and `certificate.pem` of another party; left
            out, that attack is.
        only: One of the names.
    """
    attacks: dict[str, Callable[[_Address, contextlib.ExitStack], None]] = {
        "plain HTTP": _sends(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        "random bytes": lambda at, _: _send(at, os.urandom(1 << 16)),
        "TLS without a certificate": lambda at, _: _tls(at, None),
        "half-open": _half_open,
        "HTTP/2 preface": _sends(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
        "huge header": _sends(b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 22)),
        "brpc framing": _sends(
            b"PRPC" + struct.pack(">II", 1 << 31, 7) + b"\xff" * 999
        ),
        "closed at once": _closed,
        "reset at once": _reset,
        "one byte at a time": _slowly,
        "TLS 1.0": lambda at, _: _tls(at, None, old=True),
        "TLS record that lies": _sends(b"\x16\x03\x01\xff\xff\x01\x00\xff\xfc\x03\x03"),
    }
    if stranger is not None:
        attacks["another party's certificate"] = lambda at, _: _tls(at, stranger)
    with contextlib.ExitStack() as left_open:
        for name, act in attacks.items():
            if only not in (None, name):
                continue
            with contextlib.suppress(OSError):  # refused: as it should be
                act((host, port), left_open)
            yield name


def _sends(data: bytes) -> Callable[[_Address, contextlib.ExitStack], None]:
    return lambda at, _: _send(at, data)


def _send(at: _Address, data: bytes) -> None:
    with socket.create_connection(at, timeout=PATIENCE) as one:
        one.settimeout(_ANSWER)
        one.sendall(data)
        one.recv(1 << 16)


def _half_open(at: _Address, left_open: contextlib.ExitStack) -> None:
    for _ in range(20):
        left_open.enter_context(socket.create_connection(at, timeout=PATIENCE))


def _closed(at: _Address, left_open: contextlib.ExitStack) -> None:
    del left_open
    for _ in range(20):
        socket.create_connection(at, timeout=PATIENCE).close()


def _reset(at: _Address, left_open: contextlib.ExitStack) -> None:
    del left_open
    for _ in range(20):
        with socket.create_connection(at, timeout=PATIENCE) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _slowly(at: _Address, left_open: contextlib.ExitStack) -> None:
    one = left_open.enter_context(socket.create_connection(at, timeout=PATIENCE))
    for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03":
        one.sendall(bytes([byte]))
        time.sleep(0.05)


def _tls(at: _Address, folder: Path | None, *, old: bool = False) -> None:
    """Shake hands as a client that trusts anybody, and send a request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if folder is not None:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    if old:
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(at, timeout=PATIENCE) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        wrapped.settimeout(_ANSWER)
        wrapped.sendall(b"PRPC" + struct.pack(">II", 64, 16) + bytes(64))
        wrapped.recv(1 << 16)
