"""A relay that knows where records of TLS begin, and changes what it passes on.

    with Mangler(("127.0.0.1", port), dropped) as mangler:
        connect(mangler.address)

It has no key: it sees records, and can leave them out, repeat and exchange them.
"""

import contextlib
import itertools
import socket
import threading

from waits import PATIENCE

AT = 12
"""The record of data that is changed: behind the handshake and the first messages."""
_DATA = 23  # the type of encrypted records


def dropped(records, earlier):
    for i, record in enumerate(records):
        if i != AT:
            yield record


def doubled(records, earlier):
    for i, record in enumerate(records):
        yield record
        if i == AT:
            yield record


def exchanged(records, earlier):
    for i, record in enumerate(records):
        if i == AT:
            yield next(records)
        yield record


def flipped(records, earlier):
    for i, record in enumerate(records):
        yield record[:-1] + bytes([record[-1] ^ 1]) if i == AT else record


def shortened(records, earlier):
    for i, record in enumerate(records):
        if i == AT:
            record = record[:3] + (len(record) - 6).to_bytes(2) + record[5:-1]
        yield record


def replayed(records, earlier):
    """Put a record of an earlier connection of the same parties in between."""
    for i, record in enumerate(records):
        if i == AT and earlier:
            yield earlier[AT]
        yield record


def repeated_from_the_start(records, earlier):
    for i, record in enumerate(records):
        yield record
        if i == AT:
            yield from earlier


CHANGES = (
    dropped,
    doubled,
    exchanged,
    flipped,
    shortened,
    replayed,
    repeated_from_the_start,
)


class Mangler:
    """Listen on loopback, and pass connections on to a target.

    Attributes:
        address: Where it listens.
        recorded: Of each connection, the encrypted records that went to the target.
    """

    def __init__(self, target, change, earlier=()):
        self.target, self.change, self.earlier = target, change, list(earlier)
        self.recorded, self.raw = [], []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(PATIENCE)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self.target, timeout=PATIENCE)
                for work in (self._forward, self._back):
                    threading.Thread(target=work, args=(near, far), daemon=True).start()

    def _forward(self, near, far):
        kept, raw = [], []
        self.recorded.append(kept)
        self.raw.append(raw)
        with contextlib.suppress(OSError, EOFError):
            plain = records_of(near)
            for record in plain:
                raw.append(record)
                if record[0] == _DATA:
                    break
                far.sendall(record)
            data = itertools.chain([record], plain)
            noted = noting(data, kept)
            for record in self.change(noted, self.earlier):
                far.sendall(record)
        for each in (near, far):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _back(self, near, far):
        with contextlib.suppress(OSError):
            while piece := far.recv(1 << 16):
                near.sendall(piece)
        for each in (near, far):
            each.close()


def noting(records, kept):
    for record in records:
        kept.append(record)
        yield record


def records_of(one):
    """Yield the records that a socket receives."""
    while True:
        head = exactly(one, 5)
        yield head + exactly(one, int.from_bytes(head[3:]))


def exactly(one, size):
    data = b""
    while len(data) < size:
        piece = one.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
