"""Losses of samples, of folds, thresholds by class, and the simpler ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType

import jaxsel
from jaxsel.filter import (
    _sample_losses,
    class_thresholds,
    cross_fitted_losses,
    loss_threshold,
    mixture_threshold,
    quantile_threshold,
    sample_losses,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(37, 5)).astype(np.float32)
Y = RNG.integers(0, 3, 37)


def cross_entropy(model, example):
    x, y = example
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y)


def linear(params, example):
    x, y = example
    scores = x @ params["w"] + params["b"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, y)


PARAMS = {
    "w": RNG.normal(size=(5, 3)).astype(np.float32),
    "b": np.zeros(3, np.float32),
}


def expected(scores):
    scores = np.asarray(scores, np.float64)
    return np.log(np.exp(scores).sum(1)) - scores[np.arange(len(Y)), Y]


@pytest.mark.parametrize("chunk_size", [None, 1, 5, 37, 100])
def test_sample_losses(chunk_size):
    found = sample_losses(linear, PARAMS, (X, Y), chunk_size=chunk_size)
    assert found.shape == (37,)
    np.testing.assert_allclose(found, expected(X @ PARAMS["w"]), rtol=1e-5, atol=1e-6)


def test_sample_losses_of_modules():
    model = nnx.Linear(5, 3, rngs=nnx.Rngs(0))
    found = sample_losses(cross_entropy, model, (X, Y))
    np.testing.assert_allclose(found, expected(model(X)), rtol=1e-5, atol=1e-6)
    other = eqx.nn.Linear(5, 3, key=jax.random.key(0))
    found = sample_losses(cross_entropy, other, (X, Y))
    np.testing.assert_allclose(
        found, expected(jax.vmap(other)(jnp.asarray(X))), rtol=1e-5, atol=1e-6
    )


def test_sample_losses_on_a_mesh():
    found = sample_losses(linear, PARAMS, (X, Y), mesh=jaxsel.make_mesh(), chunk_size=9)
    np.testing.assert_allclose(
        found, sample_losses(linear, PARAMS, (X, Y)), rtol=1e-6, atol=1e-7
    )


SPREAD = {
    "as they are split": ("rows",),
    "over all devices": (("columns", "rows"),),
    "over the other axis": ("columns",),
    "everywhere": (),
}


def _spread(array, spec):
    kind = AxisType.Explicit
    mesh = jax.make_mesh((2, 4), ("columns", "rows"), axis_types=(kind, kind))
    return jax.device_put(array, jax.NamedSharding(mesh, jax.P(*spec))), mesh


@pytest.mark.parametrize("where", SPREAD)
@pytest.mark.parametrize("chunk_size", [None, 1, 5, 9, 100])
@pytest.mark.every(4)
def test_sample_losses_of_samples_on_the_devices(where, chunk_size, monkeypatch):
    def refuse(value):
        assert not isinstance(value, jax.Array), "samples must stay on the devices"
        return value

    monkeypatch.setattr(_sample_losses, "whole", refuse)
    wanted = expected(X @ PARAMS["w"])
    n = 32 if where in ("as they are split", "over all devices") else 34
    x, mesh = _spread(X[:n], SPREAD[where])
    options = {"mesh": mesh, "axis": "rows", "chunk_size": chunk_size}
    found = sample_losses(linear, PARAMS, (x, Y[:n]), **options)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, wanted[:n], rtol=1e-5, atol=1e-6)
    for given in (x[:32] if n == 32 else X[:32], X[:32]):
        found = sample_losses(linear, PARAMS, (given, Y[:32]), gather=False, **options)
        assert found.sharding == jax.NamedSharding(mesh, jax.P("rows"))
        np.testing.assert_allclose(found, wanted[:32], rtol=1e-5, atol=1e-6)


def test_sample_losses_on_the_devices_that_are_refused():
    x = X[:32].copy()
    x[[17, 30]] = np.nan
    spread, mesh = _spread(x, ("rows",))
    for given in (spread, x):
        for gather in (True, False):
            with pytest.raises(ValueError, match="example 17 is nan"):
                sample_losses(
                    linear,
                    PARAMS,
                    (given, Y[:32]),
                    mesh=mesh,
                    axis="rows",
                    gather=gather,
                )
    with pytest.raises(ValueError, match="gather must be True without a mesh"):
        sample_losses(linear, PARAMS, (X, Y), gather=False)
    eight = {"mesh": jaxsel.make_mesh()}
    with pytest.raises(ValueError, match="that 8 devices share evenly, got 37"):
        sample_losses(linear, PARAMS, (X, Y), gather=False, **eight)
    with pytest.raises(ValueError, match=r"same first axis.*got lengths \[5, 32\]"):
        sample_losses(linear, PARAMS, (spread, Y[:5]), **eight)


def test_programs_for_losses_hold_a_part_of_the_samples():
    x, mesh = _spread(X[:32], ("rows",))
    texts = []
    run = _sample_losses._more

    def look(*arguments):
        texts.append(run.lower(*arguments).compile().as_text())
        return run(*arguments)

    options = {"mesh": mesh, "axis": "rows", "chunk_size": 8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sample_losses, "_more", look)
        sample_losses(linear, PARAMS, (x, Y[:32]), **options)
    assert len(texts) == 4
    assert all("all-gather" not in text and "[32" not in text for text in texts)


def test_sample_losses_of_a_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = sample_losses(linear, PARAMS, (mapped, Y), chunk_size=10)
    np.testing.assert_array_equal(
        found, sample_losses(linear, PARAMS, (X, Y), chunk_size=10)
    )


def test_sample_losses_refuses():
    with pytest.raises(ValueError, match="same first axis"):
        sample_losses(linear, PARAMS, (X, Y[:5]))
    with pytest.raises(ValueError, match="same first axis"):
        sample_losses(linear, PARAMS, ())
    with pytest.raises(ValueError, match="real scalar"):
        sample_losses(lambda p, e: e[0], PARAMS, (X, Y))
    with pytest.raises(TypeError, match="loss must be"):
        sample_losses([], PARAMS, (X, Y))
    bad = X.copy()
    bad[[20, 30]] = np.inf
    with pytest.raises(ValueError, match="example 20"):
        sample_losses(linear, PARAMS, (bad, Y), chunk_size=7)


def test_cross_fitted_losses_never_see_the_sample():
    seen = []

    def fit(x, y, key):
        seen.append(set(x[:, 0].tolist()))
        return lambda x, y: [len(seen)] * len(x)

    x = np.arange(50.0)[:, None]
    y = np.repeat([0, 1], [40, 10])
    losses = cross_fitted_losses(fit, x, y, folds=5, key=jax.random.key(0))
    for fold, known in enumerate(seen, 1):
        held_out = np.flatnonzero(losses == fold)
        assert known == set(range(50)) - set(held_out.tolist())
        assert (y[held_out] == 1).sum() == 2  # classes are spread evenly
    assert len(seen) == 5


def test_every_fold_has_a_key_of_its_own():
    keys = []

    def fit(x, y, key):
        keys.append(jax.random.key_data(key).tolist())
        return lambda x, y: np.zeros(len(y))

    key = jax.random.key(3)
    cross_fitted_losses(fit, np.zeros((10, 1)), np.zeros(10), folds=4, key=key)
    expected = [jax.random.key_data(jax.random.fold_in(key, i)) for i in range(4)]
    assert keys == [each.tolist() for each in expected]


def test_cross_fitted_losses_are_a_models():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    y = (x[:, 0] + rng.normal(size=200) > 0).astype(int)

    def fit(x, y, key):
        model = LogisticRegression().fit(x, y)
        return lambda x, y: -model.predict_log_proba(x)[np.arange(len(y)), y]

    out_of_fold = cross_fitted_losses(fit, x, y, key=jax.random.key(0))
    own = fit(x, y, None)(x, y)
    assert own.mean() < out_of_fold.mean() < own.mean() + 0.1


@pytest.mark.parametrize(
    ("fit", "options", "match"),
    [
        (None, {"folds": 1}, "folds must be at least 2"),
        (None, {"folds": 11}, "folds must be at most the 10 samples"),
        (lambda *_: lambda x, y: np.zeros(1), {}, "losses of fold 0"),
        (lambda *_: lambda x, y: np.full(len(y), np.nan), {}, "must be finite"),
    ],
)
def test_cross_fitted_losses_refuses(fit, options, match):
    with pytest.raises(ValueError, match=match):
        cross_fitted_losses(
            fit, np.zeros((10, 1)), np.zeros(10), key=jax.random.key(0), **options
        )
    with pytest.raises(ValueError, match=r"y must have shape \[m\], got \(10, 3\)"):
        cross_fitted_losses(
            fit, np.zeros((10, 1)), np.zeros((10, 3)), key=jax.random.key(0)
        )


def test_class_thresholds():
    rng = np.random.default_rng(0)
    labels, clean_labels = rng.integers(0, 3, 600), rng.integers(0, 2, 100)
    losses = rng.gamma(1, 1 + labels)
    clean = rng.gamma(1, 0.5 + clean_labels)
    found = class_thresholds(clean, clean_labels, losses, labels)
    assert [*found.thresholds] == [0, 1]
    for label in (0, 1):
        alone = loss_threshold(clean[clean_labels == label], losses[labels == label])
        assert found.thresholds[label].value == alone.value
    kept = found.keeps(losses, labels)
    pooled = loss_threshold(clean, losses)
    np.testing.assert_array_equal(
        kept[labels == 2], losses[labels == 2] <= pooled.value
    )
    limits = np.array([found.thresholds[0].value, found.thresholds[1].value])
    known = labels < 2
    np.testing.assert_array_equal(kept[known], losses[known] <= limits[labels[known]])


@pytest.mark.parametrize(("missing", "kept"), [("keep", True), ("drop", False)])
def test_classes_that_the_benchmark_lacks(missing, kept):
    labels = np.array(["a", "b", "b"])
    found = class_thresholds([1.0], ["a"], [1.0, 0.5, 9.0], labels, missing=missing)
    assert found.keeps([1.0, 0.5, 9.0], labels).tolist() == [True, kept, kept]
    with pytest.raises(ValueError, match="missing must be one of"):
        class_thresholds([1.0], ["a"], [1.0], ["a"], missing="guess")
    with pytest.raises(ValueError, match="same length"):
        class_thresholds([1.0], ["a", "b"], [1.0], ["a"])
    with pytest.raises(ValueError, match="must be of one kind, got <U1 and int64"):
        class_thresholds([1.0], ["0"], [1.0], [0])
    with pytest.raises(ValueError, match=r"labels must have shape \[n\]"):
        class_thresholds([1.0], [0], [1.0], [[0]])
    with pytest.raises(ValueError, match="benchmark_losses must hold"):
        class_thresholds([], [], [1.0], ["a"], missing=missing)


def test_labels_that_are_missing():
    nan = float("nan")
    for clean, own, match in (
        ([0.0, nan], [0.0, 0.0], "benchmark_labels must name .* entry 1 is NaN"),
        ([0.0, 1.0], [nan, 0.0], "^labels must name .* entry 0 is NaN"),
        (["a", "b"], np.array(["a", nan], object), "^labels must name .* entry 1 is"),
    ):
        with pytest.raises(ValueError, match=match):
            class_thresholds([1.0, 2.0], clean, [1.0, 2.0], own)
    found = class_thresholds([1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="^labels must name .* entry 1 is NaN"):
        found.keeps([1.0, 1.0], [0.0, nan])


def test_quantile_threshold():
    losses = np.arange(1.0, 101)
    assert quantile_threshold(losses) == 95
    for share in range(1, 101):
        assert quantile_threshold(losses, share / 100) == share
    assert quantile_threshold(losses, 1.0) == 100
    for options, match in (((losses, 0.0), "level"), (([],), "at least one")):
        with pytest.raises(ValueError, match=match):
            quantile_threshold(*options)


def test_mixture_threshold():
    rng = np.random.default_rng(0)
    low, high = rng.normal(1, 0.2, 3000), rng.normal(4, 0.5, 1000)
    losses = np.concatenate([low, high])
    value = mixture_threshold(losses)
    # Where the weighted densities meet.
    grid = np.linspace(1, 4, 10_000)
    ours = 3 * np.exp(-(((grid - 1) / 0.2) ** 2) / 2) / 0.2
    theirs = np.exp(-(((grid - 4) / 0.5) ** 2) / 2) / 0.5
    meet = grid[np.argmax(theirs > ours)]
    assert np.sum((losses <= value) != (losses <= meet)) <= 1
    with pytest.raises(ValueError, match="two distinct"):
        mixture_threshold([1.0, 1.0])
