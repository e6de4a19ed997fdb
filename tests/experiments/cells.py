"""Tiny prepared sets and targets, for the paper's own cells."""

import contextlib
import io
import json

import numpy as np
import pytest
from PIL import Image

tfds = pytest.importorskip("tensorflow_datasets")
features = tfds.features

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "was", "it")
LAYERS, HEADS, HIDDEN, WIDE, POSITIONS, SIDE = 2, 2, 8, 12, 10, 6


def prepare(data_dir, name, structure, splits, keys=None):
    """Prepare a set as a user of TFDS would."""

    class Mine(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        url_infos = None

        def _info(self):
            kind = features.FeaturesDict(structure)
            return tfds.core.DatasetInfo(
                builder=self, features=kind, supervised_keys=keys
            )

        def _split_generators(self, dl_manager):
            return {split: enumerate(rows) for split, rows in splits.items()}

        def _generate_examples(self):
            raise NotImplementedError

    Mine.name = name
    builder = Mine(data_dir=data_dir, file_format="array_record")
    with contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare(file_format="array_record")


def pairs(data_dir, name="pairs", n=160, hidden_test=True):
    """Questions with sentences, as GLUE's; classes of the test split are secret."""
    rng = np.random.default_rng(0)

    def rows(n, known=True):
        for i in range(n):
            words = "it was", ("bad", "good")[i % 2], rng.choice(["film", "it"])
            label = i % 2 if known else -1
            text = {"question": "was it good", "sentence": " ".join(words)}
            yield {**text, "label": label, "idx": i}

    splits = {"train": rows(n), "validation": rows(30)}
    if hidden_test:
        splits["test"] = rows(10, known=False)
    text = {"question": features.Text(), "sentence": features.Text()}
    label = features.ClassLabel(names=["no", "yes"])
    prepare(data_dir, name, {**text, "label": label, "idx": np.int32}, splits)


def photos(data_dir, name="photos", n=150, grey=False, classes=3):
    """Images of uneven sizes, as Food-101's, brighter in the second class."""
    rng = np.random.default_rng(0)

    def rows(n):
        for i in range(n):
            shape = (4 + i % 5, 5 + i % 3, 3)
            image = rng.integers(0, 120, shape) + 120 * (i % 3 == 1)
            image = image[:, :, 0] if grey else image
            file = io.BytesIO()
            Image.fromarray(image.astype(np.uint8)).save(file, format="PNG")
            yield {"image": file.getvalue(), "label": i % classes}

    structure = {
        "image": features.Image(shape=(None, None, 1 if grey else 3)),
        "label": features.ClassLabel(num_classes=classes),
    }
    splits = {"train": [*rows(n)], "test": [*rows(30)]}
    prepare(data_dir, name, structure, splits, keys=("image", "label"))


def target(folder, kind, side=SIDE):
    """Write a tiny BERT, DistilBERT or ViT with random weights."""
    from safetensors.numpy import save_file

    folder.mkdir()
    rng = np.random.default_rng(0)
    shapes = {"bert": _bert, "distilbert": _distilbert, "vit": lambda: _vit(side)}
    shapes = shapes[kind]()
    distilled = kind == "distilbert"
    config = {
        "model_type": kind,
        "n_layers" if distilled else "num_hidden_layers": LAYERS,
        "n_heads" if distilled else "num_attention_heads": HEADS,
        "dim" if distilled else "hidden_size": HIDDEN,
        "hidden_dim" if distilled else "intermediate_size": WIDE,
        "activation" if distilled else "hidden_act": "relu",
        "vocab_size": len(WORDS),
        "max_position_embeddings": POSITIONS,
        "image_size": side,
        "patch_size": side // 3,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        name: (
            np.ones(shape)
            if "orm" in name and name.endswith("weight")
            else rng.normal(0, 0.5, shape)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    if kind != "vit":
        _tokenizer(folder / "tokenizer.json")
    return folder


def _layers(names, stem="encoder.layer"):
    rows = [HIDDEN] * 5 + [WIDE] + [HIDDEN] * 2
    shapes = {}
    for i in range(LAYERS):
        for j, (name, out) in enumerate(zip(names.split(), rows, strict=True)):
            wide = (out, WIDE if j == 6 else HIDDEN)
            shapes[f"{stem}.{i}.{name}.weight"] = (out,) if j in (4, 7) else wide
            shapes[f"{stem}.{i}.{name}.bias"] = (out,)
    return shapes


def _bert():
    return {
        "embeddings.word_embeddings.weight": (len(WORDS), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
        **_layers(
            "attention.self.query attention.self.key attention.self.value "
            "attention.output.dense attention.output.LayerNorm intermediate.dense "
            "output.dense output.LayerNorm"
        ),
    }


def _distilbert():
    embeddings = {
        name: shape
        for name, shape in _bert().items()
        if name.startswith("embeddings") and "token_type" not in name
    }
    names = (
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin "
        "sa_layer_norm ffn.lin1 ffn.lin2 output_layer_norm"
    )
    return {**embeddings, **_layers(names, "transformer.layer")}


def _vit(side):
    patch = side // 3
    return {
        "embeddings.cls_token": (1, 1, HIDDEN),
        "embeddings.position_embeddings": (1, 1 + 3 * 3, HIDDEN),
        "embeddings.patch_embeddings.projection.weight": (HIDDEN, 3, patch, patch),
        "embeddings.patch_embeddings.projection.bias": (HIDDEN,),
        "layernorm.weight": (HIDDEN,),
        "layernorm.bias": (HIDDEN,),
        **_layers(
            "attention.attention.query attention.attention.key "
            "attention.attention.value attention.output.dense layernorm_after "
            "intermediate.dense output.dense layernorm_before"
        ),
    }


def _tokenizer(file):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tool = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tool.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tool.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    tool.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tool.save(str(file))
