"""The data owner's samples through the model owner's proxy, to secret scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from jaxsel._checks import check_count
from jaxsel._chunk import chunk_slices
from jaxsel._progress import track
from jaxsel.proxy import Manifest, SharedInputs, schedule

from ._compat import import_crypten
from ._layers import SecureProxy, prepare

crypten = import_crypten()

DATA_OWNER = 1
LANES = 4
"""Batches that run in step."""

# Words that an operation holds for each number of its operands, rounded up from what
# parties took with budgets of 256 MiB and 1 GiB: comparisons are circuits of bits.
_COMPARING = {"relu", "gelu", "abs", "max", "softmax", "log_softmax"}
_COPIES = {True: 120, False: 16}

Read = Callable[[slice], tuple[Any, Any]]


def share_inputs(manifest: Manifest, x: Any, mask: Any = None) -> SharedInputs:
    """Share a batch of samples from the data owner; both parties call this.

    Args:
        manifest: The proxy's.
        x: On the data owner's side the samples, see `ClearProxy.forward`; on the model
            owner's side how many there are.
        mask: `[n, L]` on the data owner's side, where samples are padded.

    Raises:
        ValueError: If a shape is not the manifest's, or a value not finite or above the
            manifest's bound. Nothing is shared then.
    """
    inputs = manifest.inputs
    if crypten.communicator.get().get_rank() == DATA_OWNER:
        arrays = prepare(manifest, x, mask)
        bound = manifest.fixed_point.bounds.get("inputs", 2.0**15)
        largest = float(arrays[0].abs().max())
        if largest > bound:
            raise ValueError(
                f"x must be at most {bound:g} in size, the manifest's bound of the "
                f"inputs, got {largest:g}"
            )
        scale = 2.0**manifest.fixed_point.fraction_bits
        parts = [torch.round(array * scale) / scale for array in arrays]
    else:
        width = (inputs.vocab or 0) if inputs.embed == "onehot" else inputs.width
        rows = (width,) if inputs.kind == "features" else (inputs.length, width)
        sizes = [(x, *rows)]
        if inputs.masked:
            sizes += [(x, inputs.length)] * 2 + [(x, 1)]
        # What stands here is not looked at: only its size is.
        parts = [torch.zeros(size) for size in sizes]
    return SharedInputs(*(crypten.cryptensor(part, src=DATA_OWNER) for part in parts))


def batch_for(manifest: Manifest, memory: int, lanes: int = LANES) -> int:
    """Return how many samples of a proxy go through in one batch.

    Args:
        manifest: The proxy.
        memory: Bytes that one party may use for what depends on the batch.
        lanes: Batches that run in step: each holds what its next operation takes.
    """
    most = 1
    for operation in schedule(manifest):
        words = sum(
            int(np.prod(shape[1:])) for shape in operation.shapes if shape[0] == -1
        )
        copies = _COPIES[operation.kind in _COMPARING]
        most = max(most, words * (copies + 3 * (lanes - 1)))
    return max(1, memory // (8 * most))


def score_pool(
    module: SecureProxy,
    n: int,
    read: Read | None = None,
    *,
    batch: int | None = None,
    lanes: int = LANES,
    memory: int = 2 << 30,
    progress: bool = False,
) -> Any:
    """Return the secret scores of n samples, an encrypted tensor `[n]`.

    Both parties call this with the same arguments but `read`.

    Args:
        module: Of `to_crypten`.
        n: Samples.
        read: On the data owner's side: samples and masks of some rows, in the order of
            the pool; called once for each batch. None on the model owner's side.
        batch: Samples of a batch; None takes as many as fit into `memory`.
        lanes: Batches that run in step: small operations are made for all of them at
            once, which saves rounds.
        memory: Bytes that this party may use for what depends on the batch.
        progress: Show a progress bar with the time left.

    Raises:
        ValueError: If a count is not positive, or samples don't fit the manifest.
    """
    manifest = module.manifest
    n, lanes = check_count("n", n), check_count("lanes", lanes)
    if batch is None:
        batch = batch_for(manifest, check_count("memory", memory), lanes)
    batch = min(check_count("batch", batch), n)
    chunks = list(chunk_slices(n, batch))
    groups = [chunks[i : i + lanes] for i in range(0, len(chunks), lanes)]
    scores = []
    with crypten.no_grad():
        for group in track(groups, progress=progress, label="Scores"):
            shared = []
            for rows in group:
                count = rows.stop - rows.start
                given = (count,) if read is None else read(rows)
                if read is not None and np.shape(given[0])[:1] != (count,):
                    raise ValueError(
                        f"read must return {count} samples for {rows}, got an array "
                        f"of shape {np.shape(given[0])}"
                    )
                shared.append(share_inputs(manifest, *given))
            scores += module.forward(*shared)
        return crypten.cat(scores)
