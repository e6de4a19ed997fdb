"""Stand-ins for the entropy of logits, and the check that they rank as it does.

Each family is a frozen dataclass with `fit(logits, key=...)`, a pure
`apply(params, logits)`, and `entry()`, its line in the manifest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._checks import check_choice, check_count, check_same_length

from ._exvivo import Source, train_mlps
from ._mlp import Nonlinearity, Params, mlp


def entropy(logits: jax.Array) -> jax.Array:
    """Return the entropy of the softmax of logits `[..., C]`, in nats, `[...]`."""
    log_p = jax.nn.log_softmax(logits, axis=-1)
    # -inf logits have probability 0, and add nothing.
    return -jnp.sum(jnp.where(log_p > -jnp.inf, jnp.exp(log_p) * log_p, 0), axis=-1)


@dataclasses.dataclass(frozen=True)
class ExactEntropy:
    """The entropy itself."""

    def fit(self, logits: Any = None, *, key: Any = None) -> Params:
        """Return no parameters."""
        return {}

    def apply(self, params: Params, logits: jax.Array) -> jax.Array:
        """Return the entropy of logits `[..., C]`, `[...]`."""
        return entropy(logits)

    def entry(self) -> dict[str, Any]:
        return {"family": "exact"}


@dataclasses.dataclass(frozen=True)
class SquareEntropy:
    """Two classes: `-(z1 - z0)²`, which ranks exactly as the entropy does.

    The entropy of two classes falls with the distance of the logits. One squaring; the
    value itself is no entropy.
    """

    def fit(self, logits: Any = None, *, key: Any = None) -> Params:
        """Return no parameters.

        Raises:
            ValueError: If logits are given that are not of two classes.
        """
        if logits is not None and np.shape(logits)[-1:] != (2,):
            raise ValueError(
                f"logits must be of two classes, [..., 2], got {np.shape(logits)}"
            )
        return {}

    def apply(self, params: Params, logits: jax.Array) -> jax.Array:
        """Return the score of logits `[..., 2]`, `[...]`."""
        if logits.shape[-1] != 2:
            raise ValueError(
                f"logits must be of two classes, [..., 2], got {logits.shape}"
            )
        return -((logits[..., 1] - logits[..., 0]) ** 2)

    def entry(self) -> dict[str, Any]:
        return {"family": "square"}


@dataclasses.dataclass(frozen=True)
class MLPEntropy:
    """The paper's: an MLP from the logits to the entropy.

    Attributes:
        width: Hidden units, d.

    References:
        SelectFormer (sections 4.2 and 4.3).
    """

    width: int

    def __post_init__(self) -> None:
        check_count("width", self.width)

    def fit(
        self,
        logits: npt.ArrayLike | jax.Array,
        *,
        key: jax.Array,
        source: Source = "both",
        n_points: int = 1_024_000,
    ) -> Params:
        """Train one MLP; `train_mlps` trains those of all layers and widths at once.

        Args:
            logits: Observed logits `[n, C]`.
            key: For initial weights and batches.
            source: As in `train_mlps`.
            n_points: As in `train_mlps`.

        Returns:
            `w1 [C, d]`, `b1 [d]`, `w2 [d, 1]`, `b2 [1]`.
        """
        operation = Nonlinearity.observe("entropy", logits)
        (trained,) = train_mlps(
            [operation], [self.width], key=key, source=source, n_points=n_points
        )
        return trained[self.width].best()

    def apply(self, params: Params, logits: jax.Array) -> jax.Array:
        """Return the estimated entropy of logits `[..., C]`, `[...]`."""
        return mlp(params, logits)[..., 0]

    def entry(self) -> dict[str, Any]:
        return {"family": "mlp", "width": self.width}


Entropy = ExactEntropy | SquareEntropy | MLPEntropy


def entropy_emulator(entry: Mapping[str, Any]) -> Entropy:
    """Return the family that a manifest's entry names.

    Args:
        entry: What `entry()` returned. Fields that are None count as absent.

    Raises:
        ValueError: For an unknown family or field.
    """
    fields = {k: v for k, v in entry.items() if v is not None}
    family = fields.pop("family", None)
    made = {"exact": ExactEntropy, "square": SquareEntropy, "mlp": MLPEntropy}
    check_choice("family", family, list(made))
    try:
        return made[family](**fields)
    except TypeError as error:
        text = f"entropy entry {dict(entry)} does not fit: {error}"
        raise ValueError(text) from None


def monotonicity(
    estimated: npt.ArrayLike | jax.Array, exact: npt.ArrayLike | jax.Array
) -> float:
    """Return Spearman's rank correlation, ties at their mean rank.

    0 where all values of one side are equal: such an emulator ranks nothing.

    Args:
        estimated: Emulated entropies, `[n]`.
        exact: The exact entropies of the same logits, `[n]`.

    Raises:
        ValueError: For fewer than two values, different lengths, or NaN.
    """
    from scipy.stats import rankdata

    sides = []
    check_same_length("estimated", estimated, "exact", exact)
    for name, values in (("estimated", estimated), ("exact", exact)):
        values = np.asarray(values, np.float64)
        if values.ndim != 1 or len(values) < 2 or np.isnan(values).any():
            raise ValueError(
                f"{name} must be two or more numbers of shape [n] without NaN, got "
                f"shape {values.shape} with {int(np.isnan(values).sum())} NaN"
            )
        rank = rankdata(values)
        sides.append(rank - rank.mean())
    a, b = sides
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else 0.0


def check_monotonicity(
    estimated: npt.ArrayLike | jax.Array,
    exact: npt.ArrayLike | jax.Array,
    *,
    least: float = 0.9,
) -> float:
    """Return `monotonicity`, and refuse an emulator that ranks otherwise.

    An MLP that was trained too briefly can turn the ranking around without any other
    sign: check it on the bootstrap set before the proxy is used.

    Args:
        estimated: Emulated entropies, `[n]`.
        exact: The exact entropies of the same logits, `[n]`.
        least: The smallest correlation that is accepted.

    Raises:
        ValueError: If it is below `least`.
    """
    found = monotonicity(estimated, exact)
    if not found >= least:
        raise ValueError(
            "the entropy emulator does not rank as the exact entropy does: Spearman "
            f"{found:.3f}, at least {least} needed; train it longer or wider, or use "
            "the square for two classes"
        )
    return found
