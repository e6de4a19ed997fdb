"""Coordinates of samples in the subspace of a target's gradients."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import check_concrete, check_count, widen
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._inputs.show import compared
from jaxsel._runs.progress import track
from jaxsel.gradients import Oracle, target_subspace

from ._examples import Network, Part, check_alike, open_gradients

if TYPE_CHECKING:
    import pandas as pd

# Samples whose gradients are in memory at once.
_ROWS = 1024


@compared
@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetCoordinates:
    """Gradients in the coordinates of a target's subspace.

    The inner product of two rows is that of the gradients, as far as these lie in the
    subspace: with unit gradients, their cosine.

    Attributes:
        candidates: Of the pool, `[n, r]`.
        target: Of the target samples, `[m, r]`; a gradient of 0 has a row of zeros.
        lengths: Lengths of the pool's gradients, `[n]`.
        shares: Each direction's share of the target's squared lengths, `[r]`.
        normalise: Whether gradients were scaled to length 1.

    Examples:
        >>> import numpy as np
        >>> from jaxsel import retrieve
        >>> pool = np.array([[3.0, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, -1.0, 5.0]])
        >>> target = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> coordinates = retrieve.target_coordinates(pool, target)
        >>> coordinates
        TargetCoordinates(n=3, m=2, 2 directions with 100 % of the target)
        >>> rows, cosines = coordinates.serves([0, 1])
        >>> print(rows, cosines.round(2))
        [0 1] [0.95 1.  ]
    """

    candidates: np.ndarray
    target: np.ndarray
    lengths: np.ndarray
    shares: np.ndarray
    normalise: bool = dataclasses.field(metadata={"static": True})

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        m, r = self.target.shape
        return (
            f"TargetCoordinates(n={len(self)}, m={m}, {r} directions with "
            f"{100 * self.shares.sum():.3g} % of the target)"
        )

    def serves(self, rows: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the target sample most alike to each of some pool rows.

        Args:
            rows: Row numbers of the pool, `[k]`, such as a `Selection`.

        Returns:
            Numbers of target samples, `[k]`, and the inner products, `[k]`: cosines, if
            gradients were scaled to length 1.
        """
        alike = self.candidates[np.asarray(rows)] @ self.target.T
        best = alike.argmax(axis=1)
        return best, alike[np.arange(len(best)), best]

    def to_pandas(self, rows: npt.ArrayLike) -> pd.DataFrame:
        """Return a data frame of some pool rows, and the target samples they serve.

        Args:
            rows: Row numbers of the pool, `[k]`, such as a `Selection`.
        """
        import pandas as pd

        places = np.asarray(rows)
        best, alike = self.serves(places)
        columns = {"target": best, "alike": alike, "length": self.lengths[places]}
        return pd.DataFrame(columns, index=pd.Index(places, name="row"))


def target_coordinates(
    candidates: Any,
    target: Any,
    *,
    network: Network = None,
    rank: int = 64,
    normalise: bool = True,
    chunk_size: int | None = None,
    progress: bool = False,
) -> TargetCoordinates:
    """Describe each sample by the part of its gradient that a target's gradients span.

    The subspace is that of the largest singular values of the target's gradients. Of a
    pool's gradients only inner products with the m targets are computed, a chunk at a
    time, and `rank` numbers a sample are kept. The gradients' lengths don't matter
    unless `normalise=False`. Costs m inner products a sample and O(m³) once: a few
    thousand target samples at most.

    Args:
        candidates: The pool, n samples: with a network its examples, else its gradients
            `[n, p]`, or an oracle of `jaxsel.gradients`.
        target: The target samples, m, in the candidates' form.
        network: How gradients are made. A `models.Target` with a head: samples are a
            pair `(inputs, labels)`, and gradients are those of the head. A pair
            `(loss, params)`: samples are a pytree of arrays `[n, ...]`, and gradients
            those of `gradients.ghost`. A function from such a part of the pool to an
            oracle, for all other oracles and parameters. None: gradients are passed.
        rank: How many directions to keep at most, r = min(rank, m).
        normalise: Whether to scale gradients to length 1, as LESS does: long texts, and
            samples with a large loss, have otherwise the most weight.
        chunk_size: Pool samples at a time, 1024 if None.
        progress: Whether to show a bar.

    Returns:
        A `TargetCoordinates`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a gradient is not finite, or too long for its square to be, if
            all gradients of the target are 0, if shapes don't fit, or a number is out
            of range.

    References:
        Xia et al., LESS: Selecting Influential Data for Targeted Instruction Tuning,
        ICML 2024: random projections to 8,192 numbers instead, of gradients that Adam
        has scaled. GIST, arXiv 2602.18584 (2026): the subspace. We deviate: gradients
        are plain ones, of one checkpoint.
    """
    rank = check_count("rank", rank)
    n, part = open_gradients("candidates", candidates, network)
    m, target_part = open_gradients("target", target, network)
    size = min(
        n, _ROWS if chunk_size is None else check_count("chunk_size", chunk_size)
    )
    goal = target_part(np.arange(m))
    check_alike(part(np.zeros(1, np.int64)), goal)
    squares = widen(jnp.asarray(goal.diag()))
    _check_lengths("target", squares, 0)
    if not np.any(squares):
        raise ValueError(
            "target must have a gradient other than 0, but all are: the network fits "
            "these samples already, or its parameters have no effect on the loss"
        )
    scales = _scales(squares) if normalise else jnp.ones_like(squares)
    products = _scaled(widen(jnp.asarray(goal.gram(goal))), scales, scales)
    basis, shares = target_subspace(products, rank)
    rows, lengths = _project(part, goal, scales, basis, n, size, normalise, progress)
    return TargetCoordinates(
        candidates=rows,
        target=np.asarray(_coordinates(products, basis)),
        lengths=lengths,
        shares=np.asarray(shares),
        normalise=bool(normalise),
    )


def _project(
    part: Part,
    goal: Oracle,
    goal_scales: jax.Array,
    basis: jax.Array,
    n: int,
    size: int,
    normalise: bool,
    progress: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates `[n, r]` and lengths `[n]` of the pool."""
    coordinates: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    for rows in track(chunk_slices(n, size), progress=progress, label="Gradients"):
        # Filled up with the last row, so that one shape is compiled.
        padded = np.minimum(np.arange(rows.start, rows.start + size), n - 1)
        oracle = part(padded)
        squares = widen(jnp.asarray(oracle.diag()))
        filled = rows.stop - rows.start
        _check_lengths("candidates", squares[:filled], rows.start)
        scales = _scales(squares) if normalise else jnp.ones_like(squares)
        products = _scaled(_products(oracle, goal), goal_scales, scales)
        coordinates.append(np.asarray(_coordinates(products, basis))[:filled])
        lengths.append(np.sqrt(np.asarray(squares))[:filled])
    return np.concatenate(coordinates), np.concatenate(lengths)


def _check_lengths(name: str, squares: jax.Array, start: int) -> None:
    check_concrete(name, squares)
    lengths = np.asarray(squares)
    wrong = np.flatnonzero(~np.isfinite(lengths))
    if wrong.size:
        square = lengths[wrong[0]]
        what = "NaN" if np.isnan(square) else f"a square beyond {lengths.dtype}"
        raise ValueError(
            f"{name} must have gradients of finite length, but that of row "
            f"{start + wrong[0]} has {what}: leave it out, or rescale the loss"
        )


@jit()
def _products(oracle: Oracle, goal: Oracle) -> jax.Array:
    return widen(oracle.gram(goal))


@jit()
def _scales(squares: jax.Array) -> jax.Array:
    """Return the factors that scale gradients to length 1, 0 for a gradient of 0."""
    return jnp.where(squares > 0, jax.lax.rsqrt(jnp.where(squares > 0, squares, 1)), 0)


@jit()
def _scaled(products: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    return products * rows[:, None] * columns[None]


@jit()
def _coordinates(products: jax.Array, basis: jax.Array) -> jax.Array:
    """Return coordinates `[n, r]` from inner products `[m, n]`."""
    return jnp.matmul(products.T, basis, precision="highest")
