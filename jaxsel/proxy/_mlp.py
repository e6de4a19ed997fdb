"""The paper's MLP emulator, and the operations that it imitates."""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import check_choice, check_features, check_positive
from jaxsel._inputs.show import brief

Params = dict[str, jax.Array]
Kind = Literal["softmax", "rsqrt", "entropy"]
# One of _SHARE distinct rows is held out, and _MOST rows at most.
_SHARE, _MOST = 5, 2048
_MIX = np.uint64(0x9E3779B97F4A7C15)  # of hashes of rows


def along(parameter: jax.Array, x: jax.Array) -> jax.Array:
    """Return a parameter of the last axes of `x` with as many axes as `x`."""
    return jnp.expand_dims(parameter, tuple(range(x.ndim - parameter.ndim)))


def dense(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """Return `x w + b`."""
    x = x @ w
    return x + along(b, x)


def mlp(params: Params, x: Float[jax.Array, "*n d"]) -> Float[jax.Array, "*n k"]:
    """Return `relu(x w1 + b1) w2 + b2`, the paper's emulator: a pure kernel.

    Args:
        params: `w1 [d, h]`, `b1 [h]`, `w2 [h, k]`, `b2 [k]`.
        x: Inputs `[..., d]`.

    Returns:
        Array of shape `[..., k]`.

    References:
        SelectFormer (section 4.3): one ReLU layer between two linear ones.
    """
    hidden = jax.nn.relu(dense(x, params["w1"], params["b1"]))
    return dense(hidden, params["w2"], params["b2"])


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Nonlinearity:
    """One operation of a target, and the inputs that it sees.

    Attributes:
        kind: "softmax": rows of `width` scores to their weights; "rsqrt": one variance
            v to `1 / sqrt(v + eps)`; "entropy": `width` logits to the entropy of their
            softmax, in nats.
        mean: Mean of each input, `[width]`.
        std: Standard deviation of each input, `[width]`: no correlations, as in the
            paper.
        rows: Observed inputs `[n, width]`, or None.
        masks: For "softmax", which entries count, `[n, width]` bool: masked scores are
            fed as 0 and masked weights are 0. Synthesised rows draw theirs from here.
            None: all count.
        low: Synthesised inputs are raised to at least this.
        eps: Of "rsqrt".
    """

    kind: Kind
    mean: np.ndarray
    std: np.ndarray
    rows: np.ndarray | None = None
    masks: np.ndarray | None = None
    low: float = -np.inf
    eps: float = 0.0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("softmax", "rsqrt", "entropy"))
        for name in ("mean", "std"):
            shape = np.shape(getattr(self, name))
            if len(shape) != 1 or shape != np.shape(self.mean):
                raise ValueError(f"{name} must have shape [width], got {shape}")

    @classmethod
    def observe(
        cls,
        kind: Kind,
        rows: npt.ArrayLike | jax.Array,
        masks: npt.ArrayLike | jax.Array | None = None,
        *,
        eps: float = 0.0,
    ) -> Nonlinearity:
        """Keep observed inputs, with the mean and deviation of each entry.

        Args:
            kind: As the attribute.
            rows: Inputs seen on the bootstrap set, `[n, width]`; variances may be
                `[n]`.
            masks: For "softmax", which entries count, `[n, width]`.
            eps: Of "rsqrt".

        Raises:
            ValueError: For rows that are not finite, variances that are not above zero,
                or masks of another shape.
        """
        check_choice("kind", kind, ("softmax", "rsqrt", "entropy"))
        if kind == "rsqrt":
            rows = np.reshape(np.asarray(rows), (-1, 1))
        x = np.asarray(check_features("rows", rows), np.float32)
        counted, low = np.ones(x.shape, bool), -np.inf
        if kind == "rsqrt":
            eps = check_positive("eps", eps, zero=True)
            # Synthesised variances from a normal distribution may be below zero, where
            # 1 / sqrt has no value: they are raised to half of the least one seen.
            low = float(x.min()) / 2
            if low <= 0:
                raise ValueError(f"rows must be variances above zero, got {2 * low}")
        if masks is not None:
            if kind != "softmax":
                raise ValueError(f"masks must be None for kind={kind!r}")
            counted = np.asarray(masks, bool)
            if counted.shape != x.shape:
                raise ValueError(
                    f"masks must have the shape of rows, {x.shape}, got {counted.shape}"
                )
            if not counted.any(1).all():
                raise ValueError("masks must count at least one entry of every row")
        n = np.maximum(counted.sum(0), 1)
        mean = np.where(counted, x, 0).sum(0, dtype=np.float64) / n
        # In two passes: the mean square less the squared mean would cancel.
        square = np.where(counted, (x - mean) ** 2, 0).sum(0, dtype=np.float64) / n
        return cls(
            kind=kind,
            mean=mean.astype(np.float32),
            std=np.sqrt(square).astype(np.float32),
            rows=x,
            masks=None if masks is None else counted,
            low=low,
            eps=eps,
        )


def hold_out(
    operation: Nonlinearity, rng: np.random.Generator
) -> tuple[Nonlinearity, Nonlinearity]:
    """Split the observed rows of an operation, for training and for its R².

    A fifth of the distinct rows is held out, 2048 at most. Copies of a row are on one
    side. Both have all rows where none are observed, or fewer than five differ.
    """
    if operation.rows is None:
        return operation, operation
    observed = operation.rows
    parts = [observed + np.float32(0)]  # -0 and 0 are one number
    if operation.masks is not None:
        parts = [np.where(operation.masks, parts[0], 0), operation.masks]
    # A polynomial hash of the bits of each row, modulo 2^64.
    code = np.zeros(len(observed), np.uint64)
    for part in parts:
        bits = part.astype(np.float32).view(np.uint32)
        for column in bits.T:
            # Rows that collide are taken for copies, which only keeps them on one side.
            code = code * _MIX + column
    distinct = np.unique(code)
    if len(distinct) < _SHARE:
        return operation, operation
    count = min(_MOST, -(-len(distinct) // _SHARE))
    held = np.isin(code, rng.permutation(distinct)[:count])
    masks = operation.masks

    def only(rows: np.ndarray) -> Nonlinearity:
        return dataclasses.replace(
            operation,
            rows=observed[rows],
            masks=None if masks is None else masks[rows],
        )

    return only(~held), only(held)
