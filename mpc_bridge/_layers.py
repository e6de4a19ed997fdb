"""A proxy as a module of torch, in the clear, and as one of CrypTen, in secret."""

from __future__ import annotations

import contextlib
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
    array_shapes,
    check_ring,
    fold,
    schedule,
    secure_steps,
)

from ._compat import import_crypten
from ._export import read_manifest, read_weights
from ._ledger import Ledger
from ._primitives import CLEAR, SECRET, N, cat, check, execute

crypten = import_crypten()

MODEL_OWNER = 0


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
            found = _together(operation, operands, run)
        else:
            found = [run(operation, each) for each in operands]
        calls = []
        for lane, result in zip(lanes, found, strict=True):
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
        inputs = SharedInputs(*(array.float() for array in arrays))
        return secure_steps(self.manifest, weights, inputs, cat=cat, logits=logits)


class SecureProxy(crypten.nn.Module):
    """A proxy whose weights are shared: the model owner's side has them, no other.

    Attributes:
        manifest: Its architecture.
        ledger: Counts each operation, or None.
    """

    def __init__(
        self,
        manifest: Manifest,
        weights: Mapping[str, np.ndarray],
        *,
        ledger: Ledger | None = None,
    ):
        super().__init__()
        self.manifest, self.ledger = manifest, ledger
        scale = 2.0**manifest.fixed_point.fraction_bits
        for name, value in weights.items():
            # CrypTen cuts digits off; rounded to its grid first, nothing is left over.
            tensor = torch.tensor(np.round(value * scale) / scale)
            self.register_parameter(name, tensor, requires_grad=False)
        self.eval()

    def forward(self, *batches: SharedInputs) -> list[Any]:
        """Return the secret scores of batches that run in step, `[n]` each.

        Args:
            batches: Shared inputs, of `share_inputs`. Small operations are made for all
                batches at once.
        """
        weights = dict(self._parameters)
        lanes = [
            secure_steps(self.manifest, weights, batch, cat=cat) for batch in batches
        ]
        with crypten.no_grad():
            return drive(schedule(self.manifest), lanes, self._run, together=True)

    def _run(self, operation: Operation, operands: Sequence[Any]) -> Any:
        step = contextlib.nullcontext()
        if self.ledger is not None:
            step = self.ledger.step(operation.place, operation.name)
        with step:
            return execute(SECRET, operation, operands)


def prepare(manifest: Manifest, x: Any, mask: Any) -> tuple[torch.Tensor, ...]:
    """Return the fields of `SharedInputs` of a batch in the clear, float64.

    Raises:
        ValueError: If a shape is not the manifest's, a value not finite or out of
            range, or a sample has no token.
    """
    inputs = manifest.inputs
    onehot = inputs.embed == "onehot"
    shape = (inputs.length,) if onehot else (inputs.length, inputs.width)
    if inputs.kind == "features":
        shape = (inputs.width,)
    x = np.asarray(x)
    if x.shape[1:] != shape or not len(x):
        raise ValueError(f"x must have shape {('n', *shape)}, got {x.shape}")
    if onehot:
        vocab = inputs.vocab or 0
        if x.dtype.kind not in "iu" or x.min() < 0 or x.max() >= vocab:
            raise ValueError(
                f"x must be token ids in [0, {vocab}), got {x.dtype} from {x.min()} to "
                f"{x.max()}"
            )
        ids = torch.tensor(x.astype(np.int64))
        rows = torch.nn.functional.one_hot(ids, vocab).double()
    elif x.dtype.kind not in "fiu" or not np.isfinite(x).all():
        raise ValueError(f"x must be finite numbers, got {x.dtype}")
    else:
        rows = torch.tensor(np.asarray(x, np.float64))
    if not inputs.masked:
        if mask is not None and not np.asarray(mask).all():
            raise ValueError("mask must be None or all ones: the inputs are not masked")
        return (rows,)
    shown = np.ones(x.shape[:2]) if mask is None else np.asarray(mask, np.float64)
    if shown.shape != x.shape[:2] or not np.isin(shown, (0, 1)).all():
        raise ValueError(
            f"mask must hold zeros and ones of shape {x.shape[:2]}, got {shown.shape}"
        )
    tokens = shown.sum(1, keepdims=True)
    if not tokens.all():
        raise ValueError(
            f"mask must have a one in every row, got none in {int(np.argmin(tokens))}"
        )
    share = shown * inputs.length / tokens
    parts = (shown, share, tokens / inputs.length)
    return rows, *(torch.tensor(part) for part in parts)


def load(folder: str | os.PathLike[str]) -> ClearProxy:
    """Return the proxy of a folder of `export`, to run in the clear.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file does not fit: it is named.
    """
    manifest = read_manifest(folder)
    return ClearProxy(manifest, read_weights(folder, manifest)).eval()


def to_crypten(
    source: str | os.PathLike[str] | Manifest, *, ledger: Ledger | None = None
) -> SecureProxy:
    """Return a proxy to run in secret, its weights shared from the model owner.

    Both parties call this after `crypten.init()`, at the same time.

    Args:
        source: The folder of `export` on the model owner's side; on the data owner's
            the manifest alone, or a folder with it.
        ledger: Counts each operation.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file does not fit: it is named. If the manifest's fraction bits
            are not CrypTen's.
    """
    from crypten.config import cfg

    manifest = source if isinstance(source, Manifest) else read_manifest(source)
    bits, given = cfg.encoder.precision_bits, manifest.fixed_point.fraction_bits
    if given != bits:
        raise ValueError(
            f"fixed_point.fraction_bits must be {bits}, as CrypTen's encoder.precision_"
            f"bits, got {given}"
        )
    if crypten.communicator.get().get_rank() == MODEL_OWNER:
        if isinstance(source, Manifest):
            raise ValueError("source must be a folder with weights for the model owner")
        arrays = read_weights(source, manifest)
        check_ring(manifest, arrays)
    else:  # only their sizes are looked at
        shapes = array_shapes(manifest)
        arrays = {name: np.ones(shape) for name, shape in shapes.items()}
    module = SecureProxy(manifest, fold(manifest, arrays), ledger=ledger)
    return module.encrypt(src=MODEL_OWNER)
