"""Typed wrappers of JAX functions with incomplete type annotations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from flax import nnx

_T = TypeVar("_T")
_U = TypeVar("_U")
_P = ParamSpec("_P")


def all_devices(array: jax.Array, axis: str) -> jax.Array:
    """Return an array of each device, stacked: `jax.lax.all_gather`."""
    return lax.all_gather(array, axis)


def barrier(array: jax.Array) -> jax.Array:
    """Return an array that no fusion crosses: `jax.lax.optimization_barrier`."""
    return lax.optimization_barrier(array)


def cholesky(matrix: jax.Array, *, symmetrize_input: bool = True) -> jax.Array:
    """Return the lower Cholesky factor: `jax.numpy.linalg.cholesky`."""
    return jnp.linalg.cholesky(matrix, symmetrize_input=symmetrize_input)


def clone_key(key: jax.Array) -> jax.Array:
    """Return a key for the same draws again: `jax.random.clone`, where it is asked for.

    Elsewhere it would cost a tenth of a millisecond for nothing.
    """
    watched: bool = jax.config.jax_debug_key_reuse  # pyright: ignore
    return jax.random.clone(key) if watched else key


def compiled(**options: Any) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return a decorator, `jax.jit` with these options."""
    return partial(jax.jit, **options)


def cond(
    yes: jax.Array, then: Callable[[_T], _U], other: Callable[[_T], _U], operand: _T
) -> _U:
    """Return one function of the operand or the other: `jax.lax.cond`."""
    return lax.cond(yes, then, other, operand)


def custom_jvp(
    *, nondiff_argnums: tuple[int, ...]
) -> Callable[[Callable[..., _T]], jax.custom_jvp[_T]]:
    """Return a decorator, `jax.custom_jvp` with arguments that have no derivative."""
    return partial(jax.custom_jvp, nondiff_argnums=nondiff_argnums)


def diagonals(matrices: jax.Array) -> jax.Array:
    """Return the diagonal of each matrix: `jax.numpy.diagonal`."""
    return jnp.diagonal(matrices, axis1=-2, axis2=-1)


def epsilon(dtype: jax.typing.DTypeLike) -> float:
    """Return the distance from 1 to the next number: `jax.numpy.finfo(...).eps`."""
    return float(jnp.finfo(dtype).eps)


def fori_loop(
    start: int | jax.Array,
    stop: int | jax.Array,
    body: Callable[[jax.Array, _T], _T],
    carry: _T,
) -> _T:
    """Apply the body to a carry from `start` to `stop` - 1: `jax.lax.fori_loop`."""
    return lax.fori_loop(start, stop, body, carry)


def gradient(function: Callable[[_T], jax.Array]) -> Callable[[_T], _T]:
    """Return the derivative of a function by its argument: `jax.grad`."""
    return jax.grad(function)


def gradient_and_rest(
    function: Callable[[_T], tuple[jax.Array, _U]],
) -> Callable[[_T], tuple[_T, _U]]:
    """Return the derivative and auxiliary output: `jax.grad` with `has_aux`."""
    return jax.grad(function, has_aux=True)


def largest(dtype: jax.typing.DTypeLike) -> float:
    """Return the largest number of a float type: `jax.numpy.finfo(...).max`."""
    return float(jnp.finfo(dtype).max)


def least_normal(dtype: jax.typing.DTypeLike) -> float:
    """Return the least normal number of a float type: `jax.numpy.finfo(...).tiny`."""
    return float(jnp.finfo(dtype).tiny)


def least_subnormal(dtype: jax.typing.DTypeLike) -> float:
    """Return the least number above 0: `jax.numpy.finfo(...).smallest_subnormal`."""
    return float(jnp.finfo(dtype).smallest_subnormal)


def map_leaves(function: Callable[[jax.Array], jax.Array], tree: _T) -> _T:
    """Return a tree with a function of every array: `jax.tree.map`."""
    return jax.tree.map(function, tree)


def map_pairs(
    function: Callable[[jax.Array, jax.Array], jax.Array], tree: _T, other: _T
) -> _T:
    """Return a function of the arrays of two trees, pair by pair: `jax.tree.map`."""
    return jax.tree.map(function, tree, other)


def map_rows(
    function: Callable[[_T], _U], rows: _T, *, batch_size: int | None = None
) -> _U:
    """Return a function of every row, one after the other: `jax.lax.map`."""
    return lax.map(function, rows, batch_size=batch_size)


def norm(x: jax.Array, *, axis: int = -1, keepdims: bool = False) -> jax.Array:
    """Return the lengths of vectors: `jax.numpy.linalg.norm`."""
    return jnp.linalg.norm(x, axis=axis, keepdims=keepdims)


def platform_dependent(
    *operands: Any, default: Callable[..., _T], **others: Callable[..., _T]
) -> _T:
    """Return one function's result by platform: `jax.lax.platform_dependent`."""
    return lax.platform_dependent(*operands, default=default, **others)


def split_model(model: nnx.Module) -> tuple[nnx.GraphDef[Any], Any]:
    """Return a model's static part and its parameters: `flax.nnx.split`."""
    from flax import nnx

    return nnx.split(model, nnx.Param)


def swap_devices(array: jax.Array, axis: str, split: int, join: int) -> jax.Array:
    """Send each device its part of an array's axis: `jax.lax.all_to_all`, tiled."""
    return lax.all_to_all(array, axis, split, join, tiled=True)


def sum_devices(tree: _T, axis: Any) -> _T:
    """Return the sum of a tree over devices: `jax.lax.psum`."""
    return lax.psum(tree, axis)


def transpose(
    function: Callable[[jax.Array], jax.Array], like: jax.ShapeDtypeStruct
) -> Callable[[jax.Array], tuple[jax.Array]]:
    """Return the transpose of a linear function: `jax.linear_transpose`."""
    return jax.linear_transpose(function, like)


def vary_over(array: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """Return an array that differs along axes of a mesh: `jax.lax.pcast`."""
    return lax.pcast(array, axes, to="varying")


def vjp(
    function: Callable[[_T], jax.Array], point: _T
) -> tuple[jax.Array, Callable[[jax.Array], tuple[_T]]]:
    """Return a function's value at a point, and its pullback: `jax.vjp`."""
    return jax.vjp(function, point)


def while_loop(
    more: Callable[[_T], jax.Array], body: Callable[[_T], _T], carry: _T
) -> _T:
    """Apply the body to a carry while `more(carry)`: `jax.lax.while_loop`."""
    return lax.while_loop(more, body, carry)


def wrapped_key(bits: jax.Array, impl: str | None = None) -> jax.Array:
    """Return the key that has these bits: `jax.random.wrap_key_data`."""
    return jax.random.wrap_key_data(bits, impl=impl)
