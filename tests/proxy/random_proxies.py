"""Proxies of random parameters, with bounds and samples, for tests of their runs."""

import dataclasses

import jax
import numpy as np
from proxy.small_manifests import SMALL as SMALL, small_manifests as small_manifests

from jaxsel.proxy import Proxy, array_shapes, with_bounds


def random_arrays(manifest, rng):
    """Return parameters as training leaves them: norms near 1, activations too."""
    arrays = {}
    plain = any(layer.norm.family == "none" for layer in manifest.layers)
    for name, shape in array_shapes(manifest).items():
        values = rng.normal(size=shape)
        if name.endswith(("weight", ".w1", ".w2")):
            values /= np.sqrt(shape[0])
        if ".attention." in name:
            values *= 0.3
        if ".query." in name:
            values *= 0.2
        if ".out." in name or ".ffn." in name:
            values *= 0.5
        if "norm.emulator" in name:
            values = 0.02 * values
            if name.endswith(("coefficients", "affine")):
                values = -0.02 - np.abs(values)  # it falls with the variance
                values[0] = 1
            if name.endswith("b2"):
                values += 1
            if name.endswith("scale"):
                values = 0.1 * np.abs(values) + 0.03
        if name.endswith("gamma"):
            values = 1 + 0.2 * values
        # Nothing brings rows back to size where there is no norm.
        arrays[name] = (values * (0.5 if plain else 1)).astype(np.float32)
    return arrays


def random_samples(manifest, rng, n):
    """Return n samples and their masks, with holes, full, and of one token."""
    inputs = manifest.inputs
    if inputs.kind == "features":
        return rng.normal(size=(n, inputs.width)).astype(np.float32), None
    shape = (n, inputs.length)
    if inputs.embed == "onehot":
        x = rng.integers(inputs.vocab, size=shape)
    else:
        x = rng.normal(size=(*shape, inputs.width)).astype(np.float32)
    if not inputs.masked:
        return x, None
    mask = rng.random(shape) < 0.6
    mask[::3] = np.arange(inputs.length) == 0
    mask[1::3] = True
    mask[:, 0] = True
    return x, mask


def random_proxy(manifest, seed=0, n=5, *, bound=None):
    """Return a proxy with bounds, and the samples and masks that they hold for.

    Args:
        manifest: The proxy's.
        seed: Of parameters and samples.
        n: Samples.
        bound: Of every place; None measures each, which compiles operations.
    """
    rng = np.random.default_rng(seed)
    arrays = random_arrays(manifest, rng)
    x, mask = random_samples(manifest, rng, n)
    if bound is not None:
        bounds = dict.fromkeys(places(manifest), bound) | {"score": 4 * bound**2}
        fixed = dataclasses.replace(manifest.fixed_point, bounds=bounds)
        manifest = dataclasses.replace(manifest, fixed_point=fixed)
        return Proxy.from_arrays(manifest, arrays), x, mask
    with jax.disable_jit():  # compiled programs are used once here
        return with_bounds(Proxy.from_arrays(manifest, arrays), x, mask), x, mask


def places(manifest):
    """Return every place that a manifest may bound."""
    return [
        "inputs",
        "inputs.variance",
        *(
            f"layers.{i}.{name}"
            for i in range(len(manifest.layers))
            for name in ("scores", "hidden", "variance", "ffn_variance")
        ),
        "final_norm.variance",
        "head.logits",
    ]
