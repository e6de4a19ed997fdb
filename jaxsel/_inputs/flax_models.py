"""Flax models of both kinds as functions of their parameters.

A model is a Linen module, or a function of `flax.nnx.Rngs` that returns an NNX module.
"""

from __future__ import annotations

from typing import Any, cast

import jax

from jaxsel._devices.typed import split_model

from .training_mode import training_layer


def check_model(model: Any) -> None:
    """Raise a TypeError unless it is a Linen module or makes an NNX module."""
    from flax import nnx

    linen = hasattr(model, "apply")
    if not (linen or callable(model)) or isinstance(model, nnx.Module):
        raise TypeError(
            "model must be a function of flax.nnx.Rngs that returns a module, or a "
            f"Linen module, got {model!r}"
        )


def init_model(model: Any, key: jax.Array, x: jax.Array) -> Any:
    """Return initial parameters, from a key and one example `[1, ...]`."""
    if hasattr(model, "apply"):
        return model.init(key, x)
    from flax import nnx

    return split_model(model(nnx.Rngs(key)))[1]


def apply_model(model: Any, params: Any, x: jax.Array) -> jax.Array:
    """Return the outputs of a model for examples, `[b, K]`."""
    if hasattr(model, "apply"):
        return model.apply(params, x)
    from flax import nnx

    abstract = nnx.eval_shape(lambda: model(nnx.Rngs(0)))
    return nnx.merge(split_model(abstract)[0], params)(x)


def other_variables(model: Any, x: jax.Array) -> list[str]:
    """Name the variables that are no parameters, and layers in training mode."""
    if hasattr(model, "apply"):
        from flax import errors

        abstract = jax.eval_shape(model.init, jax.random.key(0), x)
        others = [f"the collection {name!r}" for name in abstract if name != "params"]
        if others:
            return others
        try:
            jax.eval_shape(model.apply, abstract, x)
        except errors.InvalidRngError as error:
            return [f"a layer that draws ({str(error).partition(' (')[0]})"]
        return []
    from flax import nnx

    abstract = nnx.eval_shape(lambda: model(nnx.Rngs(0)))
    layer = training_layer(abstract)
    variables = [
        f"{type(leaf).__name__} {'.'.join(map(str, path))!r}"
        for path, leaf in cast(Any, nnx).to_flat_state(nnx.state(abstract))
        if not isinstance(leaf, nnx.Param)
    ]
    return variables or ([f"the layer {layer} in training mode"] if layer else [])
