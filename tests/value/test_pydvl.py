"""Results that go to pyDVL and come back, and results of pyDVL's own."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jaxsel
from jaxsel import Values, value

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    result = pytest.importorskip("pydvl.valuation.result")
from pydvl.valuation.types import ValueUpdate

N = 9


def data():
    rng = np.random.default_rng(0)
    x, x_val = rng.normal(size=(N, 3)), rng.normal(size=(7, 3))
    return x, rng.integers(0, 2, N), x_val, rng.integers(0, 2, 7)


def results():
    """Kinds of values: exact, sampled, by points, with an index."""
    x, y, x_val, y_val = data()
    utility = value.as_utility(lambda masks, key: np.sqrt(np.asarray(masks).sum(1)), N)
    stop = value.MaxSamples(64)
    frame = pd.DataFrame(x, index=list("abcdefghi"))
    learner = value.NearestCentroid()
    key = jax.random.key(0)
    return {
        "knn": jaxsel.knn_shapley(x, y, x_val, y_val, k=2),
        "loo": jaxsel.loo(utility),
        "banzhaf": jaxsel.banzhaf(utility, key=key, stop=stop),
        "oob": jaxsel.data_oob(learner, x, y, key=key, stop=stop),
        "few bags": jaxsel.data_oob(learner, x, y, key=key, stop=value.MaxSamples(3)),
        "names": jaxsel.knn_shapley(frame, y, x_val, y_val),
        "numbers": jaxsel.knn_shapley(
            frame.set_axis(np.arange(N) * 10), y, x_val, y_val
        ),
        "pairs": jaxsel.knn_shapley(
            frame.set_axis(pd.MultiIndex.from_product([[0, 1, 2], list("abc")])),
            y,
            x_val,
            y_val,
        ),
        "owners": jaxsel.knn_shapley(x, y, x_val, y_val, owners=["a"] * 4 + ["b"] * 5),
    }


RESULTS = results()


@pytest.mark.parametrize("name", RESULTS)
def test_round_trip(name):
    values = RESULTS[name]
    there = value.to_pydvl(values)
    back = value.from_pydvl(there)
    np.testing.assert_array_equal(back.values, values.values)
    np.testing.assert_array_equal(
        np.broadcast_to(back.count, len(values)),
        np.broadcast_to(values.count, len(values)),
    )
    assert back.index == values.index
    assert (back.method, back.reduce) == (values.method, "mean")
    # pyDVL has no NaN for what is unknown, and adds such values to others.
    unknown = np.broadcast_to(values.count, len(values)) == 0
    np.testing.assert_array_equal(there.values == 0, unknown | (back.values == 0))
    if values.m2 is not None:
        assert back.m2 is not None
        many = np.broadcast_to(values.count, len(values)) > 1
        np.testing.assert_allclose(
            np.asarray(back.m2)[many], np.asarray(values.m2)[many], rtol=1e-6
        )
        np.testing.assert_allclose(
            there.stderr[many], np.asarray(values.stderr)[many], rtol=1e-6
        )
    else:
        assert back.m2 is None
    assert there.names.tolist() == list(values.index or map(str, range(len(values))))
    assert there.status.value == "converged"


def test_the_cases_differ():
    assert RESULTS["loo"].m2 is None
    assert RESULTS["oob"].count.shape == (N,)
    assert np.isnan(RESULTS["few bags"].values).any()
    assert RESULTS["names"].index == tuple("abcdefghi")


def test_running_moments_of_pydvl():
    """Updates by pyDVL have the mean, deviation and error of the same numbers here."""
    rng = np.random.default_rng(1)
    theirs = result.ValuationResult.zeros(indices=np.arange(3), algorithm="mine")
    updater = result.LogResultUpdater(theirs)
    numbers = [rng.normal(1.0, 0.5, size=size) for size in (6, 2, 0)]
    for i, some in enumerate(numbers):
        for number in some:
            update = ValueUpdate(i, np.log(abs(number)), np.sign(number))
            theirs = updater.process(update)
    found = value.from_pydvl(theirs)
    assert found.method == "mine"
    assert found.count.tolist() == [6, 2, 0]
    assert found.m2 is not None
    assert found.stderr is not None
    for i, some in enumerate(numbers[:2]):
        np.testing.assert_allclose(found.values[i], some.mean(), rtol=1e-5)
        wanted = ((some - some.mean()) ** 2).sum()
        np.testing.assert_allclose(found.m2[i], wanted, rtol=1e-4)
        error = some.std(ddof=1) / np.sqrt(len(some))
        np.testing.assert_allclose(found.stderr[i], error, rtol=1e-4)
    assert np.isnan(found.values[2])


def test_order_and_part_of_a_result():
    theirs = result.ValuationResult(
        values=np.array([0.3, 0.1, 0.2]),
        indices=np.array([5, 2, 9]),
        variances=np.array([3.0, 1.0, 2.0]),
        counts=np.array([4, 4, 4]),
        sort=True,
    )
    found = value.from_pydvl(theirs)
    np.testing.assert_allclose(found.values, [0.1, 0.3, 0.2], rtol=1e-6)
    np.testing.assert_allclose(found.m2, [3, 9, 6], rtol=1e-6)
    assert found.index == (2, 5, 9)
    assert found.count.shape == ()
    named = value.from_pydvl(
        result.ValuationResult(values=np.zeros(2), data_names=np.array(["p", "q"]))
    )
    assert named.index == ("p", "q")
    assert named.m2 is None


def test_merged_here_and_there():
    parts = [
        Values(
            values=jnp.asarray(v), count=jnp.asarray(c), m2=jnp.asarray(m), method="m"
        )
        for v, c, m in (([0.1, 0.5], 3, [0.2, 0.4]), ([0.3, -0.1], 5, [0.3, 0.1]))
    ]
    here = value.to_pydvl(parts[0].merge(parts[1]))
    np.testing.assert_allclose(here.values, [0.225, 0.125], rtol=1e-6)
    both = value.to_pydvl(parts[0]) + value.to_pydvl(parts[1])
    np.testing.assert_allclose(both.values, here.values, rtol=1e-6)
    np.testing.assert_array_equal(both.counts, here.counts)


def test_what_is_refused():
    values = RESULTS["names"]
    with pytest.raises(ValueError, match="values must be means .* reduce='max'"):
        value.to_pydvl(dataclasses.replace(values, reduce="max"))
    with pytest.raises(ValueError, match="labels repeat"):
        value.to_pydvl(dataclasses.replace(values, index=("a",) * N))
    with pytest.raises(TypeError, match="got ndarray without 'values'"):
        value.from_pydvl(np.zeros(3))
