"""The secure phase between two parties, on SPU or CrypTen; torch lives here only.

A model owner exports a proxy, a data owner gets its manifest, and both score and choose
the data owner's samples without showing each other anything but the choice. Each engine
says what it does not protect from: `engines.engine_of(name).notice`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._choose import choose as choose
    from ._config import Config as Config, Parties as Parties, Place as Place
    from ._export import export as export, read_manifest as read_manifest
    from ._handshake import Refused as Refused, SessionError as SessionError
    from ._ledger import Ledger as Ledger
    from ._limits import Limits as Limits
    from ._local import run_local as run_local
    from ._read_config import read_config as read_config
    from ._result import Result as Result
    from ._scoring import (
        score_pool as score_pool,
        to_crypten as to_crypten,
    )
    from ._selection import run_selection as run_selection
    from ._session import deal as deal, run as run
    from ._toml import ConfigError as ConfigError
    from .engines.crypten import (
        import_crypten as import_crypten,
        load as load,
    )

# Imported when asked for: CrypTen, and what a party does not need, take seconds.
_MODULES = {
    "choose": "_choose",
    "import_crypten": "engines.crypten",
    "Config": "_config",
    "ConfigError": "_toml",
    "Parties": "_config",
    "Place": "_config",
    "read_config": "_read_config",
    "export": "_export",
    "read_manifest": "_export",
    "Refused": "_handshake",
    "SessionError": "_handshake",
    "load": "engines.crypten",
    "to_crypten": "_scoring",
    "Limits": "_limits",
    "Ledger": "_ledger",
    "run_local": "_local",
    "Result": "_result",
    "score_pool": "_scoring",
    "run_selection": "_selection",
    "deal": "_session",
    "run": "_session",
}
__all__ = list(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
