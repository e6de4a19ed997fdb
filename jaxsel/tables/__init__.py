"""Tables of numbers, categories and dates, with gaps, as features."""

from ._encoder import TableEncoder as TableEncoder
