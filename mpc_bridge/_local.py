"""All three roles on this machine, as three processes on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ._config import Config, ConfigError, check_config, read_config
from ._handshake import ROLES, SessionError
from ._session import FIRST_PARTY, RANKS, WEAKNESSES

if TYPE_CHECKING:
    from ._result import Result

_GRACE = 15.0  # seconds for the others to notice that one has failed
_TAIL = 1 << 14  # characters of what a role says that are kept


def run_local(
    config: Config | str | Path,
    *,
    test_only_first_party: bool = False,
    force: bool = False,
    progress: bool = False,
    notice: bool = True,
) -> Result:
    """Run the model owner, the data owner and the third party, each as a process.

    Args:
        config: A run.toml with both parties' parts, or what `read_config` returned.
        test_only_first_party: Without a third party; protects nothing.
        force: Replace results that lie in the output folders.
        progress: Show the model owner's bars on standard error.
        notice: Show what CrypTen does not protect from, on standard error.

    Returns:
        The model owner's `Result`; the data owner's lies in its output folder.

    Raises:
        ConfigError: If the configuration can't be used.
        SessionError: If a role failed: with what each of them said.
    """
    from ._result import FILE, Result

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        if not isinstance(config, Config):
            path, config = Path(config), read_config(config)
        else:
            check_config(config)
            config.write(path)
        owners = (config.model_owner, config.data_owner)
        if owners[0] is None or owners[1] is None:
            raise ConfigError("local needs model_owner and data_owner in one file")
        if owners[0].output.resolve() == owners[1].output.resolve():
            raise ConfigError(
                "model_owner.output and data_owner.output must be two folders, got "
                f"{owners[0].output} for both"
            )
        for output in (owners[0].output, owners[1].output):
            if (output / FILE).exists() and not force:
                raise ConfigError(f"{output / FILE} exists: --force replaces it")
        if notice:
            text = (
                f"{WEAKNESSES}\n{FIRST_PARTY}" if test_only_first_party else WEAKNESSES
            )
            sys.stderr.write(text + "\n")
        options = ["--part-of-local", "--rendezvous", _address(config)]
        options += ["--force"] if force else []
        options += ["--test-only-first-party"] if test_only_first_party else []
        roles = [
            _Role(role, path, options, shown=progress and role == "model-owner")
            for role in list(RANKS)[: 2 if test_only_first_party else 3]
        ]
        try:
            _wait(roles)
        finally:
            for role in roles:
                role.end()
    failed = [role for role in roles if role.process.returncode != 0]
    if failed:
        raise SessionError("; ".join(f"{r.name}: {r.last_words()}" for r in failed))
    return Result.read(owners[0].output)


class _Role:
    """A process and the end of what it says."""

    def __init__(self, role: str, config: Path, options: list[str], *, shown: bool):
        self.name, self.shown, self.said = ROLES[RANKS[role]], shown, ""
        command = [sys.executable, "-m", "mpc_bridge", role, "--config", str(config)]
        command += [*options, *(["--progress"] if shown else [])]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            while part := os.read(stream.fileno(), 4096):
                text = part.decode(errors="replace")
                self.said = (self.said + text)[-_TAIL:]
                if self.shown:
                    sys.stderr.write(text)
                    sys.stderr.flush()

    def end(self) -> None:
        """End the process if it runs; hear what it has said."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.reader.join(5)

    def last_words(self) -> str:
        """Return the last line, which of a role that fails is its error."""
        code = self.process.returncode
        if code is not None and code < 0:
            return f"ended by signal {-code}"
        lines = self.said.strip().splitlines()
        prefix = f"{self.name}: error: "
        return lines[-1].removeprefix(prefix) if lines else f"ended with status {code}"


def _wait(roles: list[_Role]) -> None:
    """Wait until all have ended, or for a while after one has failed."""
    deadline = None
    while None in (codes := [role.process.poll() for role in roles]):
        if deadline is None and any(codes):
            deadline = time.monotonic() + _GRACE
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _address(config: Config) -> str:
    """Return where to meet, on a free port if the configuration leaves it open."""
    address = config.session.rendezvous
    if not address.endswith(":0"):
        return address
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def _environment() -> dict[str, str]:
    """Return the environment of a role: cores shared out, sockets on loopback only."""
    found = dict(os.environ)
    found.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:
        found.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
    root = str(Path(__file__).resolve().parent.parent)
    found["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [found.get("PYTHONPATH")])]
    )
    return found
