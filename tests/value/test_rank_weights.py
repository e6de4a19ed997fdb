"""Rank weights that are given: which are refused, and what methods say of them."""

import functools

import numpy as np
import pytest

import jaxsel
from jaxsel.value import rank_table, shapley_weights, size_restricted_weights
from jaxsel.value._weights import banzhaf_weights, beta_weights

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


WRONG = {
    "nan": (ValueError, [*range(N - 1), np.nan], r"finite, got nan for rank 7"),
    "infinite": (ValueError, [np.inf] * N, r"finite, got inf for rank 1"),
    "large": (ValueError, [1e300] * N, r"finite in float32.* got 1e\+300 for rank 1"),
    "complex": (TypeError, [1j] * N, r"real numbers.* got complex128"),
    "texts": (TypeError, ["1"] * N, r"real numbers.* got <U1"),
    "gaps": (ValueError, [1, None] * 3 + [1], r"finite, got nan for rank 2"),
    "objects": (TypeError, [object()] * N, r"real numbers"),
    "ragged": (TypeError, np.array([[1], [1, 2]], object), r"real numbers"),
    "a row": (ValueError, [[1.0] * N], r"shape \[n\].* got \(1, 7\)"),
    "a number": (ValueError, 3.0, r"shape \[n\].* got \(\)"),
    "none": (ValueError, None, r"shape \[n\].* got \(\)"),
    "empty": (ValueError, [], r"shape \[n\].* got \(0,\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_weight_is_refused(name):
    error, wrong, message = WRONG[name]
    for given in (wrong, lambda n, k: wrong):
        with pytest.raises(error, match=f"rank_weights must .*{message}"):
            values(given)
    with pytest.raises(error, match=f"^weights must .*{message}"):
        rank_table(wrong)


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"\[n\] = \[7\].* got \(8,\)"):
        values(np.ones(N + 1))


def test_numbers_of_any_kind_are_weights():
    expected = values(np.arange(N, 0, -1.0))
    for kind in (np.int8, np.float16, object):
        found = values(np.arange(N, 0, -1).astype(kind))
        np.testing.assert_array_equal(found.values, expected.values)
        assert found.method == expected.method
    zeros = [1.0, *[0.0] * (N - 1)]
    assert values(zeros).method == values([1.0, *[-0.0] * (N - 1)]).method


def test_sizes_are_real():
    for name in ("probability", "sizes"):
        with pytest.raises(TypeError, match=f"{name} must be real numbers"):
            size_restricted_weights(3, 1, **{name: [1j, 0, 0]})


def test_parameters_beyond_all_digits_are_refused():
    game = jaxsel.value.as_utility(lambda masks, key: masks.sum(1) * 1.0, 3)
    for name in ("alpha", "beta"):
        with pytest.raises(
            ValueError, match=f"{name} must be at most 1e.09, got 1e.12"
        ):
            jaxsel.exact_semivalue(game, kind="beta", **{name: 1e12})


@pytest.mark.parametrize("parameters", [(1, 4), (4, 1), (16, 1), (1, 1)])
def test_rounding_where_labels_come_in_blocks(parameters):
    """Most gains cancel there, and float32 leaves 1e-6 / K, not a share of the rest."""
    n, k = 4000, 5
    alpha, beta = map(float, parameters)
    x, x_val = np.arange(1.0, n + 1)[:, None], np.zeros((1, 1))
    weights = beta_weights(n, k, alpha=alpha, beta=beta)
    for blocks in (2, 10, n):
        y = np.arange(n) * blocks // n % 2
        found = jaxsel.knn_beta_shapley(
            x, y, x_val, np.zeros(1, int), k=k, alpha=alpha, beta=beta
        )
        # By parts: equal gains of neighbours leave nothing to cancel.
        steps = weights * -np.diff((y == 0) * 1.0, append=0.0)
        exact = np.cumsum(steps[::-1])[::-1]
        assert np.abs(found.values - exact).max() < 1e-6 / k
