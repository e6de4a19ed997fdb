"""jaxsel: find, value and buy training data."""

from ._types import Selection as Selection, Values as Values
from ._version import __version__ as __version__
