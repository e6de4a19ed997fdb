"""Proxies made from a target: equal to it where nothing is left out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxsel.models import Classifier, EncoderConfig, Target
from jaxsel.proxy import (
    Emulator,
    Manifest,
    Spec,
    best_heads,
    embedder,
    emulate,
    exactly,
    manifest,
    proxy_logits,
    proxy_scores,
    prune,
    score,
)

N, L, H, HEADS = 40, 8, 16, 4
SIZES = {"layers": 2, "heads": HEADS, "intermediate": 20, "hidden": H}
TEXT = EncoderConfig(
    kind="text", vocab=50, positions=L, types=2, activation="relu", **SIZES
)
IMAGE = EncoderConfig(
    kind="image", side=8, patch=4, channels=1, activation="relu", pre_norm=True, **SIZES
)


def target(config, *, read="cls", classes=3):
    model = Classifier(config, classes, read=read, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    # No norm or bias should be at its initial value.
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    noisy = [leaf + 0.1 * rng.normal(size=leaf.shape) for leaf in leaves]
    params = jax.tree.unflatten(tree, [jnp.asarray(x, jnp.float32) for x in noisy])
    return Target(config=config, graphdef=graphdef, params=params, read=read)


def described(spec, config, classes=3) -> Manifest:
    text = config.kind == "text"
    return manifest(
        spec,
        layers=config.layers,
        heads=config.heads,
        head_width=config.hidden // config.heads,
        hidden=config.hidden,
        length=L if text else config.length,
        classes=classes,
        kind="tokens" if text else "patches",
        intermediate=config.intermediate,
        pre_norm=config.pre_norm,
    )


def samples(config):
    rng = np.random.default_rng(1)
    if config.kind == "image":
        return rng.normal(size=(N, 8, 8, 1)).astype(np.float32), None
    tokens = rng.integers(50, size=(N, L)).astype(np.int32)
    return tokens, np.arange(L) < rng.integers(3, L + 1, (N, 1))


def embedded(model, config):
    inputs, mask = samples(config)
    graphdef, params = embedder(model)
    return nnx.merge(graphdef, params).embed(jnp.asarray(inputs)), mask


@pytest.mark.parametrize("read", ["cls", "mean"])
@pytest.mark.parametrize("config", [TEXT, IMAGE], ids=["text", "image"])
def test_a_proxy_that_leaves_nothing_out_is_the_target(config, read):
    model = target(config, read=read)
    exact = {"attention": "exact", "norm": "exact", "secure": "exact"}
    spec = Spec(2, HEADS, ffn="relu", read=read, **exact)
    whole = described(spec, config)
    x, mask = embedded(model, config)
    found = proxy_logits(prune(model, whole), x, mask, manifest=whole)
    expected = model.logits(*samples(config))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # Its embeddings are public: no layer is among them.
    names = str(jax.tree_util.tree_structure(embedder(model)[1]))
    assert "layers" not in names


def test_the_heads_that_are_kept_are_those_that_matter():
    model = target(TEXT)
    layer = nnx.merge(model.graphdef, model.params).encoder.layers[0]
    layer.value.kernel[...] = layer.value.kernel[...].at[:, 4:8].multiply(0)
    layer.value.bias[...] = layer.value.bias[...].at[4:8].set(0)
    assert best_heads(layer, 3).tolist() == [0, 2, 3]
    small, whole = (
        described(Spec(1, heads, attention="exact", norm="exact"), TEXT)
        for heads in (3, 4)
    )
    module = nnx.merge(model.graphdef, model.params)
    module.encoder.layers[0] = layer
    model = dataclasses.replace(model, params=nnx.split(module)[1])
    x, mask = embedded(model, TEXT)
    few, all_ = (
        proxy_logits(prune(model, m), x, mask, manifest=m) for m in (small, whole)
    )
    np.testing.assert_allclose(few, all_, atol=1e-5)


@pytest.mark.parametrize("config", [TEXT, IMAGE], ids=["text", "image"])
def test_emulators_are_fitted_to_what_they_will_see(config):
    """Rich ones come close to the exact proxy, poor ones less so."""
    model = target(config)
    x, mask = embedded(model, config)
    shown = jnp.ones(x.shape[:2], bool) if mask is None else mask
    exact = described(
        Spec(2, 2, attention="exact", norm="exact", secure="exact"), config
    )
    params = prune(model, exact)
    right = proxy_logits(params, x, mask, manifest=exact)

    def error(attention, norm):
        spec = Spec(2, 2, attention=attention, norm=norm, secure="exact")
        named = described(spec, config)
        assert exactly(named) == exact
        fitted = emulate(
            params, x, shown, manifest=named, key=jax.random.key(0), n_points=400_000
        )
        found = proxy_logits(fitted, x, mask, manifest=named)
        return float(jnp.sqrt(jnp.mean((found - right) ** 2)))

    full = Emulator("cubic", centre=True, bias=True)
    assert error(full, "exact") < 0.5 * error("uniform", "exact")
    assert error("exact", Emulator("hinge", width=4)) < 0.5 * error("exact", "none")
    # The paper's, of both kinds, all trained in one loop.
    assert error(Emulator("mlp", width=16), "exact") < error("uniform", "exact")
    assert error("exact", Emulator("mlp", width=16)) < error("exact", "none")


def test_scores_of_every_secure_form():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(N, 2)), jnp.float32)
    params = {"offset": jnp.array([-1.0, -0.5]), "score": {}}
    forms = {
        secure: described(Spec(1, 1, secure=secure), TEXT, classes=2)
        for secure in ("exact", "square")
    }
    exact, square = (
        proxy_scores(params, logits, manifest=form) for form in forms.values()
    )
    moved = logits - params["offset"]
    np.testing.assert_allclose(exact, score(moved), rtol=1e-6)
    np.testing.assert_allclose(square, -((moved[:, 1] - moved[:, 0]) ** 2), rtol=1e-5)


def test_a_target_that_does_not_fit():
    model = target(TEXT)
    wide = dataclasses.replace(TEXT, hidden=32)
    with pytest.raises(ValueError, match="no part of a target with 2 layers of width"):
        prune(model, described(Spec(1, 1), wide))
    with pytest.raises(ValueError, match="heads of width 8, the target 4 of width 4"):
        prune(model, described(Spec(1, 1), dataclasses.replace(TEXT, heads=2)))
