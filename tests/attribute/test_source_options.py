"""SOURCE: times of segments, choices of the solver, and refusals."""

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import source_references as references

from jaxsel import attribute
from jaxsel.attribute import _damping, _source
from jaxsel.attribute._source_kernel import source_scores
from jaxsel.attribute._times import segment_times

KEY = jax.random.key(0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.every(2)
def test_times_are_ways_until_the_end(momentum, nesterov):
    """The sum over segments is the inverse of the default damping of influence."""
    schedule = optax.linear_schedule(0.1, 0.02, 16)
    optimizer = optax.sgd(schedule, momentum=momentum, nesterov=nesterov)
    recipe = attribute.Recipe(
        (cases.init, cases.apply), optimizer, epochs=4, batch_size=7
    )
    params = recipe.init(KEY, cases.samples()[0])
    times, decays = segment_times(recipe, params, np.array([4, 8, 16]))
    np.testing.assert_array_equal(decays, 0)
    damping = _damping.default_damping(
        recipe, jax.tree.map(lambda leaf: leaf[None], params), cases.N
    )
    assert times.sum() == pytest.approx(1 / damping, rel=1e-4)
    rates = np.array([float(schedule(step)) for step in range(16)])
    moved = [
        sum(rates[i] * factor(i - k, momentum, nesterov) for i in range(k, 16))
        for k in range(16)
    ]
    right = [sum(moved[a:b]) for a, b in ((0, 4), (4, 8), (8, 16))]
    np.testing.assert_allclose(times, right, rtol=1e-4)


def factor(later, momentum, nesterov):
    """What a gradient still adds to an update some steps later."""
    if not momentum:
        return float(later == 0)
    return momentum ** (later + nesterov) + (nesterov and later == 0)


def test_decays_are_those_of_the_weights():
    recipe = attribute.Recipe(
        (cases.init, cases.apply),
        optax.chain(optax.add_decayed_weights(0.3), optax.sgd(0.1)),
        epochs=4,
        batch_size=7,
    )
    params = recipe.init(KEY, cases.samples()[0])
    times, decays = segment_times(recipe, params, np.array([4, 16]))
    np.testing.assert_allclose(times, [0.4, 1.2], rtol=1e-5)
    np.testing.assert_allclose(decays, 0.3 * times, rtol=1e-5)


def by_layer(params):
    return {name: name for name in params}


RATES = optax.multi_transform(
    {"w": optax.sgd(0.1), "b": optax.sgd(0.2), "v": optax.sgd(0.1)}, by_layer
)
NO_BIAS = optax.chain(
    optax.add_decayed_weights(0.1, mask=lambda p: {k: k != "b" for k in p}),
    optax.sgd(0.1),
)


@pytest.mark.parametrize("optimizer", [optax.adam(0.1), RATES, NO_BIAS, optax.sgd(0.0)])
def test_optimizers_without_one_rate_are_refused(optimizer):
    recipe = attribute.Recipe(
        (cases.init, cases.apply), optimizer, epochs=2, batch_size=7
    )
    with pytest.raises(ValueError, match=r"optimizer must take steps in proportion"):
        attribute.source(recipe, *cases.samples(), key=KEY)


def concave(outputs, y):
    return -jnp.sum(outputs**2, 1)


CONCAVE = attribute.Recipe(
    (cases.init, cases.apply), optax.sgd(1e-3), epochs=2, batch_size=7, loss=concave
)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"segments": 0}, ValueError, "segments must be at least 1"),
        ({"segments": 17}, ValueError, "segments must be at most 16"),
        ({"checkpoints": 17}, ValueError, "checkpoints must be at most 16"),
        (
            {"checkpoints": 4},
            ValueError,
            "checkpoints must be a multiple of segments=3",
        ),
        ({"segments": 2.5}, TypeError, "segments must be a whole number"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"reduce": "max"}, ValueError, "reduce must be one of 'mean', None"),
        ({"output": "logit"}, ValueError, "output must be one of"),
        ({"solver": "cg"}, ValueError, "solver must be one of 'exact', 'ekfac', None"),
        ({"recipe": None}, TypeError, r"recipe must be an attribute\.Recipe"),
        ({"recipe": CONCAVE}, ValueError, "loss must be convex in the outputs"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    options = {"key": KEY, "recipe": cases.recipe()} | options
    with pytest.raises(error, match=message):
        attribute.source(options.pop("recipe"), *cases.samples(), **options)


def test_solvers_are_chosen_by_size(monkeypatch, caplog):
    arrays = cases.samples()
    with caplog.at_level("INFO", logger="jaxsel"):
        attribute.source(cases.recipe(), *arrays, key=KEY)
        monkeypatch.setattr(_source, "_SMALL", 30)
        values = attribute.source(cases.recipe(), *arrays, key=KEY)
    assert "source takes solver='exact' for 40 parameters" in caplog.text
    assert "solver=ekfac" in values.method
    monkeypatch.setattr(_source, "_LARGEST", 30)
    with pytest.raises(ValueError, match="at most 30 parameters, got 40: use"):
        attribute.source(cases.recipe(), *arrays, key=KEY, solver="exact")


def test_a_training_that_diverges_is_refused():
    pair = (lambda key, x: jnp.ones(x.shape[1])), lambda w, x: (x @ w)[:, None]
    recipe = attribute.Recipe(pair, optax.sgd(10.0), epochs=200, batch_size=24)
    x, _, x_val, _ = cases.samples()
    with pytest.raises(ValueError, match="run 0 has NaN or infinity: lower the"):
        attribute.source(recipe, x, x[:, 0] + 0.5, x_val, x_val[:, 0], key=KEY)


def test_progress_changes_nothing(capsys):
    pytest.importorskip("tqdm")
    options = {"key": KEY, "seeds": 2}
    a, b = (
        attribute.source(cases.recipe(), *cases.samples(), progress=shown, **options)
        for shown in (False, True)
    )
    np.testing.assert_array_equal(a.values, b.values)
    assert "Runs" in capsys.readouterr().err


@pytest.mark.parametrize("solver", ["exact", "ekfac"])
@pytest.mark.every(2)
@pytest.mark.left_out
def test_the_kernel_keeps_types_and_ranks(solver):
    """It promotes nothing, and its result in float32 is near the reference."""

    def apply(params, x):
        return jnp.tanh(x @ params["w"] + params["b"][None]) @ params["v"]

    recipe = attribute.Recipe(
        (cases.init, apply), optax.sgd(0.1), epochs=1, batch_size=8
    )
    arrays = [jnp.asarray(a) for a in cases.samples()]
    drawn = [cases.init(jax.random.key(i), arrays[0]) for i in range(4)]
    networks = jax.tree.map(
        lambda *leaves: jnp.stack(leaves).reshape(2, 2, *leaves[0].shape), *drawn
    )
    times, decays = jnp.float32([3, 2]), jnp.float32([0, 0.5])
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        result = jax.jit(
            lambda *a: source_scores(recipe, *a, solver=solver, chunk_size=7)
        )(networks, *arrays, times, decays)
    assert {leaf.dtype for leaf in result} == {jnp.dtype(jnp.float32)}
    assert result.scores.shape == (cases.N_VAL, cases.N)
    with jax.enable_x64(True):
        x, y, x_val, y_val = (np.asarray(a) for a in arrays)
        right = references.source(
            recipe,
            [drawn[:2], drawn[2:]],
            *(x.astype(float), y, x_val.astype(float), y_val),
            times,
            decays,
            matrix_of=references.kronecker_matrix if solver == "ekfac" else None,
        )
    scale = np.abs(right).max()
    np.testing.assert_allclose(result.scores, right, atol=1e-4 * scale)
