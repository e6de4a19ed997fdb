"""SPU's shares as messages, and shares of bits."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from mpc_bridge._framing import pack, unpack

from ._compat import import_spu


def packed(share: Any) -> bytes:
    """Return a share as bytes."""
    return pack([share.meta, *share.share_chunks])


def unpacked(message: bytes) -> Any:
    """Return the share that `packed` wrote.

    Raises:
        RuntimeError: If it is none.
    """
    try:
        meta, *chunks = unpack(message)
    except ValueError:
        raise RuntimeError("another party's message holds no share") from None
    share = import_spu().Share()
    share.meta, share.share_chunks = meta, chunks
    return share


def hidden(bits: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Split bits, `[n]`, in two: what the other party gets, and what this one keeps.

    Each part alone is noise of the system's source: the bits are where they differ.

    Returns:
        Eight to a byte, both: a message, and `[n / 8]` uint8.
    """
    packed_bits = np.packbits(np.asarray(bits, bool))
    noise = secrets.token_bytes(len(packed_bits))
    return noise, packed_bits ^ np.frombuffer(noise, np.uint8)


def bit_share(io: Any, part: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Return Cheetah's share of bits `[n]` from one of the parts of `hidden`.

    Raises:
        RuntimeError: If it is a part of another number of bits, or SPU's shares are
            others than those of release 0.9.5.
    """
    spu = import_spu()
    (n,) = shape
    if len(part) != -(-n // 8):
        raise RuntimeError("another party's message holds no share")
    words = np.unpackbits(part, count=n).astype(np.int64)
    # SPU makes shares of bits by comparisons only. So: the words of a public array, and
    # the description of secret bits, which says that words differ where a bit is set.
    share = io.MakeShares(words, spu.Visibility.VIS_PUBLIC, -1)[0]
    like = io.MakeShares(np.zeros(n, bool), spu.Visibility.VIS_SECRET, -1)[0]
    if not like.meta.endswith(_NUMBERS):
        raise RuntimeError("SPU's shares are others than those of release 0.9.5")
    share.meta = like.meta.removesuffix(_NUMBERS) + _BITS
    return share


_NUMBERS, _BITS = b"*\x12cheetah.AShr<FM64>", b"*\x14cheetah.BShr<FM64,1>"
