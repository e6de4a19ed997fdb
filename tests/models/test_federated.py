"""Federated averaging against a loop over clients, on any devices, and resumed."""

import fractions
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from sklearn.datasets import load_digits

import jaxsel
from jaxsel.models import MLP, accuracy, fed_avg
from jaxsel.models._federated_round import _share_of, as_fraction, federated_round

SGD = optax.sgd(0.3)


def problem(sizes, seed=0):
    """Return clients whose samples are all alike, so that no draw matters."""
    rng = np.random.default_rng(seed)
    x = np.repeat(rng.normal(size=(len(sizes), 4)).astype(np.float32), sizes, axis=0)
    y = np.repeat(rng.integers(0, 3, len(sizes)), sizes)
    model = nnx.Linear(4, 3, rngs=nnx.Rngs(seed))
    return *nnx.split(model, nnx.Param), x, y, np.repeat(np.arange(len(sizes)), sizes)


def by_hand(params, x, y, clients, steps, rate, rounds=1):
    """Average SGD by the formula of its gradient."""
    w, b = (np.asarray(params[name].get_value(), float) for name in ("kernel", "bias"))
    for _ in range(rounds):
        total, new = 0, (np.zeros_like(w), np.zeros_like(b))
        for c in np.unique(clients[clients >= 0]):
            rows = clients == c
            own_w, own_b = w.copy(), b.copy()
            for _ in range(steps):
                scores = x[rows] @ own_w + own_b
                p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
                p[np.arange(len(p)), y[rows]] -= 1
                own_w -= rate * x[rows].T @ p / len(p)
                own_b -= rate * p.mean(0)
            new = new[0] + rows.sum() * own_w, new[1] + rows.sum() * own_b
            total += rows.sum()
        w, b = (part / total for part in new)
    return w, b


def assert_close(params, expected):
    for name, value in zip(("kernel", "bias"), expected, strict=True):
        np.testing.assert_allclose(params[name].get_value(), value, atol=1e-5)


@pytest.mark.every(3)
@pytest.mark.parametrize("batch_share", [0.08, 0.5, 1.0])
def test_a_loop_over_clients(batch_share):
    graphdef, params, x, y, clients = problem([3, 1, 20, 7])
    run = fed_avg(
        graphdef,
        params,
        x,
        y,
        clients,
        key=jax.random.key(0),
        rounds=3,
        local_steps=4,
        batch_share=batch_share,
        optimizer=SGD,
    )
    assert_close(run.params, by_hand(params, x, y, clients, 4, 0.3, rounds=3))
    assert not len(run.rounds)


def test_samples_left_out():
    graphdef, params, x, y, clients = problem([3, 5, 4])
    clients[clients == 1] = -1
    clients[[0, 8]] = -1
    options = {"rounds": 2, "local_steps": 3, "optimizer": SGD}
    run = fed_avg(graphdef, params, x, y, clients, key=jax.random.key(0), **options)
    assert_close(run.params, by_hand(params, x, y, clients, 3, 0.3, rounds=2))


@pytest.mark.left_out
def test_minibatches_are_a_share_of_the_clients_samples():
    # A client with 30 samples and a share of .1 sees 3 of them in its one step.
    rng = np.random.default_rng(0)
    x = np.eye(30, dtype=np.float32)
    y = rng.integers(0, 2, 30)
    graphdef, params = nnx.split(nnx.Linear(30, 2, rngs=nnx.Rngs(0)), nnx.Param)
    run = fed_avg(
        graphdef,
        params,
        x,
        y,
        np.zeros(30, int),
        key=jax.random.key(0),
        rounds=1,
        local_steps=1,
        batch_share=0.1,
        optimizer=SGD,
    )
    change = run.params["kernel"].get_value() - params["kernel"].get_value()
    assert 1 <= (np.abs(change).max(1) > 0).sum() <= 3


def one_hot(sizes):
    """Return clients of whose samples each moves a row of the kernel of its own."""
    n = sum(sizes)
    x, y = np.eye(n, dtype=np.float32), np.arange(n) % 2
    graphdef, params = nnx.split(nnx.Linear(n, 2, rngs=nnx.Rngs(0)), nnx.Param)
    return graphdef, jax.tree.map(jnp.zeros_like, params), x, y


def changes(kernel, sizes):
    """Return how far each client's samples moved the kernel, one array a client."""
    moved = np.abs(np.asarray(kernel)[:, 0])
    return np.split(moved, np.cumsum(sizes)[:-1])


@pytest.mark.left_out
def test_minibatches_are_rounded_up_exactly():
    """Of 20 and 50 samples, .3 are 6 and 15, though float32 has a little more."""
    sizes = np.array([20, 50, 0, 21, 1])
    graphdef, params, x, y = one_hot(sizes)
    rows = np.zeros((5, 50), int)
    rows[np.arange(50) < sizes[:, None]] = np.arange(len(x))
    mean = jax.jit(federated_round, static_argnums=0, static_argnames=OPTIONS)(
        graphdef,
        params,
        x,
        y,
        rows,
        sizes,
        jax.random.key(0),
        optimizer=optax.sgd(1.0),
        local_steps=1,
        batch_share=0.3,
        batch_size=20,
    )
    found = changes(mean["kernel"].get_value(), sizes)
    for own, size, expected in zip(found, sizes, (6, 15, None, 7, 1), strict=True):
        if size:
            # Of those drawn once: half a step, by the minibatch, by the client's share.
            once = own[own > 0].min() / (size / sizes.sum())
            assert 0.5 / once == pytest.approx(expected, rel=1e-4)


OPTIONS = ("optimizer", "local_steps", "batch_share", "batch_size")


@pytest.mark.parametrize("share", [0.3, 0.07, 1 / 3, 0.123456, 1e-7, 1.0])
def test_shares_of_any_number_of_samples(share):
    rng = np.random.default_rng(0)
    sizes = np.append(np.arange(1, 2000), rng.integers(1, 1 << 22, 500))
    meant = (
        fractions.Fraction(1, 3) if share == 1 / 3 else fractions.Fraction(f"{share}")
    )
    expected = [math.ceil(meant * int(size)) for size in sizes]
    found = _share_of(as_fraction(share), jnp.asarray(sizes))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.left_out
def test_every_client_round_and_step_draws_its_own_minibatch():
    # Two clients of 64 samples draw 4 in each of 3 steps.
    graphdef, params, x, y = one_hot([64, 64])
    kernels = [np.zeros(128)]

    def seen(params):
        kernels.append(np.asarray(params["kernel"].get_value())[:, 0])
        return 0.0

    fed_avg(
        graphdef,
        params,
        x,
        y,
        np.repeat([0, 1], 64),
        key=jax.random.key(0),
        rounds=2,
        local_steps=3,
        batch_share=1 / 16,
        optimizer=SGD,
        evaluate=seen,
    )
    moved = np.diff(np.array(kernels), axis=0).reshape(2, 2, 64) != 0
    for drawn in moved.reshape(4, 64):
        assert 6 < drawn.sum() <= 12
    assert (moved[0, 0] != moved[0, 1]).any()
    assert (moved[0] != moved[1]).any(axis=1).all()


def digits():
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    clients = np.random.default_rng(0).integers(0, 20, len(y))
    return x, y, np.where(np.arange(len(y)) < 1200, clients, -1)


def digits_run(**options):
    x, y, clients = digits()
    graphdef, params = nnx.split(MLP(64, 32, 10, rngs=nnx.Rngs(0)), nnx.Param)
    test = x[1200:], y[1200:]
    given = {
        "key": jax.random.key(0),
        "rounds": 12,
        "batch_share": 0.2,
        "optimizer": SGD,
        "evaluate": lambda params: accuracy(graphdef, params, *test),
        "evaluate_every": 5,
    }
    return fed_avg(graphdef, params, x, y, clients, **given | options)


def same(a, b, **tolerance):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


@pytest.mark.slow
def test_learns_and_counts_rounds():
    run = digits_run()
    assert run.rounds.tolist() == [5, 10, 12]
    assert run.scores[-1] > 0.85
    assert run.rounds_to(run.scores[1]) in (5, 10)
    assert run.rounds_to(1.1) is None


def test_server_takes_half_a_step():
    graphdef, params, x, y, clients = problem([3, 1, 20, 7])
    options = {
        "rounds": 1,
        "local_steps": 4,
        "optimizer": SGD,
        "key": jax.random.key(0),
    }
    run = fed_avg(graphdef, params, x, y, clients, server=optax.sgd(0.5), **options)
    w, b = by_hand(params, x, y, clients, 4, 0.3)
    start = (params["kernel"].get_value(), params["bias"].get_value())
    assert_close(run.params, ((w + start[0]) / 2, (b + start[1]) / 2))


@pytest.mark.slow
def test_server_state_lasts_and_resumes(tmp_path):
    def stop(params):
        raise KeyboardInterrupt

    falling = optax.sgd(optax.cosine_decay_schedule(1.0, 12), momentum=0.5)
    whole = digits_run(server=falling)
    plain = digits_run()
    changed = jax.tree.map(lambda a, b: np.abs(a - b).max(), whole.params, plain.params)
    assert max(jax.tree.leaves(changed)) > 1e-3
    scores = iter([0.5, None])

    def killed(params):
        score = next(scores)
        return stop(params) if score is None else score

    with pytest.raises(KeyboardInterrupt):
        digits_run(server=falling, evaluate=killed, checkpoint=tmp_path / "run")
    again = digits_run(server=falling, checkpoint=tmp_path / "run")
    same(again.params, whole.params, rtol=0, atol=0)
    assert again.scores[0] == 0.5


@pytest.mark.left_out
def test_clients_are_drawn():
    few = digits_run(clients_per_round=3)
    assert few.scores[-1] > 0.7
    everyone = digits_run(clients_per_round=20)
    same(everyone.params, digits_run().params, atol=1e-5)


@pytest.mark.left_out
def test_devices_share_clients():
    run = digits_run(mesh=jaxsel.make_mesh(), rounds=3)
    same(run.params, digits_run(rounds=3).params, atol=1e-5)


@pytest.mark.slow
def test_goes_on_after_a_kill(tmp_path):
    calls = []

    def killed(params):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return float(len(calls))

    whole = digits_run(evaluate=lambda params: 1.0)
    with pytest.raises(KeyboardInterrupt):
        digits_run(evaluate=killed, checkpoint=tmp_path / "run")
    again = digits_run(evaluate=lambda params: 2.0, checkpoint=tmp_path / "run")
    same(again.params, whole.params, rtol=0, atol=0)
    assert again.scores.tolist() == [1.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="another"):
        digits_run(local_steps=3, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("change", ["activation", "lambda", "optimizer", "server"])
@pytest.mark.every(4)
def test_a_checkpoint_of_another_program_is_refused(change, tmp_path):
    """Though all parameters have the same shapes and start."""
    _, _, x, y, clients = problem([4, 4])

    def run(activation=nnx.relu, optimizer=SGD, server=None):
        layer = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
        model = nnx.split(nnx.Sequential(layer, activation), nnx.Param)
        options = {"optimizer": optimizer, "server": server, "key": jax.random.key(0)}
        folder = tmp_path / "run"
        return fed_avg(*model, x, y, clients, rounds=1, checkpoint=folder, **options)

    double, triple = (lambda x: 2 * x), (lambda x: 3 * x)
    base = {"activation": double} if change == "lambda" else {}
    same(run(**base).params, run(**base).params, rtol=0, atol=0)
    others = {
        "activation": {"activation": nnx.tanh},
        "lambda": {"activation": triple},
        "optimizer": {"optimizer": optax.sgd(0.2)},
        "server": {"server": optax.sgd(0.5)},
    }
    with pytest.raises(ValueError, match="another model: choose another folder"):
        run(**others[change])


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


@pytest.mark.slow
def test_kernel_under_jit_of_vmap_over_seeds():
    graphdef, params, x, y, _ = problem([4, 4])
    rows, sizes = jnp.arange(8).reshape(2, 4), jnp.array([4, 4])

    @jax.jit
    @jax.vmap
    def run(key):
        return federated_round(
            graphdef,
            params,
            x,
            y,
            rows,
            sizes,
            key,
            optimizer=SGD,
            local_steps=2,
            batch_share=0.5,
            batch_size=2,
        )

    found = run(jax.random.split(jax.random.key(0), 3))
    expected = by_hand(params, x, y, np.repeat([0, 1], 4), 2, 0.3)
    for i in range(3):
        assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], found), expected)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"batch_share": 0.0}, "batch_share must lie in"),
        ({"clients_per_round": 21}, "at most the 20 clients"),
    ],
)
def test_refuses(options, match):
    with pytest.raises(ValueError, match=match):
        digits_run(**options)


@pytest.mark.left_out
def test_scores_may_be_nan():
    scores = iter([1.0, np.nan, 0.5])
    run = digits_run(rounds=3, evaluate=lambda _: next(scores), evaluate_every=1)
    assert run.rounds.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(run.scores, [1.0, np.nan, 0.5])
    assert digits_run(rounds=2, evaluate=None).rounds.size == 0


@pytest.mark.left_out
def test_refuses_clients():
    graphdef, params, x, y, clients = problem([2, 2])
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="not left out"):
        fed_avg(graphdef, params, x, y, np.full(4, -1), key=key)
    with pytest.raises(ValueError, match=r"y must lie in \[0, 3\)"):
        fed_avg(graphdef, params, x, np.full(4, 3), clients, key=key)
    with pytest.raises(ValueError, match="clients must be -1 or more, got -5"):
        fed_avg(graphdef, params, x, y, np.full(4, -5), key=key)
    with pytest.raises(ValueError, match="whole numbers"):
        fed_avg(graphdef, params, x, y, clients / 2, key=key)
    with pytest.raises(ValueError, match="same length"):
        fed_avg(graphdef, params, x, y, clients[1:], key=key)
