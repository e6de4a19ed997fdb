"""Runs on mixtures: the plan of rows, trainings one by one, designs, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsel import value
from jaxsel.value._mixture_design import capped, draw_mixtures
from jaxsel.value._mixture_runs import planned_rows


def loss(weights, example):
    x, y = example
    return (jnp.matmul(x, weights, precision="highest") - y) ** 2


def data(n=60, domains=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    labels = np.arange(n) % domains
    y = (x @ [1.0, -1.0] + 3 * labels).astype(np.float32)
    return (x, y), labels


RECIPE = value.MixtureRecipe(
    loss, optax.sgd(0.05, momentum=0.9), steps=12, batch_size=10
)


def train(mixtures, key=0, **options):
    examples, labels = data()
    return value.mixture_runs(
        options.pop("recipe", RECIPE),
        np.zeros(2, np.float32),
        examples,
        data(seed=1)[0],
        domains=options.pop("domains", labels),
        key=jax.random.key(key),
        mixtures=mixtures,
        **{"max_epochs": None, **options},
    )


def test_rows_hold_shares_and_passes():
    codes = jnp.asarray(np.repeat([0, 1, 2, 3], [50, 7, 30, 13]), jnp.int32)
    mixture = np.array([0.5, 0.2, 0.0, 0.3], np.float32)
    rows = np.asarray(planned_rows(jax.random.key(3), mixture, codes, 37, 16))
    assert rows.shape == (37, 16)
    domain = np.asarray(codes)[rows]
    counts = np.array([(domain == d).sum(1) for d in range(4)])
    # Batch by batch, and in total.
    assert (np.abs(counts - 16 * mixture[:, None]) < 1).all()
    assert np.abs(counts.sum(1) - 592 * mixture).max() <= 2
    for d in (0, 1, 3):
        seen = np.bincount(rows[domain == d], minlength=100)[np.asarray(codes) == d]
        assert seen.max() - seen.min() <= 1


def test_weights_at_the_ends_never_draw_another_domain():
    codes = jnp.asarray(np.repeat([0, 1, 2], 5), jnp.int32)
    for mixture in ([0, 1, 0], [1, 0, 0], [0, 0, 1], [1 / 3, 2 / 3, 0]):
        weights = jnp.asarray(mixture, jnp.float32)
        rows = planned_rows(jax.random.key(0), weights, codes, 500, 64)
        assert rows.min() >= 0
        assert rows.max() < 15
        assert {*np.unique(np.asarray(codes)[rows])} == {*np.flatnonzero(mixture)}


def test_runs_are_those_of_a_plain_loop():
    mixtures = np.array([[1, 0, 0], [0.2, 0.3, 0.5], [0, 0.5, 0.5]])
    runs = train(mixtures)
    (x, y), labels = data()
    x_val, y_val = data(seed=1)[0]
    for i, mixture in enumerate(mixtures):
        key = jax.random.fold_in(jax.random.key(0), i)
        weights = jnp.asarray(mixture, jnp.float32)
        rows = planned_rows(key, weights, jnp.asarray(labels, jnp.int32), 12, 10)
        params, speed = np.zeros(2), np.zeros(2)
        for batch in np.asarray(rows):
            gap = x[batch] @ params - y[batch]
            speed = 0.9 * speed + 2 * (gap[:, None] * x[batch]).mean(0)
            params = params - 0.05 * speed
        expected = np.mean((x_val @ params - y_val) ** 2)
        assert runs.metrics[i] == pytest.approx(expected, rel=1e-4)


def test_chunks_and_number_of_runs_change_nothing():
    mixtures = value.mixture_design(jax.random.key(1), 7, 3)
    whole = train(mixtures)
    np.testing.assert_allclose(
        whole.metrics, train(mixtures, chunk_size=3).metrics, rtol=1e-5
    )
    np.testing.assert_allclose(
        whole.metrics[:4], train(mixtures[:4]).metrics, rtol=1e-5
    )
    assert not np.allclose(whole.metrics, train(mixtures, key=1).metrics)


def test_mapping_of_domains_is_a_table_with_labels():
    mixtures = [[0.2, 0.3, 0.5]]
    (x, y), labels = data()
    order = np.argsort(labels, kind="stable")
    parts = {name: (x[labels == i], y[labels == i]) for i, name in enumerate("abc")}
    runs = value.mixture_runs(
        RECIPE,
        np.zeros(2, np.float32),
        parts,
        data(seed=1)[0],
        key=jax.random.key(0),
        mixtures=mixtures,
        max_epochs=None,
    )
    table = value.mixture_runs(
        RECIPE,
        np.zeros(2, np.float32),
        (x[order], y[order]),
        data(seed=1)[0],
        domains=np.array([*"abc"])[labels[order]],
        key=jax.random.key(0),
        mixtures=mixtures,
        max_epochs=None,
    )
    assert runs.names == table.names == ("a", "b", "c")
    np.testing.assert_array_equal(runs.metrics, table.metrics)


def test_passes_bound_the_weights():
    runs = train(16, max_epochs=4.0)  # 20 of each domain, 120 drawn: 2/3 at most
    np.testing.assert_allclose(runs.upper, 2 / 3)
    assert runs.mixtures.max() <= 2 / 3 + 1e-9
    with pytest.raises(ValueError, match="at most upper, but row 0 has 1 of domain 0"):
        train([[1, 0, 0]], max_epochs=4.0)
    with pytest.raises(ValueError, match="max_epochs must be at least 2 for 12 steps"):
        train(4, max_epochs=1.5)


def test_metric_of_the_user_and_response():
    recipe = value.MixtureRecipe(
        loss,
        optax.adam(0.1),
        steps=10,
        batch_size=6,
        metric=lambda params, targets: params[0] - params[1],
    )
    runs = train(12, recipe=recipe)
    more = train([[0.1, 0.1, 0.8]], recipe=recipe, key=5)
    merged = runs.merge(more)
    assert merged.metrics.shape == (13,)
    assert "13 runs, 3 domains" in repr(merged)
    response = merged.response(goal="max")
    assert response.goal == "max"
    assert response.names == (0, 1, 2)


def test_diverged_runs_are_nan_or_infinite_alone():
    (x, y), labels = data()
    x = np.where(labels[:, None] == 2, 1e18, x).astype(np.float32)
    runs = value.mixture_runs(
        RECIPE,
        np.zeros(2, np.float32),
        (x, y),
        data(seed=1)[0],
        domains=labels,
        key=jax.random.key(0),
        mixtures=[[0.5, 0.5, 0], [0.4, 0.4, 0.2]],
        max_epochs=None,
    )
    assert np.isfinite(runs.metrics).tolist() == [True, False]
    assert "1 diverged" in repr(runs)


def test_progress_shows_chunks(capsys):
    pytest.importorskip("tqdm")
    train(4, chunk_size=2, progress=True)
    assert "runs on mixtures" in capsys.readouterr().err


def test_bad_input():
    examples, labels = data()
    with pytest.raises(TypeError, match="mapping from names"):
        train(4, domains=None)
    with pytest.raises(ValueError, match="one label for each"):
        train(4, domains=labels[:3])
    with pytest.raises(TypeError, match="recipe must be a value.MixtureRecipe"):
        train(4, recipe=loss)
    bad = value.MixtureRecipe(
        lambda w, e: e[0] * w, optax.sgd(0.1), steps=1, batch_size=1
    )
    with pytest.raises(ValueError, match="loss must return a scalar"):
        train(4, recipe=bad)
    with pytest.raises(TypeError, match="optimizer must be an optax"):
        value.MixtureRecipe(loss, 0.1, steps=1, batch_size=1)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        value.MixtureRecipe(loss, optax.sgd(0.1), steps=0, batch_size=1)
    empty = {"a": examples, "b": tuple(part[:0] for part in examples)}
    with pytest.raises(ValueError, match="domain 'b' is"):
        value.mixture_runs(
            RECIPE, np.zeros(2), empty, examples, key=jax.random.key(0), mixtures=2
        )


def test_one_domain_runs():
    runs = train([[1.0]], domains=np.zeros(60, int))
    assert runs.metrics.shape == (1,)
    with pytest.raises(ValueError, match="4 runs|two domains"):
        runs.response()


def test_designs_keep_bounds_and_spread():
    upper = np.array([0.6, 0.5, 0.05, 0.3])
    design = value.mixture_design(jax.random.key(0), 40, upper)
    np.testing.assert_allclose(design.sum(1), 1)
    assert (design <= upper + 1e-12).all()
    assert (design >= 0).all()
    again = value.mixture_design(jax.random.key(0), 40, upper)
    np.testing.assert_array_equal(design, again)
    rng = np.random.default_rng(0)
    drawn = draw_mixtures(rng, 40, upper)

    def nearest(rows):
        gaps = np.sqrt(((rows[:, None] ** 0.5 - rows[None] ** 0.5) ** 2).sum(2))
        return (gaps + np.eye(len(rows)) * 9).min(1).min()

    assert nearest(design) > nearest(drawn)
    only = value.mixture_design(jax.random.key(0), 3, [0.5, 0.5])
    np.testing.assert_allclose(only, 0.5)


def test_capped_scales_as_far_as_bounds_allow():
    upper = np.array([0.5, 0.3, 1.0])
    rows = capped(np.array([[10.0, 1.0, 1.0], [1, 1, 1], [0, 5, 1]]), upper)
    expected = [[0.5, 0.25, 0.25], [0.35, 0.3, 0.35], [0, 0.3, 0.7]]
    np.testing.assert_allclose(rows, expected)
