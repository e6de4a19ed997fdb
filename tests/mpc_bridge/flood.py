"""Strangers who hold connections to a port: a process that opens them and keeps them.

    with flood(port, 500, "silent"):
        ...  # 500 connections are open, or have been closed from the other end

What is closed is opened again, for as long as the block lasts.
"""

import contextlib
import errno
import random
import resource
import socket
import ssl
import subprocess
import sys

KINDS = ("silent", "hello", "dripping")


@contextlib.contextmanager
def flood(port, count, kind, networks=1):
    """Hold `count` connections to a port of loopback, from so many addresses."""
    command = [sys.executable, __file__, *map(str, (port, count, kind, networks))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "open\n"
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def hello():
    """Return how a client of TLS begins."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def main(port, count, kind, networks):
    """Open connections until standard input ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    first = {"silent": b"", "hello": hello(), "dripping": b"\x16"}[kind]
    held, told = [], False
    while True:
        if len(held) < count:
            one = socket.socket()
            one.setblocking(False)
            one.bind((f"127.0.0.{random.randint(1, networks)}", 0))
            one.connect_ex(("127.0.0.1", port))
            held.append([one, first])
        elif not told:
            sys.stdout.write("open\n")
            sys.stdout.flush()
            told = True
        # The last one has begun to connect; of the others one may have been closed.
        for each in {id(e): e for e in (held[-1], random.choice(held))}.values():
            one, message = each
            try:
                if message:
                    one.send(message)
                    each[1] = b"\x03" if kind == "dripping" else b""
                if not one.recv(1 << 16):
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno != errno.ENOTCONN:
                    held.remove(each)
                    one.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
