"""Federated averaging against a loop over clients, on any devices, and resumed."""

import fractions
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxsel
from jaxsel.models import fed_avg
from jaxsel.models._federated_round import _share_of, as_fraction, federated_round

from .federations import SGD, by_hand, digits_run, problem, same


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
