"""Newton steps of several classes beside conjugate gradients and scikit-learn."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from jaxsel import value
from jaxsel.value._learners import _logistic
from jaxsel.value._learners._newton_classes import contrasts


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_contrasts_are_orthonormal_and_sum_to_zero(classes):
    basis = contrasts(classes)
    np.testing.assert_allclose(basis.T @ basis, np.eye(classes - 1), atol=1e-15)
    np.testing.assert_allclose(basis.sum(0), 0, atol=1e-15)


def models(x, y, masks, monkeypatch, explicit, **options):
    monkeypatch.setattr(_logistic, "_EXPLICIT", explicit)
    utility = value.ModelUtility(value.LogisticRegression(**options), x, y, x, y)
    explicit_used = utility.data.extra.products is not None
    return utility.evaluate(masks)[1], explicit_used, utility


@pytest.mark.parametrize(("classes", "d"), [(3, 4), (3, 10), (4, 3)])
@pytest.mark.every(3)
def test_subsets_of_several_classes(classes, d, monkeypatch):
    """Some lack classes; columns have other units; starts are far off, or NaN."""
    rng = np.random.default_rng(d)
    y = rng.integers(0, classes, 80)
    centres = 2 * rng.normal(size=(classes, d))
    x = ((centres[y] + rng.normal(size=(80, d))) * 1.5 ** np.arange(d) / 9).astype("f4")
    masks = rng.random((24, 80)) < np.linspace(0.05, 1, 24)[:, None]
    masks[3], masks[4] = y == 0, y < 2
    new, used, utility = models(x, y, masks, monkeypatch, 99, tol=1e-8, l2=0.3)
    old, other, _ = models(x, y, masks, monkeypatch, 0, tol=1e-7, l2=0.3)
    assert used
    assert not other
    assert np.asarray(new.converged).all()
    np.testing.assert_allclose(new.weight, old.weight, atol=2e-3)
    centred = [
        m.bias - m.bias.sum(1, keepdims=True) / m.present.sum(1)[:, None]
        for m in (new, old)
    ]
    for i, mask in enumerate(masks):
        has = np.asarray(new.present)[i]
        np.testing.assert_allclose(*[b[i, has] for b in centred], atol=2e-3)
        assert (np.asarray(new.bias)[i, ~has] == 0).all()
        if has.sum() < 2:
            continue
        fitted = LogisticRegression(
            C=1 / 0.3, solver="newton-cholesky", tol=1e-10, max_iter=1000
        ).fit(x[mask].astype(float), y[mask])
        shape = np.asarray(new.weight)[i, has]
        if has.sum() == 2:
            shape = shape[1:] - shape[:1]
        np.testing.assert_allclose(shape, fitted.coef_, atol=5e-3)
    start = new._replace(weight=new.weight.at[:, 0].set(jnp.nan))
    again = utility.evaluate(masks, None, start)[1]
    np.testing.assert_allclose(again.weight, new.weight, atol=1e-3)
    far = new._replace(weight=50 * new.weight)
    again = utility.evaluate(masks, None, far)[1]
    np.testing.assert_allclose(again.weight, new.weight, atol=1e-3)
