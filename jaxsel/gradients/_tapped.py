"""The layers of one example's gradient, from the uses of the parameters on a tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._jaxpr_tape import Product, Sum, refusal
from ._rows import vary


class Tapped(NamedTuple):
    """One layer's part in one example's gradient, before anything is multiplied.

    Attributes:
        path: Path of the layer's kernel, or of what is added.
        deltas: The loss's derivative by the layer's output, `[positions, out]`.
        inputs: The layer's input, `[positions, in]`.
        bias: Whether a bias counts.
    """

    path: str
    deltas: jax.Array
    inputs: jax.Array
    bias: bool


def tapped_layers(
    paths: Sequence[str], uses: Sequence[Product | Sum]
) -> tuple[Tapped, ...]:
    """Assemble the layers of one example from all uses of the parameters."""
    groups: dict[str, list[_Group]] = {}
    sums: dict[str, list[Sum]] = {}
    for path in paths:
        of_path = [use for use in uses if use.view.path == path]
        groups[path] = _groups([use for use in of_path if isinstance(use, Product)])
        sums[path] = [use for use in of_path if isinstance(use, Sum)]
        if groups[path] and sums[path]:
            raise refusal(path, "into a product and elsewhere")
    kernels = _kernels(groups, sums)
    layers: list[Tapped] = []
    for path in paths:
        bias = path in kernels.values()
        layers += [_layer(path, group, bias) for group in groups[path]]
        if sums[path] and path not in kernels:
            terms = [use.gradient() for use in sums[path]]
            layers.append(written_out(path, sum(terms[1:], terms[0])))
    if not layers:
        raise ValueError(
            f"the loss must depend on a selected parameter, got {', '.join(paths)}"
        )
    return tuple(layers)


_Group = list[tuple[Product, bool]]
"""Uses of one kernel, and whether each has it transposed."""


def _groups(products: Sequence[Product]) -> list[_Group]:
    """Group the uses of one parameter by the part of it that is the kernel."""
    if len(products) == 1:
        return [[(products[0], False)]]
    groups: list[tuple[np.ndarray, _Group]] = []
    for product in products:
        # Equal arrays of indices: the same kernel, used twice, or transposed, as tied
        # weights are. Positions are then concatenated; partial overlap is refused.
        index = product.index()
        for other, group in groups:
            if np.array_equal(index, other):
                group.append((product, False))
                break
            if np.array_equal(index.T, other):
                group.append((product, True))
                break
            if np.intersect1d(index, other).size:
                raise refusal(
                    product.view.path, "into products that arrange it differently"
                )
        else:
            groups.append((index, [(product, False)]))
    return [group for _, group in groups]


def _kernels(
    groups: dict[str, list[_Group]], sums: dict[str, list[Sum]]
) -> dict[str, str]:
    """Return the path of the kernel for each bias added to all of its products."""
    kernels: dict[str, str] = {}
    for path, uses in sums.items():
        products = [use.product for use in uses if use.product is not None]
        if not products or len(products) < len(uses):
            continue
        kernel = products[0].view.path
        added = {id(product) for product in products}
        if len(groups[kernel]) == 1 and kernel not in kernels.values():
            group = groups[kernel][0]
            used = {id(product) for product, turned in group if not turned}
            # A layer adds all its deltas to its bias: if a product lacks the bias, or
            # has the kernel transposed, their sum is not the bias's gradient.
            if added == used and len(used) == len(group):
                kernels[path] = kernel
    return kernels


def _layer(path: str, group: _Group, bias: bool) -> Tapped:
    pairs = [(product.inputs, product.errors()) for product, _ in group]
    pairs = [
        pair[::-1] if turned else pair
        for pair, (_, turned) in zip(pairs, group, strict=True)
    ]
    inputs = jnp.concatenate([inputs for inputs, _ in pairs])
    deltas = jnp.concatenate([deltas for _, deltas in pairs])
    return Tapped(path, deltas, inputs, bias)


def written_out(path: str, gradient: jax.Array) -> Tapped:
    """Return a layer with one delta, of 1: its input is the gradient itself."""
    ones = vary(jnp.ones((1, 1), gradient.dtype), gradient)
    return Tapped(path, ones, gradient[None], False)
