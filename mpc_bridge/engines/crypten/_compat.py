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
_KNOWN = "0.4.1"
_NOW = "torch.onnx._internal.torchscript_exporter.registration"


def import_crypten() -> Any:
    """Import and return the `crypten` module.

    Raises:
        ImportError: If torch or CrypTen is not installed, with how to install them, or
            of a version that this file does not know.
    """
    try:
        torch = importlib.import_module("torch")
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
                f"pip install --no-deps crypten=={_KNOWN} (with torch "
                f"{torch.__version__} the import failed: {error})"
            ) from error
    if crypten.__version__ != _KNOWN:
        raise ImportError(
            f"the secure phase knows CrypTen {_KNOWN}, got {crypten.__version__}: "
            f"pip install --no-deps crypten=={_KNOWN}"
        )
    return crypten


def _moved_module() -> types.ModuleType:
    try:
        return importlib.import_module(_NOW)
    except ImportError:
        return types.ModuleType(_MOVED)
