"""Tables of pandas, polars and Arrow, and sparse matrices, where arrays are taken."""

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import jaxsel
from jaxsel import data, value

N, M = 40, 12
NAMES = ("width", "height", "whole", "flag")


def samples(seed=0):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(N + M, 2)), columns=NAMES[:2])
    x["whole"] = rng.integers(0, 3, N + M)
    x["flag"] = rng.random(N + M) < 0.5
    y = pd.Series(rng.integers(0, 2, N + M))
    return x[:N], y[:N], x[N:].reset_index(drop=True), y[N:].reset_index(drop=True)


def arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


KINDS = {"pandas": lambda frame: frame, "polars": pl.DataFrame, "arrow": arrow}
CALLS = {
    "knn_shapley": lambda *a: jaxsel.knn_shapley(*a, k=3).values,
    "loo": lambda *a: (
        value.loo(value.ModelUtility(value.LogisticRegression(), *a)).values
    ),
    "influence": lambda *a: jaxsel.influence(*a).values,
    "retrieve": lambda x, y, x_val, y_val: jaxsel.retrieve_nearest(
        x, x_val, 10
    ).to_numpy(),
    "errors": lambda x, y, *_: jaxsel.find_label_errors(x, y).scores,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.every(8)
def test_tables_are_as_good_as_arrays(call, kind):
    x, y, x_val, y_val = samples()
    plain = [np.asarray(table, np.float32) for table in (x, x_val)]
    wanted = CALLS[call](plain[0], y.to_numpy(), plain[1], y_val.to_numpy())
    swapped = KINDS[kind](x_val[[*reversed(NAMES)]])  # found by name
    found = CALLS[call](KINDS[kind](x), y.to_numpy(), swapped, y_val.to_numpy())
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_column_lacks_is_named(kind):
    x, y, x_val, y_val = samples()
    make = KINDS[kind]

    def call(changed):
        jaxsel.knn_shapley(make(changed), y, x_val.to_numpy(np.float32), y_val, k=3)

    gap = x.astype({"whole": float})
    gap.loc[[5, 7], "whole"] = np.nan
    with pytest.raises(ValueError, match=r"row 5 has NaN .* in column 'whole' \(2 of"):
        call(gap)
    with pytest.raises(TypeError, match=r"x must be numeric, but has .*: 'flag'; enc"):
        call(x.assign(flag="yes"))
    for labels in (["a", None] * (N // 2), pd.Series(["a", pd.NA] * (N // 2))):
        with pytest.raises(ValueError, match=r"y must hold a label .* row 1 .*\(20 of"):
            jaxsel.knn_shapley(make(x), labels, make(x_val), ["a"] * M, k=3)


def test_types_of_pandas_own():
    x, y, x_val, y_val = samples()
    wanted = jaxsel.knn_shapley(x, y, x_val, y_val, k=3)
    own = [frame.convert_dtypes() for frame in (x, x_val)]
    assert own[0].dtypes.astype(str).tolist() == [
        "Float64",
        "Float64",
        "Int64",
        "boolean",
    ]
    found = jaxsel.knn_shapley(own[0], y.astype("category"), own[1], y_val, k=3)
    np.testing.assert_array_equal(found.values, wanted.values)
    own[0].loc[3, "whole"] = pd.NA
    with pytest.raises(ValueError, match="row 3 has NaN or infinity in column 'whole'"):
        jaxsel.knn_shapley(own[0], y, own[1], y_val, k=3)


def test_columns_with_names_of_methods():
    x, y, x_val, y_val = samples()
    names = ["columns", "column_names", "select", "index"]
    renamed = [frame.set_axis(names, axis=1) for frame in (x, x_val)]
    found = jaxsel.knn_shapley(renamed[0], y, renamed[1][names[::-1]], y_val, k=3)
    wanted = jaxsel.knn_shapley(x, y, x_val, y_val, k=3)
    np.testing.assert_array_equal(found.values, wanted.values)


@pytest.mark.parametrize("make", ["csr_matrix", "coo_array"])
def test_sparse_matrices(make, monkeypatch):
    x, y, x_val, y_val = (np.asarray(a) for a in samples())
    x, x_val = x.astype(float), x_val.astype(float)
    sparse = getattr(scipy.sparse, make)
    found = jaxsel.knn_shapley(sparse(x), y, sparse(x_val), y_val, k=3)
    wanted = jaxsel.knn_shapley(x, y, x_val, y_val, k=3)
    np.testing.assert_array_equal(found.values, wanted.values)
    wide = scipy.sparse.csr_matrix((10**5, 10**5))
    with pytest.raises(ValueError, match="x is sparse, and would take 80.0 GB as an a"):
        jaxsel.knn_shapley(wide, np.zeros(10**5), x_val, y_val, k=3)


@pytest.mark.left_out
def test_the_index_goes_to_retraining_values():
    x, y, x_val, y_val = samples()
    names = [f"row {i}" for i in range(N)]
    x, y = x.set_axis(names), y.set_axis(names)
    learner = value.LogisticRegression()
    utility = value.ModelUtility(learner, x, y, x_val, y_val)
    assert jaxsel.loo(utility).index == tuple(names)
    assert jaxsel.influence(x, y, x_val, y_val).index == tuple(names)
    with pytest.raises(ValueError, match="x and y must have their rows in one order"):
        value.ModelUtility(learner, x, y[::-1], x_val, y_val)
    with pytest.raises(ValueError, match="the same columns.*x_val lacks 'flag'"):
        value.ModelUtility(learner, x, y, x_val.drop(columns="flag"), y_val)
    with pytest.raises(ValueError, match="features and hard_features must have the sa"):
        jaxsel.retrieve_nearest(x, x_val.rename(columns={"flag": "flags"}), 3)


def test_a_dataset_says_what_to_pass():
    x, y, x_val, y_val = samples()
    dataset = data.Dataset(x=x.to_numpy(np.float32), y=y.to_numpy())
    with pytest.raises(TypeError, match=r"x must be an array, got a Dataset: .*fit_on"):
        jaxsel.knn_shapley(dataset, y, x_val, y_val, k=3)


@pytest.mark.parametrize("call", ["knn_shapley", "loo", "errors"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.every(9)
def test_columns_of_lists_are_as_good_as_arrays(call, kind):
    x, y, x_val, y_val = samples()
    plain = [np.asarray(table, np.float32) for table in (x, x_val)]
    wanted = CALLS[call](plain[0], y.to_numpy(), plain[1], y_val.to_numpy())
    tables = [
        pd.DataFrame({"emb": [list(row) for row in table[:, :3]], "a": table[:, 3]})
        for table in plain
    ]
    found = CALLS[call](KINDS[kind](tables[0]), y, KINDS[kind](tables[1]), y_val)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_columns_of_lists_that_are_refused():
    x, y, x_val, y_val = samples()
    emb = [[0.0, 1.0]] * N
    table = pd.DataFrame({"a": 0.0, "emb": emb})
    table.at[3, "emb"] = [0.0, np.nan]
    with pytest.raises(ValueError, match=r"row 3 has NaN .* in column 'emb\[1\]'"):
        jaxsel.knn_shapley(table, y, table, y)
    table.at[3, "emb"] = [0.0]
    with pytest.raises(ValueError, match="'emb' must have lists of one .* row 3 has 1"):
        jaxsel.knn_shapley(table, y, table, y)
    texts = pd.DataFrame({"emb": [["u"]] * N, "a": 0.0})
    with pytest.raises(TypeError, match="columns of text.*: 'emb'; encode them"):
        jaxsel.knn_shapley(texts, y, texts, y)


@pytest.mark.parametrize("name", ["data_oob", "utility"])
def test_columns_of_texts_are_named_by_all_who_take_samples(name):
    x, y, *_ = samples()
    x = x.assign(work="state")
    learner = value.LogisticRegression()
    calls = {
        "data_oob": lambda: value.data_oob(learner, x, y, key=jax.random.key(0)),
        "utility": lambda: value.ModelUtility(learner, x, y, x, y),
    }
    with pytest.raises(TypeError, match="x must be numeric, .*'work'; .*TableEncoder"):
        calls[name]()


LISTS = {
    "ragged": ([["a"], ["a", "b"]] * 20, ValueError, "row 0 has a list: multi-label"),
    "series": (
        pd.Series([["a"], ["a", "b"]] * 20),
        ValueError,
        "row 0 has a list: mul",
    ),
    "sets": (pd.Series([{1}, {1, 2}] * 20), ValueError, "row 0 has a set: multi-label"),
    "pairs": ([["a", "b"]] * 40, ValueError, "multi-label data|labels of shape"),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("call", ["knn_shapley", "loo", "errors"])
def test_lists_are_no_labels(call, name):
    x, _, x_val, _ = samples()
    y, error, message = LISTS[name]
    with pytest.raises(error, match=f"^y .*({message})"):
        CALLS[call](x, y, x_val, y[:M])
