"""Proxies of random parameters, with bounds and samples, for tests of their runs."""

import dataclasses
import functools
import warnings

import jax
import numpy as np
from proxy.small_manifests import SMALL as SMALL, small_manifests as small_manifests

from jaxsel.proxy import (
    Proxy,
    Spec,
    array_shapes,
    manifest as small_manifest,
    with_bounds,
)


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


@functools.cache
def encoder(layers, attention, norm, gain=1.0, hot=1.0, score="entropy"):
    """Return an encoder with bounds, and the samples that they hold for."""
    spec = Spec(layers, 2, attention=attention, norm=norm)
    sizes = SMALL | {"hidden": 16, "length": 8, "layers": 12}
    manifest = small_manifest(spec, **sizes, masked=False, score=score)
    rng = np.random.default_rng(1)
    arrays = random_arrays(manifest, rng)
    for name in arrays:
        if name.endswith(("query.weight", "key.weight", "value.weight", "out.weight")):
            arrays[name] = arrays[name] * gain
        if ".query." in name:
            arrays[name] = arrays[name] * hot
    x, _ = random_samples(manifest, rng, 64)
    with jax.disable_jit(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # random scores may tie
        made = with_bounds(Proxy.from_arrays(manifest, arrays), x)
    return made, x


def crafted(bound, x, n, seed=0):
    """Return rows of a seller who aims at what the inputs' bound leaves free."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(n):
        row = x[i % len(x)]
        kinds = (
            row * rng.uniform(1, 2.5),
            np.where(np.arange(len(row))[:, None] == rng.integers(len(row)), 4, 1)
            * row,
            np.sign(row) * bound,
            np.where(rng.random(row.shape) < 0.1, np.sign(row) * bound, row),
            np.broadcast_to(row[:1] * rng.uniform(1, 3), row.shape),
        )
        rows.append(np.clip(kinds[i % 5], -bound, bound))
    return np.stack(rows).astype(np.float32)


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
