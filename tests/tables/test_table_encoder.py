"""Tables as features: against pandas and arithmetic by hand."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

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
    assert encoder.feature_names == ("t=often", "t=some", "t others")


NEW = "ignore:column .* has categories in .* that the table that was fitted lacks"


@pytest.mark.filterwarnings(NEW)
@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn_transforms_alike(seed):
    """Also of rows that were not fitted: gaps, new categories, rare ones."""
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(30)]
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(400) < 0.1, np.nan, rng.lognormal(size=400)),
            "rare": rng.choice(names, 400, p=rng.dirichlet(np.full(30, 0.3))),
            "b": rng.integers(0, 5, 400).astype(float),
            "few": np.where(rng.random(400) < 0.2, None, rng.choice(["u", "v"], 400)),
        }
    )
    new = frame.sample(100, random_state=seed).reset_index(drop=True)
    new.loc[:9, "rare"], new.loc[5:20, "few"] = "new", "new"
    new.loc[30:35, ["b", "rare"]] = None
    numbers, texts = ["a", "b"], ["rare", "few"]
    theirs = ColumnTransformer(
        [
            (
                "n",
                make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
                numbers,
            ),
            ("gaps", MissingIndicator(error_on_new=False), numbers),
            (
                "c",
                OneHotEncoder(
                    handle_unknown="infrequent_if_exist",
                    max_categories=20,
                    sparse_output=False,
                ),
                texts,
            ),
        ]
    ).fit(frame.astype(dict.fromkeys(texts, object)))
    ours = TableEncoder().fit(frame)
    for table in (frame, new):
        expected = theirs.transform(table.astype(dict.fromkeys(texts, object)))
        np.testing.assert_allclose(ours.transform(table), expected, atol=1e-12)


@pytest.mark.filterwarnings(NEW)
def test_an_encoder_is_written_and_read():
    train = FRAME.assign(
        gap=np.where(np.arange(N) % 7, 0.1, np.nan), kind=[*"abcdef" * 10]
    )
    encoder = TableEncoder(max_categories=4).fit(train)
    again = TableEncoder.from_json(encoder.to_json())
    new = train[::-1].assign(kind="z", work=train.work.where(train.index > 9))
    np.testing.assert_array_equal(again.transform(new), encoder.transform(new))
    assert again.feature_names == encoder.feature_names
    assert again.plan == encoder.plan
    assert again.max_categories == 4
    assert again.to_json() == encoder.to_json()


def forged(change):
    found = json.loads(TableEncoder().fit(FRAME).to_json())
    change(found)
    return json.dumps(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (7, "the encoder must be text, got int"),
        ("[" * 100_000, "the encoder is no JSON"),
        ("{}", "format must be 'jaxsel.tables.encoder', got None"),
        (forged(lambda f: f.update(version=2)), "version must be 1, got 2"),
        (forged(lambda f: f.update(more=2)), "more is unknown"),
        (forged(lambda f: f.update(columns=[])), "a list, not empty"),
        (forged(lambda f: f.update(columns=[1])), r"columns\[0\] must be an object"),
        (forged(lambda f: f.update(max_categories="9")), "whole number, got '9'"),
        (forged(lambda f: f.update(max_categories=1)), "at least 2, got 1"),
        (forged(lambda f: f["plan"].pop("age")), "plan must say of each column"),
        (forged(lambda f: f["plan"].update(age=1)), "plan must hold a text"),
        (forged(lambda f: f.update(plan=[])), "plan must hold a text"),
        (forged(lambda f: f["columns"].append(f["columns"][0])), "different names"),
        (
            forged(lambda f: f["columns"][0].update(scale=0)),
            r"\[0\].scale must be above",
        ),
        (forged(lambda f: f["columns"][0].update(mean=1e999)), "Infinity is no JSON"),
        (forged(lambda f: f["columns"][0].update(mean=True)), "mean must be a finite"),
        (
            forged(lambda f: f["columns"][0].update(median="1")),
            "median must be a finite",
        ),
        (forged(lambda f: f["columns"][0].update(kind="eval")), "kind .* got 'eval'"),
        (
            forged(lambda f: f["columns"][0].update(gaps=1)),
            "gaps must be true or false",
        ),
        (
            forged(lambda f: f["columns"][0].update(more=1)),
            r"columns\[0\].more is unkn",
        ),
        (
            forged(lambda f: f["columns"][0].pop("mean")),
            r"columns\[0\].mean is missing",
        ),
        (
            forged(lambda f: f["columns"][0].update(name=1)),
            "name must be a text, got 1",
        ),
        (forged(lambda f: f["columns"][1].update(name=[])), "name must be a text"),
        (forged(lambda f: f["columns"][1].update(categories=[1])), "texts or null"),
        (forged(lambda f: f["columns"][1].update(categories="ab")), "texts or null"),
        (forged(lambda f: f["columns"][1].update(categories=["a"] * 2)), "differ"),
        (forged(lambda f: f["columns"][1].update(categories=[])), "one or more"),
        (forged(lambda f: f["columns"][1].update(others=2)), "others must be true or"),
        (forged(lambda f: f["columns"][1].update(rare=2)), "rare must be from 0 to 1"),
        (forged(lambda f: f["columns"][0].update(form="x")), "form must be one of"),
        (
            forged(lambda f: f["columns"][1].update(others="x")),
            "others must be true or",
        ),
        ('{"format": 1, "format": 1}', "'format' appears twice"),
    ],
)
def test_forged_encoders_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder.from_json(text)


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
        (FRAME.assign(n=[["a"]] * N), TypeError, "'n' must hold .* got list"),
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
    with pytest.raises(ValueError, match="fitted first"):
        TableEncoder().to_json()
    with pytest.raises(ValueError, match="at least 2, got 1"):
        TableEncoder(max_categories=1)


def test_missing_scikit_learn_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.compose", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsel\[data\]'"):
        TableEncoder().fit(FRAME)


DAYS = pd.date_range("2020-01-01", periods=N)
OBJECTS = {
    "dates": (list(DAYS.date), "date"),
    "timestamps of a zone": (list(DAYS.tz_localize("UTC")), "date"),
    "decimals": ([decimal.Decimal(i) / 4 for i in range(N)], "number"),
    "numbers of NumPy": (list(np.arange(N)), "number"),
    "truths of NumPy": (list(np.arange(N) % 2 == 0), "number"),
    "numbers of Python": (list(range(N)), "number"),
    "durations": ([datetime.timedelta(hours=i) for i in range(N)], "number"),
    "texts of truths": (["True", "False"] * (N // 2), "number"),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_other_types_are_numbers_and_dates(name):
    column, plan = OBJECTS[name]
    column = pd.Series([*column, None], dtype=object)
    encoder = TableEncoder().fit(pd.DataFrame({"a": column}))
    assert encoder.plan == {"a": f"{plan}, 1 gaps"}
    x = encoder.transform(pd.DataFrame({"a": column}))[:-1, 0]
    expected = np.arange(N) % 2 == 0 if "truth" in name else np.arange(N)
    filled = np.append(expected, np.median(expected))
    np.testing.assert_allclose(x, (expected - filled.mean()) / filled.std(), atol=1e-12)


def test_types_of_arrow():
    table = pa.table(
        {
            "day": pa.array(DAYS.date),
            "stamp": pa.array(DAYS.tz_localize("Europe/Berlin")),
            "price": pa.array([decimal.Decimal(f"{i}.25") for i in range(N)]),
            "lag": pa.array([datetime.timedelta(days=i) for i in range(N)]),
            "emb": [[float(i), float(i % 3)] for i in range(N)],
            "__index_level_0__": np.arange(N)[::-1],
        }
    )
    encoder = TableEncoder().fit(table)
    assert encoder.plan == {
        "day": "date",
        "stamp": "date",
        "price": "number",
        "lag": "number",
        "emb[0]": "number",
        "emb[1]": "number",
    }
    x = encoder.transform(table)
    scaled = (np.arange(N) - (N - 1) / 2) / np.arange(N).std()
    for j in (0, 2, 3, 4):
        np.testing.assert_allclose(x[:, j], scaled, atol=1e-12)
    np.testing.assert_array_equal(x, TableEncoder().fit_transform(table))
    with pytest.raises(ValueError, match=r"'emb' of table .* row 1 has 1 numbers"):
        TableEncoder().fit(pd.DataFrame({"emb": [[1, 2], [3], [4, 5]]}))


def test_all_columns_that_cannot_be_encoded_are_named():
    ids = [f"n{i}" for i in range(N)]
    table = FRAME.assign(n=ids, m=ids, c=[{}] * N)
    message = "'n' has 60 .* column 'm' has 60 .* column 'c' must hold .* got dict"
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(table)


def test_infinity_is_named_by_its_row():
    frame = FRAME.assign(age=FRAME.age.where(FRAME.index != 7, np.inf))
    message = r"'age' must not hold infinity, but does in row 7 \(1 of 30 rows\)"
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(frame[:30])
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(FRAME).transform(frame[:30])


def test_whole_floats_are_categories_of_the_same_name():
    train = pd.DataFrame({"c": ["1", "2", "A"] * 20})
    encoder = TableEncoder().fit(train)
    x = encoder.transform(pd.DataFrame({"c": [1.0, 2.0, 1.0]}))
    assert x.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert encoder.unseen(pd.DataFrame({"c": [1.0, 2.0]})) == {}


def test_categories_that_were_not_fitted_are_told():
    encoder = TableEncoder().fit(pd.DataFrame({"c": ["yes", "no"] * 20}))
    new = pd.DataFrame({"c": ["yes", "NO", None, "maybe", "maybe"]})
    assert encoder.categories == {"c": ("no", "yes")}
    assert encoder.unseen(new) == {"c": (0.75, ["NO", "maybe"])}
    message = "'c' has categories in 75% of 4 rows .* 'NO', 'maybe'; it has 'no', 'yes'"
    with pytest.warns(UserWarning, match=message):
        encoder.transform(new)
    # As many rare ones as were fitted are no news, whatever their names.
    rare = ["often"] * 50 + [f"n{i}" for i in range(25)] * 2
    encoder = TableEncoder(max_categories=2).fit(pd.DataFrame({"c": rare}))
    encoder = TableEncoder.from_json(encoder.to_json())
    encoder.transform(pd.DataFrame({"c": ["often", "x"] * 20}))
    with pytest.warns(UserWarning, match="'c' has categories in 100% of 40 rows"):
        encoder.transform(pd.DataFrame({"c": ["z", "x"] * 20}))


def test_columns_that_are_empty_throughout_are_told():
    train = pd.DataFrame({"n": np.arange(20.0), "c": ["yes", "no"] * 10})
    encoder = TableEncoder().fit(train)
    for name in train:
        with pytest.warns(UserWarning, match=f"'{name}' is empty in all 20 rows"):
            encoder.transform(train.assign(**{name: None}))
    encoder.transform(train.assign(n=None)[:9])
    encoder.transform(train.assign(n=train.n.where(train.index > 12)))
