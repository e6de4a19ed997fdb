"""What the method of `knn_semivalue` says of the rank weights it was given."""

import functools

import numpy as np
import pytest

import jaxsel
from jaxsel.value import banzhaf_weights, shapley_weights

N, K = 7, 3


def values(rank_weights, seed=0):
    """Return values of the same points, by other validation points for each seed."""
    x = np.random.default_rng(9).normal(size=(N, 2)).astype(np.float32)
    x_val = np.random.default_rng(seed).normal(size=(4, 2)).astype(np.float32)
    y, y_val = np.arange(N) % 2, np.arange(4) % 2
    return jaxsel.knn_semivalue(x, y, x_val, y_val, k=K, rank_weights=rank_weights)


def test_functions_of_one_name_are_told_apart():
    same, other = (
        lambda n, k: shapley_weights(n, k),
        lambda n, k: banzhaf_weights(n, k),
    )
    assert same.__name__ == other.__name__
    found = values(same)
    assert "<lambda>" in found.method
    assert found.merge(values(same, 1)).method == found.method
    assert found.method != values(other, 1).method
    with pytest.raises(ValueError, match="method"):
        found.merge(values(other, 1))


def test_arrays_have_the_digest_of_their_function():
    digest = values(shapley_weights(N, K)).method.split("rank_weights=")[1][:10]
    assert digest.strip("',") in values(shapley_weights).method


def test_what_has_no_name_is_told_without_its_address():
    assert " at 0x" not in values(functools.partial(banzhaf_weights)).method
