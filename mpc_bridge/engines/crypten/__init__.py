"""CrypTen 0.4.1: the engine that costs are counted for, between parties in trust."""

from ._compat import import_crypten as import_crypten

import_crypten()  # says what is missing, where the modules below would fail to import

from ._engine import CryptenEngine as CryptenEngine  # noqa: E402
from ._layers import ClearProxy as ClearProxy, load as load  # noqa: E402
