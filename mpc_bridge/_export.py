"""A proxy for its secure run: a public manifest beside the model owner's weights."""

from __future__ import annotations

import os
from pathlib import Path

from jaxsel.proxy import (
    Proxy,
    check_ring,
    read_manifest as read_manifest,
    read_weights as read_weights,
    save_proxy,
)


def export(proxy: Proxy, folder: str | os.PathLike[str]) -> Path:
    """Write a proxy for its secure run; return the folder.

    `manifest.json` is public: the data owner gets a copy. `weights.safetensors` is the
    model owner's secret. A write that fails leaves both as
    they were.

    Args:
        proxy: With bounds in its manifest: of `jaxsel.proxy.with_bounds`, or of
            `select`.
        folder: Made if it is not there; other files in it stay.

    Raises:
        ValueError: If the manifest has no bounds, or a range does not fit the ring: the
            place is named.
    """
    check_ring(proxy.manifest, proxy.arrays())
    return save_proxy(proxy, folder)
