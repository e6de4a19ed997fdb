"""Probabilities as tables: columns are matched to labels by name."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import jaxsel
from jaxsel import labels

_RNG = np.random.default_rng(0)
Y = _RNG.integers(0, 4, 200)
PROBS = _RNG.gamma(1, 1, (200, 4))
PROBS[np.arange(200), Y] += 2
PROBS /= PROBS.sum(1, keepdims=True)
SHUFFLED = [2, 0, 3, 1]
TEXTS = np.array(list("abcd"))[Y]
KINDS = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.DataFrame(frame.rename(columns=str)),
    "arrow": lambda frame: pa.Table.from_pandas(
        frame.rename(columns=str), preserve_index=False
    ),
}
CALLS = {
    "find_label_errors": lambda p, y: (
        jaxsel.find_label_errors(None, y, pred_probs=p).scores
    ),
    "label_issues": labels.label_issues,
    "label_scores": labels.label_scores,
    "confident_joint": lambda p, y: labels.confident_joint(p, y).counts,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("y", "columns"),
    [
        (TEXTS, list("abcd")),
        (Y, [0, 1, 2, 3]),
        (Y + 1, [1, 2, 3, 4]),
        (Y, list("0123")),
    ],
    ids=["texts", "numbers", "from one", "numbers as texts"],
)
def test_columns_in_any_order(call, kind, y, columns):
    frame = pd.DataFrame(PROBS, columns=columns).iloc[:, SHUFFLED]
    result = CALLS[call](KINDS[kind](frame), y)
    np.testing.assert_array_equal(result, CALLS[call](PROBS, y))


def test_a_class_without_samples_keeps_its_column():
    y = np.where(TEXTS == "d", "a", TEXTS)
    frame = pd.DataFrame(PROBS, columns=list("abcd")).iloc[:, SHUFFLED]
    np.testing.assert_array_equal(
        labels.label_scores(frame, y),
        labels.label_scores(PROBS, y, classes=list("abcd")),
    )


def test_columns_without_names_go_by_position():
    wanted = labels.label_scores(PROBS, TEXTS)
    for frame in (pd.DataFrame(PROBS), pl.DataFrame(PROBS)):
        np.testing.assert_array_equal(labels.label_scores(frame, TEXTS), wanted)
    named = pd.DataFrame(PROBS, columns=["p_a", "p_b", "p_c", "p_d"])
    scores = labels.label_scores(named, TEXTS, classes=list("abcd"))
    np.testing.assert_array_equal(scores, wanted)


def test_other_names_and_orders_are_refused():
    frame = pd.DataFrame(PROBS, columns=list("abce"))
    with pytest.raises(ValueError, match="named after the labels of y, .*'e'.*classes"):
        labels.label_issues(frame, TEXTS)
    frame = frame.rename(columns={"e": "d"})
    with pytest.raises(ValueError, match="classes must be in the order of the colum"):
        labels.label_issues(frame, TEXTS, classes=list("dcba"))
    y = pd.Series(TEXTS).sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match="pred_probs and y must have their rows in o"):
        labels.label_issues(frame, y)
