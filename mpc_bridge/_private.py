"""Files and folders that their user alone may open, and that are whole or absent.

A temporary folder is locked by the process that holds it. The lock goes with the
process, however that ends, so that the next one knows which folders nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_PREFIX = "jaxsel-"
_LOCK = ".lock"
_SOCKETS = 70  # bytes of a path, to which 31 are added
_held: dict[Path, int] = {}  # folders of this process, and their locks


def hold_folder(kind: str, *, for_sockets: bool = False) -> Path:
    """Make a temporary folder that this process holds until `remove_folder`.

    Folders of processes that have ended, by a kill or a crash, are removed first.

    Args:
        kind: A word for its name.
        for_sockets: Whether sockets lie in it. Their paths have at most 107 bytes (103
            on macOS), so that it lies in `/tmp` if the usual place is too far down.
    """
    base = tempfile.gettempdir()
    if for_sockets and len(os.fsencode(base)) > _SOCKETS:
        base = "/tmp"
    sweep(base)
    # Of mode 0700.
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=base))
    new = folder / f"{_LOCK}.new"
    lock = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: never swept
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Only now can others see it: a lock that nobody holds yet would be swept.
        new.rename(folder / _LOCK)
    _held[folder] = lock
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder of `hold_folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _held.pop(folder, None)
    if lock is not None:
        os.close(lock)


def remove_held_folders() -> None:
    """Remove all folders that this process holds: it is about to end."""
    for folder in [*_held]:
        remove_folder(folder)


@contextlib.contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Hold a temporary folder inside the context; see `hold_folder`."""
    folder = hold_folder(kind)
    try:
        yield folder
    finally:
        remove_folder(folder)


def sweep(base: str | None = None) -> None:
    """Remove temporary folders of this user's processes that have ended.

    Args:
        base: Where they lie; None takes the usual place.
    """
    for folder in Path(base or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def make_private_folder(folder: Path) -> None:
    """Make a folder, and its parents, for its owner alone; one that exists stays."""
    if not folder.parent.exists():
        make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes | Callable[[IO[bytes]], object]) -> None:
    """Write a file that only its owner can read, atomically and durably.

    Args:
        path: The file.
        data: Its content, or what writes it to the open file.

    Raises:
        OSError: If that fails, such as on a full disk: names the file. What was there
            is as it was.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data) if isinstance(data, bytes) else data(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = os.fspath(path)
        raise


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk, so that they outlast a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
