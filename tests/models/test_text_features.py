"""Tokens, and features that are kept on disk."""

import dataclasses

import jax
import numpy as np
import pytest

pytest.importorskip("safetensors", reason="comes with the text extra")
pytest.importorskip("tokenizers", reason="comes with the text extra")
pytest.importorskip("torch", reason="the reference; comes with the mpc extra")

from jaxsel.models import _features, _target, load_target, text_features, tokenize

from . import folders

# More texts of each length than fit into a batch, in no order.
RNG = np.random.default_rng(1)
TEXTS = [
    " ".join(RNG.choice(list("abcdefgh"), size))
    for size in RNG.permutation([*range(10)] * 2)
]
LENGTH = 12


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    tensors = folders.random_tensors("bert")
    folders.write(folder, "bert", tensors)
    folders.write_tokenizer(folder)
    return load_target(folder)


def test_tokens(target, tmp_path):
    tokens = tokenize(["a c", "", "d ? " * 9], target.tokenizer, length=5)
    assert tokens.ids.tolist() == [[2, 4, 6, 3, 0], [2, 3, 0, 0, 0], [2, 7, 1, 7, 3]]
    assert tokens.mask.sum(1).tolist() == [4, 2, 5]
    assert tokens.ids.dtype == np.int32
    assert len(tokens) == 3

    # A tokenizer of the caller's is left as it is; its padding token counts.
    tool = folders.write_tokenizer(tmp_path)
    tool.enable_padding(pad_id=9, length=20)
    same = tokenize(["a c"], tool, length=5)
    assert same.ids.tolist() == [[2, 4, 6, 3, 9]]
    assert len(tool.encode("a").ids) == 20
    assert tokenize(["a c"], tmp_path, length=5).ids.tolist() == [[2, 4, 6, 3, 0]]


def test_tokens_refuse(target, tmp_path):
    with pytest.raises(TypeError, match="got a single one"):
        tokenize("a text", target.tokenizer, length=5)
    with pytest.raises(TypeError, match="row 1 is None"):
        tokenize(["a", None], target.tokenizer, length=5)
    with pytest.raises(ValueError, match="length must be at least 1"):
        tokenize(["a"], target.tokenizer, length=0)
    with pytest.raises(FileNotFoundError, match="there is no tokenizer"):
        tokenize(["a"], tmp_path, length=5)


@pytest.mark.slow
def test_features(target, tmp_path, monkeypatch):
    before = _target.apply_features._cache_size()
    found = text_features(TEXTS, target, length=LENGTH, batch_size=8, cache=tmp_path)
    # Lengths are rounded up to 8 or 12, and the last batch is filled up.
    assert _target.apply_features._cache_size() == before + 2
    whole = tokenize(TEXTS, target.tokenizer, length=LENGTH)
    for row in (0, 3, 11, 19):
        n = whole.mask[row].sum()
        ids, mask = whole.ids[[row], :n], whole.mask[[row], :n]
        rows = folders.reference(folders.random_tensors("bert"), "bert", ids, mask)
        np.testing.assert_allclose(found[row], rows[0].mean(0), atol=1e-4)

    # The second time they come from the disk.
    def fail(*_, **__):
        raise AssertionError("encoded again")

    (kept,) = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(_features, "tokenize", fail)
        again = text_features(
            TEXTS, target, length=LENGTH, batch_size=4, cache=tmp_path
        )
        np.testing.assert_array_equal(again, found)
        for change in (
            {"texts": TEXTS[::-1]},
            {"pool": "cls"},
            {"length": 11},
            {"target": dataclasses.replace(target, params=scaled(target.params))},
        ):
            arguments = {"texts": TEXTS, "target": target, "length": LENGTH} | change
            with pytest.raises(AssertionError, match="encoded again"):
                text_features(cache=tmp_path, **arguments)

    # A damaged file is replaced.
    kept.write_bytes(kept.read_bytes()[:100])
    again = text_features(TEXTS, target, length=LENGTH, batch_size=8, cache=tmp_path)
    np.testing.assert_array_equal(again, found)
    assert [*tmp_path.iterdir()] == [kept]
    assert kept.stat().st_size > 100


def scaled(params):
    return jax.tree.map(lambda a: 1.5 * a, params)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"texts": "one"}, TypeError, "got a single one"),
        ({"length": 1}, ValueError, "length must be from 2 to 12"),
        ({"length": 13}, ValueError, "length must be from 2 to 12"),
        ({"pool": "max"}, ValueError, "pool must be one of"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
    ],
)
def test_features_refuse(change, error, message, target):
    arguments = {"texts": TEXTS, "target": target, "length": LENGTH} | change
    with pytest.raises(error, match=message):
        text_features(**arguments)
    bare = dataclasses.replace(target, tokenizer=None)
    with pytest.raises(ValueError, match="with a tokenizer"):
        text_features(TEXTS, bare, length=LENGTH)
