"""Interface of gradient oracles: inner products, never the matrix itself."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Integer

from jaxsel._devices.typed import tree_map
from jaxsel._inputs.checks import widen

Gradient = Any
"""A gradient in an oracle's own form: a pytree of arrays."""

_T = TypeVar("_T", bound="Oracle")


class Oracle(abc.ABC):
    """The gradients g_1, ..., g_n of n candidates, known through products only.

    Oracles are frozen dataclasses registered as pytrees, so that they pass through
    `jax.jit` as arguments. The first axis of their arrays is that of the candidates,
    except in the fields named in `shared`.

    Two oracles understand each other's atoms and gradients if they were made alike:
    from the same layers, or the same loss and parameters.
    """

    shared: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        """Return n, the number of candidates."""
        return jax.tree.leaves(self.per_candidate())[0].shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={len(self)})"

    @abc.abstractmethod
    def diag(self) -> Float[jax.Array, " n"]:
        """Return each candidate's squared length, `[n]`."""

    @abc.abstractmethod
    def corr(self, v: Gradient) -> Float[jax.Array, " n"]:
        """Return each candidate's inner product with a gradient, `[n]`."""

    @abc.abstractmethod
    def gram(self, atoms: Any) -> Float[jax.Array, "m n"]:
        """Return the inner products of m atoms with all candidates, `[m, n]`.

        Atoms are an oracle made as this one was.
        """

    @abc.abstractmethod
    def combine(self, weights: Float[jax.Array, " n"]) -> Gradient:
        """Return the gradient sum_i w_i g_i for weights `[n]`, in the oracle's form."""

    def rows_held(self) -> Float[jax.Array, "n p"] | None:
        """Return the gradients as rows, if this oracle holds them so, else None.

        A step of matching then costs one product of the rows with the residual, and no
        column is kept.
        """
        return None

    def column(self, j: int | Integer[jax.Array, ""]) -> Float[jax.Array, " n"]:
        """Return candidate j's inner products with all, `[n]`."""
        return self.columns(jnp.asarray(j)[None])[0]

    def columns(self, js: Integer[jax.Array, " m"]) -> Float[jax.Array, "m n"]:
        """Return m candidates' inner products with all, `[m, n]`."""
        return self.gram(self.take(jnp.asarray(js)))

    def mean(self) -> Gradient:
        """Return the mean gradient: the target, if these are the hard samples."""
        n = len(self)
        return self.combine(jnp.full(n, 1 / n, self.dtype))

    @property
    def dtype(self) -> Any:
        """The type of the products: at least float32."""
        leaves = jax.tree.leaves(self.per_candidate())
        # Strict promotion would refuse float64 beside float32.
        with jax.numpy_dtype_promotion("standard"):
            return jnp.result_type(*leaves, jnp.float32)

    def per_candidate(self) -> dict[str, Any]:
        """Return the fields with an entry for each candidate."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
            if not field.metadata.get("static") and field.name not in self.shared
        }

    def take(self: _T, indices: jax.Array) -> _T:
        """Return the oracle of the candidates at `indices` (`[m]`, or a slice)."""
        rows = tree_map(lambda array: array[indices], self.per_candidate())
        return dataclasses.replace(self, **rows)  # pyright: ignore

    def group(self, rows: jax.Array, shares: jax.Array) -> Oracle:
        """Return the oracle of g groups, each a weighted sum of s candidates.

        Matching by minibatch needs it; oracles that do not know gradients one by one
        have none.

        Args:
            rows: Which candidates, `[g, s]`.
            shares: Weight of each, `[g, s]`.

        Raises:
            TypeError: If this oracle has no groups.
        """
        del rows, shares
        raise TypeError(
            "batch_size needs gradients that are known one by one (dense, factored, "
            f"ghost or projected), got {type(self).__name__}"
        )


def inner(u: Gradient, v: Gradient) -> jax.Array:
    """Return the inner product of two gradients of one form.

    Args:
        u: A gradient: a pytree of arrays.
        v: Another, of the same structure and shapes.
    """
    # `sum` starts from Python's 0, which leaves the terms their dtype.
    return jnp.asarray(sum(jax.tree.leaves(jax.tree.map(_vdot, u, v))))


def _vdot(a: jax.Array, b: jax.Array) -> jax.Array:
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(a, b, jnp.float32)  # whole numbers would overflow
    a, b = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
    return jnp.vdot(a, b, precision="highest")


def squared_norm(v: Gradient) -> jax.Array:
    """Return the squared length of a gradient.

    Args:
        v: A gradient: a pytree of arrays.
    """
    return inner(v, v)


def grouped_rows(matrix: jax.Array, rows: jax.Array, shares: jax.Array) -> jax.Array:
    """Return weighted sums of rows of a matrix `[n, d]`, `[g, d]`: see `group`."""
    return jnp.einsum("gs,gsd->gd", shares, matrix[rows], precision="highest")


def products(atoms: jax.Array, rows: jax.Array) -> jax.Array:
    """Return the inner products of a few atoms `[m, d]` with rows `[n, d]`, `[m, n]`.

    XLA's CPU backend reads the rows at full speed this way round for one atom, and the
    other way round, twice as fast as this, for several.
    """
    atoms, rows = widen(atoms), widen(rows)
    if atoms.shape[0] < 3:
        return jnp.matmul(atoms, rows.T, precision="highest")
    return jnp.matmul(rows, atoms.T, precision="highest").T
