"""Owners' vectors whose lengths differ so much that the ridge hides some."""

import warnings

import pytest

from jaxsel import market


def test_vectors_of_other_units_are_told():
    with pytest.warns(UserWarning, match="owner 0 has length 1, .* owner 1 30"):
        market.value_datasets([[1.0, 0.0], [0.0, 30.0]], [1.0, 1.0])


@pytest.mark.parametrize("options", [{}, {"l2": 0.5}])
def test_usual_lengths_are_not_warned_of(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        market.value_datasets([[1.0, 0.0], [0.0, 5.0]], [1.0, 1.0], **options)


def test_short_vectors_that_no_target_asks_for_are_not_warned_of():
    """Such as the mean gradient of rows that the model knows."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        market.value_datasets([[1.0, 0.0], [0.0, 30.0]], [0.1, 1.0])
