"""The folder in which jaxsel keeps files of its own."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(part: str) -> Path:
    """Return the folder where jaxsel keeps a kind of files; it may not exist yet.

    It lies in `$JAXSEL_CACHE`, or else in `~/.cache/jaxsel`.
    """
    root = os.environ.get("JAXSEL_CACHE") or "~/.cache/jaxsel"
    return Path(root).expanduser().absolute() / part
