"""Pairs of SPU links in two processes, as parties of a session make them.

A worker plays one rank at a time: it reads a case as a line of JSON, makes a link,
sends the other "hello", and writes what came of it. What the engine prints goes to
stderr.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ports import free_ports
from waits import PATIENCE, until

from mpc_bridge import _certs
from mpc_bridge.engines.spu import _link, _tunnel, import_spu

# A link whose peer is gone ends the process when it is deleted or stopped.
_LEFT: list[Any] = []
_TESTS = Path(__file__).resolve().parents[1]
_PATH = f"{_TESTS.parent}{os.pathsep}{_TESTS}"


def there() -> bool:
    return importlib.util.find_spec("spu") is not None


class Pair:
    """Two workers.

    Attributes:
        noise: What they have printed beside their results, once they are closed.
    """

    def __init__(self) -> None:
        self.noise = ""
        self._noise = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.workers = [
            subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._noise,
                text=True,
                env=dict(os.environ, PYTHONPATH=_PATH),
            )
            for _ in range(2)
        ]

    def start(self, ports: Sequence[int], cases: Sequence[Mapping[str, Any]]) -> None:
        """Give each worker its case: the arguments of `_play`, its own ports among
        them if it reaches the other by other ones."""
        for rank, (worker, case) in enumerate(zip(self.workers, cases, strict=True)):
            assert worker.stdin is not None
            line = json.dumps({"rank": rank, "ports": list(ports), **case})
            worker.stdin.write(line + "\n")
            worker.stdin.flush()

    def results(self) -> list[dict[str, Any]]:
        return [self.result(rank) for rank in range(2)]

    def run(self, *cases: Mapping[str, Any]) -> list[dict[str, Any]]:
        self.start(free_ports(2), cases)
        return self.results()

    def close(self) -> None:
        """Let both end; those that were killed have."""
        for worker in self.workers:
            for end in (worker.stdin, worker.stdout):
                if end is not None:
                    end.close()
        for worker in self.workers:
            worker.wait(timeout=PATIENCE)
        with self._noise as file:
            file.seek(0)
            self.noise = file.read()

    def result(self, rank: int) -> dict[str, Any]:
        worker = self.workers[rank]
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {worker.wait(timeout=PATIENCE)}")
        return json.loads(line)


@contextlib.contextmanager
def pair() -> Iterator[Pair]:
    made = Pair()
    try:
        yield made
    finally:
        made.close()


def _play(
    spu: Any,
    *,
    rank: int,
    ports: list[int],
    folder: str,
    bare: bool = False,
    timeout: float = PATIENCE,
    wait: float = PATIENCE,
    messages: int = 1,
    size: int = 0,
    hold: float = 0.0,
    talking: str | None = None,
    stay: str | None = None,
) -> dict[str, Any]:
    """Play one rank: in a tunnel, or bare, with the link's own TLS.

    Once it has heard three messages it makes the file `talking`, and it leaves when
    there is a file `stay`, if that is named. With an error come
    the seconds that it `waited` since the last message.
    """
    desc = spu.link.Desc()
    credentials = _certs.load(folder)
    hosts = [f"127.0.0.1:{port}" for port in ports]
    names = [credentials.own.name, credentials.peers[0].name]
    parties = list(zip(names[::-1] if rank else names, hosts, strict=True))
    start = last = time.monotonic()
    try:
        if bare:
            desc.enable_ssl = True
            for side in (desc.client_ssl_opts, desc.server_ssl_opts):
                side.cert.certificate_path = str(credentials.own.path)
                side.cert.private_key_path = str(credentials.key)
                side.verify.verify_depth = 1
                side.verify.ca_file_path = str(credentials.peers[0].path)
        else:
            tunnel = _tunnel.Tunnel(
                credentials,
                rank=rank,
                parties=parties,
                timeout=timeout,
            )
            _LEFT.append(tunnel)
            tunnel.meet(wait)
            hosts = tunnel.hosts
        _link.link_options(desc, hosts, timeout=timeout)
        link = _link.connect(spu, desc, rank, timeout=wait)
        _LEFT.append(link)
        heard = []
        for i in range(messages):
            text = f"hello {rank} {i}"
            text += "x" * (size - len(text))
            heard.append(link.all_gather(text)[1 - rank])
            last = time.monotonic()
            if talking and len(heard) == 3:
                Path(talking).touch()
            time.sleep(hold)
        if stay:
            until(Path(stay).exists, "it may leave")
        _link.finish(link)
    except Exception as error:
        text = _link.one_sentence(error)
        now = time.monotonic()
        return {"error": text, "seconds": now - start, "waited": now - last}
    result = {"heard": [text.rstrip("x") for text in heard]}
    if not bare:
        result |= {"sent": tunnel.sent[1 - rank], "received": tunnel.received[1 - rank]}
    return {**result, "seconds": time.monotonic() - start}


def main() -> None:
    # The engine prints on stdout as well.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        spu = import_spu()
        _link.quiet(spu)
        for line in sys.stdin:
            out.write(json.dumps(_play(spu, **json.loads(line))) + "\n")
            out.flush()
        for each in _LEFT:
            if isinstance(each, _tunnel.Tunnel):
                each.close()
        os._exit(0)


if __name__ == "__main__":
    main()
