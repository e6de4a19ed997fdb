"""Ranges in a ring, which families check before a proxy is exported.

A number x is x 2^f in the ring, f fraction bits. A product has twice as many until it
is cut back, so that in 64 bits each must stay below 2^(63 - 2f); CrypTen's two-party
truncation is wrong by 2^(64 - 2f) with a probability of |product| / 2^(64 - 2f).
"""

from __future__ import annotations

import dataclasses

from ._described import Described

LARGEST_EXPONENT = 512  # CrypTen's exponential of x is sound down to minus this


@dataclasses.dataclass(frozen=True)
class Ranges:
    """The bounds of a manifest beside the limits of the ring.

    Attributes:
        manifest: With bounds.
        bits: Fraction bits.
        ring: Bits of the ring.
        at: The part that is being checked, such as "layers.0"; "" for the whole.
    """

    manifest: Described
    bits: int
    ring: int = 64
    at: str = ""

    def under(self, at: str) -> Ranges:
        """Return the ranges of one part of the model."""
        return dataclasses.replace(self, at=at)

    @property
    def length(self) -> int:
        return self.manifest.inputs.length

    def bound(self, name: str) -> float:
        """Return the manifest's bound of a place.

        Raises:
            ValueError: If there is none.
        """
        place, bounds = self.place(name), self.manifest.fixed_point.bounds
        if place not in bounds:
            raise ValueError(
                f"fixed_point.bounds must have {place!r}, got {sorted(bounds)}"
            )
        return bounds[place]

    def fits(
        self, name: str, what: str, value: float, limit: float | None = None
    ) -> None:
        """Refuse a value that may leave its range.

        Args:
            name: The place.
            what: The quantity, as the message calls it.
            value: The largest absolute value.
            limit: Its upper limit, exclusive; a product's range in the ring if None.

        Raises:
            ValueError: If it does not fit: the place and both numbers are named.
        """
        if limit is None:
            limit = 2.0 ** (self.ring - 2 - 2 * self.bits)  # a bit for sums
        if not value < limit:
            raise ValueError(
                f"{self.place(name)}: {what} may reach {value:.3g}, and must stay "
                f"below {limit:.3g} with {self.bits} fraction bits in a ring of "
                f"{self.ring}"
            )

    def place(self, name: str) -> str:
        return f"{self.at}.{name}" if self.at else name
