"""Headings that state a finding, or that there is none."""

import numpy as np
from scipy.stats import ttest_rel

from experiments._kit.words import finding

A = np.array([0.90, 0.92, 0.94, 0.91])
CLOSE = A + np.array([0.03, -0.02, 0.01, -0.01])


def head(a, b):
    return finding("Ours", a, "others", b, "accuracy", ".1%")


def test_a_finding_says_which_is_better_where_a_test_does():
    assert ttest_rel(A, A - [0.1, 0.12, 0.11, 0.1]).pvalue < 0.05
    better = head(A, A - [0.1, 0.12, 0.11, 0.1])
    assert better == "Ours do better than others: 91.8% against 81.0% accuracy"
    worse = head(A - [0.1, 0.12, 0.11, 0.1], A)
    assert worse == "Ours do worse than others: 81.0% against 91.8% accuracy"


def test_a_finding_says_what_cannot_be_told():
    assert ttest_rel(A, CLOSE).pvalue > 0.05
    assert head(A, CLOSE) == (
        "Ours and others cannot be told apart by 4 seeds: 91.8% and 92.0% accuracy"
    )
    assert "cannot be told apart by 1 seed: 90.0% and 10.0%" in head(A[:1], A[:1] - 0.8)


def test_a_finding_leaves_out_seeds_without_a_figure():
    gaps = np.array([np.nan, 0.5, 0.5, np.inf])
    assert head(A, gaps) == "Ours do better than others: 93.0% against 50.0% accuracy"
    assert head(A, 0 * A + np.nan) == (
        "Ours and others cannot be compared: accuracy is undefined"
    )
