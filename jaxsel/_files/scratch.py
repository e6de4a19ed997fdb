"""Folders to work in, under a lock that goes with its process."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked_scratch(name: str, root: Path) -> Iterator[Path]:
    """Hold the only lock for `name`, and an empty folder to work in.

    Waits while another process has it. The lock ends with its process, however that
    ends; files of a killed process are removed by the next. The folder is on the same
    file system as `root`, so that results can be moved there in one step.
    """
    hidden = root / ".jaxsel"
    hidden.mkdir(parents=True, exist_ok=True)
    for leftover in hidden.glob("*.tmp"):
        if leftover.stem != name:
            with locked(hidden / f"{leftover.stem}.lock", wait=False) as held:
                if held:
                    shutil.rmtree(leftover, ignore_errors=True)
    with locked(hidden / f"{name}.lock", wait=True):
        scratch = hidden / f"{name}.tmp"
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a file, and yield True; without `wait` False if it is held."""
    import fcntl  # not on Windows

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
