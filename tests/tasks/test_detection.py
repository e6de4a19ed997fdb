import itertools

import numpy as np
import pytest
from jax import numpy as jnp

from jaxsel import Values
from jaxsel.tasks import detection_curve


def test_by_hand():
    #  in order of value: bad, good, bad, good, good
    result = detection_curve(
        [0.5, -1.0, 3.0, 0.0, 2.0], [True, True, False, False, False]
    )
    np.testing.assert_allclose(result.inspected, [0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_allclose(result.found, [0, 0.5, 0.5, 1, 1, 1])
    assert result.auc == pytest.approx(5 / 6)
    assert result.found_at_bad == 0.5
    assert repr(result) == "Detection(n=5, auc=0.8333, found_at_bad=0.5)"


def test_ties_are_the_mean_over_their_orders():
    values = np.array([1, 0, 1, 1, 2])
    bad = np.array([True, False, False, True, True])
    curves = []
    for order in itertools.permutations(range(5)):
        if np.all(np.diff(values[list(order)]) >= 0):
            curves.append(np.append(0, np.cumsum(bad[list(order)])) / 3)
    result = detection_curve(values, bad)
    np.testing.assert_allclose(result.found, np.mean(curves, axis=0))
    assert result.found_at_bad == pytest.approx(result.found[3])


@pytest.mark.parametrize("levels", [3, 10**6])
def test_auc_equals_scikit_learn(levels):
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(levels)
    values, bad = rng.integers(0, levels, 200), rng.random(200) < 0.3
    ours = detection_curve(values, bad)
    assert ours.auc == pytest.approx(roc_auc_score(bad, -values), abs=1e-12)
    wrapped = Values(values=jnp.asarray(values, jnp.float32), count=jnp.int32(1))
    assert detection_curve(wrapped, bad).auc == ours.auc


@pytest.mark.parametrize(
    ("values", "bad", "error", "message"),
    [
        ([1.0, 2.0], [True], ValueError, "same length"),
        ([1.0, 2.0], [1, 0], TypeError, "is_bad must be boolean"),
        ([1.0, 2.0], [True, True], ValueError, "some samples, not all, got 2 of 2"),
        ([1.0, 2.0], [False, False], ValueError, "got 0 of 2"),
        ([1.0, np.nan], [True, False], ValueError, "values must be finite, but row 1"),
        ([[1.0, 2.0]], [True], ValueError, r"values must have shape \[n\]"),
    ],
)
def test_refuses(values, bad, error, message):
    with pytest.raises(error, match=message):
        detection_curve(values, bad)
