"""Features of images: EfficientNet-Lite0 and a ViT, against torch, and on disk."""

import json
import pickle
import zipfile

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="comes with the text extra")
pytest.importorskip("torch", reason="the reference; comes with the mpc extra")

import torch
import torch.nn.functional as F

from jaxsel.models import (
    _image_features,
    available_models,
    image_features,
    load_target,
    prepare_model,
)
from jaxsel.models._efficientnet import convert_efficientnet, read_state

from . import folders
from .test_prepare_model import pinned

# Input and output channels, kernel, stride and widening of each block.
WIDE = (32, 16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320)
KERNELS = (3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3)
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
BLOCKS = tuple(zip(WIDE, WIDE[1:], KERNELS, STRIDES, strict=False))
RNG = np.random.default_rng(0)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def random_state():
    """Random weights of the whole network, as its package stores them."""
    state = {}

    def conv(name, norm, out, wide, k):
        fan = wide * k * k
        state[f"{name}.weight"] = RNG.normal(0, (2 / fan) ** 0.5, (out, wide, k, k))
        state[f"{norm}.weight"] = RNG.uniform(0.8, 1.2, out)
        state[f"{norm}.bias"] = RNG.normal(0, 0.1, out)
        state[f"{norm}.running_mean"] = RNG.normal(0, 0.1, out)
        state[f"{norm}.running_var"] = RNG.uniform(0.8, 1.2, out)
        state[f"{norm}.num_batches_tracked"] = np.array(7)

    conv("_conv_stem", "_bn0", 32, 3, 3)
    for i, (wide, out, k, _) in enumerate(BLOCKS):
        at, inner = f"_blocks.{i}.", wide * (6 if i else 1)
        if i:
            conv(f"{at}_expand_conv", f"{at}_bn0", inner, wide, 1)
        conv(f"{at}_depthwise_conv", f"{at}_bn1", inner, 1, k)
        conv(f"{at}_project_conv", f"{at}_bn2", out, inner, 1)
    conv("_conv_head", "_bn1", 1280, 320, 1)
    return {
        name: torch.tensor(a, dtype=torch.int64 if a.dtype == int else torch.float32)
        for name, a in state.items()
    }


def forward(state, x):
    """The network in torch, with the padding of its TensorFlow original."""

    def conv(x, name, norm, stride=1, groups=1, act=True):
        weight = state[f"{name}.weight"]
        k = weight.shape[-1]
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // stride) - 1) * stride + k - size, 0)
            pads += [total // 2, total - total // 2]
        x = F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)
        part = [state[f"{norm}.{n}"] for n in ("running_mean", "running_var")]
        weights = [state[f"{norm}.{n}"] for n in ("weight", "bias")]
        x = F.batch_norm(x, *part, *weights, eps=1e-3)
        return F.relu6(x) if act else x

    x = conv(x, "_conv_stem", "_bn0", 2)
    for i, (wide, out, _, stride) in enumerate(BLOCKS):
        at, y = f"_blocks.{i}.", x
        if i:
            y = conv(y, f"{at}_expand_conv", f"{at}_bn0")
        y = conv(y, f"{at}_depthwise_conv", f"{at}_bn1", stride, y.shape[1])
        y = conv(y, f"{at}_project_conv", f"{at}_bn2", act=False)
        x = x + y if wide == out and stride == 1 else y
    return conv(x, "_conv_head", "_bn1").mean((2, 3))


def normalised(pixels):
    return (pixels - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)


@pytest.fixture(scope="module")
def state():
    return random_state()


@pytest.fixture(scope="module")
def folder(state, tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "state.pth"
    # As torch 1.5 wrote it, one tensor of which does not lie row by row.
    moved = state["_conv_stem.weight"].permute(2, 3, 1, 0).contiguous()
    stored = state | {"_conv_stem.weight": moved.permute(3, 2, 0, 1)}
    torch.save(stored, file, _use_new_zipfile_serialization=False)
    return convert_efficientnet(file, file.parent / "folder")


@pytest.mark.slow
def test_efficientnet_agrees_with_torch(state, folder):
    pixels = RNG.random((3, 39, 39, 3)).astype(np.float32)
    found = image_features(pixels, folder, side=39, batch_size=2)
    x = torch.from_numpy(normalised(pixels)).permute(0, 3, 1, 2).contiguous()
    expected = forward(state, x).numpy()
    assert expected.std() > 0.05
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * expected.max())


def test_states_are_read_without_torch(state, tmp_path):
    file = tmp_path / "state.pth"
    some = {name: state[name] for name in list(state)[:6]}
    some["slice"] = torch.arange(12.0).reshape(3, 4)[1:, ::2]
    torch.save(some, file, _use_new_zipfile_serialization=False)
    with file.open("rb") as opened:
        found = read_state(opened)
    assert found.keys() == some.keys()
    for name, tensor in some.items():
        np.testing.assert_array_equal(found[name], tensor.numpy())
    torch.save(some, file)
    with pytest.raises(ValueError, match="must be a file of tensors of torch"):
        convert_efficientnet(file, tmp_path / "none")
    torch.save({"x": print}, file, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match=r"print is no part of tensors"):
        convert_efficientnet(file, tmp_path / "none")
    torch.save(some, file, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="is no EfficientNet-Lite0: no '_blocks.0"):
        convert_efficientnet(file, tmp_path / "none")
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match="must"):
        convert_efficientnet(file, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("change", [("offset", 5), ("strides", (9,)), ("shape", (-1,))])
def test_tensors_beyond_their_storage_are_refused(change, tmp_path):
    """What no file of torch holds: memory that is not the file's would be read."""
    file = tmp_path / "state.pth"
    torch.save({"a": torch.arange(8.0)}, file, _use_new_zipfile_serialization=False)
    from jaxsel.models import _efficientnet

    with file.open("rb") as opened:
        assert _efficientnet.read_state(opened)["a"].shape == (8,)
    place = {"offset": 0, "shape": (8,), "strides": (1,)} | dict([change])
    flat = np.arange(8, dtype=np.float32)
    with pytest.raises(ValueError, match="must lie within its storage of 8"):
        _efficientnet._view(flat, **place)


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    tensors = folders.random_tensors("vit")
    return folders.write(tmp_path_factory.mktemp("vit") / "tiny", "vit", tensors)


@pytest.mark.left_out
def test_a_vit_sees_resized_and_normalised_images(vit):
    pixels = RNG.random((5, 6, 6, 1)).astype(np.float32)
    images = normalised(np.repeat(pixels, 3, axis=-1))
    rows = folders.reference(folders.random_tensors("vit"), "vit", images)
    for pool, expected in (("cls", rows[:, 0]), ("mean", rows.mean(1))):
        found = image_features(pixels[..., 0], vit, pool=pool, batch_size=2)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    # Of another size, with the table of positions resized as torch does.
    large = np.kron(pixels, np.ones((1, 2, 2, 1), np.float32))[:, :10, :10]
    tensors = folders.random_tensors("vit")
    table = torch.from_numpy(tensors["embeddings.position_embeddings"])
    square = table[:, 1:].reshape(1, 3, 3, -1).permute(0, 3, 1, 2)
    wide = F.interpolate(square, (5, 5), mode="bicubic", align_corners=False)
    wide = wide.flatten(2).transpose(1, 2)
    tensors["embeddings.position_embeddings"] = torch.cat([table[:, :1], wide], 1)
    images = normalised(np.repeat(large, 3, axis=-1))
    rows = folders.reference(tensors, "vit", images, settings={"image_size": 10})
    found = image_features(large, vit, side=10)
    np.testing.assert_allclose(found, rows[:, 0], atol=1e-4)


def test_a_folder_names_its_normalisation(vit):
    pixels = RNG.random((2, 6, 6, 3)).astype(np.float32)
    before = image_features(pixels, vit)
    file = vit / "preprocessor_config.json"
    file.write_text(json.dumps({"image_mean": [0.0] * 3, "image_std": [1.0] * 3}))
    try:
        plain = image_features(pixels, vit)
    finally:
        file.unlink()
    np.testing.assert_allclose(
        plain, load_target(vit).features(pixels), rtol=0, atol=1e-6
    )
    assert np.abs(plain - before).max() > 0.01


def test_features_are_kept_by_parts(vit, tmp_path, monkeypatch):
    monkeypatch.setattr(_image_features, "_KEPT", 3)
    pixels = RNG.integers(0, 256, (8, 6, 6)).astype(np.uint8)
    found = image_features(pixels, vit, cache=tmp_path, batch_size=2)
    assert len([*tmp_path.iterdir()]) == 3
    np.testing.assert_allclose(image_features(pixels / 255, vit), found, atol=1e-5)

    def fail(*_):
        raise AssertionError("encoded again")

    monkeypatch.setattr(_image_features, "_vit", fail)
    again = image_features(pixels, vit, cache=tmp_path, batch_size=4)
    np.testing.assert_array_equal(again, found)
    # A killed run has the parts that it finished; a damaged part is made anew.
    first = image_features(pixels[:3], vit, cache=tmp_path)
    np.testing.assert_array_equal(first, found[:3])
    for changes in ({"side": 8}, {"pool": "mean"}, {"images": pixels[::-1]}):
        arguments = {"images": pixels, "folder": vit, "cache": tmp_path} | changes
        with pytest.raises(AssertionError, match="encoded again"):
            image_features(**arguments)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(AssertionError, match="encoded again"):
        image_features(pixels, vit, cache=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((2, 6))}, r"images must have shape .* got \(2, 6\)"),
        ({"images": np.zeros((0, 6, 6))}, r"n >= 1, got \(0, 6, 6\)"),
        ({"images": np.zeros((1, 6, 6, 2))}, r"got \(1, 6, 6, 2\)"),
        ({"images": np.full((1, 6, 6), 255.0)}, "0..1, or be bytes, got values from"),
        ({"images": np.full((1, 6, 6), np.nan)}, "images"),
        ({"side": 7}, "side must be a multiple of 2"),
        ({"side": 0}, "side must be at least 1, got 0"),
        ({"pool": "max"}, "pool must be one of"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_bad_input(changes, message, vit):
    arguments = {"images": np.zeros((1, 6, 6)), "folder": vit} | changes
    with pytest.raises(ValueError, match=message):
        image_features(**arguments)


def test_an_encoder_of_texts_is_refused(tmp_path):
    folder = folders.write(tmp_path / "bert", "bert", folders.random_tensors("bert"))
    with pytest.raises(ValueError, match="an encoder of images, got 'bert'"):
        image_features(np.zeros((1, 6, 6)), folder)


def test_the_catalogue_converts_it(state, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSEL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "state.pth"
    torch.save(state, file, _use_new_zipfile_serialization=False)
    archive = tmp_path / "tiny-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.write(file, "tiny/models/efficientnet-lite0-57934424.pth")
    pinned(archive, "efficientnet_lite0", monkeypatch)
    made = prepare_model("efficientnet_lite0", package=archive)
    assert json.loads((made / "config.json").read_text())["image_size"] == 224
    paths = {model.name: model.path for model in available_models()}
    assert paths["efficientnet_lite0"] == made
    with pytest.raises(ValueError, match="model_type"):
        load_target(made)


def test_pickles_of_other_things_are_not_run(tmp_path):
    class Bad:
        def __reduce__(self):
            return (exec, ("raise SystemExit",))

    file = tmp_path / "bad.pth"
    file.write_bytes(pickle.dumps(Bad()))
    with pytest.raises(ValueError, match=r"exec is no part of tensors"):
        convert_efficientnet(file, tmp_path / "none")
