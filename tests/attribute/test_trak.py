"""TRAK: NumPy's equation with the same projections, closed forms, and refusals."""

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsel import attribute, gradients
from jaxsel.attribute import _networks, _trak

KEY = jax.random.key(0)
SGD = optax.sgd(0.1, momentum=0.9)
LOGISTIC = (
    lambda key, x: jnp.zeros(x.shape[1]),
    lambda w, x: jnp.stack([jnp.zeros(len(x), x.dtype), x @ w], axis=1),
)


def wide(n=cases.N):
    x, y, x_val, y_val = cases.samples(n=n)
    return x.astype(np.float64), y, x_val.astype(np.float64), y_val


def matrix_of(run, size, dim, kind):
    """The projection of a run, `[P, dim]`: it projects the rows of an identity."""
    key = jax.random.fold_in(jax.random.fold_in(KEY, run), _trak._PROJECTION)
    oracle = gradients.projected(
        lambda w, row: w @ row,
        jnp.zeros(size),
        jnp.eye(size),
        dim=dim,
        key=key,
        kind=kind,
    )
    return np.asarray(oracle.rows)


def log_odds(logits, y):
    """By definition, log(p / (1 - p)) of the label."""
    p = jax.nn.softmax(logits)[jnp.arange(len(y)), y]
    return jnp.log(p / (1 - p)), 1 - p


def trak_of(networks, x, y, x_val, y_val, dim, kind, damping, output="log_odds"):
    """Equation 17 of the paper by NumPy, without the threshold; `[t, n]`."""
    kernels, rests = [], []
    for run, params in enumerate(networks):
        flat, unravel = jax.flatten_util.ravel_pytree(params)
        of = lambda flat, x, y, f=unravel: log_odds(cases.apply(f(flat), x), y)[0]
        features = np.asarray(jax.jacobian(of)(flat, x, y))
        targets = np.asarray(jax.jacobian(of)(flat, x_val, y_val))
        if output == "loss":
            rest = log_odds(cases.apply(params, x_val), y_val)[1]
            targets = targets * np.asarray(rest)[:, None]
        if dim is not None:
            matrix = matrix_of(run, flat.size, dim, kind)
            features, targets = features @ matrix, targets @ matrix
        square = features.T @ features + damping * len(x) * np.eye(features.shape[1])
        kernels.append(targets @ np.linalg.inv(square) @ features.T)
        rests.append(np.asarray(log_odds(cases.apply(params, x), y)[1]))
    return np.mean(kernels, 0) * np.mean(rests, 0)


@pytest.mark.parametrize(
    ("dim", "kind", "damping"),
    [(8, "rademacher", 0), (8, "count_sketch", 0), (None, "rademacher", 0.01)],
)
@pytest.mark.every(4)
def test_scores_are_those_of_the_papers_equation(dim, kind, damping):
    """Three networks on all samples: means of kernels and of 1 - p, each alone."""
    recipe = cases.recipe()
    with jax.enable_x64(True):
        arrays = wide()
        networks = [
            recipe.train(jax.random.fold_in(KEY, run), *arrays[:2]) for run in range(3)
        ]
        right = trak_of(networks, *arrays, dim, kind, damping)
        options = {"key": KEY, "seeds": 3, "dim": dim, "kind": kind}
        options |= {"damping": damping}
        values = attribute.trak(recipe, *arrays, reduce=None, **options)
        mean = attribute.trak(recipe, *arrays, chunk_size=7, **options)
        same = attribute.trak(recipe, *arrays, reduce=None, params=networks, **options)
    assert values.values.dtype == np.float64
    scale = np.abs(right).max()
    np.testing.assert_allclose(values.values, right, atol=1e-9 * scale)
    np.testing.assert_allclose(same.values, right, atol=1e-9 * scale)
    np.testing.assert_allclose(mean.values, right.mean(0), atol=1e-9 * scale)
    assert int(values.count) == 3


def test_scores_of_the_loss_have_the_targets_weight():
    recipe = cases.recipe()
    with jax.enable_x64(True):
        arrays = wide()
        networks = [recipe.train(jax.random.fold_in(KEY, 0), *arrays[:2])]
        right = trak_of(networks, *arrays, 8, "rademacher", 0, output="loss")
        values = attribute.trak(
            recipe, *arrays, key=KEY, dim=8, damping=0, output="loss", reduce=None
        )
    scale = np.abs(right).max()
    np.testing.assert_allclose(values.values, right, atol=1e-9 * scale)
    assert values.stderr is None


def test_logistic_regression_without_a_projection_in_closed_form():
    """Signs s, rows x: s_t x_t (XᵀX)⁻¹ x_i s_i (1 - p_i)."""
    recipe = attribute.Recipe(LOGISTIC, SGD, epochs=3, batch_size=7)
    with jax.enable_x64(True):
        x, y, x_val, y_val = wide()
        y, y_val = (y > 0).astype(int), (y_val > 0).astype(int)
        w = np.linspace(-1, 1, 4)
        sign, sign_val = 2 * y - 1, 2 * y_val - 1
        rest = 1 / (1 + np.exp(sign * (x @ w)))
        kernel = x_val @ np.linalg.solve(x.T @ x, x.T)
        right = sign_val[:, None] * kernel * sign * rest
        values = attribute.trak(
            recipe, x, y, x_val, y_val, key=KEY, params=[w], dim=None, reduce=None
        )
    np.testing.assert_allclose(values.values, right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("wider", [True, False])
def test_directions_without_gradients_are_left_out(wider):
    """Rows of 3 classes sum to 0: the default damping is the pseudo-inverse's limit."""
    pair = (lambda key, x: jnp.zeros((x.shape[1], 3)), lambda w, x: x @ w)
    recipe = attribute.Recipe(pair, SGD, epochs=3, batch_size=7)
    arrays = wide(60) if wider else cases.samples(n=60)
    w = np.random.default_rng(0).normal(size=(4, 3)) / 2
    with jax.enable_x64(wider):
        values = attribute.trak(
            recipe, *arrays, key=KEY, params=[w], dim=None, reduce=None
        )
        if wider:
            with pytest.raises(ValueError, match="damping must be larger for dim = 12"):
                attribute.trak(
                    recipe, *arrays, key=KEY, params=[w], dim=None, damping=0
                )
    with jax.enable_x64(True):
        x, y, x_val, y_val = wide(60)
        of = lambda w, x, y: log_odds(x @ w, y)[0]
        features, targets = (
            np.asarray(jax.jacobian(of)(jnp.asarray(w), *pair)).reshape(-1, 12)
            for pair in ((x, y), (x_val, y_val))
        )
        rest = np.asarray(log_odds(x @ w, y)[1])
    assert np.linalg.matrix_rank(features) == 8
    right = targets @ np.linalg.pinv(features) * rest
    tolerance = (1e-9 if wider else 1e-3) * np.abs(right).max()
    np.testing.assert_allclose(values.values, right, atol=tolerance)


def test_raw_columns_in_float32():
    """Scores don't depend on scales of columns, nor do their digits."""
    recipe = attribute.Recipe(LOGISTIC, SGD, epochs=3, batch_size=7)
    x, y, x_val, y_val = cases.samples()
    y, y_val = (y > 0).astype(int), (y_val > 0).astype(int)
    scales = np.float32([1e4, 1, 100, 0.01])
    w = np.linspace(-1, 1, 4) / scales
    options = {"key": KEY, "dim": None, "damping": 0, "reduce": None}
    raw = attribute.trak(
        recipe, x * scales, y, x_val * scales, y_val, params=[w], **options
    )
    right = attribute.trak(recipe, x, y, x_val, y_val, params=[w * scales], **options)
    scale = np.abs(right.values).max()
    np.testing.assert_allclose(raw.values, right.values, atol=1e-4 * scale)


@pytest.mark.left_out
def test_networks_on_a_share_are_trained_on_random_members():
    recipe, (x, y, *_) = cases.recipe(), cases.samples()
    trained = _networks._train(
        recipe, jnp.asarray(x), jnp.asarray(y), KEY, seeds=2, size=12
    )
    sets = []
    for run in range(2):
        key = jax.random.fold_in(KEY, run)
        draw = jax.random.fold_in(key, _networks._MEMBERS)
        members = jax.random.permutation(draw, 24)[:12]
        plan = recipe.plan(key, x, members)
        right = recipe.follow(plan, x, y)
        network = jax.tree.map(lambda leaf, run=run: leaf[run], trained)
        for a, b in zip(*map(jax.tree.leaves, (network, right)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        sets.append({*members.tolist()})
    assert sets[0] != sets[1]
    a, b = (
        attribute.trak(recipe, *cases.samples(), key=KEY, dim=8, share=share)
        for share in (0.5, 1.0)
    )
    assert not np.allclose(a.values, b.values)


def test_errors_between_networks_are_calibrated():
    """Ensembles of 6 networks, 4,000 times: their spread is the mean error."""
    rng = np.random.default_rng(0)
    x, y, x_val, y_val = map(jnp.asarray, cases.samples())
    samples = cases.recipe().check(x, y, x_val, y_val)
    kernels = rng.normal(0.5, 1, (4000, 6, 1, 1))
    rests = rng.uniform(0, 1, (4000, 6, 1)) + 0.2 * kernels[..., 0]
    ensembles = [
        _trak._ensemble(kernel, rest, samples, None, "")
        for kernel, rest in zip(kernels, rests, strict=True)
    ]
    spread = np.std([e.values for e in ensembles])
    variance = np.mean([np.asarray(e.stderr) ** 2 for e in ensembles])
    assert variance**0.5 == pytest.approx(spread, rel=0.06)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"dim": 0}, ValueError, "dim must be at least 1"),
        ({"share": 1.5}, ValueError, "share must be at most 1"),
        ({"share": 0.001}, ValueError, "share must be at most 1"),
        ({"damping": -1}, ValueError, "damping must be finite and zero or more"),
        ({"kind": "gauss"}, ValueError, "kind must be one of 'rademacher'"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"output": "logit"}, ValueError, "output must be one of"),
        ({"reduce": "max"}, ValueError, "reduce must be one of"),
        ({"recipe": 3}, TypeError, r"recipe must be an attribute\.Recipe"),
        ({"params": [{"w": np.ones(3)}]}, ValueError, r"params\[0\] must have arrays"),
        ({"dim": 30, "damping": 0}, ValueError, "damping must be larger for dim = 30"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    options = {"key": KEY, "recipe": cases.recipe()} | options
    with pytest.raises(error, match=message):
        attribute.trak(options.pop("recipe"), *cases.samples(), **options)


def test_regressions_and_other_losses_are_refused():
    x, y, x_val, y_val = cases.samples()
    with pytest.raises(ValueError, match="recipe must have loss=None, and y labels"):
        attribute.trak(cases.recipe(), x, x[:, 0], x_val, x_val[:, 0], key=KEY)
    recipe = attribute.Recipe(
        (cases.init, cases.apply), SGD, epochs=1, batch_size=7, loss=squares
    )
    with pytest.raises(ValueError, match="recipe must have loss=None, and y labels"):
        attribute.trak(recipe, x, y, x_val, y_val, key=KEY)


def squares(outputs, y):
    return jnp.sum(outputs**2, 1)
