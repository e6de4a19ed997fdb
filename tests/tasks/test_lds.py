"""The linear datamodelling score, and retraining on subsets."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from jaxsel import attribute, tasks
from jaxsel.tasks import _lds, _subsets

KEY = jax.random.key(0)
M, N, T = 12, 20, 5


def recorded():
    """Masks `[12, 20]`, scores `[5, 20]` and outputs `[12, 1, 5]`."""
    rng = np.random.default_rng(7)
    masks = np.zeros((M, N), bool)
    for row in masks:
        row[rng.choice(N, 9, replace=False)] = True
    scores = rng.normal(size=(T, N))
    noise = rng.normal(size=(M, 1, T))
    return masks, scores, noise + 0.5 * (masks @ scores.T)[:, None]


DATTRI = [0.46153846153846156, 0.8671328671328673, 0.9020979020979022]
DATTRI += [0.8881118881118882, 0.5594405594405596]
"""`dattri.metric.lds` of dattri 0.3.0 on `recorded()`, in float64."""


def runs_of(masks, outputs, **fields):
    return tasks.SubsetRuns(masks=masks, outputs=outputs, **fields)


def test_score_is_dattris():
    masks, scores, outputs = recorded()
    result = tasks.lds(scores, runs_of(masks, outputs), key=KEY)
    np.testing.assert_allclose(result.by_target, DATTRI, rtol=0, atol=1e-6)
    assert abs(result.mean - np.mean(DATTRI)) < 1e-6
    assert abs(result.stderr_targets - np.std(DATTRI, ddof=1) / T**0.5) < 1e-6
    assert result.ceiling is None
    assert result.agreement is None


@pytest.mark.filterwarnings("ignore::scipy.stats.ConstantInputWarning")
def test_spearman_of_repeated_pairs_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 15), rng.normal(size=15).round(1)
    counts = rng.integers(0, 3, (20, 15))
    counts[0] = 1
    ours = _lds.spearman(a, b, counts.astype(float))
    for r, count in zip(ours, counts, strict=True):
        right = stats.spearmanr(np.repeat(a, count), np.repeat(b, count)).statistic
        assert abs(r - right) < 1e-12


def test_error_over_subsets_is_that_of_the_bootstrap():
    masks, scores, outputs = recorded()
    result = tasks.lds(scores, runs_of(masks, outputs), key=KEY, resamples=30)
    sums, means = masks @ scores.T, []
    for draw in np.asarray(jax.random.randint(KEY, (30, M), 0, M)):
        pairs = zip(sums[draw].T, outputs[draw, 0].T, strict=True)
        means.append(np.mean([stats.spearmanr(a, b).statistic for a, b in pairs]))
    assert abs(result.stderr_subsets - np.std(means, ddof=1)) < 1e-12


def test_sums_themselves_score_1_and_their_negatives_minus_1():
    masks, scores, _ = recorded()
    runs = runs_of(masks, (masks @ scores.T)[:, None])
    assert tasks.lds(scores, runs, key=KEY).mean == pytest.approx(1, abs=1e-12)
    assert tasks.lds(-scores, runs, key=KEY).mean == pytest.approx(-1, abs=1e-12)


def test_one_value_a_sample_is_compared_with_the_mean_output():
    masks, scores, outputs = recorded()
    result = tasks.lds(scores[0], runs_of(masks, outputs), key=KEY)
    right = stats.spearmanr(masks @ scores[0], outputs.mean((1, 2))).statistic
    assert abs(result.mean - right) < 1e-12
    assert np.isnan(result.stderr_targets)


def test_a_target_without_differences_counts_as_0():
    masks, scores, outputs = recorded()
    scores[1] = 0
    outputs[:, :, 2] = 1
    result = tasks.lds(scores, runs_of(masks, outputs), key=KEY)
    right = np.where(np.isin(np.arange(T), (1, 2)), 0, DATTRI)
    np.testing.assert_allclose(result.by_target, right, atol=1e-12)


def test_ceiling_is_the_root_of_the_reliability():
    """Two noisy runs: correlations with their mean stay at the ceiling."""
    rng = np.random.default_rng(1)
    m, t = 400, 40
    masks = rng.random((m, N)) < 0.5
    scores = rng.normal(size=(t, N))
    signal = (masks @ scores.T)[:, None] / N**0.5 * 2
    outputs = signal + rng.normal(size=(m, 2, t))
    result = tasks.lds(scores, runs_of(masks, outputs), key=KEY, resamples=20)
    pairs = zip(outputs[:, 0].T, outputs[:, 1].T, strict=True)
    right = np.mean([stats.spearmanr(a, b).statistic for a, b in pairs])
    assert result.agreement == pytest.approx(right, abs=1e-12)
    assert result.ceiling == pytest.approx((2 * right / (1 + right)) ** 0.5, abs=1e-12)
    assert abs(result.mean - result.ceiling) < 0.02
    same = runs_of(masks, outputs, same_seed=True)
    assert tasks.lds(scores, same, key=KEY, resamples=20).ceiling is None
    assert "ceiling" in repr(result)
    assert "ceiling" not in repr(dataclasses.replace(result, ceiling=None))


@pytest.mark.parametrize(
    ("values", "changes", "message"),
    [
        (np.zeros((T, N - 1)), {}, r"values must have shape \[t, n\]"),
        (np.zeros((T + 1, N)), {}, r"values must have shape \[t, n\]"),
        (np.zeros((1, T, N)), {}, r"values must have shape \[t, n\] or \[n\]"),
        (np.full((T, N), np.nan), {}, "values must be finite"),
        (np.zeros((T, N)), {"resamples": 1}, "resamples must be at least 2"),
    ],
)
def test_bad_scores_are_refused(values, changes, message):
    masks, _, outputs = recorded()
    with pytest.raises(ValueError, match=message):
        tasks.lds(values, runs_of(masks, outputs), key=KEY, **changes)


def test_bad_runs_are_refused():
    masks, scores, outputs = recorded()
    with pytest.raises(TypeError, match=r"runs must be tasks\.SubsetRuns"):
        tasks.lds(scores, (masks, outputs), key=KEY)
    with pytest.raises(ValueError, match="three subsets or more"):
        tasks.lds(scores, runs_of(masks[:2], outputs[:2]), key=KEY)
    with pytest.raises(ValueError, match="masks must be bool"):
        runs_of(masks.astype(int), outputs)
    with pytest.raises(ValueError, match="outputs must have shape"):
        runs_of(masks, outputs[:3])
    with pytest.raises(ValueError, match="outputs must be finite"):
        runs_of(masks, outputs * np.nan)


# Retraining.

CLASSES = 3


def samples(scale=1.0):
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, 30)
    x = ((rng.normal(size=(30, 4)) + np.eye(3, 4)[y]) * scale).astype(np.float32)
    return x[:24], y[:24], x[24:], y[24:]


def init(key, x):
    return jax.random.normal(key, (x.shape[1], CLASSES)) / 2


RECIPE = attribute.Recipe(
    (init, lambda w, x: x @ w), optax.sgd(0.1, momentum=0.9), epochs=3, batch_size=5
)


def retrain(**options):
    options = {"key": KEY, "subsets": 4, "seeds": 2} | options
    return tasks.retrain_subsets(RECIPE, *samples(), **options)


@pytest.mark.parametrize("same_seed", [False, True])
@pytest.mark.every(2)
def test_outputs_are_of_runs_on_each_subset(same_seed):
    runs = retrain(same_seed=same_seed)
    x, y, x_val, y_val = samples()
    assert runs.masks.shape == (4, 24)
    assert (runs.masks.sum(1) == 12).all()
    for i, j in itertools.product(range(4), range(2)):
        if same_seed:
            key = jax.random.fold_in(KEY, j)
            w = RECIPE.train(key, x, y, jnp.asarray(runs.masks[i], jnp.float32))
        else:
            key = jax.random.fold_in(KEY, _subsets._OTHER_SEEDS)
            key = jax.random.fold_in(jax.random.fold_in(key, i), j)
            members = np.flatnonzero(runs.masks[i])
            w = RECIPE.follow(RECIPE.plan(key, x, members), x, y)
        right = -RECIPE.losses(RECIPE.apply(w, x_val), jnp.asarray(y_val))
        np.testing.assert_allclose(runs.outputs[i, j], right, rtol=2e-5)


@pytest.mark.parametrize("same_seed", [False, True])
def test_samples_outside_of_a_subset_have_no_effect(same_seed):
    masks = np.random.default_rng(0).permuted(np.arange(24)[None] < [[9]] * 3, axis=1)
    whole = retrain(subsets=masks, same_seed=same_seed)
    x, y, x_val, y_val = samples()
    for i, mask in enumerate(masks):
        others = np.where(mask[:, None], x, 50).astype(np.float32)
        changed = tasks.retrain_subsets(
            *(RECIPE, others, y, x_val, y_val),
            **{"key": KEY, "subsets": masks, "seeds": 2, "same_seed": same_seed},
        )
        np.testing.assert_allclose(changed.outputs[i], whole.outputs[i], rtol=1e-5)


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_chunks_change_nothing(chunk_size):
    whole, parts = retrain(), retrain(chunk_size=chunk_size)
    np.testing.assert_array_equal(whole.masks, parts.masks)
    np.testing.assert_allclose(whole.outputs, parts.outputs, rtol=1e-5)


def test_keys_draw_other_subsets_and_runs():
    a, b = retrain(), retrain(key=jax.random.key(1))
    assert not np.array_equal(a.masks, b.masks)
    assert len(np.unique(a.masks, axis=0)) == 4
    assert not np.allclose(a.outputs[:, 0], a.outputs[:, 1])


def test_outputs_by_their_definitions():
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(6, CLASSES)), rng.integers(0, CLASSES, 6)
    with jax.enable_x64(True):
        measure = lambda output: np.asarray(
            RECIPE.measure(output, jnp.asarray(logits), jnp.asarray(y))
        )
        loss, margin, odds = map(measure, ("loss", "margin", "log_odds"))
        mine = measure(lambda outputs, y: outputs[:, 0] * y)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    p_y = p[np.arange(6), y]
    others = np.where(np.arange(CLASSES) == y[:, None], -np.inf, logits)
    np.testing.assert_allclose(loss, np.log(p_y), rtol=1e-12)
    right = logits[np.arange(6), y] - others.max(1)
    np.testing.assert_allclose(margin, right, rtol=1e-12)
    np.testing.assert_allclose(odds, np.log(p_y / (1 - p_y)), rtol=1e-10)
    np.testing.assert_allclose(mine, logits[:, 0] * y, rtol=1e-12)


@pytest.mark.parametrize("output", ["margin", "log_odds"])
def test_other_outputs_are_recorded(output):
    runs = retrain(output=output)
    assert runs.output == output
    assert not np.allclose(runs.outputs, retrain().outputs)


def test_regression():
    line = attribute.Recipe(
        (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None]),
        optax.sgd(0.05),
        epochs=4,
        batch_size=6,
    )
    x, _, x_val, _ = samples()
    y, y_val = x.sum(1), x_val.sum(1)
    runs = tasks.retrain_subsets(line, x, y, x_val, y_val, key=KEY, subsets=3, seeds=1)
    assert (runs.outputs <= 0).all()
    with pytest.raises(ValueError, match="output must be 'loss' for targets"):
        tasks.retrain_subsets(
            line, x, y, x_val, y_val, key=KEY, subsets=3, output="margin"
        )


def test_float64():
    with jax.enable_x64(True):
        x, y, x_val, y_val = samples()
        arrays = x.astype(np.float64), y, x_val.astype(np.float64), y_val
        wide = tasks.retrain_subsets(RECIPE, *arrays, key=KEY, subsets=4, seeds=2)
    assert wide.outputs.dtype == np.float64
    assert np.isfinite(wide.outputs).all()


def test_a_killed_call_resumes(tmp_path, monkeypatch):
    whole, program, calls = retrain(), _subsets._retrain, []

    def dies(*args, **options):
        if not isinstance(args[6], jax.core.Tracer):
            calls.append(args[7])
            if len(calls) == 3:
                raise KeyboardInterrupt
        return program(*args, **options)

    options = {"chunk_size": 1, "checkpoint": tmp_path / "runs"}
    monkeypatch.setattr(_subsets, "_retrain", dies)
    # The digest is of the program, not of what stands in for it here.
    monkeypatch.setattr(_subsets, "program_digest", lambda *args: "the program")
    with pytest.raises(KeyboardInterrupt):
        retrain(**options)
    resumed = retrain(**options)
    assert [int(number[0]) for number in calls] == [0, 1, 2, 2, 3]
    np.testing.assert_allclose(resumed.outputs, whole.outputs, rtol=1e-5)
    with pytest.raises(ValueError, match="holds a run with other data"):
        retrain(**options, key=jax.random.key(1))


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    folder = tmp_path / "runs"
    retrain(checkpoint=folder)
    np.testing.assert_array_equal(retrain(checkpoint=folder).outputs, retrain().outputs)
    slower = dataclasses.replace(RECIPE, optimizer=optax.sgd(0.05))
    for recipe, options in ((slower, {}), (RECIPE, {"output": "margin"})):
        with pytest.raises(ValueError, match="holds a run with other data"):
            tasks.retrain_subsets(
                *(recipe, *samples()),
                **{"key": KEY, "subsets": 4, "checkpoint": folder, **options},
            )


def test_runs_go_to_a_file_and_back(tmp_path):
    runs = retrain(same_seed=True)
    loaded = tasks.SubsetRuns.load(runs.save(tmp_path / "truth"))
    assert loaded == runs
    assert isinstance(loaded.outputs, np.ndarray)
    assert "bool[4, 24]" in repr(loaded)
    assert loaded != retrain()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"subsets": 0}, ValueError, "subsets must be at least 1"),
        ({"subsets": np.ones((3, 23), bool)}, ValueError, "masks .* with n = 24"),
        ({"subsets": np.ones((3, 24))}, TypeError, "bool masks"),
        ({"subsets": np.arange(24) < [[0], [5]]}, ValueError, "subset 0 has none"),
        ({"subsets": np.arange(24) < [[4], [5]]}, ValueError, "all have one size"),
        ({"share": 1.0}, ValueError, "share must be above 0 and below 1"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"output": "logit"}, ValueError, "output must be one of 'loss'"),
        ({"output": lambda o, y: o.sum()}, ValueError, "one number a target"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        retrain(**options)


def test_what_diverges_is_refused():
    with pytest.raises(TypeError, match=r"recipe must be an attribute\.Recipe"):
        tasks.retrain_subsets("mlp", *samples(), key=KEY)
    x, y, x_val, y_val = samples()
    line = attribute.Recipe(
        (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None]),
        optax.sgd(0.1),
        epochs=30,
        batch_size=5,
    )
    arrays = x * 1e4, x[:, 0], x_val, x_val[:, 0]
    with pytest.raises(ValueError, match="subset 0 has NaN or infinity: lower the lea"):
        tasks.retrain_subsets(line, *arrays, key=KEY, subsets=3)


def test_subsets_of_several_sizes_with_one_seed():
    masks = np.arange(24) < [[4], [5], [24]]
    runs = retrain(subsets=masks, same_seed=True, seeds=1)
    x, y, x_val, y_val = samples()
    w = RECIPE.train(jax.random.fold_in(KEY, 0), x, y)
    right = -RECIPE.losses(RECIPE.apply(w, x_val), jnp.asarray(y_val))
    np.testing.assert_allclose(runs.outputs[2, 0], right, rtol=2e-5)
