"""SPU: secure computation between parties that do not trust each other."""

from ._compat import import_spu as import_spu
from ._engine import (
    Aby3Engine as Aby3Engine,
    CheetahEngine as CheetahEngine,
    WideAby3Engine as WideAby3Engine,
)
