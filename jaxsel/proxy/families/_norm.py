"""Stand-ins for the reciprocal root of a layer norm: variance to 1 / sqrt(v + eps).

Mean, centring, gain and offset stay exact. Each family is a frozen dataclass with
`fit(variance, key=...)`, a pure `apply(params, variance)`, and `entry()`, its line in
the manifest. Closed-form fits minimise the squared relative error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from jaxsel._checks import check_choice, check_count, check_positive
from jaxsel.proxy._exvivo import Source, train_mlps
from jaxsel.proxy._mlp import Nonlinearity, Params, mlp


@dataclasses.dataclass(frozen=True)
class ExactNorm:
    """`1 / sqrt(v + eps)` itself."""

    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_positive("eps", self.eps, zero=True)

    def fit(self, variance: Any = None, *, key: Any = None) -> Params:
        """Return no parameters."""
        return {}

    def apply(self, params: Params, variance: jax.Array) -> jax.Array:
        """Return the factor of the centred row, of the shape of `variance`."""
        return lax.rsqrt(variance + self.eps)

    def entry(self) -> dict[str, Any]:
        return {"family": "exact"}


@dataclasses.dataclass(frozen=True)
class PolynomialNorm:
    """A polynomial of the variance: no ReLU, `degree - 1` products of one number a row.

    Sound where the variance stays within what it was fitted on: beyond that a high
    degree goes astray.

    Attributes:
        degree: 1 is the manifest's "linear".
        eps: Of the layer norm.
    """

    degree: int = 2
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_count("degree", self.degree)
        check_positive("eps", self.eps, zero=True)

    def fit(self, variance: npt.ArrayLike | jax.Array, *, key: Any = None) -> Params:
        """Fit by least squares in closed form.

        Args:
            variance: Observed variances above zero, of any shape.
            key: Not used.

        Returns:
            `coefficients [degree + 1]`, constant first, of powers of
            `(v - shift) scale`.
        """
        del key
        v = _variances(variance)
        shift, scale = v.mean(), 1 / max(v.std(), 1e-12)
        powers = ((v - shift) * scale)[:, None] ** np.arange(self.degree + 1)
        found = _relative_fit(powers, v, self.eps)
        return _params(coefficients=found, shift=shift, scale=scale)

    def apply(self, params: Params, variance: jax.Array) -> jax.Array:
        """Return the factor of the centred row, of the shape of `variance`."""
        t = (variance - params["shift"]) * params["scale"]
        value = jnp.zeros_like(t)
        for power in reversed(range(self.degree + 1)):
            value = value * t + params["coefficients"][power]
        return value

    def entry(self) -> dict[str, Any]:
        if self.degree == 1:
            return {"family": "linear"}
        return {"family": "polynomial", "degree": self.degree}


@dataclasses.dataclass(frozen=True)
class HingeNorm:
    """`c0 + c v + sum of a_t relu(v - knot_t)`: pieces of lines, `width` ReLUs a row.

    Attributes:
        width: Knots.
        eps: Of the layer norm.
    """

    width: int = 2
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_count("width", self.width)
        check_positive("eps", self.eps, zero=True)

    def fit(self, variance: npt.ArrayLike | jax.Array, *, key: Any = None) -> Params:
        """Fit by least squares in closed form, with knots at quantiles.

        Args:
            variance: Observed variances above zero, of any shape.
            key: Not used.

        Returns:
            `affine [2]`: c0 and c; `slopes [width]`; `knots [width]`.
        """
        del key
        v = _variances(variance)
        knots = np.quantile(v, np.arange(1, self.width + 1) / (self.width + 1))
        hinges = np.maximum(v[:, None] - knots, 0)
        columns = np.column_stack([np.ones_like(v), v, hinges])
        found = _relative_fit(columns, v, self.eps)
        return _params(affine=found[:2], slopes=found[2:], knots=knots)

    def apply(self, params: Params, variance: jax.Array) -> jax.Array:
        """Return the factor of the centred row, of the shape of `variance`."""
        hinges = jax.nn.relu(variance[..., None] - params["knots"])
        c0, c = params["affine"]
        return c0 + c * variance + hinges @ params["slopes"]

    def entry(self) -> dict[str, Any]:
        return {"family": "hinge", "width": self.width}


@dataclasses.dataclass(frozen=True)
class MLPNorm:
    """The paper's: an MLP from the variance to the factor.

    Attributes:
        width: Hidden units, d.
        eps: Of the layer norm.

    References:
        SelectFormer (sections 4.2 and 4.3).
    """

    width: int
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_count("width", self.width)
        check_positive("eps", self.eps, zero=True)

    def fit(
        self,
        variance: npt.ArrayLike | jax.Array,
        *,
        key: jax.Array,
        source: Source = "rows",
        n_points: int = 1_024_000,
    ) -> Params:
        """Train one MLP; `train_mlps` trains those of all layers and widths at once.

        Args:
            variance: Observed variances above zero, of any shape.
            key: For initial weights and batches.
            source: As in `train_mlps`.
            n_points: As in `train_mlps`.

        Returns:
            `w1 [1, d]`, `b1 [d]`, `w2 [d, 1]`, `b2 [1]`.
        """
        operation = Nonlinearity.observe("rsqrt", _variances(variance), eps=self.eps)
        (trained,) = train_mlps(
            [operation], [self.width], key=key, source=source, n_points=n_points
        )
        return trained[self.width].best()

    def apply(self, params: Params, variance: jax.Array) -> jax.Array:
        """Return the factor of the centred row, of the shape of `variance`."""
        return mlp(params, variance[..., None])[..., 0]

    def entry(self) -> dict[str, Any]:
        return {"family": "mlp", "width": self.width}


Norm = ExactNorm | PolynomialNorm | HingeNorm | MLPNorm


def norm_emulator(entry: Mapping[str, Any], *, eps: float = 1e-12) -> Norm:
    """Return the family that a manifest's entry names.

    Args:
        entry: What `entry()` returned. Fields that are None count as absent.
        eps: Of the layer norm.

    Raises:
        ValueError: For an unknown family or field.
    """
    fields = {k: v for k, v in entry.items() if v is not None}
    family = fields.pop("family", None)
    made = {
        "exact": ExactNorm,
        "linear": PolynomialNorm,
        "polynomial": PolynomialNorm,
        "hinge": HingeNorm,
        "mlp": MLPNorm,
    }
    check_choice("family", family, list(made))
    if family == "linear":
        fields = {"degree": 1, **fields}
    try:
        return made[family](eps=eps, **fields)
    except TypeError as error:
        text = f"norm entry {dict(entry)} does not fit: {error}"
        raise ValueError(text) from None


def _variances(variance: npt.ArrayLike | jax.Array) -> np.ndarray:
    v = np.asarray(variance, np.float64).reshape(-1)
    if not v.size or not np.isfinite(v).all() or v.min() <= 0:
        raise ValueError(
            "variance must be finite, above zero and not empty, got "
            + (f"a smallest value of {v.min()}" if v.size else "no value")
        )
    return v


def _relative_fit(columns: np.ndarray, v: np.ndarray, eps: float) -> np.ndarray:
    root = np.sqrt(v + eps)
    # A relative error of the factor is an error of the norm's output of that share.
    weighted = columns * root[:, None]
    scale = np.sqrt((weighted**2).mean(0)) + 1e-300
    return np.linalg.lstsq(weighted / scale, np.ones_like(v), rcond=1e-10)[0] / scale


def _params(**values: Any) -> Params:
    return {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
