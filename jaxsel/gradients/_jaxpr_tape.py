"""Tracing of parameters through the jaxpr of one example's loss, to their layers.

The loss is traced to a jaxpr, which is then run with a zero added, a *tap*, to the
output of every layer that uses a selected parameter. The loss's derivative by the tap
is the layer's delta; with the layer's input it makes the parameter's gradient.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxsel._devices.typed import linear_transpose

_MOVES = {
    "reshape",
    "transpose",
    "squeeze",
    "broadcast_in_dim",
    "slice",
    "rev",
    "copy",
    "convert_element_type",
}
_CALLS = {"jit", "closed_call", "remat2"}
_OWN_RULE = {"custom_jvp_call", "custom_vjp_call"}


@dataclasses.dataclass(frozen=True)
class View:
    """A parameter, or a rearrangement of it."""

    path: str
    leaf: jax.Array
    moves: tuple[Callable[[Any], Any], ...]
    array: jax.Array

    def move(self, eqn: Any) -> View:
        def step(x: Any) -> Any:
            return eqn.primitive.bind(x, **eqn.params)

        if eqn.primitive.name == "convert_element_type":  # moves nothing
            return dataclasses.replace(self, array=step(self.array))
        return dataclasses.replace(
            self, moves=(*self.moves, step), array=step(self.array)
        )

    def spread(self, shape: Sequence[int]) -> View:
        """Broadcast the view to a shape."""

        def step(x: Any) -> jax.Array:
            return jnp.broadcast_to(x, shape)

        return dataclasses.replace(
            self, moves=(*self.moves, step), array=step(self.array)
        )

    def apply(self, leaf: Any) -> Any:
        for step in self.moves:
            leaf = step(leaf)
        return leaf

    def index(self) -> np.ndarray:
        """Index of each entry in the flattened parameter."""
        # Uses of a parameter are compared while the loss is being traced: their indices
        # must be numbers, not tracers.
        with jax.ensure_compile_time_eval():
            places = jnp.arange(self.leaf.size, dtype=jnp.int32)
            return np.asarray(self.apply(places.reshape(self.leaf.shape)))

    def back(self, delta: jax.Array) -> jax.Array:
        """Return the derivative by the parameter, flat, given the one by the view."""
        # Moves are linear, so that their transpose is the derivative: it sums where a
        # broadcast repeated, and pads where a slice cut.
        shape = jax.ShapeDtypeStruct(self.leaf.shape, delta.dtype)
        return linear_transpose(self.apply, shape)(delta)[0].reshape(-1)


@dataclasses.dataclass(kw_only=True)
class Product:
    """A parameter used as the kernel of a dense or convolution layer.

    Attributes:
        view: The parameter.
        tap: Which tap is at the output.
        inputs: Inputs of the kernel, `[positions, in]`.
        deltas: Brings the derivative by the tap to `[positions, out]`.
        arrange: Brings the view to the kernel `[in, out]`.
        delta: The derivative by the tap, once it is known.
    """

    view: View
    tap: int
    inputs: jax.Array
    deltas: Callable[[Any], Any]
    arrange: Callable[[Any], Any]
    delta: Any = None

    def index(self) -> np.ndarray:
        """Index in the flattened parameter of each entry of the kernel."""
        return self.arrange(self.view.index())

    def errors(self) -> jax.Array:
        return self.deltas(self.delta)


@dataclasses.dataclass(kw_only=True)
class Sum:
    """A parameter added to activations.

    Attributes:
        view: The parameter, of the activations' shape.
        tap: Which tap is at the output.
        product: The layer whose bias this is, if it is one.
        sign: -1 if it was subtracted.
        delta: The derivative by the tap, once it is known.
    """

    view: View
    tap: int
    product: Product | None = None
    sign: int = 1
    delta: Any = None

    def gradient(self) -> jax.Array:
        return self.sign * self.view.back(self.delta)


@dataclasses.dataclass(frozen=True)
class _Output:
    """A layer's output before its first use."""

    array: jax.Array
    product: Product


class Tape:
    """One run of a loss, with a record of its uses of parameters.

    Attributes:
        taps: The zeros to add; None to find out their shapes.
        shapes: The shape and dtype of each tap.
        uses: Every use of a parameter, in order.
        refused: Paths of parameters that could not be followed, in a lenient run.

    Args:
        taps: As the attribute.
        lenient: Whether to go on behind a use that cannot be followed, and to take a
            part of a parameter for a bias.
    """

    def __init__(
        self, taps: Sequence[jax.Array] | None = None, *, lenient: bool = False
    ):
        self.taps, self.lenient = taps, lenient
        self.refused: set[str] = set()
        self.shapes: list[jax.ShapeDtypeStruct] = []
        self.uses: list[Product | Sum] = []

    @property
    def products(self) -> list[Product]:
        return [use for use in self.uses if isinstance(use, Product)]

    def run(self, jaxpr: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        """Run a jaxpr on plain arrays and views; return plain arrays."""
        outputs = self._run(jaxpr.jaxpr, jaxpr.consts, args)
        for value in outputs:
            if isinstance(value, View):
                self._refuse(_refused(value, "the loss itself"))
        return [_array(value) for value in outputs]

    def _run(
        self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]
    ) -> list[Any]:
        values: dict[Any, Any] = {}

        def read(v: Any) -> Any:
            return v.val if isinstance(v, Literal) else values[v]

        uses = collections.Counter(
            v
            for vs in (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
            for v in vs
            if not isinstance(v, Literal)
        )

        def write(variables: Sequence[Any], results: Sequence[Any]) -> None:
            for v, value in zip(variables, results, strict=True):
                # Its delta is the bias's too only if nothing else uses the output.
                values[v] = value if uses[v] == 1 else _plain(value)

        write(jaxpr.constvars, consts)
        write(jaxpr.invars, args)
        for eqn in jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            if any(isinstance(x, View) for x in inputs):
                try:
                    results = self._follow(eqn, inputs)
                except Unfollowed as refused:
                    self._refuse(refused)
                    results = _bind(eqn, [_array(x) for x in inputs])
            else:
                results = _bind(eqn, [_plain(x) for x in inputs])
            write(eqn.outvars, results)
        return [read(v) for v in jaxpr.outvars]

    def _refuse(self, refused: Unfollowed) -> None:
        if not self.lenient:
            raise refused
        self.refused.add(refused.path)

    def _follow(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        views = [x for x in inputs if isinstance(x, View)]
        if name in _CALLS:
            inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            if isinstance(inner, ClosedJaxpr):
                return self._run(inner.jaxpr, inner.consts, inputs)
            return self._run(inner, (), inputs)
        # Followed inside, the rule would give way to the derivative of its code.
        if name in _OWN_RULE:
            raise _refused(views[0], f"{name}, which has a derivative rule of its own")
        # A plain array from here on: uses behind it have no part in the gradient.
        if name == "stop_gradient":
            return [views[0].array]
        if len(views) == 1:
            view = views[0]
            if name in _MOVES and len(inputs) == 1 and _floating(eqn):
                return [view.move(eqn)]
            if name == "dot_general":
                return [self._dot(eqn, view, inputs)]
            if name == "conv_general_dilated" and inputs[1] is view:
                return [self._convolution(eqn, view, _plain(inputs[0]))]
            if name in ("add", "add_any", "sub"):
                return [self._sum(eqn, view, inputs)]
        raise _refused(views[0], name)

    def _tap(self, value: jax.Array) -> jax.Array:
        self.shapes.append(jax.ShapeDtypeStruct(value.shape, value.dtype))
        if self.taps is None:
            return value
        return value + self.taps[len(self.shapes) - 1]

    def _product(self, value: jax.Array, view: View, **how: Any) -> _Output:
        # Factors would take the copies of an entry for separate parameters.
        if view.array.size > view.leaf.size:
            raise _refused(view, "a product after it was repeated (broadcast)")
        product = Product(view=view, tap=len(self.shapes), **how)
        self.uses.append(product)
        return _Output(self._tap(value), product)

    def _dot(self, eqn: Any, view: View, inputs: list[Any]) -> _Output:
        contract, batch = eqn.params["dimension_numbers"]
        if batch[0]:
            raise _refused(view, "dot_general with batch axes")
        side = 0 if inputs[0] is view else 1
        x = _plain(inputs[1 - side])
        x_free, x_summed = _axes(x.ndim, contract[1 - side])
        w_free, w_summed = _axes(view.array.ndim, contract[side])
        n_in = math.prod(x.shape[a] for a in x_summed)
        n_out = math.prod(view.array.shape[a] for a in w_free)

        def deltas(delta: jax.Array) -> jax.Array:
            if side == 0:  # the parameter's axes come first
                order = (*range(len(w_free), delta.ndim), *range(len(w_free)))
                delta = delta.transpose(order)
            return delta.reshape(-1, n_out)

        def arrange(kernel: Any) -> Any:
            return kernel.transpose(*w_summed, *w_free).reshape(n_in, n_out)

        return self._product(
            _bind(eqn, [_array(v) for v in inputs])[0],
            view,
            inputs=x.transpose(*x_free, *x_summed).reshape(-1, n_in),
            deltas=deltas,
            arrange=arrange,
        )

    def _convolution(self, eqn: Any, view: View, x: jax.Array) -> _Output:
        params = eqn.params
        if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
            raise _refused(view, "conv_general_dilated with groups")
        numbers = params["dimension_numbers"]
        axes: tuple[int, ...] = numbers.rhs_spec
        out_of, into, *window = axes
        out_spec = numbers.out_spec

        def deltas(delta: jax.Array) -> jax.Array:
            delta = delta.transpose(out_spec[0], *out_spec[2:], out_spec[1])
            return delta.reshape(-1, delta.shape[-1])

        # A convolution is a product of patches, `[positions, window * in]`, and kernel.
        inputs = _patches(x, [view.array.shape[a] for a in window], params)

        def arrange(kernel: Any) -> Any:
            kernel = kernel.transpose(*window, into, out_of)
            return kernel.reshape(inputs.shape[1], -1)

        return self._product(
            _bind(eqn, [x, view.array])[0],
            view,
            inputs=inputs,
            deltas=deltas,
            arrange=arrange,
        )

    def _sum(self, eqn: Any, view: View, inputs: list[Any]) -> jax.Array:
        other = inputs[0] if inputs[1] is view else inputs[1]
        shape = eqn.outvars[0].aval.shape
        view = view.spread(shape)
        value = _bind(eqn, [_array(x) for x in inputs])[0]
        # A bias right after its layer: its delta is the layer's, no tap of its own.
        if (
            eqn.primitive.name != "sub"
            and isinstance(other, _Output)
            and other.array.shape == shape
            and _per_output(view, other.product, whole=not self.lenient)
        ):
            product = other.product
            self.uses.append(Sum(view=view, tap=product.tap, product=product))
            return value
        subtracted = eqn.primitive.name == "sub" and isinstance(inputs[1], View)
        sign = -1 if subtracted else 1
        self.uses.append(Sum(view=view, tap=len(self.shapes), sign=sign))
        return self._tap(value)


def _per_output(view: View, product: Product, *, whole: bool) -> bool:
    """Return whether a parameter has one entry per output, shared by all positions.

    Args:
        view: The parameter, or a part of it.
        product: The layer.
        whole: Whether the parameter must have no other entries.
    """
    index = product.deltas(view.index())
    row = index[0]
    if whole and view.leaf.size != row.size:
        return False
    return bool(np.all(index == row[None]) and np.all(np.diff(row) == 1))


def _patches(x: jax.Array, window: Sequence[int], params: Any) -> jax.Array:
    """Return each convolution output's patch, `[positions, window * channels]`."""
    batch, channels, *space = params["dimension_numbers"].lhs_spec
    padding = [
        (low, high, dilation - 1)  # interior padding: `lhs_dilation` as zeros
        for (low, high), dilation in zip(
            params["padding"], params["lhs_dilation"], strict=True
        )
    ]
    x = x.transpose(batch, *space, channels)
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *padding, (0, 0, 0)])
    strides, dilation = params["window_strides"], params["rhs_dilation"]
    # Window positions at stride 1, equally many for each offset.
    last = [
        size - (width - 1) * d
        for size, width, d in zip(x.shape[1:-1], window, dilation, strict=True)
    ]
    parts: list[jax.Array] = []
    for offset in itertools.product(*map(range, window)):
        starts = [o * d for o, d in zip(offset, dilation, strict=True)]
        stops = [start + size for start, size in zip(starts, last, strict=True)]
        part = lax.slice(
            x,
            (0, *starts, 0),
            (x.shape[0], *stops, x.shape[-1]),
            (1, *strides, 1),
        )
        parts.append(part.reshape(-1, x.shape[-1]))
    return jnp.stack(parts, axis=1).reshape(len(parts[0]), -1)


def _axes(ndim: int, summed: Sequence[int]) -> tuple[list[int], list[int]]:
    return [a for a in range(ndim) if a not in summed], list(summed)


def _bind(eqn: Any, inputs: list[Any]) -> list[Any]:
    params = eqn.primitive.get_bind_params(eqn.params)
    results = eqn.primitive.bind(*inputs, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _floating(eqn: Any) -> bool:
    return jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)


def _array(value: Any) -> Any:
    return value.array if isinstance(value, View) else _plain(value)


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _Output) else value


class Unfollowed(ValueError):
    """A use of a parameter that is no layer's.

    Args:
        path: Of the parameter.
        message: For the caller.
    """

    def __init__(self, path: str, message: str):
        super().__init__(message)
        self.path = path


def _refused(view: View, what: str) -> Unfollowed:
    return refusal(view.path, f"through {what}")


def refusal(path: str, what: str) -> Unfollowed:
    name = path.rpartition("/")[2]
    # Norms name their scales as dense layers do their kernels in some frameworks.
    is_common = name in ("kernel", "weight", "w")
    others = f"path != {path!r}" if is_common else f"not path.endswith({name!r})"
    return Unfollowed(
        path,
        f"ghost cannot follow the parameter {path!r} {what}: it follows the kernels of "
        "dense and convolution layers, and added biases. Leave it out with "
        f"wrt=lambda path, leaf: {others}, or use jvp, which takes any use",
    )
