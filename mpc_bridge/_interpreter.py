"""The Python interpreter of the roles: this process's, or another environment's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from jaxsel import __version__

from ._handshake import printable
from ._toml import ConfigError

# An environment that lacks something says so in its last line.
_VERSIONS = """
import json, sys
import jaxsel
from mpc_bridge.engines import engine_of
versions = engine_of(sys.argv[1]).versions()
print(json.dumps({"jaxsel": jaxsel.__version__, "versions": versions}))
"""
_PATIENCE = 300.0  # seconds, for imports on a busy machine


def check_python(python: str | os.PathLike[str] | None, engine: str) -> str:
    """Return the interpreter of a role's process after checking its packages.

    Args:
        python: Path or name of the interpreter of an environment that has this version
            of jaxsel and the engine; None takes this process's own, unchecked.
        engine: Name of the engine.

    Raises:
        ConfigError: If it is no interpreter, lacks a package, or has another version
            of jaxsel than this process.
    """
    if python is None:
        return sys.executable
    name = os.path.expanduser(os.fspath(python))
    # Links stay as they are: an environment is known by the path of its interpreter.
    path = shutil.which(name)
    if path is None:
        raise ConfigError(
            "python must be the interpreter of an environment, such as "
            f"secure/bin/python, got {name!r}: there is no such program"
        )
    path = os.path.abspath(path)
    try:
        asked = subprocess.run(
            [path, "-c", _VERSIONS, engine],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=_foreign_environment(),
            timeout=_PATIENCE,
        )
        answer = json.loads(asked.stdout) if asked.returncode == 0 else None
        reason = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        theirs = None if answer is None else answer["jaxsel"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as why:
        theirs, reason = None, f"no answer of a Python interpreter ({why})"
    if theirs is None:
        raise ConfigError(
            f"python must have jaxsel {__version__} and engine {engine!r}, got {path}: "
            f"{printable(reason)}"
        )
    if theirs != __version__:
        raise ConfigError(
            f"python must have the jaxsel of this process, {__version__}, got "
            f"{printable(str(theirs), 60)} in {path}: install one version in both"
        )
    return path


def environment(python: str | None = None) -> dict[str, str]:
    """Return the environment of a role: cores shared out, sockets on loopback only.

    Args:
        python: Interpreter of the role. If None, that of this process.
    """
    same = python in (None, sys.executable)
    variables = dict(os.environ) if same else _foreign_environment()
    variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
    # SPU sets the number itself. Where its threads have no core of their own, products
    # of matrices wait for each other by spinning: 25 times as long with three roles.
    variables.setdefault("OMP_THREAD_LIMIT", variables["OMP_NUM_THREADS"])
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:
        variables.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
    if not same:
        return variables
    root = str(Path(__file__).resolve().parent.parent)
    variables["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [variables.get("PYTHONPATH")])]
    )
    return variables


def _foreign_environment() -> dict[str, str]:
    """Return the environment without variables that name this interpreter."""
    foreign = dict(os.environ)
    for name in ("PYTHONHOME", "__PYVENV_LAUNCHER__"):
        foreign.pop(name, None)
    return foreign
