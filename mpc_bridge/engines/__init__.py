"""Engines: one folder each, behind one face."""

from __future__ import annotations

import importlib

from ._face import (
    DATA_OWNER as DATA_OWNER,
    FEWEST_BITS as FEWEST_BITS,
    MODEL_OWNER as MODEL_OWNER,
    THIRD_PARTY as THIRD_PARTY,
    Book as Book,
    Count as Count,
    Engine as Engine,
    Meeting as Meeting,
    Program as Program,
    Secret as Secret,
    Unseen as Unseen,
)

ENGINES = {
    "spu-cheetah": ("spu", "CheetahEngine"),
    "spu-aby3": ("spu", "Aby3Engine"),
    "spu-aby3-128": ("spu", "WideAby3Engine"),
    "crypten": ("crypten", "CryptenEngine"),
    "published": ("published", "PublishedEngine"),
}
"""Folder and class of each engine, by its name in a run.toml."""


def engine_of(name: str) -> type[Engine]:
    """Return the class of an engine.

    Raises:
        ImportError: If what it needs is not installed, with how to install it.
    """
    folder, kind = ENGINES[name]
    return getattr(importlib.import_module(f"{__name__}.{folder}"), kind)
