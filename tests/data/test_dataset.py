import subprocess
import sys

import numpy as np
import pytest

import jaxsel.data as data
from jaxsel.data._catalog import CATALOG


@pytest.mark.slow  # starts Python
def test_import_is_light():
    code = (
        "import sys, jaxsel.data; "
        "print([m for m in ('tensorflow_datasets', 'sklearn', 'PIL', 'flax', 'pandas', "
        "'torch', 'tqdm') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_digits():
    train, test = data.load("digits"), data.load("digits", split="test")
    everything = data.load("digits", split="all")
    assert (len(train), len(test), len(everything)) == (1442, 355, 1797)
    assert train.x.dtype == np.uint8
    assert train.x.shape == (1442, 8, 8, 1)
    assert (everything.x.min(), everything.x.max()) == (0, 240)
    assert set(np.unique(everything.x)) == set(range(0, 241, 15))
    assert sorted([*train.ids, *test.ids]) == list(range(1797))
    total = np.bincount(everything.y)
    np.testing.assert_array_equal(np.bincount(test.y), total // 5)
    np.testing.assert_array_equal(everything.x[test.ids], test.x)
    assert train.n_classes == 10
    assert "BSD" in train.license
    with pytest.raises(ValueError, match="split must be one of 'train'"):
        data.load("digits", split="dev")


@pytest.mark.parametrize(
    ("split", "rows"),
    [
        ("test[:50]", slice(50)),
        ("test[-20:]", slice(-20, None)),
        ("test[20%:-100]", slice(71, -100)),
        ("test[-10%:]", slice(-36, None)),
        ("test[:]", slice(None)),
    ],
)
def test_slices_of_digits(split, rows):
    part, whole = data.load("digits", split=split), data.load("digits", split="test")
    assert part.split == split
    np.testing.assert_array_equal(part.ids, whole.ids[rows])
    np.testing.assert_array_equal(part.x, whole.x[rows])
    for wrong in ("dev[:5]", "test[5]", "test[:5.0]", "test[::2]"):
        with pytest.raises(ValueError, match="split must be one of 'train'"):
            data.load("digits", split=wrong)
    with pytest.raises(ValueError, match=r"split must hold samples, but 'test\[5:5"):
        data.load("digits", split="test[5:5]")


def test_register(monkeypatch):
    """What is registered is loaded and listed; our own names are not replaced."""
    monkeypatch.setitem(CATALOG, "pets", None)  # so that it is gone afterwards
    pets = data.from_arrays(np.eye(4), ["cat", "dog", "cat", "dog"])
    facts = {"task": "pets", "splits": {"train": 4}, "license": "CC0", "source": "here"}
    asked = []
    data.register("pets", lambda split: asked.append(split) or pets, **facts)
    found = data.load("pets", split="any")
    assert (found.name, found.split, found.license) == ("pets", "any", "CC0")
    assert found.x is pets.x
    assert asked == ["any"]
    info = data.info("pets")
    assert info.prepared
    assert (info.task, info.splits, info.source) == ("pets", {"train": 4}, "here")
    assert info in data.available()
    assert data.prepare("pets") == info
    assert not data.remove("pets")
    data.register("pets", lambda split: pets.take([0]), **facts)
    assert len(data.load("pets")) == 1

    with pytest.raises(ValueError, match="name must be none of digits, .*got 'mnist'"):
        data.register("mnist", lambda split: pets, **facts)
    with pytest.raises(ValueError, match="name must be a word .*got 'a/b'"):
        data.register("a/b", lambda split: pets, **facts)
    with pytest.raises(TypeError, match="read must be a function"):
        data.register("pets", pets, **facts)


def table(n=5, **changes):
    arrays = {
        "x": np.arange(n * 2).reshape(n, 2).astype(np.float32),
        "y": np.arange(n) % 2,
        "ids": np.arange(n) + 100,
        "feature_names": ("a", "b"),
        "extras": {"score": np.linspace(0, 1, n)},
    }
    return data.Dataset(**{**arrays, **changes})


def test_take():
    d = table()
    part = d.take([3, 0])
    assert len(part) == 2
    assert part.x[:, 0].tolist() == [6, 0]
    assert part.ids.tolist() == [103, 100]
    assert part.extras["score"].tolist() == [0.75, 0]
    assert part.feature_names == ("a", "b")
    assert d.take(d.y == 1).ids.tolist() == [101, 103]
    assert len(d.take([])) == 0
    with pytest.raises(TypeError, match="indices must be whole numbers"):
        d.take([0.5])
    with pytest.raises(IndexError):
        d.take([5])


def test_as_features_scales_columns():
    d = table(x=np.array([[1, 7], [3, 7], [5, 7], [7, 7], [9, 7]], np.float32))
    z = d.as_features()
    assert z.dtype == np.float32
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-7)
    np.testing.assert_allclose(z.std(axis=0), [1, 0], rtol=1e-6)
    test = table(2, x=np.array([[5, 8], [9, 7]], np.float32))
    np.testing.assert_allclose(
        test.as_features(fit_on=d), [[0, 1], [4 / np.sqrt(8), 0]], rtol=1e-6
    )
    with pytest.raises(ValueError, match="fit_on must hold rows of 2 columns"):
        d.as_features(fit_on=table(x=np.zeros((5, 3)), feature_names=None))


def test_as_features_of_images_and_texts():
    x = np.full((2, 3, 4, 1), 51, np.uint8)
    z = data.Dataset(x=x, y=np.zeros(2, np.int64)).as_features()
    assert z.shape == (2, 12)
    np.testing.assert_array_equal(z, np.float32(0.2))
    floats = data.Dataset(x=x / 255, y=np.zeros(2, np.int64)).as_features()
    np.testing.assert_allclose(floats, z)
    with pytest.raises(TypeError, match="encode texts first"):
        data.from_arrays(["a", "b"], [0, 1]).as_features()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"y": np.zeros(4)}, "y must have one entry for each of the 5"),
        ({"ids": np.zeros(6)}, "ids must have one entry"),
        ({"extras": {"s": np.zeros(1)}}, "s must have one entry"),
        ({"feature_names": ("a",)}, "feature_names must name the columns"),
    ],
)
def test_lengths_must_agree(changes, match):
    with pytest.raises(ValueError, match=match):
        table(**changes)


def test_repr_and_classes():
    d = table(name="toy", split="train", class_names=("p", "q", "r"))
    assert repr(d) == "Dataset(toy, split='train', x=float32[5, 2], classes=3)"
    assert d.n_classes == 3
    assert table().n_classes == 2
    assert table(0).n_classes == 0
