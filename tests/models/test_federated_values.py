"""Values of clients: Shapley values of a round, their sum, kills and refusals."""

import itertools
import math

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import jaxsel
from jaxsel.models import MLP, fed_avg

from .federations import SGD, by_hand, digits, digits_run, problem, same


def updates_of_clients(params, x, y, clients, steps, rate):
    """Each client's part of a round's update, by the formula of its gradient."""
    start = np.concatenate([np.ravel(a) for a in by_hand(params, x, y, clients, 0, 0)])
    parts = []
    for c in np.unique(clients):
        alone = np.where(clients == c, 0, -1)
        w, b = by_hand(params, x, y, alone, steps, rate)
        parts.append(np.mean(clients == c) * (np.concatenate([w.ravel(), b]) - start))
    return start, np.array(parts)


def mean_loss(flat, x, y):
    scores = x @ flat[:12].reshape(4, 3) + flat[12:]
    scores -= scores.max(1, keepdims=True)
    chosen = scores[np.arange(len(y)), y]
    return np.mean(np.log(np.exp(scores).sum(1)) - chosen)


def test_values_are_shapley_values_of_the_round():
    graphdef, params, x, y, clients = problem([3, 1, 20, 7])
    rng = np.random.default_rng(5)
    targets = rng.normal(size=(9, 4)).astype(np.float32), rng.integers(0, 3, 9)
    run = fed_avg(
        *(graphdef, params, x, y, 10 * clients),
        key=jax.random.key(0),
        rounds=1,
        local_steps=3,
        optimizer=SGD,
        targets=targets,
    )
    start, parts = updates_of_clients(params, x, y, clients, 3, 0.3)
    expected = np.zeros(4)
    for c in range(4):
        others = [i for i in range(4) if i != c]
        for size in range(4):
            weight = 1 / (4 * math.comb(3, size))
            for group in itertools.combinations(others, size):
                without = start + parts[list(group)].sum(0)
                before, after = (
                    mean_loss(point, *targets)
                    for point in (without, without + parts[c])
                )
                expected[c] += weight * (before - after)
    np.testing.assert_allclose(run.values.values, expected, rtol=0.02, atol=1e-4)
    assert run.values.index == (0, 10, 20, 30)
    assert int(run.values.count) == 9
    assert np.all(np.asarray(run.values.stderr) > 0)


@pytest.mark.slow
def test_values_sum_to_the_fall_of_the_loss():
    x, y, _ = digits()
    targets = x[1200:], y[1200:]
    run = digits_run(rounds=6, targets=targets, evaluate=None)
    graphdef, params = nnx.split(MLP(64, 32, 10, rngs=nnx.Rngs(0)), nnx.Param)

    def loss(params):
        scores = nnx.merge(graphdef, params)(targets[0])
        return optax.softmax_cross_entropy_with_integer_labels(
            scores, targets[1]
        ).mean()

    fall = float(loss(params) - loss(run.params))
    assert float(run.values.values.sum()) == pytest.approx(fall, rel=0.01)
    same(digits_run(rounds=6, evaluate=None).params, run.params, rtol=0, atol=0)


@pytest.mark.slow
def test_a_client_with_wrong_labels_gets_the_lowest_value():
    x, y, clients = digits()
    graphdef, params = nnx.split(MLP(64, 32, 10, rngs=nnx.Rngs(0)), nnx.Param)
    wrong = np.where(clients == 2, (y + 1) % 10, y)
    options = {"key": jax.random.key(0), "rounds": 10, "targets": (x[1200:], y[1200:])}
    values = fed_avg(graphdef, params, x, wrong, clients, **options).values
    assert values.bottom(1).tolist() == [2]
    assert values.values[2] < 0 < np.delete(np.asarray(values.values), 2).min()


@pytest.mark.slow
def test_values_of_drawn_clients_resumed_and_on_devices(tmp_path):
    x, y, _ = digits()
    options = {
        "rounds": 4,
        "evaluate_every": 2,
        "clients_per_round": 5,
        "targets": (x[1200:1300], y[1200:1300]),
    }
    run = digits_run(**options, evaluate=None)
    assert 5 <= np.count_nonzero(run.values.values) < 20
    calls = []

    def killed(params):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        digits_run(**options, evaluate=killed, checkpoint=tmp_path / "run")
    again = digits_run(**options, evaluate=None, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again.values.values, run.values.values)
    np.testing.assert_array_equal(again.values.m2, run.values.m2)
    split = digits_run(**options, evaluate=None, mesh=jaxsel.make_mesh())
    np.testing.assert_allclose(split.values.values, run.values.values, atol=1e-5)


@pytest.mark.parametrize(
    ("targets", "options", "error", "match"),
    [
        (np.ones(3), {}, TypeError, "pair"),
        ((np.ones((3, 64)), np.zeros(2, int)), {}, ValueError, "same length"),
        ((np.full((3, 64), np.nan), np.zeros(3, int)), {}, ValueError, "targets"),
        ((np.ones((3, 64)), np.full(3, 10)), {}, ValueError, r"\[0, 10\)"),
        ((np.ones((0, 64)), np.zeros(0, int)), {}, ValueError, "must have an example"),
        ((np.ones((3, 64)), np.zeros(3, int)), {"server": SGD}, ValueError, "server"),
    ],
)
def test_refuses_targets(targets, options, error, match):
    with pytest.raises(error, match=match):
        digits_run(targets=targets, **options)
