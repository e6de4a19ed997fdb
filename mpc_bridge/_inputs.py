"""A batch of samples as its owner shares it, and the shapes that others know."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxsel.proxy import Manifest

from .engines import Unseen


def input_bound(manifest: Manifest) -> float:
    """Return the largest absolute value that the manifest allows in an input."""
    return manifest.fixed_point.bounds.get("inputs", 2.0**15)


def prepare(manifest: Manifest, x: Any, mask: Any = None) -> tuple[np.ndarray, ...]:
    """Return the fields of `SharedInputs` of a batch in the clear, float64.

    Args:
        manifest: The proxy's.
        x: By the manifest's inputs embedded rows `[n, L, H]`, token ids `[n, L]` for
            "onehot", or features `[n, d]`.
        mask: `[n, L]`, which rows are no padding; all if None.

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
        rows = np.eye(vocab)[x]
    elif x.dtype.kind not in "fiu" or not np.isfinite(x).all():
        raise ValueError(f"x must be finite numbers, got {x.dtype}")
    else:
        rows = np.asarray(x, np.float64)
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
    return rows, shown, share, tokens / inputs.length


def prepare_bounded(manifest: Manifest, x: Any, mask: Any = None) -> Any:
    """Do as `prepare`, for a secret run: larger values could leave the ring.

    Raises:
        ValueError: As `prepare`, and if a value is above the manifest's bound.
    """
    arrays, bound = prepare(manifest, x, mask), input_bound(manifest)
    largest = float(np.abs(arrays[0]).max())
    if largest > bound:
        raise ValueError(
            f"x must be at most {bound:g} in size, the manifest's bound of the inputs, "
            f"got {largest:g}"
        )
    return arrays


def shapes_of(manifest: Manifest, n: int) -> tuple[Unseen, ...]:
    """Return the shapes of the arrays that `prepare` returns for n samples."""
    inputs = manifest.inputs
    width = (inputs.vocab or 0) if inputs.embed == "onehot" else inputs.width
    rows = (width,) if inputs.kind == "features" else (inputs.length, width)
    sizes: list[tuple[int, ...]] = [(n, *rows)]
    if inputs.masked:
        sizes += [(n, inputs.length)] * 2 + [(n, 1)]
    return tuple(map(Unseen, sizes))
