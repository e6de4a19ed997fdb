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


def unpacked(message: bytes, like: Any = None) -> Any:
    """Return the share that `packed` wrote.

    Args:
        message: As another party sent it, or as this one has kept it.
        like: A share of the array that is due: type, shape and sizes are compared
            before SPU reads a byte, which may end the process by what it does not know.

    Raises:
        ValueError: If it is no share, or none of such an array.
    """
    meta, *chunks = unpack(message) or [b""]
    if like is not None:
        if meta != like.meta:
            raise ValueError("type and shape must be of the array that is due")
        due = like.share_chunks
        if [*map(len, chunks)] != [*map(len, due)]:
            raise ValueError(
                f"they must have {sum(map(len, due))} bytes in {len(due)} chunks, got "
                f"{sum(map(len, chunks))} in {len(chunks)}"
            )
        heads = [head_of(chunk) for chunk in due]
        if any(not c.startswith(h) for c, h in zip(chunks, heads, strict=True)):
            raise ValueError("chunks must begin as those of the array that is due")
    share = import_spu().Share()
    share.meta, share.share_chunks = meta, chunks
    return share


def head_of(chunk: bytes) -> bytes:
    """Return the fields before the content of a chunk of this party's own share.

    A chunk is a message of protocol buffers: the whole size, the offset if there is
    one, and the content, which is the last field.
    """
    offset = 0
    while chunk[offset] != _CONTENT:
        offset = _behind(chunk, offset + 1)
    return chunk[: _behind(chunk, offset + 1)]


def _behind(data: bytes, place: int) -> int:
    """Return the place behind a number of variable length."""
    while data[place] & 0x80:
        place += 1
    return place + 1


_CONTENT = 3 << 3 | 2  # tag of the third field, bytes


def hidden(bits: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Split bits, `[n]`, into two shares: the other party's, and this one's.

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
        ValueError: If it is a part of another number of bits.
        RuntimeError: If SPU's shares are others than those of release 0.9.5.
    """
    spu = import_spu()
    (n,) = shape
    if len(part) != -(-n // 8):
        raise ValueError(f"{n} bits must have {-(-n // 8)} bytes, got {len(part)}")
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
