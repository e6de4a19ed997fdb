"""In-run Data Shapley, compared with per-sample gradients, Hessians and the game."""

import functools
import itertools
import math

import in_run_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from in_run_cases import CASES, B, M, run, step_values

from jaxsel import Values, gradients
from jaxsel.attribute import Adam, InRun, Sgd, in_run_shapley, in_run_step

each_case = pytest.mark.parametrize("name", CASES)
each_order = pytest.mark.parametrize("order", [1, 2])


def near(actual, desired, tolerance):
    scale = np.abs(desired).max()
    np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=tolerance * scale)


@each_case
@each_order
@pytest.mark.every(6)
def test_a_step_equals_explicit_gradients_and_hessians(name, order):
    """To 1e-5 in float32, in units of the largest value; to 1e-10 in float64."""
    loss, params, examples, targets = CASES[name]()
    right = cases.game(name, True)[order - 1]
    assert right.shape == (M, B)
    values = step_values(loss, params, examples, targets, step=0.3, order=order)
    assert values.dtype == jnp.float32
    near(values, right, 1e-5)
    with jax.enable_x64(True):
        wide = cases.widen((params, examples, targets))
        values = step_values(loss, *wide, step=0.3, order=order)
        assert values.dtype == jnp.float64
        near(values, right, 1e-10)


@each_case
@pytest.mark.every(3)
def test_factors_are_taken_where_they_can_be(name, monkeypatch):
    loss, params, examples, targets = CASES[name]()
    calls = []
    grad_and_ghost = gradients.grad_and_ghost
    monkeypatch.setattr(
        gradients,
        "grad_and_ghost",
        lambda *a, **k: calls.append(a[2]) or grad_and_ghost(*a, **k),
    )
    in_run_step(loss, params, examples, targets, step=0.3)
    in_full = [c for c in calls if jax.tree.leaves(c)[0].shape[0] == B]
    assert bool(in_full) == (name in cases.GHOST)


@each_case
@each_order
@pytest.mark.every(6)
def test_rates_by_parameter_equal_explicit_gradients(name, order):
    loss, params, examples, targets = CASES[name]()
    with jax.enable_x64(True):
        params, examples, targets = cases.widen((params, examples, targets))
        step = jax.tree.map(lambda leaf: jnp.abs(leaf) + 0.1, params)
        values = step_values(loss, params, examples, targets, step=step, order=order)
        rates = jax.flatten_util.ravel_pytree(step)[0]
        steps = rates * cases.flat_gradients(loss, params, examples) / B
        right = cases.flat_gradients(loss, params, targets) @ steps.T
        if order == 2:
            hessians = cases.flat_hessians(loss, params, targets)
            right -= np.einsum("ip,mpq,q->mi", steps, hessians, steps.sum(0)) / 2
    near(values, right, 1e-10)


def test_values_of_a_quadratic_loss_are_those_of_the_game_enumerated():
    """The Shapley value by its definition: all coalitions of the batch."""
    hessian = np.array([[2.0, 0.3], [0.3, 1.0]])

    def loss(w, example):
        return 0.5 * w @ jnp.asarray(hessian) @ w - w @ example

    w, step = jnp.array([0.4, -1.0]), 0.7
    batch, target = np.array([[1.0, 2], [0, -1], [3, 0.5], [-1, 1]]), [[0.5, 0.5]]
    with jax.enable_x64(True):
        w, batch, target = jnp.float64(w), jnp.asarray(batch), jnp.asarray(target)
        slopes = jax.vmap(jax.grad(loss), (None, 0))(w, batch) * step / len(batch)

        def fall(members):
            after = w - slopes[np.array(members, int)].sum(0)
            return float(loss(w, target[0]) - loss(after, target[0]))

        n = len(batch)
        right = np.zeros(n)
        for order in itertools.permutations(range(n)):
            for place, i in enumerate(order):
                rise = fall(order[: place + 1]) - fall(order[:place])
                right[i] += rise / math.factorial(n)
        values = step_values(loss, w, batch, target, step=step, order=2)
        near(values[0], right, 1e-12)


@each_case
@pytest.mark.every(4)
def test_a_target_alone_has_the_values_that_it_has_among_others(name):
    loss, params, examples, targets = CASES[name]()
    for order in (1, 2):
        call = lambda t, order=order: step_values(
            loss, params, examples, t, step=0.3, order=order
        )
        together = call(targets)
        for j in range(M):
            alone = call(jax.tree.map(lambda leaf, j=j: leaf[j : j + 1], targets))
            near(alone[0], together[j], 1e-5)


def test_the_sign_and_the_share_of_the_batch():
    """An example equal to the target lowers its loss by the rate / |B| times |g|²."""
    loss, params, examples, _ = cases.dense()
    values = in_run_step(loss, params, examples, examples, step=0.6)
    lengths = (cases.flat_gradients(loss, params, examples) ** 2).sum(1)
    near(jnp.diag(values), 0.6 / B * lengths, 1e-5)


# Whole runs.

RULES = {
    "sgd": Sgd(0.05),
    "momentum": Sgd(0.01, momentum=0.8),
    "nesterov": Sgd(0.01, momentum=0.8, nesterov=True),
    "schedule": Sgd(optax.linear_schedule(0.02, 0.0, 12), momentum=0.8),
    "adam": Adam(1e-3),
    "adam schedule": Adam(optax.linear_schedule(0.0, 2e-3, 12), b1=0.8),
}


def losses(loss, params, targets):
    return np.asarray(jax.vmap(loss, (None, 0))(params, targets))


def explicit(rule, loss, params, examples, targets, rows, *, follow):
    """Return values `[n, M]` and last parameters, by a loop over explicit gradients."""
    optimizer = rule.optimizer()
    state, steps, past = optimizer.init(params), len(rows), []
    is_adam = isinstance(rule, Adam)
    keep = rule.b1 if is_adam else rule.momentum
    rate = lambda t: float(
        rule.learning_rate(t) if callable(rule.learning_rate) else rule.learning_rate
    )
    square = 0.0
    for t, batch in enumerate(rows):
        part = tuple(a[batch] for a in examples)
        of_batch = cases.flat_gradients(loss, params, part)
        mean, scale = of_batch.mean(0), 1.0
        if is_adam:
            square = rule.b2 * square + (1 - rule.b2) * mean**2
            scale = 1 / (np.sqrt(square / (1 - rule.b2 ** (t + 1))) + rule.eps)
        aims = cases.flat_gradients(loss, params, targets)
        past.append((batch, of_batch / len(batch), aims, scale))
        unravel = jax.flatten_util.ravel_pytree(params)[1]
        updates, state = optimizer.update(unravel(jnp.asarray(mean)), state, params)
        params = optax.apply_updates(params, updates)
    values = np.zeros((len(examples[0]), len(aims)))
    for s, (batch, of_batch, aims, scale) in enumerate(past):
        for t in range(s, steps):
            weight = rate(t) * keep ** (t - s)
            if is_adam:
                weight *= (1 - keep) / (1 - keep ** (t + 1))
            elif rule.nesterov:
                weight = rate(t) * (keep ** (t - s + 1) + (t == s))
            direction = past[t][3] * past[t][2] if follow else scale * aims
            np.add.at(values, batch, weight * of_batch @ direction.T)
    return values, params


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.every(6)
def test_a_run_equals_a_loop_over_explicit_gradients(rule, follow):
    """The weights of momentum, by their double sum over steps, in float64."""
    with jax.enable_x64(True):
        trained, loss, params, examples, targets = run(
            RULES[rule], reduce=None, follow=follow
        )
        rows = order_of(24, 12, 8)
        wide = cases.widen((params, examples, targets))
        right, last = explicit(RULES[rule], loss, *wide, rows, follow=follow)
    assert trained.values.values.shape == (M, 24)
    near(trained.values.values, right.T, 2e-4)
    for a, b in zip(
        jax.tree.leaves(trained.params), jax.tree.leaves(last), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def order_of(n, steps, batch_size):
    """Return the rows of each step, as `in_run_shapley` draws them from key 0."""
    key, passes = jax.random.key(0), -(-steps * batch_size // n)
    rows = [
        jax.random.permutation(jax.random.fold_in(key, i), n) for i in range(passes)
    ]
    flat = np.concatenate(rows)[: steps * batch_size]
    return flat.reshape(steps, batch_size)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.every(3)
def test_values_sum_to_the_fall_of_the_loss(rule):
    """Up to the second order in the rate; with `follow`, momentum and Adam included."""
    trained, loss, params, _, targets = run(
        RULES[rule], reduce=None, follow=True, steps=40
    )
    fall = losses(loss, params, targets) - losses(loss, trained.params, targets)
    error = np.abs(trained.values.values.sum(1) - fall).mean()
    assert error < 0.08 * np.abs(fall).mean()


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_halving_the_rate_halves_the_share_that_the_first_order_misses(momentum):
    shares = []
    for rate, steps in ((0.02, 20), (0.005, 80)):
        trained, loss, params, _, targets = run(
            Sgd(rate * (1 - momentum), momentum=momentum),
            reduce=None,
            steps=steps,
            batch_size=24,
        )
        fall = losses(loss, params, targets) - losses(loss, trained.params, targets)
        missed = np.abs(trained.values.values.sum(1) - fall).mean()
        shares.append(missed / np.abs(fall).mean())
    assert shares[1] < 0.4 * shares[0] < 0.4 * 0.2


def test_the_second_order_comes_closer_to_the_fall():
    errors = []
    for order in (1, 2):
        trained, loss, params, _, targets = run(Sgd(0.1), order=order, reduce=None)
        fall = losses(loss, params, targets) - losses(loss, trained.params, targets)
        errors.append(np.abs(trained.values.values.sum(1) - fall).mean())
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_a_recorder_in_a_loop_of_its_own_equals_the_function(rule, order):
    """Jitted step by step, with the products of inputs and without them."""
    trained, loss, params, examples, targets = run(RULES[rule], order=order)
    for known in (None, examples):
        recorder = InRun(
            loss,
            targets,
            24,
            optimizer=RULES[rule],
            steps=12,
            order=order,
            examples=known,
        )
        optimizer = RULES[rule].optimizer()

        @jax.jit
        def step(carry, rows, recorder=recorder, optimizer=optimizer):
            params, state, recorded = carry
            batch = tuple(a[rows] for a in map(jnp.asarray, examples))
            gradient, recorded = recorder.step(recorded, params, state, batch, rows)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state, recorded

        carry = params, optimizer.init(params), recorder.init(params)
        for rows in order_of(24, 12, 8):
            carry = step(carry, jnp.asarray(rows))
        values = recorder.finish(carry[2])
        assert isinstance(values, Values)
        assert values.method == trained.values.method
        near(values.values, np.asarray(trained.values.values), 1e-5)
        near(values.stderr, np.asarray(trained.values.stderr), 1e-4)


def test_without_an_end_momentum_counts_in_full():
    """c = rate / (1 - momentum); Adam's first weights exceed the rate."""
    loss, params, examples, targets = cases.dense()
    rows = jnp.arange(B)
    once = in_run_step(loss, params, examples, targets, step=0.1)
    for rule, factor in (
        (Sgd(0.1, momentum=0.75), 4.0),
        (Sgd(0.1, momentum=0.75, nesterov=True), 4.0),
        (Sgd(lambda step: 0.1, momentum=0.75), 4.0),
    ):
        recorder = InRun(loss, targets, B, optimizer=rule)
        state = rule.optimizer().init(params)
        _, recorded = recorder.step(
            recorder.init(params), params, state, examples, rows
        )
        values = recorder.finish(recorded, reduce=None)
        near(values.values, factor * np.asarray(once), 1e-5)


def test_a_sample_may_occur_twice_and_others_are_left_out():
    loss, params, examples, targets = cases.dense()
    recorder = InRun(loss, targets, 3, optimizer=Sgd(0.3))
    rows = jnp.array([0, 2, 0, -1, 3, 2])
    _, state = recorder.step(recorder.init(params), params, None, examples, rows)
    values = recorder.finish(state, reduce=None).values
    once = in_run_step(loss, params, examples, targets, step=0.3)
    near(values[:, 0], once[:, 0] + once[:, 2], 1e-5)
    near(values[:, 2], once[:, 1] + once[:, 5], 1e-5)
    assert not values[:, 1].any()


def test_a_mean_has_the_error_over_targets_and_values_merge():
    trained, loss, params, examples, targets = run(Sgd(0.05), reduce=None)
    rows = np.asarray(trained.values.values)
    mean = run(Sgd(0.05))[0].values
    near(mean.values, rows.mean(0), 1e-5)
    near(mean.stderr, rows.std(0, ddof=1) / M**0.5, 1e-4)
    assert mean.count == M
    halves = [
        in_run_shapley(
            loss,
            params,
            examples,
            jax.tree.map(lambda leaf, part=part: leaf[part], targets),
            optimizer=Sgd(0.05),
            key=jax.random.key(0),
            steps=12,
            batch_size=8,
        ).values
        for part in (slice(0, 1), slice(1, M))
    ]
    near(halves[0].merge(halves[1]).values, np.asarray(mean.values), 1e-5)
    with pytest.raises(ValueError, match="cannot merge"):
        halves[0].merge(halves[0])


def test_decay_belongs_to_no_sample():
    """It changes the run: the values of the first step stay the same."""
    for rule in (Sgd, Adam):
        plain, decayed = (
            run(rule(0.01, weight_decay=decay), steps=1)[0] for decay in (0.0, 0.1)
        )
        near(decayed.values.values, np.asarray(plain.values.values), 1e-5)
        moved = jax.tree.map(
            lambda a, b: float(jnp.abs(a - b).max()), plain.params, decayed.params
        )
        assert max(jax.tree.leaves(moved)) > 1e-5


def test_a_flax_model_and_its_wrong_labels():
    """Values of flipped labels are below others, on two classes that lie apart."""
    from flax import nnx

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80).astype(np.int32)
    x = (rng.normal(size=(80, 3)) + 4 * y[:, None] - 2).astype(np.float32)
    wrong = np.arange(60) < 8
    noisy = np.where(wrong, 1 - y[:60], y[:60]).astype(np.int32)
    graphdef, params = nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), nnx.Param)

    def loss(params, example):
        return cases.cross_entropy(nnx.merge(graphdef, params)(example[0]), example[1])

    trained = in_run_shapley(
        loss,
        params,
        (x[:60], noisy),
        (x[60:], y[60:]),
        optimizer=Sgd(0.02, momentum=0.5),
        key=jax.random.key(0),
        epochs=5,
        batch_size=10,
    )
    assert set(trained.values.bottom(8)) == set(range(8))
    assert "InRunTraining(Values(in_run_shapley(Sgd(" in repr(trained)


def test_fit_records_values_and_trains_as_without():
    """By its own draws, with padding to 2048 rows."""
    from flax import nnx

    from jaxsel import models
    from jaxsel._runs.draws import drawer

    x, y = cases.normal(20, 4, seed=3), cases.labels(20)
    model = models.MLP(4, cases.CLASSES, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model, nnx.Param)

    def loss(params, example):
        logits = nnx.merge(graphdef, params)(example[0][None])[0]
        return cases.cross_entropy(logits, example[1])

    rule = Adam(optax.cosine_decay_schedule(1e-2, 6), weight_decay=0.1)
    recorder = InRun(loss, (x[:3], y[:3]), 20, optimizer=rule, steps=6)
    options = {"steps": 6, "batch_size": 5, "weight_decay": 0.1}
    call = functools.partial(
        models.fit, graphdef, params, x, y, key=jax.random.key(1), **options
    )
    alone = call()
    trained, state = call(recorder=recorder)
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(trained), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    optimizer = rule.optimizer()
    run, draw = (
        (params, optimizer.init(params), recorder.init(params)),
        drawer(jnp.pad(jnp.ones(20), (0, 2028))),
    )
    step = jax.jit(recorder.step)
    for i in range(6):
        rows = draw(jax.random.fold_in(jax.random.key(1), i), 5)
        params, opt_state, recorded = run
        batch = jnp.asarray(x)[rows], jnp.asarray(y)[rows]
        gradient, recorded = step(recorded, params, opt_state, batch, rows)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        run = optax.apply_updates(params, updates), opt_state, recorded
    right = np.asarray(recorder.finish(run[2]).values)
    near(recorder.finish(state).values, right, 1e-4)


# What is refused.
