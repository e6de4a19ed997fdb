"""SPU's shares as messages."""

from __future__ import annotations

from typing import Any

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
