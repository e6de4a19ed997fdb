"""Checks that an emulator of the entropy ranks as the entropy does."""

from __future__ import annotations

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_same_length


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
    from scipy import stats

    sides: list[np.ndarray] = []
    check_same_length("estimated", estimated, "exact", exact)
    for name, values in (("estimated", estimated), ("exact", exact)):
        values = np.asarray(values, np.float64)
        if values.ndim != 1 or len(values) < 2 or np.isnan(values).any():
            raise ValueError(
                f"{name} must be two or more numbers of shape [n] without NaN, got "
                f"shape {values.shape} with {int(np.isnan(values).sum())} NaN"
            )
        rank: np.ndarray = stats.rankdata(values)
        sides.append(rank - rank.mean())
    a, b = sides
    # Spearman's is Pearson's correlation of the ranks.
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else 0.0


def check_monotonicity(
    estimated: npt.ArrayLike | jax.Array,
    exact: npt.ArrayLike | jax.Array,
    *,
    min_correlation: float = 0.9,
) -> float:
    """Return `monotonicity`, or raise if it is below `min_correlation`.

    An MLP that was trained too briefly can turn the ranking around without any other
    sign: check it on the bootstrap set before the proxy is used.

    Args:
        estimated: Emulated entropies, `[n]`.
        exact: The exact entropies of the same logits, `[n]`.
        min_correlation: The smallest correlation that is accepted.

    Raises:
        ValueError: If it is below `min_correlation`.
    """
    rho = monotonicity(estimated, exact)
    if not rho >= min_correlation:
        raise ValueError(
            "the entropy emulator does not rank as the exact entropy does: Spearman "
            f"{rho:.3f}, below min_correlation={min_correlation:g}: train it longer "
            "or wider, use the square for two classes, rank by the margin, or lower "
            "min_correlation (of a Phase; None accepts any)"
        )
    return rho
