"""Agreement with pyDVL where it is right, and with scikit-learn's classifier."""

import warnings

import numpy as np
import pytest

import jaxsel

from . import cases

pytest.importorskip("sklearn")
N, D, N_VAL = 200, 8, 30
pytestmark = pytest.mark.filterwarnings(f"ignore:k = {N} is more than half")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x, x_val = (rng.normal(size=(m, D)).astype(np.float32) for m in (N, N_VAL))
    teacher = rng.normal(size=(D, 3))
    label = lambda a: (a @ teacher + rng.normal(size=(len(a), 3))).argmax(1)
    return cases.Data(
        x=x, y=label(x), t=x[:, 0], x_val=x_val, y_val=label(x_val), t_val=x_val[:, 0]
    )


@pytest.mark.parametrize("k", [1, 5, N])
def test_pydvl(data, k):
    with warnings.catch_warnings():
        # pyDVL uses old names of pyDeprecate's arguments when it is imported.
        warnings.filterwarnings("ignore", category=FutureWarning)
        valuation = pytest.importorskip("pydvl.valuation")
    from sklearn.neighbors import KNeighborsClassifier

    theirs = valuation.KNNShapleyValuation(
        KNeighborsClassifier(k),
        valuation.Dataset(data.x_val, data.y_val),
        progress=False,
    )
    theirs.fit(valuation.Dataset(data.x, data.y))
    ours = jaxsel.knn_shapley(*data.classes(), k=k)
    np.testing.assert_allclose(ours.values, theirs.result.values, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("k", [1, 5, N])
@pytest.mark.parametrize("function", [jaxsel.knn_shapley, jaxsel.soft_knn_shapley])
def test_values_sum_to_the_probability_of_the_right_class(data, k, function):
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(k).fit(data.x, data.y)
    right = model.predict_proba(data.x_val)[np.arange(N_VAL), data.y_val]
    values = function(*data.classes(), k=k, reduce=None).values
    empty = 0 if function is jaxsel.knn_shapley else 1 / 3
    np.testing.assert_allclose(np.sum(values, axis=1), right - empty, atol=1e-5)


@pytest.mark.parametrize("k", [1, 5, N])
@pytest.mark.every(3)
def test_regression_values_sum_to_the_squared_error(data, k):
    from sklearn.neighbors import KNeighborsRegressor

    model = KNeighborsRegressor(k).fit(data.x, data.t)
    error = (model.predict(data.x_val) - data.t_val) ** 2
    values = jaxsel.knn_regression_shapley(*data.targets(), k=k, reduce=None).values
    np.testing.assert_allclose(
        np.sum(values, axis=1), data.t_val**2 - error, rtol=1e-4, atol=1e-5
    )
