"""Exported proxies: whole or not at all, without pickle, and read with suspicion."""

import dataclasses
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from proxy.random_proxies import SMALL, random_proxy

from jaxsel import proxy
from jaxsel.proxy import Emulator, Proxy, Spec
from mpc_bridge import export, load, read_manifest
from mpc_bridge._export import read_weights

pytestmark = pytest.mark.mpc

MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"
GOLDEN = Path(__file__).parents[1] / "proxy" / "manifest.json"


@pytest.fixture(scope="module")
def made():
    attention = Emulator("hinge", centre=True, bias=True)
    spec = Spec(1, 2, attention=attention, embed="onehot", ffn=True)
    return random_proxy(proxy.manifest(spec, **SMALL, head=3))


@pytest.fixture
def folder(made, tmp_path):
    return export(made[0], tmp_path / "proxy")


def test_a_proxy_comes_back_as_it_was(made, folder):
    target, x, mask = made
    assert {path.name for path in folder.iterdir()} == {MANIFEST, WEIGHTS}
    manifest = read_manifest(folder)
    assert manifest == read_manifest(folder / MANIFEST) == target.manifest
    assert (folder / MANIFEST).read_text("utf-8") == target.manifest.to_json()
    arrays = read_weights(folder, manifest)
    assert set(arrays) == set(target.arrays())
    for name, value in target.arrays().items():
        np.testing.assert_array_equal(arrays[name], value, strict=True)
    again = Proxy.from_arrays(manifest, arrays)
    np.testing.assert_array_equal(again.logits(x, mask), target.logits(x, mask))
    module = load(folder)
    assert not module.training
    assert not list(module.parameters())
    assert module.scores(x, mask).shape == (len(x),)


def test_transposed_arrays_are_written_as_they_are_read(tmp_path, monkeypatch):
    target, *_ = random_proxy(proxy.probe_manifest(width=3, n_classes=2))
    arrays = target.arrays()
    arrays["head.0.weight"] = np.asfortranarray(arrays["head.0.weight"])
    monkeypatch.setattr(Proxy, "arrays", lambda _: arrays)
    folder = export(target, tmp_path)
    found = read_weights(folder, target.manifest)["head.0.weight"]
    np.testing.assert_array_equal(found, arrays["head.0.weight"])


def test_the_golden_manifest_is_still_read():
    assert read_manifest(GOLDEN).to_json() == GOLDEN.read_text("utf-8")


def fail(*_, **__):
    raise OSError("no space left")


def save_a_part(_, path, *args):
    Path(path).write_bytes(b"half of it")
    fail()


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    ("at", "name", "failure"),
    [
        (safetensors.numpy, "save_file", save_a_part),
        (Path, "write_text", fail),
        (Path, "replace", fail),
    ],
)
def test_a_failing_write_leaves_what_was_there(
    made, tmp_path, old, at, name, failure, monkeypatch
):
    folder, before = tmp_path / "proxy", {}
    if old:
        export(made[0], folder)
        before = {path: path.read_bytes() for path in folder.iterdir()}
    other, *_ = random_proxy(made[0].manifest, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(at, name, failure)
        with pytest.raises(OSError, match="no space left"):
            export(other, folder)
    assert folder.exists() == old
    assert {path: path.read_bytes() for path in folder.glob("*")} == before
    export(other, folder)
    assert not before or all(path.read_bytes() != old for path, old in before.items())


def test_no_pickle(made, folder, monkeypatch, tmp_path):
    for module, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (pickle, "dump"),
        (pickle, "dumps"),
        (pickle, "Pickler"),
        (torch, "load"),
        (torch, "save"),
    ):
        monkeypatch.setattr(module, name, fail)
    load(export(made[0], folder))


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_not_run(folder, tmp_path):
    sprung = tmp_path / "sprung"
    for name, call in ((WEIGHTS, load), (MANIFEST, read_manifest)):
        kept = (folder / name).read_bytes()
        for payload in (pickle.dumps(Trap(sprung)), pickle.dumps(Trap(sprung), 0)):
            (folder / name).write_bytes(payload)
            with pytest.raises(ValueError, match=re.escape(str(folder / name))):
                call(folder)
        (folder / name).write_bytes(kept)
    assert not sprung.exists()
    load(folder)


def test_missing_files_are_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no manifest at .*nowhere"):
        load(tmp_path / "nowhere")
    (folder / WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match=f"no weights at .*{WEIGHTS}"):
        load(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(FileNotFoundError, match=f"no manifest at .*{MANIFEST}"):
        load(folder)


def damaged():
    whole = slice(None)
    yield "cut", lambda b: b[: len(b) // 2], "no safetensors file"
    yield "empty", lambda b: b"", "no safetensors file"
    yield "header", lambda b: b"\xff" * 8 + b[8:], "no safetensors file"
    yield "text", lambda b: b"weights", "no safetensors file"
    yield "longer", lambda b: b[whole] + b"\0", "no safetensors file"


@pytest.mark.parametrize(("name", "change", "message"), list(damaged()))
def test_damaged_weights_are_named(folder, name, change, message):
    path = folder / WEIGHTS
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: {message}"):
        load(folder)


def without(arrays, name):
    return {k: v for k, v in arrays.items() if k != name}


def replaced(arrays, name, change):
    return arrays | {name: change(arrays[name])}


def with_value(value):
    def change(array):
        array = array.copy()
        array.flat[-1] = value
        return array

    return change


QUERY = "layers.0.query.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: without(a, QUERY), rf"{QUERY} must have shape \(8, 6\), got None"),
        (lambda a: without(a, "offset"), r"offset must have shape \(3,\), got None"),
        (
            lambda a: replaced(a, QUERY, np.transpose),
            rf"{QUERY} must have shape \(8, 6\), got \(6, 8\)",
        ),
        (
            lambda a: replaced(a, "offset", lambda v: v[:, None]),
            r"offset must have shape \(3,\), got \(3, 1\)",
        ),
        (lambda a: a | {"extra": a["offset"]}, r"extra must have shape None"),
        (
            lambda a: replaced(a, QUERY, lambda v: v.astype(np.int32)),
            f"{QUERY} must be finite floating-point",
        ),
        (
            lambda a: replaced(a, "offset", with_value(np.nan)),
            "offset must be finite floating-point",
        ),
        (
            lambda a: replaced(a, "layers.0.attention.bias", with_value(np.inf)),
            r"layers\.0\.attention\.bias must be finite floating-point",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(made, folder, change, message):
    path, arrays = folder / WEIGHTS, made[0].arrays()
    changed = {k: np.asarray(v, order="C") for k, v in change(arrays).items()}
    safetensors.numpy.save_file(changed, path)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: {message}"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[:100], "JSON"),
        (lambda t: t.replace('"heads"', '"hands"'), r"layers\[0\]\.hands is"),
        (lambda t: t.replace('"masked": true', '"masked": 1'), r"inputs\.masked"),
        (lambda t: t.replace('"length": 5', '"length": "5"'), "length"),
        (lambda t: t.replace('"read": "cls"', '"read": "all"'), "read"),
        (lambda t: t.replace("jaxsel proxy", "another"), "format"),
        (lambda t: "\ud800" + t, "utf-8"),
    ],
)
def test_manifests_that_do_not_fit_are_named(folder, change, message):
    path = folder / MANIFEST
    text = path.read_text("utf-8")
    assert change(text) != text
    path.write_bytes(change(text).encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: .*{message}"):
        load(folder)


def test_weights_of_another_manifest_are_refused(made, folder):
    text = (folder / MANIFEST).read_text("utf-8")
    other = text.replace('"vocab": 7', '"vocab": 9')
    assert other != text
    (folder / MANIFEST).write_text(other, "utf-8")
    with pytest.raises(ValueError, match=r"inputs\.embed\.weight must have shape"):
        load(folder)


def test_refused_ranges_leave_no_folder(made, tmp_path):
    plain = Proxy(proxy.manifest(Spec(1, 2), **SMALL), made[0].params)
    with pytest.raises(ValueError, match=r"must have fixed_point\.bounds"):
        export(plain, tmp_path / "proxy")
    assert not list(tmp_path.iterdir())


def test_files_of_two_writes_are_told_apart(made, folder):
    """Of one shape, but with other bounds: a run may end between two renames."""
    old = made[0].manifest
    bounds = {**old.fixed_point.bounds, "head.logits": 2.0**11}
    fixed = dataclasses.replace(old.fixed_point, bounds=bounds)
    other = dataclasses.replace(old, fixed_point=fixed)
    (folder / MANIFEST).write_text(other.to_json(), "utf-8")
    with pytest.raises(ValueError, match="saved with another manifest"):
        load(folder)


def arrays_or_none(folder, manifest):
    try:
        return read_weights(folder, manifest)
    except ValueError:
        return None


def test_a_flipped_bit_is_refused_wherever_it_is(folder):
    path = folder / WEIGHTS
    content = path.read_bytes()
    manifest = read_manifest(folder)
    arrays = read_weights(folder, manifest)
    rng = np.random.default_rng(0)
    # Of a weight's mantissa: nothing else would notice.
    last = 8 * (len(content) - 4)
    for bit in [last, *rng.integers(0, 8 * len(content), 200)]:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        found = arrays_or_none(folder, manifest)
        if found is None:
            continue
        assert bit // 8 < len(content) - sum(a.nbytes for a in arrays.values())
        for name, value in arrays.items():  # of a name in the header, and no weight
            np.testing.assert_array_equal(found[name], value, strict=True)


@pytest.mark.parametrize("gone", ["manifest", "arrays"])
def test_weights_without_a_hash_are_refused(folder, gone):
    """A bit of the name of a hash suffices for there to be none."""
    path = folder / WEIGHTS
    content = path.read_bytes()
    start = content.index(f'"{gone}"'.encode()) + 1
    path.write_bytes(content[:start] + b"X" + content[start + 1 :])
    with pytest.raises(ValueError, match=f"must carry a hash of their {gone}"):
        read_weights(folder, read_manifest(folder))
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path)
    with pytest.raises(ValueError, match="must carry a hash of their manifest"):
        read_weights(folder, read_manifest(folder))


def test_weights_are_read_once(folder):
    opened = []

    def note(event, args):
        if event == "open" and str(args[0]).endswith(WEIGHTS):
            opened.append(args[0])

    sys.addaudithook(note)
    read_weights(folder, read_manifest(folder))
    assert len(opened) == 1
