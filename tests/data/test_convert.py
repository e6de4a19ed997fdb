from types import SimpleNamespace

import numpy as np
import pytest

import jaxsel.data as data


def test_arrays():
    d = data.from_arrays(
        np.zeros((3, 8, 8), np.uint8), [2, 0, 1], ids=["a", "b", "c"], name="mine"
    )
    assert d.x.shape == (3, 8, 8, 1)
    assert d.y.dtype == np.int64
    assert d.ids.tolist() == ["a", "b", "c"]
    named = data.from_arrays([[1, 2], [3, 4]], ["dog", "cat"], feature_names=["p", "q"])
    assert named.class_names == ("cat", "dog")
    assert named.y.tolist() == [1, 0]
    texts = data.from_arrays(["one", "two"], [True, False], extras={"w": [1, 2]})
    assert texts.x.dtype == object
    assert texts.y.tolist() == [1, 0]
    targets = data.from_arrays(np.zeros((2, 1)), [0.5, 1.5])
    assert targets.y.dtype == np.float32


@pytest.mark.parametrize(
    ("x", "y", "options", "error", "match"),
    [
        (np.zeros(3), [0] * 3, {}, ValueError, r"x must be \[n, d\]"),
        (np.zeros((3, 2)), [0] * 2, {}, ValueError, "y must have one entry"),
        (np.zeros((3, 2)), [[0]] * 3, {}, ValueError, r"y must have shape \[n\]"),
        (np.zeros((2, 2), complex), [0] * 2, {}, TypeError, "x must be numbers"),
        ([{}, {}], [0] * 2, {}, TypeError, "x must be one array of numbers"),
        (np.zeros((2, 2)), [1j, 2], {}, TypeError, "y must be classes or numbers"),
        (
            np.zeros((2, 2)),
            ["a", "b"],
            {"class_names": ["a", "b"]},
            ValueError,
            "class_names must be None",
        ),
        (
            np.zeros((2, 2)),
            [0, 2],
            {"class_names": ["a", "b"]},
            ValueError,
            "whole numbers below 2.*got 2",
        ),
    ],
)
def test_bad_arrays(x, y, options, error, match):
    with pytest.raises(error, match=match):
        data.from_arrays(x, y, **options)


class Pairs:
    """A torch map-style data set in all but name."""

    def __init__(self, pairs, classes=None):
        self.pairs = pairs
        if classes is not None:
            self.classes = classes

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def test_torch_by_duck_typing():
    pairs = [(np.full((4, 5, 3), i, np.uint8), i % 2) for i in range(3)]
    d = data.from_torch(Pairs(pairs, classes=["even", "odd"]))
    assert d.x.shape == (3, 4, 5, 3)
    assert d.y.tolist() == [0, 1, 0]
    assert d.class_names == ("even", "odd")
    assert d.name == "Pairs"
    with pytest.raises(TypeError, match=r"\(x, y\) pairs, but item 0"):
        data.from_torch(Pairs([np.zeros(3)]))
    uneven = [(np.zeros((2, 2 + i, 1)), 0) for i in range(2)]
    with pytest.raises(ValueError, match="one shape"):
        data.from_torch(Pairs(uneven))


def test_real_torch_tensors():
    torch = pytest.importorskip("torch")
    x, y = torch.rand(4, 3, 6, 5), torch.tensor([0, 1, 2, 1])
    d = data.from_torch(torch.utils.data.TensorDataset(x, y))
    assert d.x.shape == (4, 6, 5, 3)
    np.testing.assert_array_equal(d.x, np.moveaxis(x.numpy(), 1, -1))
    assert d.y.tolist() == [0, 1, 2, 1]
    rows = torch.utils.data.TensorDataset(x[:, 0, 0], y.float())
    assert data.from_torch(rows).x.shape == (4, 5)


class Columns(dict):
    """A Hugging Face data set in all but name."""

    def __init__(self, columns, names):
        super().__init__(columns)
        self.column_names = list(columns)
        self.features = {"label": SimpleNamespace(names=names)}
        self.info = SimpleNamespace(dataset_name="hub")


def test_hugging_face_by_duck_typing():
    image = pytest.importorskip("PIL.Image")
    pictures = [image.fromarray(np.full((4, 4), i, np.uint8)) for i in range(3)]
    columns = {
        "image": pictures,
        "sentence": ["a", "bb", "ccc"],
        "age": [1, 2, 3],
        "height": [0.5, 1.5, 2.5],
        "label": [1, 0, 1],
    }
    hub = Columns(columns, ["cat", "dog"])
    d = data.from_hugging_face(hub, x="image")
    assert d.x.shape == (3, 4, 4, 1)
    assert d.x[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert d.class_names == ("cat", "dog")
    assert d.name == "hub"
    assert data.from_hugging_face(hub, x="sentence").x.tolist() == ["a", "bb", "ccc"]
    t = data.from_hugging_face(hub, x=["age", "height"])
    assert t.feature_names == ("age", "height")
    assert t.x.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert data.from_hugging_face(hub, x="age", y="height").x.shape == (3, 1)
    with pytest.raises(ValueError, match="no column 'text'; there are image"):
        data.from_hugging_face(hub, x="text")


def test_pandas_frame_as_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4], "label": ["u", "v"]})
    d = data.from_hugging_face(frame, x=["a", "b"])
    assert d.x.tolist() == [[1, 3], [2, 4]]
    assert d.class_names == ("u", "v")
