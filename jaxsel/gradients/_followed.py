"""Layers of a network that can be followed, with their inputs and deltas."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import grad, vjp

from ._jaxpr_tape import Product, Sum, Tape, View


class FollowedLayers:
    """Dense and convolution layers of a function of parameters, and all else of it.

    A layer `y = x W + b` that is applied at several positions, or whose W is used in
    several places, is one layer. Followed are the uses that `ghost` follows; parameters
    with any other use, such as scales of norms, embeddings, kernels used transposed
    too, and biases that belong to no kernel, are the rest.

    Args:
        function: From parameters and an example to an array.
        params: Any pytree of arrays.
        example: Arrays, or their shapes and types.

    Attributes:
        count: Number of layers.
        rest: Numbers of the floating-point leaves that are no layer's.

    Raises:
        TypeError: If `function` cannot be called.
        ValueError: If `params` has no floating-point array.

    References:
        T. George et al., Fast approximate natural gradient descent in a
        Kronecker-factored eigenbasis, NeurIPS 2018: a method that needs both factors.
    """

    def __init__(
        self, function: Callable[[Any, Any], jax.Array], params: Any, example: Any
    ):
        if not callable(function):
            raise TypeError(f"function must be callable, got {function!r}")
        self._treedef: Any = jax.tree.structure(params)
        self._leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(params)]
        kinds = [str(leaf.dtype) for leaf in self._leaves]
        if not any(map(_is_float, kinds)):
            raise ValueError(f"params must have a floating-point array, got {kinds}")

        def of(leaves: list[jax.Array], example: Any) -> jax.Array:
            return function(self._treedef.unflatten(leaves), example)

        self._traced = jax.make_jaxpr(of)(self._leaves, example)
        self._followed = {
            i for i, leaf in enumerate(self._leaves) if _is_float(leaf.dtype)
        }
        while True:
            self._plan = self._planned(example)
            self._layers, others = _layers(self._plan)
            if not others:
                break
            self._followed -= others
        self.count = len(self._layers)
        self.rest = tuple(
            i
            for i, leaf in enumerate(self._leaves)
            if i not in self._followed and _is_float(leaf.dtype)
        )

    def __repr__(self) -> str:
        return f"FollowedLayers(count={self.count})"

    def vjp(
        self, examples: Any
    ) -> tuple[jax.Array, list[jax.Array], Callable[[jax.Array], Any]]:
        """Run the function on examples, for derivatives of each by its layers' outputs.

        Args:
            examples: Arrays `[b, ...]`.

        Returns:
            The function's values, `[b, ...]`; each layer's inputs,
            `[b, positions, in]`, with a last one of 1 for a bias; and a function that
            takes derivatives by the values, `[b, ...]`, to each layer's deltas,
            `[b, positions, out]`, and to the derivatives by the rest of the parameters,
            in the form of all, `[b, ...]`; 0 for layers' own, `[1, ...]`.
        """
        size = jax.tree.leaves(examples)[0].shape[0]
        rest = {
            i: jnp.broadcast_to(leaf[None], (size, *leaf.shape))
            for i, leaf in enumerate(self._leaves)
            if i in self.rest
        }
        taps = [jnp.zeros((size, *s.shape), s.dtype) for s in self._plan.shapes]

        def tapped(
            taps: list[jax.Array], rest: dict[int, jax.Array], example: Any
        ) -> tuple[jax.Array, list[jax.Array]]:
            tape = Tape(taps, lenient=True)
            value = self._run(tape, example, rest)
            return value, [use.inputs for use in tape.products]

        def all_tapped(
            primal: tuple[list[jax.Array], dict[int, jax.Array]],
        ) -> tuple[jax.Array, list[jax.Array]]:
            return jax.vmap(tapped)(*primal, examples)

        values, pull, inputs_of = vjp(all_tapped, (taps, rest), has_aux=True)
        number = {id(use): i for i, use in enumerate(self._plan.products)}

        def inputs(group: Sequence[Product], bias: Sum | None) -> jax.Array:
            whole = jnp.concatenate([inputs_of[number[id(use)]] for use in group], 1)
            return (
                whole
                if bias is None
                else jnp.pad(whole, ((0, 0), (0, 0), (0, 1)), constant_values=1)
            )

        def back(cotangents: jax.Array) -> Any:
            by_tap, by_rest = pull(cotangents)[0]
            deltas = [
                jnp.concatenate(
                    [jax.vmap(use.deltas)(by_tap[use.tap]) for use in group], axis=1
                )
                for group, _ in self._layers
            ]
            others: list[jax.Array] = [
                by_rest.get(i, jnp.zeros((1, *leaf.shape), leaf.dtype))
                for i, leaf in enumerate(self._leaves)
            ]
            return deltas, self._treedef.unflatten(others)

        return values, [inputs(*layer) for layer in self._layers], back

    def matrices(self, tree: Any) -> list[jax.Array]:
        """Return the part of a tree in each layer, `[in, out]`, a bias as last row."""
        leaves: Any = self._treedef.flatten_up_to(tree)
        return self._matrices({i: leaves[i] for i in self._followed})

    def tree(self, matrices: Sequence[jax.Array]) -> Any:
        """Return the tree with the layers' parts, and 0 elsewhere."""

        def product(leaves: dict[int, jax.Array]) -> jax.Array:
            pairs = zip(self._matrices(leaves), matrices, strict=True)
            terms = [jnp.sum(a * b) for a, b in pairs]
            return sum(terms[1:], terms[0])

        if not self.count:
            return self._treedef.unflatten([jnp.zeros_like(a) for a in self._leaves])
        # The derivative of an inner product with a rearrangement arranges back.
        back = grad(product)(
            {i: jnp.zeros_like(self._leaves[i]) for i in self._followed}
        )
        return self._treedef.unflatten(
            [back.get(i, jnp.zeros_like(leaf)) for i, leaf in enumerate(self._leaves)]
        )

    def _matrices(self, leaves: dict[int, jax.Array]) -> list[jax.Array]:
        parts: list[jax.Array] = []
        for group, bias in self._layers:
            use = group[0]
            part = use.arrange(use.view.apply(leaves[int(use.view.path)]))
            if bias is not None:
                row = use.deltas(bias.view.apply(leaves[int(bias.view.path)]))[:1]
                part = jnp.concatenate([part, row])
            parts.append(part)
        return parts

    def _planned(self, example: Any) -> Tape:
        """Return an abstract run in which every use is followed."""
        while True:
            plan = Tape(lenient=True)
            jax.eval_shape(functools.partial(self._run, plan), example)
            if not plan.refused:
                return plan
            self._followed -= {int(path) for path in plan.refused}

    def _run(
        self, tape: Tape, example: Any, rest: dict[int, jax.Array] | None = None
    ) -> jax.Array:
        leaves = [(rest or {}).get(i, leaf) for i, leaf in enumerate(self._leaves)]
        views = [
            View(str(i), leaf, (), leaf) if i in self._followed else leaf
            for i, leaf in enumerate(leaves)
        ]
        return tape.run(self._traced, [*views, *jax.tree.leaves(example)])[0]


_Layer = tuple[list[Product], Sum | None]
"""Uses of one kernel, and one of the bias that is added to all of them."""


def _layers(plan: Tape) -> tuple[list[_Layer], set[int]]:
    """Return the layers of a run, and the parameters that have to be of the rest."""
    others: set[int] = set()
    # By parameter, the entries that each kernel and bias takes: they must not overlap.
    entries: dict[int, list[np.ndarray]] = {}
    kernels: list[tuple[np.ndarray, list[Product]]] = []
    for use in plan.products:
        path, index = int(use.view.path), use.index()
        for other, group in kernels:
            if group[0].view.path == use.view.path and np.array_equal(index, other):
                group.append(use)
                break
        else:
            kernels.append((index, [use]))
            entries.setdefault(path, []).append(index)
    biases: dict[int, Sum] = {}
    for use in plan.uses:
        if isinstance(use, Product):
            continue
        path, product = int(use.view.path), use.product
        if product is None:
            others.add(path)
            continue
        number = next(i for i, (_, group) in enumerate(kernels) if _has(group, product))
        if number not in biases:
            biases[number] = use
            entries.setdefault(path, []).append(_row(use))
        elif biases[number].view.path != use.view.path or not np.array_equal(
            _row(biases[number]), _row(use)
        ):
            others.add(path)
    for number, bias in biases.items():
        # A layer adds all its deltas to its bias.
        added = [u.product for u in plan.uses if isinstance(u, Sum) and u.product]
        if not all(_has(added, product) for product in kernels[number][1]):
            others.add(int(bias.view.path))
    for path, indices in entries.items():
        taken = np.concatenate([index.reshape(-1) for index in indices])
        if np.unique(taken).size < taken.size:
            others.add(path)
    return [(group, biases.get(i)) for i, (_, group) in enumerate(kernels)], others


def _has(products: Sequence[Product | None], product: Product) -> bool:
    return any(other is product for other in products)


def _row(bias: Sum) -> np.ndarray:
    """Return the entries of a parameter that are a layer's bias, `[out]`."""
    assert bias.product is not None
    return bias.product.deltas(bias.view.index())[0]


def _is_float(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)
