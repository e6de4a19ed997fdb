"""What Mycroft's chapters say of numbers."""

import numpy as np

from experiments._kit.scenes.ranking import firsts
from experiments._kit.words import (
    averaged,
    compared,
    listed,
    sentence,
    significant_sign,
)
from experiments.mycroft.words import known_mean, trend


def test_words_follow_the_numbers():
    a, b = np.array([0.5, 0.6, 0.7]), np.array([0.4, 0.5, 0.62])
    assert compared("A", a, "B", b) == "A is 9.3 ± 0.7 points above B"
    assert compared("B", b, "A", a) == "B is 9.3 ± 0.7 points below A"
    assert "cannot be told apart (+0.0 ± 0.0 points)" in compared("A", a, "B", a)
    far = compared("A", np.array([0.1, 0.9]), "B", np.array([0.9, 0.0]))
    assert far == "A and B cannot be told apart (+5.0 ± 85.0 points)"
    assert (
        compared("A", a[:1], "B", b[:1]) == "A is +10.0 points from B in the only run"
    )
    steps = np.array([0, 10, 30])
    assert "best after 10 of 30 steps with 50.0%" in trend(
        "A", steps, a[None] * 0 + [[0.1, 0.5, 0.2]]
    )
    assert "best at the last checkpoint" in trend(
        "A", steps, np.array([[0.1, 0.2, 0.3]])
    )
    noisy = np.array([[0.1, 0.5, 0.2], [0.1, 0.4, 0.5], [0.1, 0.5, 0.6]])
    assert trend("A", steps, noisy) == (
        "A is lowest after 0 of 30 steps with 10.0%, and has 43.3% at the end, which "
        "cannot be told apart from the best, 46.7% after 10"
    )
    assert trend("A", steps, noisy[:, [1, 2, 1]]) == (
        "A does not depend on the checkpoint (43.3% to 46.7%)"
    )
    assert trend("A", steps, np.ones((1, 3))) == (
        "A does not depend on the checkpoint (100.0% to 100.0%), in the only run"
    )
    sure = np.array([[0.1, 0.5, 0.2], [0.1, 0.4, 0.1], [0.1, 0.5, 0.2]])
    assert trend("A", steps, sure) == (
        "A is best after 10 of 30 steps with 46.7%, and has 16.7% at the end"
    )
    # Of differences between five seeds 2.78 standard errors are told, not 2.
    unit = np.array([-1.0, -0.5, 0, 0.5, 1]) / np.sqrt(0.625 / 5)
    assert [significant_sign(unit + shift) for shift in (2.7, 2.8, -2.8)] == [0, 1, -1]
    assert significant_sign(np.ones(1)) == significant_sign(np.zeros(3)) == 0
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert sentence("one", "two") == "One; two."


def test_words_about_what_is_undefined():
    a, nan = np.array([0.5, np.nan, 0.7]), np.full(3, np.nan)
    assert averaged(".2f", a) == "0.60 (defined for 2 of 3 seeds)"
    assert averaged(".2f", a[::2], a[::2] / 2) == "0.60 and 0.30"
    assert averaged(".2f", nan, nan) == "undefined"
    np.testing.assert_array_equal(known_mean(np.stack([a, nan, a / 5]), 1)[:2:2], 0.6)
    np.testing.assert_array_equal(known_mean(np.stack([nan, a]), 0), a)
    assert compared("A", nan, "B", a).endswith("one of them is undefined")
    b = np.array([0.4, 0.4, 0.5])
    assert compared("A", a, "B", b).startswith("A and B cannot be told apart (+15.0")
    steps = np.array([0, 10, 30])
    assert "undefined" in trend("A", steps, nan[None])


def test_ties_are_not_first():
    full = np.array([[0.9, 0.1, 0.2], [0.1, 0.8, 0.2], [0.5, 0.5, 0.1]])
    assert firsts(full, full) == 2
    assert firsts(np.zeros((3, 3)), full) == 0
    assert firsts(full[:, ::-1], full) == 1
