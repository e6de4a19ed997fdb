"""Low-rank updates of a network's dense kernels (LoRA), by Flax's own layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxsel._inputs.checks import check_count
from jaxsel._inputs.parameters import Wrt, split

from ._fit import Params


def add_lora(
    graphdef: nnx.GraphDef[Any],
    params: Params,
    rank: int,
    *,
    wrt: Wrt,
    key: jax.Array,
) -> tuple[nnx.GraphDef[Any], Params]:
    """Add a low-rank update to dense kernels of a network: LoRA.

    Each selected `nnx.Linear` with kernel W becomes an `nnx.LoRALinear`, whose output
    is x W + x A B. A `[in, rank]` is drawn uniformly, as by He; B `[rank, out]` is 0,
    so that the network computes what it did. Paths of the new parameters end in
    `lora/lora_a` and `lora/lora_b`: `finetune(wrt="*lora_?")` trains these alone, and
    `gradients.ghost(wrt="*lora_?")` takes their gradients. At the start those by A are
    0, as B is, and those by B are the kernel's gradients, projected at random by A.

    A kernel gets rank·(in + out) parameters, and each row as many multiplications.

    Args:
        graphdef: Static part of an NNX model.
        params: Its parameters, from `nnx.split(model, nnx.Param)`.
        rank: Columns of A and rows of B, from 1 to the lesser side of each kernel.
        wrt: The kernels: globs on their paths, such as `"*/query/kernel"`, or a
            predicate of path and leaf.
        key: Key of the draws of A.

    Returns:
        Static part and parameters of the network with updates; its other parameters
        keep their paths and values.

    Raises:
        TypeError: If `rank` is no integer, or `wrt` is of another kind.
        ValueError: If `wrt` selects nothing, or another parameter than the kernel of an
            `nnx.Linear` without update, or `rank` is out of range.

    References:
        Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022,
        eq. 3. We deviate: no factor alpha / rank, which with Adam has much the effect
        of the learning rate (section 4.1).

    Examples:
        >>> import jax
        >>> from flax import nnx
        >>> from jaxsel import models
        >>> model = models.MLP(64, 32, 10, rngs=nnx.Rngs(0))
        >>> graphdef, params = nnx.split(model, nnx.Param)
        >>> key = jax.random.key(0)
        >>> _, params = models.add_lora(graphdef, params, 4, wrt="*/0/kernel", key=key)
        >>> params["layers"][0]["lora"]["lora_b"].shape
        (4, 32)
    """
    rank = check_count("rank", rank)
    selected = {*split(params, wrt).form.paths}
    model = nnx.merge(graphdef, params)
    linear = {
        _kernel(path): module
        for path, module in nnx.iter_modules(model)
        if type(module) is nnx.Linear
    }
    for path in sorted(selected):
        if path not in linear:
            raise ValueError(
                f"wrt must select kernels of nnx.Linear without LoRA, got {path!r}; "
                f"there are {', '.join(map(repr, sorted(linear))) or 'none'}"
            )
        shape = linear[path].kernel.shape
        if rank > min(shape):
            raise ValueError(
                f"rank must be at most {min(shape)}, the lesser side of {path!r} of "
                f"shape {shape}, got {rank}"
            )
    rngs = nnx.Rngs(key)

    def replace(path: Any, node: Any) -> Any:
        if type(node) is not nnx.Linear or _kernel(path) not in selected:
            return node
        kernel = node.kernel
        layer = nnx.LoRALinear(
            *kernel.shape,
            lora_rank=rank,
            lora_dtype=node.dtype,
            lora_param_dtype=kernel.dtype,
            rngs=rngs,
            **_options(node),
        )
        layer.kernel, layer.bias = kernel, node.bias
        return layer

    return nnx.split(nnx.recursive_map(replace, model), nnx.Param)


def merge_lora(
    graphdef: nnx.GraphDef[Any], params: Params
) -> tuple[nnx.GraphDef[Any], Params]:
    """Add the low-rank updates of `add_lora` to their kernels: W + A B.

    The network computes the same, up to rounding, and is that without updates again:
    as large, as fast, and with the same static part.

    Args:
        graphdef: Static part, as `add_lora` returns it.
        params: Parameters of that form, such as `FineTuned.params`.

    Returns:
        Static part and parameters of the plain network.

    Raises:
        ValueError: If the network has no `nnx.LoRALinear`.

    Examples:
        >>> import jax
        >>> from flax import nnx
        >>> from jaxsel import models
        >>> plain = nnx.split(models.MLP(64, 10, rngs=nnx.Rngs(0)), nnx.Param)
        >>> key = jax.random.key(0)
        >>> adapted = models.add_lora(*plain, 4, wrt="*/kernel", key=key)
        >>> models.merge_lora(*adapted)[0] == plain[0]
        True
    """
    merged: list[Any] = []

    def replace(path: Any, node: Any) -> Any:
        del path
        if not isinstance(node, nnx.LoRALinear):
            return node
        lora, kernel = node.lora, node.kernel
        update = jnp.matmul(lora.lora_a[...], lora.lora_b[...], precision="highest")
        layer = nnx.Linear(*kernel.shape, rngs=nnx.Rngs(0), **_options(node))
        merged_kernel: Any = kernel.replace(kernel[...] + update.astype(kernel.dtype))
        layer.kernel = merged_kernel
        layer.bias = node.bias
        merged.append(layer)
        return layer

    model = nnx.recursive_map(replace, nnx.merge(graphdef, params))
    if not merged:
        raise ValueError(
            "graphdef must have an nnx.LoRALinear, as add_lora makes them, got none"
        )
    return nnx.split(model, nnx.Param)


def _kernel(path: Any) -> str:
    return "/".join(map(str, (*path, "kernel")))


def _options(layer: nnx.Linear) -> dict[str, Any]:
    """Return the options of a dense layer, and initial values that cost nothing."""
    return {
        "use_bias": layer.use_bias,
        "dtype": layer.dtype,
        "param_dtype": layer.param_dtype,
        "precision": layer.precision,
        "dot_general": layer.dot_general,
        "promote_dtype": layer.promote_dtype,
        "preferred_element_type": layer.preferred_element_type,
        "kernel_init": nnx.initializers.zeros,
    }
