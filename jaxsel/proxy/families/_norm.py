"""The base of every family of norm: hooks to write, and parts to inherit."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel.proxy._mlp import Nonlinearity, Params

from ._place import Arrays, Place, Shapes, Steps, times
from ._ranges import Ranges

_ROUNDED = 2.0**-4
"""How far below zero rounding may carry a variance, in its unit."""


class Norm(abc.ABC):
    """A stand-in for the reciprocal root of a layer norm: v to `1 / sqrt(v + eps)`.

    Mean, centring, gain and offset stay exact. A family is a frozen dataclass of its
    sizes and `eps`. It must write `apply`, `factor` and `entry`; where it has
    parameters also `shapes`, `fit` (or `nonlinearity`, for an MLP) and `fold`.
    Closed-form fits minimise the squared relative error.

    Attributes:
        normalises: Whether it does anything at all.
    """

    normalises: ClassVar[bool] = True

    def fit(self, *args: Any, **kwargs: Any) -> Params:
        """Return parameters for variances of any shape.

        Families without parameters return none, and ignore what they are given.
        """
        del args, kwargs
        return {}

    def nonlinearity(self, variance: np.ndarray) -> Nonlinearity | None:
        """Return the operation that the family's MLP imitates; None without an MLP."""
        del variance
        return None

    @abc.abstractmethod
    def apply(
        self, params: Params, variance: Float[jax.Array, "*n"]
    ) -> Float[jax.Array, "*n"]:
        """Return the factor of the centred row, of the shape of `variance`."""

    @abc.abstractmethod
    def entry(self) -> dict[str, Any]:
        """Return the family's line in the manifest."""

    def shapes(self) -> Shapes:
        """Return the shape of each parameter of the emulator."""
        return {}

    def fold(self, params: Arrays, unit: float) -> Arrays:
        """Return the secret operands of `factor`, from parameters in float64.

        Args:
            params: As `shapes` names them.
            unit: Variances come divided by it, see `variance_unit`.
        """
        del params, unit
        return {}

    def gain(self, params: Arrays, unit: float) -> float:
        """Return the constant of `factor` that goes into the norm's gain."""
        del params, unit
        return 1.0

    @abc.abstractmethod
    def factor(self, at: Place, total: Any) -> Steps:
        """Return the factor `[n, rows, 1]` of centred rows from their sum of squares.

        `scaled_variance` gives the variance in its unit, and has it watched.
        """

    # From here on nearly all families are the same.

    def steps(
        self, at: Place, x: Any, *, scale: bool = True, gain: bool = True
    ) -> Steps:
        """Return normed rows, and the factor `[n, rows, 1]` of the centred ones.

        Args:
            at: Where the norm stands.
            x: Rows `[n, rows, H]`.
            scale: Whether the rows are to be scaled; else they come back as they are.
            gain: Whether gain and offset are to be applied as well.
        """
        centred = x - x.sum(-1, keepdim=True) / at.hidden
        squares = yield at.call("variance", "square", centred)
        factor = yield from self.factor(at, squares.sum(-1, keepdim=True))
        if not scale:
            return x, factor
        x = yield at.call("scale", "mul", centred, factor)
        if gain:
            x = yield at.call("gain", "mul", x, at.weight("norm.gamma", at.hidden))
            x = x + at.weight("norm.beta", at.hidden)
        return x, factor

    def check(self, ranges: Ranges, name: str) -> None:
        """Refuse variances that may leave the ring; `name` is their place."""
        # One entry of a row may hold all of its variance.
        squared = ranges.bound(name) * ranges.manifest.inputs.width
        ranges.fits(name, "a squared entry", squared)
        # Of a smaller inverse nothing is left but a digit.
        bounds, unit = ranges.manifest.fixed_point.bounds, f"{name}_unit"
        root = bounds.get(ranges.place(unit), ranges.bound(name)) ** 0.5
        limit = 2.0 ** (ranges.bits - 2)
        ranges.fits(name, "the root of a variance that divides a row", root, limit)


def variance_unit(at: Place) -> float:
    """Return the public power of two that bounds variances, and divides them.

    It keeps fixed-point numbers of a useful size. 1 where there is no bound.
    """
    return at.unit("variance", 1.0)


def scaled_variance(at: Place, total: Any) -> Any:
    """Return variances in their unit, from sums of squares, and watch them."""
    return watched_variance(at, total, variance_unit(at))


def watched_variance(at: Place, total: Any, unit: float) -> Any:
    """Return variances over a public unit, from sums of squares.

    All of a row goes into its variance, numbers that have left the ring before it, too:
    so these are watched.
    """
    variance = times(total, 1 / (at.hidden * unit))
    most = at.bound("variance", 1.0) / unit
    at.watch(variance, -_ROUNDED, most)
    return variance


def check_variances(variance: npt.ArrayLike | jax.Array) -> np.ndarray:
    """Return variances as one row, float64, or refuse them."""
    v = np.asarray(variance, np.float64).reshape(-1)
    if not v.size or not np.isfinite(v).all() or v.min() <= 0:
        raise ValueError(
            "variance must be finite, above zero and not empty, got "
            + (f"a smallest value of {v.min()}" if v.size else "no value")
        )
    return v


def relative_fit(columns: np.ndarray, v: np.ndarray, eps: float) -> np.ndarray:
    """Return the coefficients of `1 / sqrt(v + eps)`, of least relative error."""
    root = np.sqrt(v + eps)
    # A relative error of the factor is an error of the norm's output of that share.
    # Columns are scaled to one size, since `rcond` is relative to the largest.
    weighted = columns * root[:, None]
    scale: np.ndarray = np.sqrt((weighted**2).mean(0)) + 1e-300
    return np.linalg.lstsq(weighted / scale, np.ones_like(v), rcond=1e-10)[0] / scale


def as_params(**values: Any) -> Params:
    """Return these parameters as float32."""
    return {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
