"""KNN values over validation points that stream in: those of all of them at once."""

import functools

import numpy as np
import pytest
from row_cases import KINDS, D, N, arrays, make

import jaxsel
from jaxsel.data import open_rows


def train():
    return arrays(60, seed=5)


FUNCTIONS = {
    "shapley": (jaxsel.knn_shapley, {"k": 3}),
    "cosine": (jaxsel.knn_shapley, {"k": 3, "metric": "cosine"}),
    "max": (jaxsel.knn_shapley, {"k": 3, "reduce": "max"}),
    "banzhaf": (jaxsel.knn_banzhaf, {"k": 4}),
    "beta": (jaxsel.knn_beta_shapley, {"alpha": 4.0}),
    "loo": (jaxsel.knn_loo, {}),
    "soft": (jaxsel.soft_knn_shapley, {"n_classes": 4}),
    "regression": (jaxsel.knn_regression_shapley, {}),
    "threshold": (jaxsel.threshold_knn_shapley, {"radius": 2.0}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.every(3)
def test_of_every_kind(kind, tmp_path):
    x, y = train()
    x_val, y_val = arrays()
    rows = make(kind, tmp_path, x_val, y_val)
    expected = jaxsel.knn_shapley(x, y, x_val, y_val)
    found = jaxsel.streamed_values(jaxsel.knn_shapley, x, y, rows, chunk_size=20)
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.m2, expected.m2, rtol=1e-4, atol=1e-6)
    assert found.count == N
    assert found.method == expected.method


@pytest.mark.every(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_every_value(name):
    function, options = FUNCTIONS[name]
    x, y = train()
    x_val, y_val = arrays()
    expected = function(x, y, x_val, y_val, **options)
    rows = open_rows(x_val, labels=y_val)
    found = jaxsel.streamed_values(function, x, y, rows, chunk_size=20, **options)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5, atol=1e-6)
    assert repr(found).partition("best")[0] == repr(expected).partition("best")[0]


def test_parts_are_merged_in_order():
    """Bit for bit what `merge` makes of the parts."""
    x, y = train()
    x_val, y_val = arrays()
    parts = [
        jaxsel.knn_shapley(x, y, x_val[i : i + 20], y_val[i : i + 20])
        for i in range(0, N, 20)
    ]
    expected = parts[0].merge(*parts[1:])
    rows = open_rows(x_val, labels=y_val)
    found = jaxsel.streamed_values(jaxsel.knn_shapley, x, y, rows, chunk_size=20)
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.m2.tobytes() == expected.m2.tobytes()
    assert found.provenance == expected.provenance
    again = jaxsel.knn_shapley(x, y, x_val[20:40], y_val[20:40])
    with pytest.raises(ValueError, match="both counted"):
        found.merge(again)


def test_equal_chunks_are_other_rows():
    x, y = train()
    x_val, y_val = (np.concatenate([a[:20]] * 3) for a in arrays())
    expected = jaxsel.knn_shapley(x, y, x_val, y_val)
    rows = open_rows(x_val, labels=y_val)
    found = jaxsel.streamed_values(jaxsel.knn_shapley, x, y, rows, chunk_size=20)
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-6)
    assert found.count == 60


def test_shards_merge(tmp_path):
    x, y = train()
    rows = make("npy folder", tmp_path, *arrays())
    whole = jaxsel.streamed_values(jaxsel.knn_shapley, x, y, rows)
    parts = [
        jaxsel.streamed_values(jaxsel.knn_shapley, x, y, rows.shard(i, 3))
        for i in range(3)
    ]
    found = parts[0].merge(*parts[1:])
    np.testing.assert_allclose(found.values, whole.values, rtol=0, atol=1e-6)
    assert found.count == N


class Dies(Exception):
    pass


@pytest.mark.parametrize("name", ["shapley", "max", "regression"])
@pytest.mark.parametrize("kind", ["npy folder", "grain batches"])
@pytest.mark.every(6)
def test_a_pass_that_was_cut_off_goes_on(kind, name, tmp_path):
    value, options = FUNCTIONS[name]
    x, y = train()
    rows = make(kind, tmp_path, *arrays())
    run = functools.partial(jaxsel.streamed_values, chunk_size=10, **options)
    expected = run(value, x, y, rows)
    calls = []

    @functools.wraps(value)
    def mortal(*arguments, **options):
        calls.append(len(arguments[2]))
        if len(calls) == mortal.dies_at:
            raise Dies
        return value(*arguments, **options)

    keep = {"checkpoint": tmp_path / "c", "checkpoint_every": 2}
    for dies_at in (4, 5):
        mortal.dies_at = dies_at
        calls.clear()
        with pytest.raises(Dies):
            run(mortal, x, y, rows, **keep)
    mortal.dies_at = 0
    calls.clear()
    found = run(mortal, x, y, rows, **keep)
    assert sum(calls) == N - 60  # after 2 chunks, and then 4 more
    for field in ("values", "count", "m2"):
        mine, theirs = (getattr(v, field) for v in (found, expected))
        assert (mine is None) == (theirs is None)
        assert mine is None or mine.tobytes() == theirs.tobytes()
    assert (found.method, found.reduce) == (expected.method, expected.reduce)
    assert found.provenance == expected.provenance
    calls.clear()
    again = run(mortal, x, y, rows, **keep)
    assert not calls
    assert again.values.tobytes() == expected.values.tobytes()
    x_other = x + 1
    for change in (
        lambda: run(mortal, x_other, y, rows, **keep),
        lambda: run(mortal, x, y[::-1], rows, **keep),
        lambda: run(jaxsel.knn_loo, x, y, rows, **keep),
        lambda: run(mortal, x, y, rows, **keep | {"chunk_size": 9}),
        lambda: run(mortal, x, y, rows, **keep | {"k": 7}),
    ):
        with pytest.raises(ValueError, match="holds a run with other data"):
            change()


def test_tables_keep_their_index(tmp_path):
    pd = pytest.importorskip("pandas")
    x, y = train()
    frame = pd.DataFrame(x, index=[f"row {i}" for i in range(len(x))])
    rows = open_rows(arrays()[0], labels=arrays()[1])
    options = {"chunk_size": 50, "checkpoint": tmp_path / "c"}
    found = jaxsel.streamed_values(jaxsel.knn_shapley, frame, y, rows, **options)
    again = jaxsel.streamed_values(jaxsel.knn_shapley, frame, y, rows, **options)
    assert found.index == again.index == tuple(frame.index)


def test_bad_input(tmp_path):
    x, y = train()
    x_val, y_val = arrays()
    run = functools.partial(jaxsel.streamed_values, jaxsel.knn_shapley, x, y)
    rows = open_rows(x_val, labels=y_val)
    with pytest.raises(TypeError, match="validation must be Rows, .* got ndarray"):
        run(x_val)
    with pytest.raises(TypeError, match="validation must have labels"):
        run(open_rows(x_val))
    for options in ({"reduce": None}, {"gather": False}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must not be"):
            run(rows, **options)
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        run(rows, chunk_size=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'kk'"):
        run(rows, kk=3)
    narrow = open_rows(x_val[:, :3], labels=y_val)
    message = r"got 5 and 3 \(in validation rows 0 to 19\)"
    with pytest.raises(ValueError, match=message):
        run(narrow, chunk_size=20)
    y_other = np.where(np.arange(N) < 80, y_val, 9)
    message = r"share a label.* \(in validation rows 80 to 99\)"
    with pytest.raises(ValueError, match=message):
        run(open_rows(x_val, labels=y_other), chunk_size=20)
    x_val[50, 1] = np.nan
    with pytest.raises(ValueError, match="features must be finite, but row 50"):
        run(open_rows(x_val, labels=y_val), chunk_size=20)
    assert D == 5
