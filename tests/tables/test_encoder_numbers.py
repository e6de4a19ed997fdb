"""Features back to numbers: what `transform` makes, and what no table has."""

import numpy as np
import pandas as pd
import pytest

from jaxsel.tables import TableEncoder

TABLE = pd.DataFrame(
    {
        "age": [31.0, 45.0, 62.0, 20.0],
        "work": ["private", "state", None, "private"],
        "joined": ["2020-01-01", "2021-06-01", "1999-12-31", "2024-02-29"],
        "pay": [10.5, np.nan, 30.25, 7.0],
        "flag": [True, False, True, True],
    }
)
ENCODER = TableEncoder().fit(TABLE)
NAMES = ENCODER.feature_names


def changed(row, **values):
    x = ENCODER.transform(TABLE)
    for name, value in values.items():
        x[row, NAMES.index(name.replace("_", " "))] = value
    return x


def test_numbers_undo_transform():
    assert ENCODER.number_columns == ("age", "joined", "pay", "flag")
    days = (pd.to_datetime(TABLE.joined) - pd.Timestamp("1970-01-01")).dt.days
    expected = np.stack([TABLE.age, days, TABLE.pay, TABLE.flag], axis=1).astype(float)
    found = ENCODER.numbers(ENCODER.transform(TABLE))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    again = TableEncoder.from_json(ENCODER.to_json())
    np.testing.assert_array_equal(again.numbers(ENCODER.transform(TABLE)), found)


def test_float32_is_near_enough():
    found = ENCODER.numbers(ENCODER.transform(TABLE).astype(np.float32))
    assert np.isnan(found[1, 2])
    np.testing.assert_allclose(found[:, 0], TABLE.age, rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (changed(2, pay_missing=0.5), "row 2 has 0.5 in 'pay missing', which must be"),
        (changed(3, pay_missing=-1), "row 3 has -1 in 'pay missing'"),
        (changed(2, pay_missing=1), "row 2 has .* in 'pay' where 'pay missing' is 1"),
        (changed(1, pay=3), "row 1 has 3 in 'pay' where 'pay missing' is 1: a gap has"),
        (changed(1, **{"work=private": 1}), "row 1 has 2 of the categories of 'work'"),
        (changed(1, work_missing=np.nan), "row 1 has nan in 'work missing'"),
        (np.zeros((2, 3)), r"features must have shape \[n, 8\], got \(2, 3\)"),
    ],
)
def test_refuses_what_no_table_has(x, words):
    with pytest.raises(ValueError, match=words):
        ENCODER.numbers(x)


def test_a_category_never_met_is_zeros_unless_others_have_a_feature():
    ENCODER.numbers(changed(0, **{"work=private": 0}))
    few = TableEncoder(max_categories=2)
    few.fit(pd.DataFrame({"work": list("aaaabbbcc")}))
    assert "work others" in few.feature_names
    with pytest.raises(ValueError, match="row 0 has 0 of .* must add up to 1$"):
        few.numbers(np.zeros((1, 2)))
