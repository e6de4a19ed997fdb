"""Tables as features: against pandas and arithmetic by hand."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from jaxsel.tables import TableEncoder

RNG = np.random.default_rng(0)
N = 60
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(40, 10, N),
        "work": RNG.choice(["private", "state", "self"], N),
        "joined": pd.date_range("2020-01-01", periods=N).astype(str),
        "member": RNG.random(N) > 0.5,
    }
)


def test_numbers_dates_and_categories():
    encoder = TableEncoder().fit(FRAME)
    x = encoder.transform(FRAME)
    numbers = FRAME[["age", "joined", "member"]].assign(
        joined=np.arange(N), member=FRAME.member.astype(float)
    )
    scaled = (numbers - numbers.mean()) / numbers.std(ddof=0)
    expected = np.column_stack([scaled, pd.get_dummies(FRAME.work).astype(float)])
    np.testing.assert_allclose(x, expected, atol=1e-12)
    assert encoder.feature_names[3:] == ("work=private", "work=self", "work=state")
    assert encoder.plan == {
        "age": "number",
        "work": "3 categories",
        "joined": "date",
        "member": "number",
    }


def test_gaps_get_the_median_of_train_and_a_column():
    train = pd.DataFrame({"a": [1.0, 2.0, 9.0, None], "b": ["u", None, "v", "u"]})
    encoder = TableEncoder().fit(train)
    x = encoder.transform(pd.DataFrame({"b": [None, "w"], "a": [None, 2.0]}))
    filled = np.array([1.0, 2.0, 9.0, 2.0])
    median = (2 - filled.mean()) / filled.std()
    np.testing.assert_allclose(x[:, 0], [median, median])
    assert x[:, 1].tolist() == [1, 0]
    # u, v, gap: what was never seen is none of them.
    assert x[:, 2:].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert encoder.feature_names == ("a", "a missing", "b=u", "b=v", "b missing")
    assert encoder.plan == {"a": "number, 1 gaps", "b": "3 categories"}


def test_rare_categories_share_a_column():
    texts = ["often"] * 50 + ["some"] * 20 + list("abcdefgh")
    encoder = TableEncoder(max_categories=3).fit(pd.DataFrame({"t": texts}))
    x = encoder.transform(pd.DataFrame({"t": ["often", "some", "a", "h", "new"]}))
    assert x.shape == (5, 3)
    assert (x[2:] == x[2]).all()
    assert len(np.unique(x, axis=0)) == 3


@pytest.mark.parametrize("kind", [pl.from_pandas, pa.Table.from_pandas])
def test_other_tables_and_orders(kind):
    table = FRAME.assign(joined=pd.to_datetime(FRAME.joined))
    expected = TableEncoder().fit(FRAME).transform(FRAME)
    encoder = TableEncoder().fit(kind(table))
    np.testing.assert_allclose(encoder.transform(table[table.columns[::-1]]), expected)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (np.zeros((3, 2)), TypeError, "table with named columns .* got ndarray"),
        (FRAME[:0], ValueError, "must have rows and columns"),
        (FRAME.assign(n=[f"n{i}" for i in range(N)]), ValueError, "'n' has 60 differ"),
        (FRAME.assign(n=[[1]] * N), TypeError, "'n' must hold .* got list"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "got 'a' twice"),
        (FRAME.assign(age=np.inf), ValueError, "'age' must not hold infinity"),
    ],
)
def test_what_cannot_be_encoded(table, error, message):
    with pytest.raises(error, match=message):
        TableEncoder().fit(table)


def test_other_columns_are_refused():
    encoder = TableEncoder().fit(FRAME)
    with pytest.raises(ValueError, match="columns age, work.*; got work, joined"):
        encoder.transform(FRAME.drop(columns="age"))
    with pytest.raises(ValueError, match="column 'age' must hold numbers"):
        encoder.transform(FRAME.assign(age="old"))
    with pytest.raises(ValueError, match="fitted first"):
        TableEncoder().transform(FRAME)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        TableEncoder(max_categories=1)


def test_missing_scikit_learn_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.compose", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsel\[data\]'"):
        TableEncoder().fit(FRAME)
