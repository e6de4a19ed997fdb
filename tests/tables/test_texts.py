"""Texts that mean numbers or dates: what they are read as, and what is told."""

import datetime

import numpy as np
import pandas as pd
import pytest

from jaxsel._inputs.texts import Reading, read_texts
from jaxsel.tables import TableEncoder

NAN = float("nan")
NUMBERS = {
    "point": (["1.5", "-2", "3e2"], [1.5, -2, 300], "", ""),
    "gaps": (["1", "?", "n/a", "4"], [1, NAN, NAN, 4], "", ""),
    "thousands": (["1,234.5", "12"], [1234.5, 12], "", "'1,234.5' as 1234.5"),
    "thousands, perhaps": (["1,000", "5"], [1000, 5], "", "might be the decimal one"),
    "decimal comma": (["1,5", "12"], [1.5, 12], "decimal comma", "'1,5' as 1.5"),
    "three places": (["0,125", "1,250"], [0.125, 1.25], "decimal comma", "'0,125'"),
    "both": (["1.234,56", "2,5"], [1234.56, 2.5], "decimal comma", "'1.234,56'"),
    "Swiss": (["1'000", "2'500.5"], [1000, 2500.5], "", "as 1000"),
    "spaces": (["1\xa0000", "2\u202f500"], [1000, 2500], "", "as 1000"),
    "India": (["1,00,000", "2,50,000.5"], [1e5, 250000.5], "", "as 100000"),
    "percent": (["45%", "3.5 %"], [45, 3.5], "percent", "'45%' as 45"),
    "percent, comma": (["4,5%", "3%"], [4.5, 3], "decimal comma, percent", "as 4.5"),
    "money": (["$5", "-$3", "$1,200.50", "(7)"], [5, -3, 1200.5, -7], "", "'$5' as 5"),
    "euros": (["5 €", "1.200,50 €"], [5, 1200.5], "decimal comma", "as 5"),
    "minus": (["\N{MINUS SIGN}5", "3"], [-5, 3], "", "as -5"),
    "truth": (["True", "false"], [1, 0], "", ""),
}
DAY = datetime.date(2022, 1, 1)
DAYS = [DAY + datetime.timedelta(i) for i in range(60)]
SINCE = [(day - datetime.date(1970, 1, 1)).days for day in DAYS]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    texts, expected, form, guess = NUMBERS[name]
    reading = read_texts([*texts, None])
    assert isinstance(reading, Reading)
    np.testing.assert_allclose(reading.values, [*expected, NAN], rtol=1e-15)
    assert (reading.kind, reading.form, reading.unread.tolist()) == ("number", form, [])
    assert guess in reading.guess
    assert bool(guess) == bool(reading.guess)


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("%Y-%m-%d", ""),
        ("%Y/%m/%d", ""),
        ("%Y.%m.%d", ""),
        ("%Y-%m-%dT00:00:00Z", ""),
        ("%Y-%m-%d 02:00:00+02:00", ""),
        ("%d/%m/%Y", "day first"),
        ("%m/%d/%Y", "month first"),
        ("%d.%m.%Y", "day first"),
        ("%d-%m-%y", "day first"),
        ("%m/%d/%Y 12:00 AM", "month first"),
        ("%d %b %Y", ""),
        ("%B %d, %Y", ""),
    ],
)
def test_dates(written, form):
    reading = read_texts([*(f"{day:{written}}" for day in DAYS), ""])
    assert isinstance(reading, Reading)
    np.testing.assert_allclose(reading.values, [*SINCE, NAN], rtol=0, atol=1e-9)
    assert (reading.kind, reading.form) == ("date", form)
    assert "which of the two" not in reading.guess


def test_an_order_that_is_a_guess_is_told_and_kept():
    texts = ["10/12/2022", "01/02/2022"]
    reading = read_texts(texts)
    assert isinstance(reading, Reading)
    assert "month first, such as '10/12/2022': which of the two" in reading.guess
    again = read_texts(texts, kind="date", form="day first")
    assert isinstance(again, Reading)
    expected = pd.to_datetime(["2022-12-10", "2022-02-01"]) - pd.Timestamp(0)
    np.testing.assert_allclose(again.values, expected / pd.Timedelta(days=1))


@pytest.mark.parametrize(
    "texts",
    [
        ["01234", "98765"],
        ["1", "2", "A"],
        ["555-1234", "555-9999"],
        ["5-10", "10-15"],
        ["1/2", "3/4"],
        ["1.2.3", "1.2.4"],
        ["10.0.0.1", "10.0.0.2"],
        ["10:30", "11:45"],
        ["Jan-22", "Feb-22"],
        ["Never-married", "Divorced"],
        ["may be", "august 5 rooms"],
        ["13/12/2022", "12/13/2022"],
        ["", "?", None],
        ["1e", "e1", "."],
    ],
    ids=str,
)
def test_other_texts_are_neither(texts):
    assert read_texts(texts) is None


def test_texts_that_are_nearly_numbers():
    some = [str(i) for i in range(60)]
    reading = read_texts([*some, "abc"])
    assert isinstance(reading, Reading)
    assert reading.unread.tolist() == [60]
    assert read_texts(["1", "2"] * 40 + ["A"]) == (
        "is mostly numbers but for 'A' (1 rows)"
    )
    assert "mixes units" in read_texts(["45%", "0.45"])
    assert "mixes units" in read_texts(["$5", "€5"])


def encoded(column, other=None):
    encoder = TableEncoder().fit(pd.DataFrame({"a": column}))
    x = encoder.transform(pd.DataFrame({"a": column if other is None else other}))
    return encoder.plan["a"], x


@pytest.mark.filterwarnings("ignore:column 'a' is read as")
def test_other_tables_are_read_in_the_form_of_the_first():
    scaled = lambda v: (v - np.mean(v)) / np.std(v)
    _, x = encoded(["1,5", "2,25", "0,5"], ["1,234", "1,5", "0,5"])
    mean, scale = np.mean([1.5, 2.25, 0.5]), np.std([1.5, 2.25, 0.5])
    np.testing.assert_allclose(x[:, 0], (np.array([1.234, 1.5, 0.5]) - mean) / scale)
    dates = [f"{day:%d/%m/%Y}" for day in DAYS]
    plan, x = encoded(dates, ["10/01/2022", "09/01/2022"])
    assert plan == "date"
    np.testing.assert_allclose(x[:, 0], scaled(SINCE)[[9, 8]], rtol=1e-9)
    with pytest.warns(UserWarning, match="written without %, and was with it"):
        encoded(["45%", "5%"], [0.45, 0.05])
    with pytest.warns(UserWarning, match="written with %, and was without it"):
        encoded([45, 5], ["45%", "5%"])


def test_a_few_texts_among_numbers_become_gaps_and_are_told():
    column = [*(f"{i}.5" for i in range(60)), "abc", "?"]
    message = r"gaps for '\?' \(1 of 62 rows\), and holds numbers but for 1 of 62 rows"
    with pytest.warns(UserWarning, match=message + r".* 'abc' in row 60"):
        encoder = TableEncoder().fit(pd.DataFrame({"a": column}))
    assert encoder.plan == {"a": "number, 2 gaps"}
    with pytest.raises(
        ValueError, match="column 'a' must hold numbers, .* 'abc' in row 0"
    ):
        encoder.transform(pd.DataFrame({"a": ["abc", "1"]}))


def test_numbers_that_may_be_codes_stay_categories_and_are_told():
    with pytest.warns(UserWarning, match="'a' holds numbers that are written as texts"):
        plan, _ = encoded(["1", "2", "3"] * 10)
    assert plan == "3 categories"
    plan, _ = encoded(pd.Categorical(["1", "2", "3"] * 10))
    assert plan == "3 categories"
    with pytest.warns(UserWarning, match="mostly numbers but for 'A' .* 3 categories"):
        encoded(["1", "2"] * 40 + ["A"])
    with pytest.warns(UserWarning, match="categories 'U', 'u', which differ only in"):
        encoded(["u", "U", "v"] * 10)
