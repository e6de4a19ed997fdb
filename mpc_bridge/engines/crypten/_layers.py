"""A proxy as a module of torch, in the clear; several batches run in step."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from jaxsel.proxy import (
    Call,
    Manifest,
    Operation,
    SharedInputs,
    Steps,
    fold,
    schedule,
    secure_steps,
)
from mpc_bridge._export import read_manifest, read_weights
from mpc_bridge._inputs import prepare

from ._primitives import CLEAR, N, cat, check, execute


def drive(
    operations: Sequence[Operation],
    lanes: Sequence[Steps],
    run: Callable[[Operation, Sequence[Any]], Any],
    *,
    together: bool = False,
) -> list[Any]:
    """Run the forward passes of several batches in step; return their results.

    Args:
        operations: The schedule, or its beginning.
        lanes: Generators of `jaxsel.proxy.secure_steps`, one a batch.
        run: Executes an operation.
        together: Whether operations with small operands are made once for all.
    """
    calls: list[Call] = [next(lane) for lane in lanes]
    results = []
    for operation in operations:
        if not calls:
            raise RuntimeError(
                "the forward pass has fewer operations than its schedule"
            )
        for call in calls:
            check(operation, call)
        operands = [call.operands for call in calls]
        if together and len(lanes) > 1 and operation.coalesced:
            computed = _together(operation, operands, run)
        else:
            computed = [run(operation, operand) for operand in operands]
        calls = []
        for lane, result in zip(lanes, computed, strict=True):
            try:
                calls.append(lane.send(result))
            except StopIteration as end:
                results.append(end.value)
    if calls:
        raise RuntimeError("the forward pass has more operations than its schedule")
    return results


def _together(
    operation: Operation,
    calls: Sequence[Sequence[Any]],
    run: Callable[[Operation, Sequence[Any]], Any],
) -> list[Any]:
    operands = [
        cat(parts, 0) if shape[0] == N else parts[0]
        for shape, parts in zip(operation.shapes, zip(*calls, strict=True), strict=True)
    ]
    index = [shape[0] == N for shape in operation.shapes].index(True)
    sizes = [call[index].size(0) for call in calls]
    result, ends = run(operation, operands), np.cumsum(sizes)
    many = isinstance(result, tuple)
    return [
        tuple(x[end - n : end] for x in result) if many else result[end - n : end]
        for n, end in zip(sizes, ends, strict=True)
    ]


class ClearProxy(torch.nn.Module):
    """A proxy in the clear, by the same operations as in secret.

    Attributes:
        manifest: Its architecture.
    """

    def __init__(self, manifest: Manifest, arrays: Mapping[str, np.ndarray]):
        super().__init__()
        self.manifest = manifest
        for name, value in fold(manifest, arrays).items():
            tensor = torch.tensor(value, dtype=torch.float32)
            self.register_buffer(name.replace(".", "/"), tensor)

    def forward(self, x: Any, mask: Any = None) -> torch.Tensor:
        """Return the logits of n samples less the prior's offset, `[n, C]`.

        Args:
            x: By the manifest's inputs embedded rows `[n, L, H]`, token ids
                `[n, L]` for "onehot", or features `[n, d]`.
            mask: `[n, L]`, which rows are no padding; all if None.
        """
        steps = self._steps(x, mask, logits=True)
        operations = [op for op in schedule(self.manifest) if op.place != "score"]
        return drive(operations, [steps], functools.partial(execute, CLEAR))[0]

    def scores(self, x: Any, mask: Any = None) -> torch.Tensor:
        """Return the scores that samples are ranked by, `[n]`."""
        steps = self._steps(x, mask)
        run = functools.partial(execute, CLEAR)
        return drive(schedule(self.manifest), [steps], run)[0]

    def _steps(self, x: Any, mask: Any, *, logits: bool = False) -> Steps:
        weights = {
            name.replace("/", "."): value for name, value in self.named_buffers()
        }
        arrays = prepare(self.manifest, x, mask)
        inputs = SharedInputs(*(torch.tensor(a, dtype=torch.float32) for a in arrays))
        return secure_steps(self.manifest, weights, inputs, cat=cat, logits=logits)


def load(folder: str | os.PathLike[str]) -> ClearProxy:
    """Return the proxy of a folder of `export`, to run in the clear.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file does not fit: it is named.
    """
    manifest = read_manifest(folder)
    return ClearProxy(manifest, read_weights(folder, manifest)).eval()
