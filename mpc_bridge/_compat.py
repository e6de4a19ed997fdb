"""Make CrypTen 0.4.1 importable on current PyTorch: the only file that works around it.

CrypTen reads `torch.onnx._internal.registration`, which PyTorch 2.9 moved. It is used
by the ONNX importer alone, which the bridge never calls: it builds its layers from
arrays. The warnings silenced here are raised while CrypTen is imported, about its own
use of deprecated calls.
"""

import importlib
import sys
import types
import warnings
from typing import Any

_MOVED = "torch.onnx._internal.registration"
_NOW = "torch.onnx._internal.torchscript_exporter.registration"


def import_crypten() -> Any:
    """Import and return the `crypten` module.

    Raises:
        ImportError: If torch or CrypTen is not installed, with how to install them.
    """
    try:
        importlib.import_module("torch.onnx")
    except ImportError as error:
        raise ImportError(
            "the secure phase needs PyTorch: pip install 'jaxsel[mpc]'"
        ) from error
    if _MOVED not in sys.modules:
        try:
            importlib.import_module(_MOVED)
        except ImportError:
            sys.modules[_MOVED] = _moved_module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import crypten
        except ImportError as error:
            raise ImportError(
                "the secure phase needs CrypTen, without its dependencies: "
                "pip install --no-deps crypten==0.4.1"
            ) from error
    return crypten


def _moved_module() -> types.ModuleType:
    try:
        return importlib.import_module(_NOW)
    except ImportError:
        return types.ModuleType(_MOVED)
