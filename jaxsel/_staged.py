"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path


@contextlib.contextmanager
def staged(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path beside each, and move all into place on success.

    They are moved in the order given. A run that fails or is killed before leaves what
    was there; one that is killed between two moves leaves the first files new and the
    others old, so that files which must fit carry each other's hashes.
    """
    parts = [path.with_name(f".{os.getpid()}.{path.name}") for path in paths]
    try:
        yield parts
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
