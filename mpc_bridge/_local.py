"""Roles as processes of their own: all of them on this machine, or one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._config import Config, Parties, Place, ThirdParty
from ._config_checks import check_config
from ._handshake import FIRST_PARTY, RANKS, ROLES, SessionError, printable
from ._interpreter import check_python, environment
from ._limits import UNLIMITED, Limits
from ._ports import reserved_addresses
from ._private import make_private_folder, temporary_folder
from ._read_config import read_config as read_config
from ._toml import ConfigError
from .engines import Engine, engine_of

if TYPE_CHECKING:
    from ._result import Result

_GRACE = 15.0  # seconds for the others to notice that one has failed
_TAIL = 1 << 14  # characters of what a role says that are kept
_HELPER = "third-party"  # a folder within the model owner's, until the run is done
_DAYS = 1  # of certificates that a local run makes for itself


def run_local(
    config: Config | str | Path,
    *,
    test_only_first_party: bool = False,
    force: bool = False,
    progress: bool = False,
    notice: bool = True,
    python: str | os.PathLike[str] | None = None,
) -> Result:
    """Run all roles on this machine, each as a process, on loopback.

    Args:
        config: A run.toml with all parties' parts, or what `read_config` returned.
            SPU's parties need no addresses and certificates: both are made for the run.
        test_only_first_party: CrypTen without a third party; protects nothing.
        force: Replace results that lie in the output folders.
        progress: Show the model owner's bars on standard error.
        notice: Show what the engine does not protect from, on standard error.
        python: Interpreter of the environment that runs the roles, with this version of
            jaxsel and the engine; None takes this process's.

    Returns:
        The model owner's `Result`; those of the others lie in their output folders.

    Raises:
        ConfigError: If the configuration can't be used.
        SessionError: If a role failed: with what each of them said.
    """
    from ._result import Result

    if not isinstance(config, Config):
        config = read_config(config)
    check_config(config)
    engine = engine_of(config.session.engine)
    if test_only_first_party and engine.name != "crypten":
        raise ConfigError("--test-only-first-party is for engine 'crypten' only")
    owners = (config.model_owner, config.data_owner)
    if owners[0] is None or owners[1] is None:
        raise ConfigError("local needs model_owner and data_owner in one file")
    if owners[0].output.resolve() == owners[1].output.resolve():
        raise ConfigError(
            "model_owner.output and data_owner.output must be two folders, got "
            f"{owners[0].output} for both"
        )
    for owner in (owners[0], owners[1]):
        _check_no_result(owner.output, force=force)
        make_private_folder(owner.output)
    interpreter = check_python(python, engine.name)
    if python is None or config.session.max_hours is None:
        from ._estimate import check_hours

        check_hours(config)
        session = dataclasses.replace(config.session, max_hours=None)  # once for all
        config = dataclasses.replace(config, session=session, network=None)
    # One user plays all roles, and limits nobody but itself: by its own numbers only.
    config = config.with_limits(lambda own: UNLIMITED if own == Limits() else own)
    if notice:
        first = f"\n{FIRST_PARTY}" if test_only_first_party else ""
        sys.stderr.write(f"{engine.notice}{first}\n")
    with (
        temporary_folder("local") as folder,
        reserved_addresses(len(RANKS)) as addresses,
    ):
        path = folder / "run.toml"
        _on_loopback(config, engine, folder, addresses).write(path)
        options = ["--force"] if force else []
        options += ["--test-only-first-party"] if test_only_first_party else []
        ranks = engine.roles[: 2 if test_only_first_party else 3]
        with _ended_by_signals():
            roles: list[_Role] = []
            try:
                for role in (role for role in RANKS if RANKS[role] in ranks):
                    shown = progress and role == "model-owner"
                    roles.append(
                        _Role(role, path, options, shown=shown, python=interpreter)
                    )
                _wait(roles)
            finally:
                for role in roles:
                    role.end()
    failed = [role for role in roles if role.process.returncode != 0]
    if failed:
        raise SessionError("; ".join(f"{r.name}: {r.last_words()}" for r in failed))
    if config.third_party is None:  # its folder was made for this run
        shutil.rmtree(owners[0].output / _HELPER, ignore_errors=True)
    return Result.read(owners[0].output)


def run_role(
    role: str,
    config: Config,
    *,
    force: bool,
    progress: bool,
    notice: bool,
    python: str | os.PathLike[str] | None = None,
) -> Result:
    """Run one role as a process; see `run`.

    Raises:
        ConfigError: If there is a result, the role's own part is missing, or the
            interpreter does not fit.
        SessionError: If it failed: with what it said.
    """
    from ._result import Result

    part = config.part(RANKS[role])
    if part is None:
        raise ConfigError(f"{role.replace('-', '_')} is missing: its own part")
    _check_no_result(part.output, force=force)
    interpreter = check_python(python, config.session.engine)
    if notice:
        sys.stderr.write(engine_of(config.session.engine).notice + "\n")
    with temporary_folder("role") as folder:
        path = folder / "run.toml"
        config.write(path)
        options = ["--force"] if force else []
        with _ended_by_signals():
            process = _Role(role, path, options, shown=progress, python=interpreter)
            try:
                process.process.wait()
            finally:
                process.end()
    if process.process.returncode:
        raise SessionError(process.last_words())
    return Result.read(part.output)


def _check_no_result(output: Path, *, force: bool) -> None:
    """Refuse to replace a result, unless its run was cut before all parties had one."""
    from ._journal import FOLDER
    from ._result import FILE

    if (output / FILE).exists() and not force and not (output / FOLDER).exists():
        raise ConfigError(f"{output / FILE} exists: --force replaces it")


def _on_loopback(
    config: Config, engine: type[Engine], folder: Path, addresses: list[str]
) -> Config:
    """Return the configuration with its parties at `addresses` of loopback."""
    session = config.session
    if session.engine == "published":
        raise ConfigError(
            "local is for engines with two parties: a published proxy is run by "
            "'data-owner' alone"
        )
    if session.engine == "crypten":
        if str(session.rendezvous).endswith(":0"):
            address = f"tcp://{addresses[0]}"
            session = dataclasses.replace(session, rendezvous=address)
        return dataclasses.replace(config, session=session)
    from ._certs import make_all

    changes: dict[str, Any] = {}
    names = [role for role in RANKS if RANKS[role] in engine.roles]
    folders = make_all(folder / "certs", names, days=_DAYS)
    places = {
        name.replace("-", "_"): Place(name=name, address=address)
        for name, address in zip(names, addresses, strict=False)
    }
    changes["parties"] = Parties(**places)
    assert config.model_owner is not None
    helper = config.model_owner.output / _HELPER
    if (helper / "result.json").exists():  # all parties have one, so that it is done
        shutil.rmtree(helper)
    third = config.third_party or ThirdParty(output=helper, limits=UNLIMITED)
    parts = {
        "model-owner": config.model_owner,
        "data-owner": config.data_owner,
        "third-party": third,
    }
    for name in names:
        part = dataclasses.replace(parts[name], certificates=folders[name])
        changes[name.replace("-", "_")] = part
    return dataclasses.replace(config, **changes)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that children are ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def stop(number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        sys.stderr.write(f"ended by {name}, and all roles that were started here\n")
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Role:
    """A process and the tail of its standard error."""

    def __init__(
        self, role: str, config: Path, options: list[str], *, shown: bool, python: str
    ):
        self.name, self.shown, self.said = ROLES[RANKS[role]], shown, ""
        # -P: modules in the current folder must not stand in for the library's.
        command = [python, "-P", "-m", "mpc_bridge", role, "--config", str(config)]
        command += ["--part-of-local", str(os.getpid()), *options]
        command += ["--progress"] if shown else []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(python),
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
        """Terminate the process if it runs, and drain its standard error."""
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
        if not lines:
            return f"ended with status {code}"
        return printable(lines[-1].removeprefix(prefix))


def _wait(roles: list[_Role]) -> None:
    """Wait until all have ended, or for a while after one has failed."""
    deadline = None
    while None in (codes := [role.process.poll() for role in roles]):
        if deadline is None and any(codes):
            deadline = time.monotonic() + _GRACE
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(0.02)
