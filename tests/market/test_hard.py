"""The hard set: what is wrong, and the split."""

import jax
import numpy as np
import pytest

from jaxsel.market import hard_set

KEY = jax.random.key(3)
RNG = np.random.default_rng(1)
LABELS = RNG.choice(5, 400, p=[0.4, 0.3, 0.15, 0.1, 0.05])
WRONG = RNG.random(400) < 0.5
PREDICTED = np.where(WRONG, (LABELS + 1) % 5, LABELS)


@pytest.mark.parametrize("held_out", [0.1, 0.5, 2 / 3])
@pytest.mark.parametrize("per_class", [True, False])
def test_splits_what_is_wrong(held_out, per_class):
    hard = hard_set(PREDICTED, LABELS, key=KEY, held_out=held_out, per_class=per_class)
    assert hard.split
    both = np.concatenate([hard.shared, hard.held_out])
    np.testing.assert_array_equal(np.sort(both), np.flatnonzero(WRONG))
    assert len(hard.held_out) == round(held_out * WRONG.sum())
    assert np.all(np.diff(hard.shared) > 0)
    assert np.all(np.diff(hard.held_out) > 0)
    if per_class:
        for c in range(5):
            wanted = held_out * np.sum(WRONG & (c == LABELS))
            assert abs(np.sum(LABELS[hard.held_out] == c) - wanted) < 2


def test_every_sample_may_be_held_out():
    """Also the single one of a class: over keys, it comes on either side."""
    labels = np.array([0] * 40 + [1])
    sides = {
        40 in hard_set(1 - labels, labels, key=jax.random.key(i)).held_out
        for i in range(20)
    }
    assert sides == {True, False}


def test_scores_and_texts():
    scores = np.eye(5)[PREDICTED] + 0.1 * RNG.random((400, 5))
    names = np.array(["a", "b", "c", "d", "e"])
    expected = hard_set(PREDICTED, LABELS, key=KEY)
    for predicted, labels in (
        (scores, LABELS),
        (names[PREDICTED], names[LABELS]),
        (names[PREDICTED].astype(object), names[LABELS]),
    ):
        hard = hard_set(predicted, labels, key=KEY)
        np.testing.assert_array_equal(hard.shared, expected.shared)
    other = hard_set(PREDICTED, LABELS, key=jax.random.key(4))
    assert not np.array_equal(other.shared, expected.shared)


def test_too_few_are_not_split():
    labels = np.zeros(30, int)
    predicted = np.zeros(30, int)
    predicted[:19] = 1
    hard = hard_set(predicted, labels, key=KEY)
    assert not hard.split
    assert "too few" in repr(hard)
    np.testing.assert_array_equal(hard.shared, np.arange(19))
    np.testing.assert_array_equal(hard.held_out, np.arange(19))
    predicted[:20] = 1
    assert hard_set(predicted, labels, key=KEY).split
    assert hard_set(predicted, labels, key=KEY, minimum=1, held_out=0.1).split


@pytest.mark.parametrize(
    ("predicted", "labels", "options", "match"),
    [
        ([0, 1], [0, 1], {}, "predictions must have errors"),
        ([0, 1, 1], [0, 1], {}, "predictions and labels must have the same length"),
        ([0, 1], [1, 0], {"held_out": 1.0}, "held_out must be above 0 and below 1"),
        ([0, 1], [1, 0], {"minimum": 0}, "minimum must be at least 1"),
        ([[0.0, 1.0]], [2], {}, r"labels must lie in \[0, 2\)"),
        ([[0.0, np.nan]], [0], {}, "predictions must be finite"),
        ([[0.0, 1.0]], ["a"], {}, "labels must be integers"),
        (["a"], [1], {}, "classes of one kind"),
        ([[[0]]], [1], {}, "predictions must have shape"),
        ([], [], {}, "labels must have shape"),
    ],
)
def test_refuses(predicted, labels, options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        hard_set(predicted, labels, key=KEY, **options)
