"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

# Errors of a write, which does not name the file.
_UNNAMED = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO


@contextlib.contextmanager
def staged(
    paths: Sequence[Path], *, folder: Path | None = None
) -> Iterator[list[Path]]:
    """Yield a temporary path beside each, and move all into place on success.

    They are moved in the order given, once all of them are on disk. A run that fails or
    is killed before that leaves the old files; one that is killed between two moves
    leaves the first files new and the others old, so files that must fit carry each
    other's hashes.

    Args:
        paths: The files, at least one.
        folder: Made first if it is not there, and removed if the run fails.

    Raises:
        OSError: If a file cannot be written; names the file also if a disk is full.
    """
    missing: list[Path] = []
    while folder is not None and not folder.exists():
        missing.append(folder)
        folder = folder.parent
    parts = [path.with_name(f".{os.getpid()}.{path.name}") for path in paths]
    try:
        if missing:
            missing[0].mkdir(parents=True, exist_ok=True)
        yield parts
        # On disk before their names are: a crash leaves whole files, or none.
        for part in parts:
            _sync(part)
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)
        for parent in {path.parent for path in paths}:
            _sync(parent)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in _UNNAMED:
            error.filename = error.filename or os.fspath(_last_written(paths, parts))
        for part in parts:
            part.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not there, or others wrote to it
            for directory in missing:
                directory.rmdir()
        raise


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    if os.name == "nt":  # which opens no folder, and syncs what is open for writing
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # no such file system
            raise
    finally:
        os.close(handle)


def _last_written(paths: Sequence[Path], parts: Sequence[Path]) -> Path:
    """Return the file written last, or the first path if none was begun."""
    started = [
        (part.stat().st_mtime_ns, path)
        for part, path in zip(parts, paths, strict=True)
        if part.exists()
    ]
    return max(started)[1] if started else paths[0]
