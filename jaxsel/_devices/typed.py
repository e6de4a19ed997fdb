"""JAX's functions with complete types, under JAX's names.

What strict type checkers know of the originals is incomplete. Names, arguments and
defaults are those of JAX but where a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, TypeVar, overload

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from flax import nnx

_T = TypeVar("_T")
_U = TypeVar("_U")
_P = ParamSpec("_P")


class Finfo(NamedTuple):
    """Limits of a floating-point type, as Python floats."""

    eps: float
    max: float
    tiny: float
    smallest_subnormal: float


def all_gather(x: jax.Array, axis_name: str) -> jax.Array:
    """See `jax.lax.all_gather`."""
    return lax.all_gather(x, axis_name)


def all_to_all(
    x: jax.Array,
    axis_name: str,
    split_axis: int,
    concat_axis: int,
    *,
    tiled: bool = False,
) -> jax.Array:
    """See `jax.lax.all_to_all`."""
    return lax.all_to_all(x, axis_name, split_axis, concat_axis, tiled=tiled)


def cholesky(a: jax.Array, *, symmetrize_input: bool = True) -> jax.Array:
    """See `jax.numpy.linalg.cholesky`."""
    return jnp.linalg.cholesky(a, symmetrize_input=symmetrize_input)


def clone_key(key: jax.Array) -> jax.Array:
    """Call `jax.random.clone` if JAX checks the reuse of keys; else return the key.

    A clone would cost a tenth of a millisecond for nothing.
    """
    watched: bool = jax.config.jax_debug_key_reuse  # pyright: ignore
    return jax.random.clone(key) if watched else key


def cond(
    pred: jax.Array,
    true_fun: Callable[[_T], _U],
    false_fun: Callable[[_T], _U],
    operand: _T,
) -> _U:
    """See `jax.lax.cond`."""
    return lax.cond(pred, true_fun, false_fun, operand)


def custom_jvp(
    *, nondiff_argnums: tuple[int, ...]
) -> Callable[[Callable[..., _T]], jax.custom_jvp[_T]]:
    """Return a decorator: `jax.custom_jvp` with arguments without a derivative."""
    return partial(jax.custom_jvp, nondiff_argnums=nondiff_argnums)


def diagonal(a: jax.Array, *, axis1: int = 0, axis2: int = 1) -> jax.Array:
    """See `jax.numpy.diagonal`."""
    return jnp.diagonal(a, axis1=axis1, axis2=axis2)


def finfo(dtype: jax.typing.DTypeLike) -> Finfo:
    """Return limits as `jax.numpy.finfo` has them."""
    info = jnp.finfo(dtype)
    return Finfo(*(float(getattr(info, name)) for name in Finfo._fields))


def fori_loop(
    lower: int | jax.Array,
    upper: int | jax.Array,
    body_fun: Callable[[jax.Array, _T], _T],
    init_val: _T,
) -> _T:
    """See `jax.lax.fori_loop`."""
    return lax.fori_loop(lower, upper, body_fun, init_val)


@overload
def grad(
    fun: Callable[[_T], jax.Array], *, has_aux: Literal[False] = False
) -> Callable[[_T], _T]: ...
@overload
def grad(
    fun: Callable[[_T], tuple[jax.Array, _U]], *, has_aux: Literal[True]
) -> Callable[[_T], tuple[_T, _U]]: ...
def grad(fun: Callable[[_T], Any], *, has_aux: bool = False) -> Callable[[_T], Any]:
    """See `jax.grad`."""
    return jax.grad(fun, has_aux=has_aux)


def jit(**options: Any) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return a decorator: `jax.jit` with options, which keeps the function's type."""
    return partial(jax.jit, **options)


def lax_map(f: Callable[[_T], _U], xs: _T, *, batch_size: int | None = None) -> _U:
    """See `jax.lax.map`."""
    return lax.map(f, xs, batch_size=batch_size)


def linear_transpose(
    fun: Callable[[jax.Array], jax.Array], primal: jax.ShapeDtypeStruct
) -> Callable[[jax.Array], tuple[jax.Array]]:
    """See `jax.linear_transpose`."""
    return jax.linear_transpose(fun, primal)


def norm(x: jax.Array, *, axis: int | None = None, keepdims: bool = False) -> jax.Array:
    """See `jax.numpy.linalg.norm`."""
    return jnp.linalg.norm(x, axis=axis, keepdims=keepdims)


def optimization_barrier(operand: jax.Array) -> jax.Array:
    """See `jax.lax.optimization_barrier`."""
    return lax.optimization_barrier(operand)


def pcast(
    x: jax.Array, axis_name: tuple[str, ...], *, to: Literal["varying"]
) -> jax.Array:
    """See `jax.lax.pcast`."""
    return lax.pcast(x, axis_name, to=to)


def platform_dependent(
    *args: Any, default: Callable[..., _T], **per_platform: Callable[..., _T]
) -> _T:
    """See `jax.lax.platform_dependent`."""
    return lax.platform_dependent(*args, default=default, **per_platform)


def psum(x: _T, axis_name: Any) -> _T:
    """See `jax.lax.psum`."""
    return lax.psum(x, axis_name)


def split_model(model: nnx.Module) -> tuple[nnx.GraphDef[Any], Any]:
    """Return a model's static part and its parameters, by `flax.nnx.split`."""
    from flax import nnx

    return nnx.split(model, nnx.Param)


@overload
def tree_map(f: Callable[[Any], Any], tree: _T) -> _T: ...
@overload
def tree_map(f: Callable[[Any, Any], Any], tree: _T, other: _T, /) -> _T: ...
@overload
def tree_map(f: Callable[..., Any], tree: _T, *rest: _T) -> _T: ...
def tree_map(f: Callable[..., Any], tree: _T, *rest: _T) -> _T:
    """See `jax.tree.map`."""
    return jax.tree.map(f, tree, *rest)


@overload
def vjp(
    fun: Callable[[_T], jax.Array], primal: _T, *, has_aux: Literal[False] = False
) -> tuple[jax.Array, Callable[[jax.Array], tuple[_T]]]: ...
@overload
def vjp(
    fun: Callable[[_T], tuple[jax.Array, _U]], primal: _T, *, has_aux: Literal[True]
) -> tuple[jax.Array, Callable[[jax.Array], tuple[_T]], _U]: ...
def vjp(fun: Callable[[_T], Any], primal: _T, *, has_aux: bool = False) -> Any:
    """See `jax.vjp`."""
    return jax.vjp(fun, primal, has_aux=has_aux)


def while_loop(
    cond_fun: Callable[[_T], jax.Array], body_fun: Callable[[_T], _T], init_val: _T
) -> _T:
    """See `jax.lax.while_loop`."""
    return lax.while_loop(cond_fun, body_fun, init_val)


def wrap_key_data(key_bits_array: jax.Array, *, impl: str | None = None) -> jax.Array:
    """See `jax.random.wrap_key_data`."""
    return jax.random.wrap_key_data(key_bits_array, impl=impl)
