"""Weights of classes of scikit-learn's estimators, by the caller's labels."""

import jax
import numpy as np
import pytest

from jaxsel import labels, value

pytest.importorskip("sklearn")
from sklearn import base, linear_model, metrics


@pytest.mark.parametrize("weights", [{1: 50}, {1: 50, 2: 1}, {"a": 50, "b": 1}])
def test_class_weights_are_of_the_callers_labels(weights):
    rng = np.random.default_rng(0)
    number = rng.choice([1, 2], 200)
    x = rng.normal(size=(200, 3)) + 0.5 * (number - 1)[:, None]
    y = np.array(["", "a", "b"])[number] if "a" in weights else number
    first, second = np.unique(y)
    model = linear_model.LogisticRegression(class_weight=weights)
    scorer = metrics.make_scorer(metrics.recall_score, pos_label=first)
    task = x[:100], y[:100], x[100:], y[100:]
    utility = value.ModelUtility(model, *task, metric=scorer, empty=0.0)
    expected = scorer(base.clone(model).fit(*task[:2]), *task[2:])
    np.testing.assert_allclose(utility(np.ones((1, 100))), [expected])
    bags = value.data_oob(model, x, y, key=jax.random.key(0), stop=value.MaxSamples(40))
    of_class = [bags.values[y == label].mean() for label in (first, second)]
    assert of_class[0] > 0.9
    assert of_class[1] < 0.2
    probs = labels.cross_val_probs(model, x, y)
    assert (probs[:, 0] > 0.5).mean() > 0.9
    assert model.class_weight == weights


def test_class_weights_of_no_class():
    x, y = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2
    model = linear_model.LogisticRegression(class_weight={"no": 2})
    with pytest.raises(ValueError, match="class_weight .* must be of the classes"):
        value.ModelUtility(model, x, y, x, y)
