"""Linear models of tables in raw units beside the optimum, in float64."""

import numpy as np
import pytest

import jaxsel
from benchmarks import _raw_learners as raw
from jaxsel import value
from jaxsel.value._failures import UNCONVERGED

from . import retrain_cases as cases

pytest.importorskip("sklearn")


def close(found, expected, atol=1e-5):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.slow
def test_the_reference_is_the_optimum_of_scikit_learn():
    for name in ("wine", "breast cancer"):
        table = raw.table(name)
        for mask in raw.masks(len(table.y))[[0, 7]]:
            close(raw.optimum(table, mask), raw.sklearn_optimum(table, mask), 1e-4)


@pytest.mark.parametrize("name", raw.NAMES)
@pytest.mark.left_out
def test_log_losses_of_raw_tables(name):
    assert raw.gaps(name).max() < 1e-3


def test_leaving_out_each_sample_of_a_raw_table():
    """Of 380 accuracies 322 used to be far off, in the batch and not alone."""
    table = raw.table("breast cancer")
    rows = np.arange(0, len(table.y), 19)
    subsets = raw.leave_one_out(table)
    found = np.asarray(raw.leaving(table)())[rows]
    close(found, [raw.optimum(table, subsets[row])[0] for row in rows], 1e-6)


@pytest.mark.parametrize("name", ["income, 3 classes", "a column of 1e9"])
@pytest.mark.parametrize("l2", [1e-8, 1e6])
@pytest.mark.left_out
def test_small_and_large_penalties(name, l2):
    table = raw.table(name)
    subsets = raw.masks(len(table.y))[[0, 6, 8]]
    found = table.utility("neg_log_loss", l2=l2)(subsets)
    close(found, [raw.optimum(table, each, l2=l2)[1] for each in subsets], 1e-3)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.every(2)
def test_a_subset_alone_and_among_others(classes):
    table = raw.table("income, 3 classes")
    y, y_val = np.minimum(table.y, classes - 1), np.minimum(table.y_val, classes - 1)
    table = raw.Table(table.x, y, table.x_val, y_val)
    utility = table.utility("neg_log_loss")
    subsets = raw.masks(len(y))
    together, params = utility.evaluate(subsets)
    assert np.asarray(params.converged).all()
    for row in (3, 8):
        close(utility(subsets[[row]])[0], together[row])
    # Whatever it starts from.
    rolled = type(params)(*(np.roll(np.asarray(each), 1, axis=0) for each in params))
    close(utility.evaluate(subsets, start=rolled)[0], together)


@pytest.mark.left_out
def test_batches_of_any_size_change_nothing():
    table = raw.table("wine")
    options = {"key": cases.KEY, "stop": value.MaxSamples(32)}
    utility = table.utility("neg_log_loss")
    found = [
        np.asarray(jaxsel.banzhaf(utility, batch_size=size, **options).values)
        for size in (None, 32, 1)
    ]
    close(found[1], found[0], 1e-5)
    close(found[2], found[0], 1e-5)


@pytest.mark.left_out
def test_weights_and_columns_that_a_subset_has_once():
    """A bag of a table, of which a column is constant, and two are one column."""
    table = raw.table("collinear columns")
    weights = np.random.default_rng(0).multinomial(60, np.full(60, 1 / 60))
    weights = np.append(weights, np.zeros(len(table.y) - 60)).astype(np.float32)
    x = table.x.copy()
    x[weights > 0, 2] = 0
    x[:, 3] = x[:, 5]
    table = raw.Table(x, table.y, table.x_val, table.y_val)
    found = table.utility("neg_log_loss")(weights[None])[0]
    assert float(found) == pytest.approx(raw.optimum(table, weights)[1], abs=1e-3)


@pytest.mark.parametrize(
    "learner",
    [
        value.LogisticRegression(),
        value.GaussianNB(),
        value.KNN(),
        value.NearestCentroid(),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.every(4)
def test_columns_far_from_zero(learner):
    """Times in seconds of which float32 leaves one in 128."""
    task, masks = cases.blobs(3, 24), cases.every_size(24)
    far = np.array([1.7e9, 0, -3e8])
    x, x_val = (np.float32(each * 64) / 64.0 for each in (task.x, task.x_val))
    metric = "likelihood" if learner.probabilistic else "accuracy"
    near = value.ModelUtility(learner, x, task.y, x_val, task.y_val, metric=metric)
    moved = value.ModelUtility(
        learner, x + far, task.y, x_val + far, task.y_val, metric=metric
    )
    close(moved(masks), near(masks), 1e-3)


def test_columns_far_from_zero_are_doubted_where_they_matter():
    import pandas as pd

    task = cases.blobs(2, 24)
    x, x_val = (
        pd.DataFrame({"age": each[:, 0], "time": 1.7e9 + 10.0 * each[:, 1]})
        for each in (task.x.astype(float), task.x_val.astype(float))
    )
    with pytest.warns(UserWarning, match="column 'time' of x lies so far from zero"):
        value.ModelUtility(value.KNN(metric="cosine"), x, task.y, x_val, task.y_val)
    value.ModelUtility(value.KNN(), x, task.y, x_val, task.y_val)


@pytest.mark.parametrize("name", ["income, 3 classes", "a column of 1e9"])
@pytest.mark.every(2)
def test_influence_on_raw_tables(name):
    """Beside the change of the loss when a sample counts a little more, or less."""
    table = raw.table(name)
    x, y, x_val, y_val = table.arrays()
    found = np.asarray(value.influence(x, y, x_val, y_val).values)
    options = {"l2": 1.0, "n_classes": int(y.max()) + 1}
    for row in np.argsort(-np.abs(found))[20:100:20]:
        losses = []
        for change in (-0.01, 0.01):
            weights = np.ones(len(found))
            weights[row] += change
            logs = raw.log_probs(x, y, x_val, weights=weights, **options)
            losses.append(logs[np.arange(len(y_val)), y_val].mean())
        slope = (losses[1] - losses[0]) / 0.02
        assert found[row] == pytest.approx(slope, rel=0.01, abs=1e-6)


@pytest.mark.left_out
def test_ridge_regression_of_raw_tables():
    from scipy import linalg

    for name in ("collinear columns", "a column of 1e9"):
        x, y, x_val, y_val = raw.table(name).arrays()
        scale = np.where(x.std(0) > 0, x.std(0), 1)
        y = ((x - x.mean(0)) / scale).sum(1) + y
        y_val = ((x_val - x.mean(0)) / scale).sum(1) + y_val
        utility = value.ModelUtility(
            value.RidgeRegression(), x, y, x_val, y_val, metric="r2"
        )
        subsets = raw.masks(len(y))[[0, 5, 8]]
        expected = []
        for mask in subsets:
            centre = x[mask].mean(0)
            rows = np.concatenate([(x[mask] - centre) / scale, np.diag(1 / scale)])
            sides = np.append(y[mask] - y[mask].mean(), np.zeros(len(scale)))
            beta = linalg.lstsq(rows, sides, lapack_driver="gelsy")[0]
            found = (x_val - centre) / scale @ beta + y[mask].mean()
            spread = ((y_val - y_val.mean()) ** 2).sum()
            expected.append(1 - ((y_val - found) ** 2).sum() / spread)
        np.testing.assert_allclose(utility(subsets), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("d", [3, 20])
@pytest.mark.left_out
def test_models_that_do_not_converge_are_told(classes, d, monkeypatch):
    """Whichever way they are trained; what they have reached is measured."""
    from jaxsel.value._learners import _double, _newton, _softmax

    for module in (_newton, _softmax, _double):
        monkeypatch.setattr(module, "STEPS", 1)
    learner = value.LogisticRegression(l2=0.61 + classes + d)  # compiled for itself
    for scale in (1.0, 1e4):
        task = cases.blobs(classes, 24, d=d).scaled(scale, 0)
        utility = value.ModelUtility(learner, *task.arrays())
        subsets = cases.every_size(24)[-5:]
        with pytest.warns(UserWarning, match="as what it reached by then; .*not conv"):
            found = utility(subsets)
        assert utility.failures.failed == utility.failures.coalitions == 5
        assert utility.failures.first == UNCONVERGED
        assert float(np.min(found)) > 1 / classes


@pytest.mark.left_out
def test_runs_tell_what_does_not_converge(monkeypatch):
    from jaxsel.value._learners import _newton

    monkeypatch.setattr(_newton, "STEPS", 1)
    task, learner = cases.blobs(2, 12), value.LogisticRegression(l2=0.613)
    utility = value.ModelUtility(learner, *task.arrays())
    with pytest.warns(UserWarning, match="reached by then"):
        value.loo(utility)
    assert utility.failures.failed >= 12
    options = {"key": cases.KEY, "stop": value.MaxSamples(8)}
    with pytest.warns(UserWarning, match="bags so far, which count as what they"):
        value.data_oob(learner, task.x, task.y, **options)
