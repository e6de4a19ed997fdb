"""Secrets in shares, of which a number suffices and one fewer tells nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

# A Mersenne prime beyond 2^256: any key or seed of 32 bytes is a secret below it.
PRIME = (1 << 521) - 1
LENGTH = 66
"""Bytes of a share."""


def split(secret: int, n: int, needed: int) -> list[int]:
    """Return the shares 1, ..., n of a secret in [0, 2^521 - 1), any `needed` enough.

    References:
        Shamir, How to share a secret, Communications of the ACM 22, 1979.
    """
    coefficients = [secret, *(secrets.randbelow(PRIME) for _ in range(needed - 1))]
    shares: list[int] = []
    for x in range(1, n + 1):
        value = 0
        # Horner's rule for the polynomial at x; its value at 0 is the secret.
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        shares.append(value)
    return shares


def join(shares: Mapping[int, int]) -> int:
    """Return the secret of shares by their numbers; of too few, something else."""
    total = 0
    for x, value in shares.items():
        # Lagrange interpolation at 0.
        top, bottom = value, 1
        for other in shares:
            if other != x:
                top = top * other % PRIME
                bottom = bottom * (other - x) % PRIME
        total += top * pow(bottom, -1, PRIME)
    return total % PRIME
