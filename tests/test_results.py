"""Results where arrays and lists of positions are taken: NumPy, pandas, torch."""

import html.parser

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import torch

import jaxsel
from jaxsel import Selection, Values


def values(n=8, **fields):
    given = {"values": jnp.arange(n, dtype=jnp.float32) - 3, "count": jnp.int32(4)}
    return Values(**given | fields)


def padded(**fields):
    return Selection(
        indices=jnp.array([4, 2, 0, 0], jnp.int32),
        weights=jnp.array([2.0, 1.0, 0.0, 0.0]),
        n_valid=jnp.int32(2),
        **fields,
    )


def test_values_are_an_array():
    v = values()
    array = np.arange(8) - 3.0
    np.testing.assert_array_equal(np.asarray(v), array)
    np.testing.assert_array_equal(v.to_numpy(), array)
    np.testing.assert_array_equal(jnp.asarray(v), array)
    assert np.asarray(v, np.float64).dtype == np.float64
    assert pd.Series(v).tolist() == array.tolist() == list(v)
    copy = np.array(v)
    copy[0] = 9  # a copy, and writable
    assert float(np.asarray(v)[0]) == -3


def test_values_of_some_points():
    names = tuple("abcdefgh")
    v = values(m2=jnp.arange(8.0), error_bound=jnp.full(8, 0.5), index=names)
    assert v[0] == -3
    assert v[-1] == 4
    with pytest.raises(IndexError):
        v[8]
    for key in (slice(1, 4), [1, 2, 3], np.isin(np.arange(8), [1, 2, 3])):
        part = v[key]
        assert part.to_numpy().tolist() == [-2, -1, 0]
        assert part.index == ("b", "c", "d")
        assert part.to_pandas().index.tolist() == ["b", "c", "d"]
        np.testing.assert_array_equal(part.stderr, v.stderr[1:4])
        assert part.error_bound.shape == (3,)
        assert int(part.count) == 4
        assert part.provenance is None
    assert len(v[[]]) == 0
    each = values(count=jnp.arange(8))[[5, 1]]
    assert each.count.tolist() == [5, 1]
    rows = values(values=jnp.arange(24.0).reshape(3, 8), reduce=None)
    assert rows[[7, 0]].values.tolist() == [[7, 0], [15, 8], [23, 16]]
    assert rows[7].tolist() == [7, 15, 23]


def test_a_selection_is_a_list_of_positions():
    chosen = padded()
    assert list(chosen) == [4, 2]
    assert len(chosen) == 2
    assert chosen[0] == 4
    assert type(chosen[0]) is int
    assert chosen[-1] == 2
    assert chosen[1:].tolist() == [2]
    assert np.asarray(chosen).dtype == np.int32
    x = np.arange(10) * 10
    assert x[chosen].tolist() == x[chosen.to_numpy()].tolist() == [40, 20]
    assert pd.DataFrame({"x": x}).iloc[chosen]["x"].tolist() == [40, 20]
    short = chosen.unpadded()
    assert short.indices.tolist() == [4, 2]
    assert short.weights.tolist() == [2, 1]
    assert short.unpadded() is short


def test_a_traced_selection_stays_padded():
    assert jax.jit(lambda chosen: chosen.unpadded())(padded()).indices.shape == (4,)


@pytest.mark.filterwarnings("ignore:log_det chose 2 of 4")
@pytest.mark.left_out
def test_choices_have_no_padding():
    """Whoever takes `x[chosen.indices]` must not get row 0 where nothing is chosen."""
    gradients = np.eye(4, 6, dtype=np.float32)[[0, 0, 1, 1]]
    target = gradients[0] + gradients[2]
    for choose in (
        lambda: jaxsel.omp(gradients, target, 4),
        lambda: jaxsel.log_det(gradients, 4, l2=0.0),
        lambda: jaxsel.grad_match(gradients, gradients, 4),
        lambda: jaxsel.retrieve_nearest(gradients, gradients[:1], 9),
    ):
        found = choose()
        assert len(found.indices) == len(found.weights) == len(found)
        assert len(set(found)) == len(found) < 5


def test_torch():
    data = torch.utils.data.TensorDataset(torch.arange(10))
    subset = torch.utils.data.Subset(data, padded())
    assert [int(x) for (x,) in subset] == [40 // 10, 20 // 10]
    sampler = torch.utils.data.WeightedRandomSampler(padded().unpadded().weights, 90)
    counts = np.bincount([int(subset[i][0]) for i in sampler], minlength=5)
    assert counts.sum() == 90
    assert counts[4] > counts[2] > 0


def test_hugging_face_and_grain():
    datasets, grain = pytest.importorskip("datasets"), pytest.importorskip("grain")
    x = np.arange(20.0).reshape(10, 2)
    data = datasets.Dataset.from_dict({"x": x.tolist(), "y": [0, 1] * 5})
    assert data.select(padded())["x"][:] == [[8, 9], [4, 5]]
    assert list(grain.MapDataset.source(padded())) == [4, 2]
    wanted = jaxsel.knn_shapley(x, [0, 1] * 5, x[:3], [0, 1, 0], k=2)
    some = data.select(range(3))
    for form in (data, data.with_format("numpy")):
        found = jaxsel.knn_shapley(form["x"], form["y"], some["x"], some["y"], k=2)
        np.testing.assert_array_equal(found.values, wanted.values)
    with pytest.raises(
        TypeError, match="x must be an array, got a Dataset: pass the c"
    ):
        jaxsel.knn_shapley(data, data["y"], x, [0, 1] * 5, k=2)


class Cells(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.cells, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def test_a_notebook_shows_the_ends_and_a_picture():
    v = values(30, index=tuple(f"<{i}>" for i in range(30)), method="loo()")
    text = v._repr_html_()
    found = Cells(text)
    assert found.cells[:4] == ["index", "value", "<29>", "26"]
    assert found.cells[-2:][0] == "<0>"
    assert "loo(), n = 30, count = 4" in text
    assert {"table", "svg"} <= set(found.tags)
    assert values()._repr_html_().count("<tr>") == 1 + 4 + 1 + 4
    rows = values(values=jnp.zeros((3, 8)), reduce=None)
    assert rows._repr_html_().startswith("<pre>Values(unnamed, n=8")


def test_a_notebook_without_matplotlib(monkeypatch):
    monkeypatch.setattr("jaxsel._results.html.find_spec", lambda name: None)
    found = Cells(values()._repr_html_())
    assert "table" in found.tags
    assert "svg" not in found.tags
