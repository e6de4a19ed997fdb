"""The secure two-party phase on CrypTen; torch lives here only.

A model owner exports a proxy, a data owner gets its manifest, and both score and choose
the data owner's samples without showing each other anything else. CrypTen as it ships
is for measurement, between parties that trust each other: see `WEAKNESSES`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._appraise import appraise as appraise
    from ._choose import Chosen as Chosen, choose as choose
    from ._compat import import_crypten as import_crypten
    from ._config import (
        Config as Config,
        ConfigError as ConfigError,
        read_config as read_config,
    )
    from ._export import export as export, read_manifest as read_manifest
    from ._handshake import Refused as Refused, SessionError as SessionError
    from ._layers import (
        ClearProxy as ClearProxy,
        SecureProxy as SecureProxy,
        load as load,
        to_crypten as to_crypten,
    )
    from ._ledger import Ledger as Ledger, Spent as Spent
    from ._local import run_local as run_local
    from ._result import Result as Result
    from ._scoring import score_pool as score_pool, share_inputs as share_inputs
    from ._selection import run_selection as run_selection
    from ._session import WEAKNESSES as WEAKNESSES, deal as deal, run as run

# Imported when asked for: CrypTen, and what a party does not need, take seconds.
_MODULES = {
    "appraise": "_appraise",
    "Chosen": "_choose",
    "choose": "_choose",
    "import_crypten": "_compat",
    "Config": "_config",
    "ConfigError": "_config",
    "read_config": "_config",
    "export": "_export",
    "read_manifest": "_export",
    "Refused": "_handshake",
    "SessionError": "_handshake",
    "ClearProxy": "_layers",
    "SecureProxy": "_layers",
    "load": "_layers",
    "to_crypten": "_layers",
    "Ledger": "_ledger",
    "Spent": "_ledger",
    "run_local": "_local",
    "Result": "_result",
    "score_pool": "_scoring",
    "share_inputs": "_scoring",
    "run_selection": "_selection",
    "WEAKNESSES": "_session",
    "deal": "_session",
    "run": "_session",
}
__all__ = list(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
