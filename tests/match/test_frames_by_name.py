"""Targets with the candidates' columns in another order, by name."""

import numpy as np
import pandas as pd
import pytest

import jaxsel
from jaxsel import match

RNG = np.random.default_rng(0)
A = pd.DataFrame(RNG.normal(size=(50, 4)) * [1, 2, 5, 9], columns=list("abcd"))
HARD = A[:5] + 0.1
TURNED = list("dbca")
FEATURES = {"features": A.to_numpy(), "hard_features": HARD.to_numpy()}
CALLS = {
    "omp": lambda target: match.omp(A, target.mean(), 3),
    "omp, several": lambda target: match.omp(A, target, 3),
    "grad_match": lambda target: match.grad_match(A, target, 5),
    "herding": lambda target: match.herding(A, target.mean(), 3),
    "influence_topk": lambda target: match.influence_topk(A, target.mean(), 3),
    "func_feat": lambda target: jaxsel.func_feat(A, target, *FEATURES.values(), 3),
    "choose_checkpoint": lambda t: match.choose_checkpoint([(A, t)] * 2, 3).errors,
}


def results(found):
    return np.asarray(getattr(found, "indices", found))


@pytest.mark.parametrize("name", CALLS)
def test_columns_go_by_name(name):
    straight, turned = (CALLS[name](HARD[order]) for order in (list("abcd"), TURNED))
    np.testing.assert_array_equal(results(straight), results(turned))


@pytest.mark.parametrize("name", ["omp, several", "grad_match", "func_feat"])
def test_arrays_go_by_position(name):
    straight, turned = (
        CALLS[name](HARD[order].to_numpy()) for order in (list("abcd"), TURNED)
    )
    assert not np.array_equal(results(straight), results(turned))


@pytest.mark.parametrize("name", ["omp, several", "grad_match", "func_feat"])
def test_other_columns_are_refused(name):
    other = HARD.rename(columns={"a": "e"})
    with pytest.raises(ValueError, match="candidates and target must have the same"):
        CALLS[name](other)


def test_columns_of_numbers_and_labels_of_texts_are_others():
    numbered = A.set_axis([3, 1, 2, 0], axis=1)
    texts = HARD.mean().set_axis(list("3120"))
    expected = match.omp(A, HARD.mean(), 3)
    chosen = match.omp(numbered, texts, 3)
    np.testing.assert_array_equal(chosen.indices, expected.indices)


def test_a_series_of_other_labels_goes_by_position():
    plain = pd.Series(HARD.mean().to_numpy())
    expected = match.omp(A, HARD.mean(), 3)
    np.testing.assert_array_equal(match.omp(A, plain, 3).indices, expected.indices)
