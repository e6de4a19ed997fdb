"""What all attributions have in common, those registered later included."""

import attribution_cases as cases
import jax
import numpy as np
import pytest

from jaxsel import tasks
from jaxsel.attribute import ATTRIBUTIONS

KEY = jax.random.key(3)
BY_NAME = pytest.mark.parametrize("name", ATTRIBUTIONS)
SOME = pytest.mark.every(2)


def attributed(name, *samples, **options):
    return ATTRIBUTIONS[name].function(
        cases.recipe(), *(samples or cases.samples()), key=KEY, **options
    )


@BY_NAME
@SOME
@pytest.mark.every(3)
def test_means_over_targets_are_means_of_rows(name):
    rows = attributed(name, reduce=None)
    assert rows.values.shape == (cases.N_VAL, cases.N)
    mean = attributed(name)
    np.testing.assert_allclose(
        mean.values, rows.values.mean(0), atol=1e-4 * np.abs(rows.values).max()
    )


@BY_NAME
@SOME
def test_networks_are_counted_and_have_errors(name):
    values = attributed(name, seeds=3)
    assert int(values.count) == 3
    assert np.all(np.asarray(values.stderr) >= 0)
    assert np.any(np.asarray(values.stderr) > 0)
    assert attributed(name).stderr is None


@BY_NAME
def test_ids_of_a_table_are_kept(name):
    pd = pytest.importorskip("pandas")
    x, y, x_val, y_val = cases.samples()
    columns = [f"c{i}" for i in range(cases.D)]
    table = pd.DataFrame(x, columns=columns, index=[f"r{i}" for i in range(cases.N)])
    labels = pd.Series(y, index=table.index)
    values = attributed(
        name, table, labels, pd.DataFrame(x_val, columns=columns), y_val
    )
    assert values.index == tuple(table.index)


@BY_NAME
@pytest.mark.parametrize("place", [0, 2])
def test_nan_is_refused_by_name(name, place):
    samples = list(cases.samples())
    samples[place] = samples[place].copy()
    samples[place][1, 1] = np.nan
    with pytest.raises(ValueError, match=("x", "", "x_val")[place]):
        attributed(name, *samples)


@BY_NAME
@pytest.mark.every(2)
def test_networks_that_are_worse_than_a_constant_are_doubted(name):
    recipe = cases.recipe(learning_rate=20.0)
    with pytest.warns(UserWarning, match="run 0 .* worse than a constant say"):
        ATTRIBUTIONS[name].function(recipe, *cases.samples(), key=KEY)


@BY_NAME
@SOME
def test_scores_predict_the_retraining_that_they_are_for(name):
    same_run = ATTRIBUTIONS[name].same_run
    runs = tasks.retrain_subsets(
        cases.recipe(),
        *cases.samples(),
        key=KEY,
        subsets=24,
        share=0.9 if same_run else 0.5,
        seeds=1,
        same_seed=same_run,
    )
    assert runs.same_seed == same_run
    score = tasks.lds(attributed(name, seeds=3 - 2 * same_run), runs, key=KEY)
    assert score.mean > 0
