"""CrypTen 0.4.1: the engine that costs are counted for, between parties in trust."""

from ._compat import import_crypten as import_crypten
from ._engine import CryptenEngine as CryptenEngine
from ._layers import ClearProxy as ClearProxy, load as load
