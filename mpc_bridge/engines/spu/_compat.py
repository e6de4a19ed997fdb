"""Load SPU's extension without its Python package: all that works around it.

The package's `__init__` imports a module that jaxlib no longer has, and pins numpy 1
and an old jax; the extension needs neither. It is told everything in StableHLO text.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

_KNOWN = "0.9.5"
_INSTALL = f"pip install --no-deps spu=={_KNOWN}"


def import_spu() -> Any:
    """Import and return the extension `spu.libspu`.

    Raises:
        ImportError: If it is not installed, with how to install it; on a Python or a
            machine that it has no wheel for; or of a version that this file does not
            know.
    """
    extension = sys.modules.get("spu.libspu")
    if extension is not None:
        return extension
    spec = importlib.util.find_spec("spu")
    if spec is None or not spec.submodule_search_locations:
        version = ".".join(map(str, sys.version_info[:2]))
        raise ImportError(
            f"this engine needs SPU: {_INSTALL} (wheels are for CPython 3.10 and "
            f"3.11 on Linux and macOS; this is Python {version} on {sys.platform}: "
            "elsewhere, name the interpreter of an environment that has it by --python "
            "or python=, or take another engine)"
        )
    package = sys.modules.get("spu")
    if package is None:
        package = types.ModuleType("spu")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules["spu"] = package
    try:
        library = importlib.import_module("spu.libspu")
    except ImportError as error:
        raise ImportError(
            f"SPU is installed, and its extension can't be loaded: {error}. {_INSTALL}"
        ) from error
    if library._get_version() != _KNOWN:
        raise ImportError(
            f"this engine knows SPU {_KNOWN}, got {library._get_version()}: {_INSTALL}"
        )
    return library
