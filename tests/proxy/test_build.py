"""Proxies made from a target: equal to it where nothing is left out."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxsel.models import Classifier, EncoderConfig, Target, Tokens
from jaxsel.proxy import (
    Emulator,
    Manifest,
    Proxy,
    Spec,
    _exvivo,
    _observe,
    emulate,
    manifest,
    probe_manifest,
    prune,
    score,
    with_bounds,
)
from jaxsel.proxy._forward import proxy_scores
from jaxsel.proxy._probe import Probe
from jaxsel.proxy._training import _build
from jaxsel.proxy._training._build import embedder, exactly
from jaxsel.proxy._training._heads import gradient_importance, weight_importance
from jaxsel.proxy.families import ATTENTIONS, NORMS, SECURE_SCORES

N, L, H, HEADS = 40, 8, 16, 4
SIZES = {"layers": 2, "heads": HEADS, "intermediate": 20, "hidden": H}
TEXT = EncoderConfig(
    kind="text", vocab=50, positions=L, types=2, activation="relu", **SIZES
)
IMAGE = EncoderConfig(
    kind="image", side=8, patch=4, channels=1, activation="relu", pre_norm=True, **SIZES
)


def target(config, *, read="cls", n_classes=3):
    model = Classifier(config, n_classes, read=read, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    # No norm or bias should be at its initial value.
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    noisy = [leaf + 0.1 * rng.normal(size=leaf.shape) for leaf in leaves]
    params = jax.tree.unflatten(tree, [jnp.asarray(x, jnp.float32) for x in noisy])
    return Target(config=config, graphdef=graphdef, params=params, read=read)


def described(spec, config, n_classes=3) -> Manifest:
    text = config.kind == "text"
    return manifest(
        spec,
        layers=config.layers,
        heads=config.heads,
        head_width=config.hidden // config.heads,
        hidden=config.hidden,
        length=L if text else config.length,
        n_classes=n_classes,
        kind="tokens" if text else "patches",
        intermediate=config.intermediate,
        vocab=config.vocab or None,
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


@pytest.mark.left_out
@pytest.mark.parametrize("read", ["cls", "mean"])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(TEXT, id="text"),
        pytest.param(IMAGE, id="image", marks=pytest.mark.slow),
    ],
)
def test_a_proxy_that_leaves_nothing_out_is_the_target(config, read):
    model = target(config, read=read)
    exact = {"attention": "exact", "norm": "exact", "secure": "exact"}
    spec = Spec(2, HEADS, ffn="relu", read=read, **exact)
    whole = described(spec, config)
    x, mask = embedded(model, config)
    found = prune(model, whole).logits(x, mask)
    expected = model.logits(*samples(config))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # Its embeddings are public: no layer is among them.
    names = str(jax.tree_util.tree_structure(embedder(model)[1]))
    assert "layers" not in names


@pytest.mark.slow
def test_a_proxy_of_one_hot_words_has_the_targets_table():
    """Its ids give what the target's own rows give, and its norm is emulated too."""
    model = target(TEXT)
    exact = {"attention": "exact", "norm": "exact", "secure": "exact"}
    spec = Spec(2, HEADS, ffn="relu", embed="onehot", **exact)
    ids, mask = samples(TEXT)
    proxy = prune(model, described(spec, TEXT))
    np.testing.assert_allclose(
        proxy.logits(ids, mask), model.logits(ids, mask), atol=2e-5
    )
    proxy = with_bounds(proxy, ids, mask)
    assert proxy.manifest.fixed_point.bounds["inputs.variance"] > 0
    again = Proxy.from_arrays(proxy.manifest, proxy.arrays())
    np.testing.assert_array_equal(again.logits(ids, mask), proxy.logits(ids, mask))
    with pytest.raises(ValueError, match=r"token ids in \[0, 50\), got 0 to 50"):
        proxy.logits(np.full((1, L), 50) * (np.arange(L) > 0), mask[:1])

    hinge = described(dataclasses.replace(spec, norm="hinge", hidden=8), TEXT)
    x, _ = embedded(model, TEXT)
    with pytest.raises(ValueError, match="ids must be given"):
        emulate([prune(model, hinge)], x, mask, key=jax.random.key(0))
    (near,) = emulate([prune(model, hinge)], x, mask, key=jax.random.key(0), ids=ids)
    assert np.abs(near.logits(ids, mask) - model.logits(ids, mask)).max() < 0.3


@pytest.mark.left_out
def test_the_heads_that_are_kept_are_those_that_matter():
    model = target(TEXT)
    layer = nnx.merge(model.graphdef, model.params).encoder.layers[0]
    layer.value.kernel[...] = layer.value.kernel[...].at[:, 4:8].multiply(0)
    layer.value.bias[...] = layer.value.bias[...].at[4:8].set(0)
    small, whole = (
        described(Spec(1, heads, attention="exact", norm="exact"), TEXT)
        for heads in (3, 4)
    )
    module = nnx.merge(model.graphdef, model.params)
    module.encoder.layers[0] = layer
    model = dataclasses.replace(model, params=nnx.split(module)[1])
    assert weight_importance(model)[0].argmin() == 1
    x, mask = embedded(model, TEXT)
    few, all_ = (prune(model, m).logits(x, mask) for m in (small, whole))
    np.testing.assert_allclose(few, all_, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TEXT, IMAGE], ids=["text", "image"])
def test_emulators_are_fitted_to_what_they_will_see(config):
    """Rich ones come close to the exact proxy, poor ones less so."""
    model = target(config)
    x, mask = embedded(model, config)
    exact = described(
        Spec(2, 2, attention="exact", norm="exact", secure="exact"), config
    )
    right = prune(model, exact).logits(x, mask)

    def error(attention, norm):
        spec = Spec(2, 2, attention=attention, norm=norm, secure="exact")
        named = described(spec, config)
        assert exactly(named) == exact
        (fitted,) = emulate(
            [prune(model, named)], x, mask, key=jax.random.key(0), n_points=400_000
        )
        found = fitted.logits(x, mask)
        return float(jnp.sqrt(jnp.mean((found - right) ** 2)))

    full = Emulator("cubic", centre=True, bias=True)
    assert error(full, "exact") < 0.5 * error("uniform", "exact")
    assert error("exact", Emulator("hinge", width=4)) < 0.5 * error("exact", "none")
    # The paper's, of both kinds, all trained in one loop.
    assert error(Emulator("mlp", width=16), "exact") < error("uniform", "exact")
    assert error("exact", Emulator("mlp", width=16)) < error("exact", "none")


@pytest.mark.slow
@pytest.mark.parametrize("config", [TEXT, IMAGE], ids=["text", "image"])
def test_emulators_are_fitted_to_a_backbone(config, monkeypatch):
    """Attention and norms of its layers, feed-forward parts included; its logits."""
    model, seen, starts = target(config), [], []

    def train(operations, widths, **options):
        seen.append(operations)
        starts.append(options["seeds"])
        return [{w: _exvivo.Trained({}, np.zeros(1)) for w in widths}] * len(operations)

    monkeypatch.setattr(_build, "train_mlps", train)
    exact = {"attention": "exact", "norm": "exact", "secure": "exact"}
    whole = prune(model, described(Spec(2, HEADS, ffn="gelu", **exact), config))
    mlp = Emulator("mlp", width=2)
    spec = Spec(2, 2, attention=mlp, norm=mlp, secure=mlp)
    small = prune(model, described(spec, config))
    x, mask = embedded(model, config)
    key = jax.random.key(0)
    for backbone in (None, small, whole):
        emulate([small], x, mask, key=key, backbone=backbone)
    alone, itself, fitted = seen
    emulate([small], x, mask, key=key, seeds=3)
    assert starts == [1, 1, 1, 3]
    for a, b in zip(alone, itself, strict=True):
        np.testing.assert_array_equal(a.rows, b.rows)
    shown = np.ones(x.shape[:2], bool) if mask is None else mask
    theirs = _observe.Observed(whole.params, whole.manifest, np.asarray(x), shown)
    # Of each layer the attention and its norm, then the final norm, then the score.
    for layer in range(2):
        variance = np.asarray(theirs.variances[layer][0])
        rows = shown[:, : variance.shape[1]]
        np.testing.assert_array_equal(
            fitted[2 * layer + 1].rows[:, 0], variance[rows].ravel()
        )
    assert not np.array_equal(fitted[3].rows, alone[3].rows)
    logits = whole.logits(x, shown)
    np.testing.assert_allclose(fitted[-1].rows, logits, rtol=1e-4, atol=1e-6)
    by_head = dataclasses.replace(spec, attention=Emulator("linear"))
    with pytest.raises(ValueError, match="backbone must have the 2 heads of a proxy"):
        emulate(
            [prune(model, described(by_head, config))], x, mask, key=key, backbone=whole
        )
    shallow = prune(model, described(Spec(1, HEADS, **exact), config))
    with pytest.raises(ValueError, match="at least the 2 layers of a proxy"):
        emulate([small], x, mask, key=key, backbone=shallow)
    with_ffn = prune(model, described(dataclasses.replace(spec, ffn=True), config))
    with pytest.raises(ValueError, match="backbone must have the feed-forward parts"):
        emulate([with_ffn], x, mask, key=key, backbone=small)


def test_scores_of_every_secure_form():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(N, 2)), jnp.float32)
    params = {"offset": jnp.array([-1.0, -0.5]), "score": {}}
    forms = {
        secure: described(Spec(1, 1, secure=secure), TEXT, n_classes=2)
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


@pytest.mark.slow
def test_the_gradient_of_a_gate_is_that_of_a_difference():
    model = target(TEXT)
    tokens, mask = samples(TEXT)
    tokens, mask = Tokens(tokens[:5], mask[:5]), None
    labels = np.array([0, 1, 2, 0, 1])
    found = gradient_importance(model, tokens, labels, batch_size=2)
    module = nnx.merge(model.graphdef, model.params)

    def losses(layer, head, gate):
        out = module.encoder.layers[layer].out
        kept = out.kernel[...]
        rows = slice(head * H // HEADS, (head + 1) * H // HEADS)
        out.kernel[...] = kept.at[rows].multiply(gate)
        logits = np.asarray(module(tokens), np.float64)
        out.kernel[...] = kept
        return np.log(np.exp(logits).sum(1)) - logits[np.arange(5), labels]

    for layer in range(2):
        for head in range(HEADS):
            up, down = (losses(layer, head, 1 + step) for step in (2e-3, -2e-3))
            expected = np.mean(np.abs(up - down) / 4e-3)
            np.testing.assert_allclose(found[layer, head], expected, rtol=2e-2)


@pytest.mark.left_out
@pytest.mark.parametrize("config", [TEXT, IMAGE], ids=["text", "image"])
def test_a_proxy_goes_through_named_arrays(config):
    model = target(config)
    norm = Emulator("hinge", width=2)
    spec = Spec(2, 2, norm=norm, ffn="relu", secure=Emulator("mlp", width=4))
    x, mask = embedded(model, config)
    key = jax.random.key(0)
    (made,) = emulate(
        [prune(model, described(spec, config))], x, mask, key=key, n_points=2048
    )
    arrays = made.arrays()
    assert "layers.1.ffn.norm.emulator.knots" in arrays
    again = Proxy.from_arrays(made.manifest, arrays)
    same = jax.tree.map(np.array_equal, made.params, again.params)
    assert jax.tree.all(same)
    with pytest.raises(ValueError, match=r"got also \['more'\]"):
        Proxy.from_arrays(made.manifest, {**arrays, "more": np.ones(1)})


FAMILIES = [
    # attention, norm, secure score
    ("mlp", "mlp", "mlp"),
    (Emulator("linear", bias=True), "hinge", "exact"),
    (Emulator("quadratic", centre=True), "polynomial", "square"),
    ("cubic", "linear", "square"),
    (Emulator("hinge", bias=True), "exact", "square"),
    ("2quad", "none", "exact"),
    ("polynomial", "hinge", "square"),
    ("exact", "mlp", "exact"),
    ("uniform", "polynomial", "square"),
    ("relu", "squared", "square"),
]


@pytest.fixture(scope="module")
def of_every_family():
    """One proxy of each line above, one with a feed-forward part, and a probe."""
    model = target(TEXT, n_classes=2)
    x, mask = embedded(model, TEXT)
    specs = [
        Spec(2, 2, hidden=3, attention=attention, norm=norm, secure=secure)
        for attention, norm, secure in FAMILIES
    ]
    more = {"norm": "hinge", "ffn": "relu", "read": "mean"}
    specs.append(Spec(1, 2, attention=Emulator("linear", bias=True), **more))
    cut = [prune(model, described(spec, TEXT, 2)) for spec in specs]
    made = emulate(cut, x, mask, key=jax.random.key(0), n_points=512)
    head = Probe((jnp.ones((5, 4)), jnp.ones((4, 2))), (jnp.ones(4), jnp.ones(2)))
    probe = Proxy.of_probe(probe_manifest(width=5, n_classes=2, head=4), head)
    return [*made, *emulate([probe], np.eye(5), None, key=jax.random.key(0))]


def test_every_family_is_there(of_every_family):
    layers = [layer for p in of_every_family for layer in p.manifest.layers]
    assert {layer.attention.family for layer in layers} == set(ATTENTIONS)
    assert {layer.norm.family for layer in layers} == set(NORMS)
    scores = {p.manifest.score.secure.family for p in of_every_family}
    assert scores == set(SECURE_SCORES)


@pytest.mark.parametrize("i", range(len(FAMILIES) + 2))
def test_arrays_must_be_those_of_the_manifest(of_every_family, i):
    made = of_every_family[i]
    arrays = made.arrays()
    again = Proxy.from_arrays(made.manifest, arrays)
    assert jax.tree.all(jax.tree.map(np.array_equal, made.params, again.params))
    for name, array in arrays.items():
        less = {key: value for key, value in arrays.items() if key != name}
        shape = re.escape(str(array.shape))
        with pytest.raises(ValueError, match=f"'{name}' of shape {shape}, got"):
            Proxy.from_arrays(made.manifest, less)
        with pytest.raises(ValueError, match=rf"\['{name}'\] must have shape {shape}"):
            Proxy.from_arrays(made.manifest, {**arrays, name: array[None]})


@pytest.mark.slow
def test_batches_change_nothing(monkeypatch):
    model = target(TEXT)
    x, mask = embedded(model, TEXT)
    specs = [
        Spec(1, 2, attention=attention, norm=norm, secure="exact", read="mean")
        for attention, norm in (
            (Emulator("linear", centre=True, bias=True), Emulator("hinge", width=2)),
            (Emulator("mlp", width=4), Emulator("hinge", width=2)),
        )
    ]
    cut = [prune(model, described(spec, TEXT)) for spec in specs]
    passes = []
    batch_rows = _observe.batch_rows

    def counted(manifest, n):
        passes.append(-(-n // batch_rows(manifest, n)))
        return batch_rows(manifest, n)

    monkeypatch.setattr(_observe, "batch_rows", counted)

    def made():
        found = emulate(cut, x, mask, key=jax.random.key(0), n_points=512)
        return [with_bounds(proxy, x, mask) for proxy in found]

    whole = made()
    assert set(passes) == {1}
    passes.clear()
    monkeypatch.setattr(_observe, "_ENTRIES", 1)
    parts = made()
    assert set(passes) == {2}  # of 32 samples, and of the 8 that are left
    for one, other in zip(whole, parts, strict=True):
        assert one.manifest == other.manifest
        for name, array in one.arrays().items():
            np.testing.assert_allclose(other.arrays()[name], array, 1e-4, 1e-5)
