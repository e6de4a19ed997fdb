"""Several byte strings as one: how many, their lengths, then themselves."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def pack(parts: Sequence[bytes]) -> bytes:
    """Return byte strings as one, which `unpack` takes apart."""
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    return b"".join([lengths, *parts])


def unpack(data: bytes) -> list[bytes]:
    """Return the byte strings that `pack` was given.

    Raises:
        ValueError: If the data is not what `pack` returns: cut off, or too long.
    """
    try:
        (count,) = struct.unpack_from("<I", data)
        lengths = struct.unpack_from(f"<{count}Q", data, 4)
    except struct.error:
        raise ValueError("data must be whole, got no lengths of its parts") from None
    offset, parts = 4 + 8 * count, []
    if offset + sum(lengths) != len(data):
        raise ValueError(
            f"data must have {offset + sum(lengths)} bytes by its lengths, "
            f"got {len(data)}"
        )
    for length in lengths:
        parts.append(data[offset : offset + length])
        offset += length
    return parts
