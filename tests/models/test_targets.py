"""Encoders loaded from folders, against a forward pass in torch."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

pytest.importorskip("safetensors", reason="comes with the text extra")
pytest.importorskip("tokenizers", reason="comes with the text extra")
pytest.importorskip("torch", reason="the reference; comes with the mpc extra")

from safetensors.numpy import load_file

from jaxsel.models import (
    Tokens,
    attention_scores,
    available_models,
    load_target,
    norm_input,
    tokenize,
)
from jaxsel.models._layer import masked_softmax, weighted_values

from . import folders

RNG = np.random.default_rng(0)
MASK = np.arange(6) < np.array([6, 4, 1, 5])[:, None]
IDS = np.where(MASK, RNG.integers(4, folders.VOCAB, MASK.shape), 1).astype(np.int32)
IMAGES = RNG.normal(size=(4, 6, 6, 3)).astype(np.float32)
TEXTS = ("bert", "distilbert", "roberta")


def encode(target, inputs, mask=None, *, compiled=False):
    # Not compiled, tiny models share all operations.
    encoder = nnx.merge(target.graphdef, target.params).encoder
    return np.asarray((jax.jit(encoder) if compiled else encoder)(inputs, mask))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    return load_target(folders.write(folder, "bert", folders.random_tensors("bert")))


def real(name):
    """The folder of a prepared model; this test is skipped if there is none."""
    path = {model.name: model.path for model in available_models()}[name]
    if path is None:
        pytest.skip(f"{name} is not prepared: run `jaxsel models prepare {name}`")
    return path


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.every(3)
def test_texts_agree_with_torch(kind, tmp_path):
    tensors = folders.random_tensors(kind)
    prefix = {"bert": "", "distilbert": "distilbert.", "roberta": "roberta."}[kind]
    stored = {prefix + name: a for name, a in tensors.items()}
    stored["embeddings.position_ids"] = np.arange(3)
    stored["pooler.dense.weight"] = np.ones((8, 8), np.float32)
    target = load_target(folders.write(tmp_path, kind, stored))
    ours = encode(target, IDS, MASK)
    theirs = folders.reference(tensors, kind, IDS, MASK)
    np.testing.assert_allclose(ours[MASK], theirs[MASK], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.every(3)
def test_padding_on_the_left(kind, tmp_path):
    tensors = folders.random_tensors(kind)
    target = load_target(folders.write(tmp_path, kind, tensors))
    ids, mask = IDS[:, ::-1].copy(), MASK[:, ::-1].copy()
    theirs = folders.reference(tensors, kind, ids, mask)
    ours = encode(target, ids, mask)
    np.testing.assert_allclose(ours[mask], theirs[mask], rtol=0, atol=1e-4)
    # Through the public methods, which know the mask from tokens.
    mean = np.einsum("nl,nlh->nh", mask / mask.sum(1, keepdims=True), theirs)
    features = dataclasses.replace(target, read="mean").features(Tokens(ids, mask))
    np.testing.assert_allclose(features, mean, rtol=0, atol=1e-4)
    # Texts without a mask: padding is what the tokenizer pads with.
    if kind == "roberta":
        right = encode(target, IDS)
        np.testing.assert_allclose(
            right, folders.reference(tensors, kind, IDS, IDS != 1, attend=True), 0, 1e-4
        )


@pytest.mark.left_out
def test_features_come_in_batches(bert):
    rows = encode(bert, IDS, MASK)
    mean = (rows * MASK[..., None]).sum(1) / MASK.sum(1, keepdims=True)
    tokens = Tokens(IDS, MASK)
    found = bert.features(tokens, pool="mean", batch_size=3)
    np.testing.assert_allclose(found, mean, atol=1e-4)
    np.testing.assert_allclose(bert.features(tokens), rows[:, 0], atol=1e-4)
    with pytest.raises(ValueError, match="no head"):
        bert.logits(tokens)
    # A text without tokens has features, which say nothing.
    none = np.zeros_like(MASK)
    np.testing.assert_array_equal(
        bert.features(IDS, none, pool="mean", batch_size=3), 0
    )
    assert np.isfinite(bert.features(IDS, none)).all()


@pytest.mark.slow
def test_images_agree_with_torch(tmp_path):
    tensors = folders.random_tensors("vit")
    stored = {f"vit.{name}": a for name, a in tensors.items()}
    stored["classifier.weight"] = RNG.normal(size=(3, 8)).astype(np.float32)
    stored["classifier.bias"] = RNG.normal(size=3).astype(np.float32)
    folder = folders.write(tmp_path, "vit", stored)
    target = load_target(folder, n_classes=3)  # with the folder's head
    theirs = folders.reference(tensors, "vit", IMAGES)
    np.testing.assert_allclose(encode(target, IMAGES), theirs, rtol=0, atol=1e-4)
    logits = theirs[:, 0] @ stored["classifier.weight"].T + stored["classifier.bias"]
    np.testing.assert_allclose(target.logits(IMAGES), logits, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="no head for 2 classes"):
        load_target(folder, n_classes=2)
    with pytest.raises(ValueError, match="no head for 3 classes"):
        load_target(folder, n_classes=3, read="mean")
    fresh = load_target(folder, n_classes=2, rngs=nnx.Rngs(0)).logits(IMAGES)
    assert fresh.shape == (4, 2)
    assert np.abs(fresh).max() > 0


def test_old_names_of_norms(tmp_path):
    tensors = folders.random_tensors("bert")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): a
        for name, a in tensors.items()
    }
    targets = [
        load_target(folders.write(tmp_path / n, "bert", t))
        for n, t in (("new", tensors), ("old", old))
    ]
    for a, b in zip(*(jax.tree.leaves(t.params) for t in targets), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_a_layer_is_the_sum_of_its_parts(kind, tmp_path):
    folder = folders.write(tmp_path, kind, folders.random_tensors(kind))
    target = load_target(folder)
    layer = nnx.merge(target.graphdef, target.params).encoder.layers[0]
    x = jnp.asarray(RNG.normal(size=(*MASK.shape, folders.HIDDEN)), jnp.float32)
    mask = jnp.asarray(MASK)
    scores = attention_scores(layer, x, mask)
    assert scores.shape == (4, folders.HEADS, 6, 6)
    assert not np.asarray(scores)[:, :, 0][~np.repeat(MASK[:, None], 2, 1)].any()
    read = layer.attention_norm(x) if kind == "vit" else x
    attended = weighted_values(layer, read, masked_softmax(scores, mask))
    if kind == "bert":
        np.testing.assert_allclose(norm_input(layer, x, mask), x + attended, atol=1e-5)
        rows = layer.attention_norm(x + attended)
        rows = layer.output_norm(rows + layer.down(jax.nn.gelu(layer.up(rows), False)))
    else:
        assert norm_input(layer, x, mask) is x
        rows = x + attended
        rows = rows + layer.down(jax.nn.gelu(layer.up(layer.output_norm(rows))))
    np.testing.assert_allclose(layer(x, mask), rows, rtol=1e-4, atol=1e-4)

    # Emulators take the place of the softmax and of the norms.
    def equal(scores, mask):
        return mask[:, None, None, :] / mask.sum(1)[:, None, None, None] + 0 * scores

    mean = jnp.einsum("nl,nlh->nh", mask / mask.sum(1, keepdims=True), read)[:, None]
    shift = jnp.broadcast_to(layer.out(layer.value(mean)), x.shape)
    found = layer(x, mask, softmax=equal, norm=lambda norm, x: x)
    if kind == "bert":
        expected = x + shift
        np.testing.assert_allclose(
            found - layer.down(jax.nn.gelu(layer.up(expected), False)), expected, 1e-3
        )
    else:
        whole = layer(x, mask, softmax=equal)
        expected = x + shift
        wide = layer.up(layer.output_norm(expected))
        expected = expected + layer.down(jax.nn.gelu(wide))
        np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-4)


def break_bert(**changes):
    tensors = folders.random_tensors("bert") | changes
    return {name: a for name, a in tensors.items() if a is not None}


@pytest.mark.parametrize(
    ("tensors", "settings", "message"),
    [
        (
            {"encoder.layer.1.output.dense.bias": None},
            {},
            "missing: encoder.layer.1.output.dense.bias",
        ),
        ({"extra.weight": np.ones(1)}, {}, "unknown: extra.weight"),
        (
            {"encoder.layer.0.output.dense.weight": np.ones((12, 8), np.float32)},
            {},
            r"wrong: encoder.layer.0.output.dense.weight has shape \(12, 8\), "
            r"not \(8, 12\)",
        ),
        ({}, {"num_hidden_layers": 1}, "unknown: encoder.layer.1.attention"),
        ({}, {"num_hidden_layers": 3}, "missing: encoder.layer.2.attention"),
        ({}, {"model_type": "gpt2"}, "model_type .* must be one of bert, roberta"),
        ({}, {"hidden_act": "swish"}, "activation must be one of gelu.*'swish'"),
        ({}, {"position_embedding_type": "relative_key"}, "must be 'absolute'"),
        ({}, {"is_decoder": True}, "is_decoder .* must be False.*earlier ones alone"),
        ({}, {"add_cross_attention": True}, "add_cross_attention .* must be False"),
        ({}, {"pruned_heads": {"0": [1]}}, "pruned_heads .* must be {}"),
        ({}, {"quantization_config": {"bits": 8}}, "quantization_config .* must be"),
        ({}, {"auto_map": {"AutoModel": "a.B"}}, "auto_map .* code of its own"),
        ({}, {"qkv_bias": False}, "qkv_bias .* must be True"),
        ({}, {"num_attention_heads": 3}, "hidden must be a multiple of heads = 3"),
        ({}, {"num_attention_heads": "2"}, "heads must be a whole number"),
    ],
)
def test_folders_that_do_not_fit(tensors, settings, message, tmp_path):
    folder = folders.write(tmp_path, "bert", break_bert(**tensors))
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    with pytest.raises(ValueError, match=message):
        load_target(folder)


def test_folders_that_lack_something(tmp_path):
    folder = folders.write(tmp_path, "bert", folders.random_tensors("bert"))
    config = json.loads((folder / "config.json").read_text())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ValueError, match="damaged or no safetensors"):
        load_target(folder)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="weights must be one safetensors"):
        load_target(folder)
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="lacks 'hidden_size'"):
        load_target(folder)


@pytest.mark.parametrize(
    ("inputs", "mask", "error", "message"),
    [
        (IDS[0], None, ValueError, "must be tokens of shape"),
        (np.zeros((1, 13), int), None, ValueError, "L from 1 to 12"),
        (IDS.astype(float), None, TypeError, "tokens as integers"),
        (IDS + 30, None, ValueError, r"lie in \[0, 30\).*this model's tokenizer"),
        (IDS, MASK[:3], ValueError, "same length"),
        (IDS, MASK.astype(int), ValueError, "mask must be bool"),
    ],
)
def test_inputs_that_do_not_fit(inputs, mask, error, message, bert):
    with pytest.raises(error, match=message):
        bert.features(inputs, mask)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_lowers_for_accelerators(platform, bert):
    model = nnx.merge(bert.graphdef, bert.params)
    run = jax.jit(lambda ids, mask: model.features(Tokens(ids, mask)))
    exported = jax.export.export(run, platforms=[platform])(IDS, MASK)
    assert exported.platforms == (platform,)


@pytest.mark.slow
def test_minilm_agrees_with_torch():
    folder = real("minilm")
    target = load_target(folder)
    texts = [
        "A film.",
        "Never has a story of so little been told at such length, or so well.",
        "An unknown \u00fcber-word: \u4f60\u597d; and a long, long tail " * 4,
        "",
    ]
    tokens = tokenize(texts, target.tokenizer, length=32)
    assert tokens.mask.sum(1).tolist() == [5, 19, 32, 2]
    ours = encode(target, tokens.ids, tokens.mask, compiled=True)
    settings = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    theirs = folders.reference(tensors, "bert", tokens.ids, tokens.mask, settings)
    assert np.abs(theirs).max() > 1
    np.testing.assert_allclose(
        ours[tokens.mask], theirs[tokens.mask], rtol=0, atol=1e-4
    )


@pytest.mark.left_out
def test_vit_agrees_with_torch_and_onnx():
    folder = real("vit_s")
    target = load_target(folder)
    ramp = np.linspace(-2, 2, 224, dtype=np.float32)
    image = np.stack([ramp[:, None] * ramp, *np.meshgrid(ramp, -ramp)], -1)[None]
    ours = encode(target, image, compiled=True)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    theirs = folders.reference(tensors, "vit", image, settings=config)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    # What onnxruntime 1.31 makes of the package's own file.
    onnx = [-0.07631606, 0.9862797, 1.1675496, -4.329977]
    np.testing.assert_allclose(ours[0, 0, :4], onnx, rtol=0, atol=1e-4)
    onnx = [1.1655319, 1.8291968, 0.24555455, -4.3373775]
    np.testing.assert_allclose(ours[0, 100, :4], onnx, rtol=0, atol=1e-4)


HEADS = {
    "bert": ("pooler.dense", "classifier", np.tanh),
    "roberta": ("classifier.dense", "classifier.out_proj", np.tanh),
    "distilbert": ("pre_classifier", "classifier", lambda x: np.maximum(x, 0)),
}


def classifier(kind, folder, classes=3, **settings):
    """Write a sequence classifier; return the folder, its tensors and its head's."""
    tensors, rng = folders.random_tensors(kind), np.random.default_rng(3)
    before, last, _ = HEADS[kind]
    head = {
        f"{name}.{part}": rng.normal(size=shape).astype(np.float32)
        for name, rows in ((before, folders.HIDDEN), (last, classes))
        for part, shape in (("weight", (rows, folders.HIDDEN)), ("bias", (rows,)))
    }
    stored = {f"{kind}.{name}": array for name, array in tensors.items()}
    for name, array in head.items():  # BERT's pooler is in its encoder
        stored[f"bert.{name}" if name.startswith("pooler") else name] = array
    return folders.write(folder, kind, stored, **settings), tensors, head


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.left_out
def test_a_classifiers_own_head_is_loaded(kind, tmp_path):
    folder, tensors, head = classifier(kind, tmp_path)
    target = load_target(folder, n_classes=3)
    rows = folders.reference(tensors, kind, IDS, MASK)[:, 0]
    before, last, activate = HEADS[kind]
    inner = activate(rows @ head[f"{before}.weight"].T + head[f"{before}.bias"])
    logits = inner @ head[f"{last}.weight"].T + head[f"{last}.bias"]
    tokens = Tokens(IDS, MASK)
    np.testing.assert_allclose(target.logits(tokens), logits, rtol=0, atol=2e-4)
    # Features are the row that the layer in front of the head reads.
    np.testing.assert_allclose(target.features(tokens), rows, rtol=0, atol=1e-4)
    assert target.n_classes == 3


def test_heads_that_can_not_be_used(tmp_path):
    folder, *_ = classifier("bert", tmp_path / "a")
    with pytest.raises(ValueError, match="no head for 2 classes .* it has one for 3"):
        load_target(folder, n_classes=2)
    with pytest.raises(ValueError, match="no head for 3 classes"):
        load_target(folder, n_classes=3, read="mean")
    fresh = load_target(folder, n_classes=2, rngs=nnx.Rngs(0))
    assert fresh.n_classes == 2
    assert "pooler" not in nnx.to_pure_dict(fresh.params)
    several = "multi_label_classification"
    folder, *_ = classifier("bert", tmp_path / "b", problem_type=several)
    with pytest.raises(ValueError, match="problem_type .* must be 'single_label_"):
        load_target(folder, n_classes=3)


def test_texts_that_the_vocabulary_does_not_know_are_told(tmp_path):
    folders.write_tokenizer(tmp_path)
    with pytest.warns(
        UserWarning, match=r"75% of the texts' tokens are unknown .* 1 of 2 texts have"
    ):
        tokenize(["Ein Text", "a Text"], tmp_path, length=6)
    tokenize(["a b c", ""], tmp_path, length=6)  # special tokens do not count
