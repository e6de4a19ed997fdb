"""Fine-tuning: its steps, its stops, and going on after a kill."""

import functools
import os
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from waits import PATIENCE

from jaxsel import attribute
from jaxsel._runs.checkpoints import Checkpoints, program_digest, run_digest
from jaxsel.models import MLP, Classifier, EncoderConfig, Tokens, _finetune, finetune

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
MODEL = MLP(4, 3, rngs=nnx.Rngs(0))
GRAPHDEF, START = nnx.split(MODEL, nnx.Param)
ACTIVATE = {"relu": nnx.relu, "gelu": nnx.gelu}
RECIPE = {"batch_size": 8, "learning_rate": 0.1}


def run(**changes):
    data = {"inputs": X, "y": Y, "key": KEY, "steps": 40, "compute_dtype": "float32"}
    arguments = data | RECIPE | changes
    return finetune(GRAPHDEF, START, **arguments)


def assert_equal(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **({"rtol": 0, "atol": 0} | tolerance))


def slow_adamw(steps, rate, *, weight_decay, clip):
    """AdamW on logistic regression in float64, the gradient by hand."""
    kernel, bias = (
        np.asarray(MODEL.layers[0].kernel[...], float),
        np.asarray(MODEL.layers[0].bias[...], float),
    )
    order, rows = _finetune._Order(KEY, len(X)), RECIPE["batch_size"]
    means = [np.zeros_like(kernel), np.zeros_like(bias)]
    squares = [np.zeros_like(kernel), np.zeros_like(bias)]
    losses = []
    for i in range(steps):
        at = order.rows(i * rows, rows)
        scores = X[at] @ kernel + bias
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log(p[np.arange(rows), Y[at]]).mean())
        error = (p - np.eye(3)[Y[at]]) / rows
        grads = [X[at].T @ error, error.sum(0)]
        norm = np.sqrt(sum((g**2).sum() for g in grads))
        for j, (w, g) in enumerate(zip((kernel, bias), grads, strict=True)):
            g = g * min(1, clip / norm)
            means[j] = 0.9 * means[j] + 0.1 * g
            squares[j] = 0.999 * squares[j] + 0.001 * g**2
            mean, square = (
                means[j] / (1 - 0.9 ** (i + 1)),
                squares[j] / (1 - 0.999 ** (i + 1)),
            )
            decay = weight_decay * w if w.ndim > 1 else 0
            w -= rate(i) * (mean / (np.sqrt(square) + 1e-8) + decay)
    return (bias, kernel), losses


@pytest.mark.parametrize("decay", ["linear", "cosine"])
@pytest.mark.every(2)
def test_steps_are_those_of_adamw(decay):
    def rate(i):
        left = (40 - i) / 36
        if decay == "cosine":
            left = (1 - np.cos(np.pi * left)) / 2
        return 0.1 * ((i + 1) / 4 if i < 4 else left)

    options = {"weight_decay": 0.3, "clip": 0.4}
    params, losses = slow_adamw(40, rate, **options)
    found = run(decay=decay, **options)
    assert found.steps == 40
    assert found.stopped is None
    np.testing.assert_allclose(found.losses, losses, atol=1e-4)
    assert_equal(found.params, params, atol=1e-4)


@pytest.mark.left_out
def test_parts_of_a_step_add_up():
    whole = run()
    for accumulate in (2, 8):
        parts = run(accumulate=accumulate)
        np.testing.assert_allclose(parts.losses, whole.losses, atol=1e-5)
        assert_equal(parts.params, whole.params, atol=1e-5)


def test_every_pass_sees_every_example():
    order = _finetune._Order(KEY, 50)
    whole = order.rows(0, 200).reshape(4, 50)
    assert (np.sort(whole, axis=1) == np.arange(50)).all()
    assert not (whole[0] == whole[1]).all()
    pieces = np.concatenate([order.rows(first, 25) for first in range(0, 200, 25)])
    np.testing.assert_array_equal(pieces, whole.reshape(-1))
    assert run(epochs=1.5, steps=None).steps == 10  # of 8, to see 75


def test_parameters_outside_wrt_stay_as_they_are():
    """Training the last layer is training a linear model of the frozen features."""
    model = MLP(4, 6, 3, rngs=nnx.Rngs(1))
    graphdef, start = nnx.split(model, nnx.Param)
    options = {"key": KEY, "steps": 40, "compute_dtype": "float32", **RECIPE}
    last = finetune(graphdef, start, X, Y, wrt="layers/1/*", **options)
    assert_equal(last.params["layers"][0], start["layers"][0])
    head = MLP(6, 3, rngs=nnx.Rngs(0))
    head.layers[0] = model.layers[1]
    features = np.asarray(nnx.relu(model.layers[0](X)))
    alone = finetune(*nnx.split(head, nnx.Param), features, Y, **options)
    np.testing.assert_allclose(last.losses, alone.losses, atol=1e-5)
    assert_equal(last.params["layers"][1], alone.params["layers"][0], atol=1e-5)
    assert jax.tree.structure(last.params) == jax.tree.structure(start)


def test_wrt_of_all_changes_nothing():
    assert_equal(run(wrt="*").params, run().params, atol=1e-6)


def test_a_checkpoint_of_other_trained_parameters_is_refused(tmp_path):
    """Also of as many in the same shapes."""
    model = nnx.split(MLP(4, 4, 4, rngs=nnx.Rngs(0)), nnx.Param)

    def tune(wrt, **options):
        options |= {"key": KEY, "steps": 20, "wrt": wrt, **RECIPE}
        return finetune(*model, X, Y, **options).params

    first, folder = "layers/0/kernel", tmp_path / "run"
    whole = tune(first)
    assert_equal(tune(first, checkpoint=folder), whole)
    assert_equal(tune(first, checkpoint=folder), whole)  # as read
    for wrt in ("layers/1/kernel", None):
        with pytest.raises(ValueError, match="holds a run with other data"):
            tune(wrt, checkpoint=folder)


def test_one_program_for_all_sizes():
    run(steps=3)
    programs = _finetune.run_block._cache_size()
    run(steps=37, inputs=X[:30], y=Y[:30], learning_rate=0.2, warmup=0, clip=2.0)
    assert _finetune.run_block._cache_size() == programs


@pytest.mark.left_out
def test_half_precision_is_near():
    full, half = run(), run(compute_dtype="bfloat16")
    assert jax.tree.leaves(half.params)[0].dtype == jnp.float32
    np.testing.assert_allclose(half.losses, full.losses, atol=0.05)
    assert np.abs(half.losses - full.losses).max() > 1e-5


def test_what_is_not_finite_stops(monkeypatch):
    saved = {}
    monkeypatch.setattr(Checkpoints, "load", lambda self, like: (0, like))
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, step, state: saved.update({step: {**state}})
    )
    x, y = np.tile(X, (4, 1)), np.tile(Y, 4)
    order = _finetune._Order(KEY, 200).rows(0, 200)
    for at in (3, 35 * 5 + 2):  # the example's place: in the first block, and later
        poisoned = x.copy()
        poisoned[order[at]] = 3e38  # finite, but its scores are not
        options = {
            "steps": 60,
            "batch_size": 5,
            "checkpoint": "none",
            "checkpoint_every": 1,
        }
        found = run(inputs=poisoned, y=y, **options)
        step = at // 5 + 1
        assert found.steps == len(found.losses) == step
        assert f"gradient of step {step} is not finite" in found.stopped
        assert not np.isfinite(found.losses[-1])
        assert np.isfinite(found.losses[:-1]).all()
        if at == 3:
            assert_equal(found.params, START)
            assert not saved
    part = run(inputs=poisoned, y=y, steps=60, batch_size=5, wrt="*/kernel")
    assert part.stopped == found.stopped
    assert jax.tree.structure(part.params) == jax.tree.structure(START)
    assert_equal(part.params["layers"][0]["bias"], START["layers"][0]["bias"])
    # Losses fell: the best parameters are those at the end of the last whole block.
    blocks = found.losses[:32].reshape(2, 16).mean(1)
    assert blocks[1] < blocks[0]
    assert sorted(saved) == [16, 32]
    assert_equal(found.params, saved[32]["params"])


def test_the_best_is_not_the_last(monkeypatch):
    saved = {}
    monkeypatch.setattr(Checkpoints, "load", lambda self, like: (0, like))
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, step, state: saved.update({step: {**state}})
    )
    # A learning rate that is still low in the first block, and far too high later.
    run(
        steps=48, warmup=0.9, learning_rate=50.0, checkpoint="none", checkpoint_every=16
    )
    means = [saved[48]["losses"][i : i + 16].mean() for i in (0, 16, 32)]
    assert means[0] < means[1]
    assert means[0] < means[2]
    assert saved[48]["lowest"] == np.float32(means[0])
    assert_equal(saved[48]["best"], saved[16]["params"])


CHILD = """
import os, signal, sys
import jax
sys.path[:0] = {path!r}
from models import test_finetune
from jaxsel._runs.checkpoints import Checkpoints

save = Checkpoints.save

def save_and_die(self, step, state):
    save(self, step, state)
    if step >= 64:
        os.kill(os.getpid(), signal.SIGKILL)

Checkpoints.save = save_and_die
jax.config.update("jax_default_matmul_precision", "highest")  # as conftest sets it
test_finetune.run(steps=100, checkpoint={folder!r}, checkpoint_every=32)
"""


@pytest.mark.slow
def test_goes_on_after_a_kill(tmp_path):
    folder = tmp_path / "run"
    script = textwrap.dedent(CHILD).format(path=sys.path, folder=str(folder))
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    assert os.listdir(folder) == ["64"]

    whole = run(steps=100)
    resumed = run(steps=100, checkpoint=folder, checkpoint_every=32)
    np.testing.assert_array_equal(resumed.losses, whole.losses)
    assert_equal(resumed.params, whole.params)
    assert os.listdir(folder) == ["100"]

    # Nothing is left to do; and it is this run's folder only.
    again = run(steps=100, checkpoint=folder)
    assert_equal(again.params, whole.params)
    for change in ({"steps": 101}, {"key": jax.random.key(4)}, {"inputs": X + 1}):
        with pytest.raises(ValueError, match="holds a run with other data"):
            run(**({"steps": 100, "checkpoint": folder} | change))


def cross_entropy(params, example):
    x, y = example
    return optax.softmax_cross_entropy_with_integer_labels(
        nnx.merge(GRAPHDEF, params)(x[None])[0], y
    )


def recorded(schedule, targets=(X[:3], Y[:3])):
    rule = attribute.Adam(schedule)
    return attribute.InRun(cross_entropy, targets, len(X), optimizer=rule)


def test_values_are_those_of_a_loop():
    """Also across the end of a block, and without an effect on the parameters."""
    tuned = run(steps=20, recorder=recorded, warmup=0.2)

    def schedule(i):
        return 0.1 * jnp.where(i < 4, (i + 1) / 4, (20 - i) / 16)

    recorder, order = recorded(schedule), _finetune._Order(KEY, len(X))
    matrices = lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, weight_decay=0.01, mask=matrices),
    )
    params, state, sums = START, optimizer.init(START), recorder.init(START)
    for i in range(20):
        rows = order.rows(8 * i, 8)
        batch = X[rows], Y[rows]
        gradient, sums = recorder.step(sums, params, state, batch, jnp.asarray(rows))
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    expected = recorder.finish(sums)
    np.testing.assert_allclose(tuned.values.values, expected.values, atol=1e-5)
    np.testing.assert_allclose(tuned.values.m2, expected.m2, atol=1e-4)
    assert tuned.values.method == expected.method
    plain = run(steps=20, warmup=0.2)
    assert plain.values is None
    assert_equal(tuned.params, plain.params, atol=1e-5)
    np.testing.assert_allclose(tuned.losses, plain.losses, atol=1e-5)


def test_values_go_on_after_a_kill(tmp_path, monkeypatch):
    options = {"steps": 40, "recorder": recorded}
    whole = run(**options)
    options |= {"checkpoint": tmp_path / "run", "checkpoint_every": 16}
    save = Checkpoints.save

    def killed(self, step, state):
        save(self, step, state)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        run(**options)
    monkeypatch.setattr(Checkpoints, "save", save)
    others = functools.partial(recorded, targets=(X[:3] + 1, Y[:3]))
    with pytest.raises(ValueError, match="choose another folder"):
        run(**options | {"recorder": others})
    again = run(**options)
    np.testing.assert_array_equal(again.values.values, whole.values.values)


@pytest.mark.left_out
def test_another_model_is_refused(tmp_path):
    """Also one whose parameters are of the same shapes."""
    model = {}
    for activation in ("relu", "gelu"):
        small = nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), ACTIVATE[activation])
        model[activation] = nnx.split(small, nnx.Param)
    options = {"key": KEY, "checkpoint": tmp_path / "run", **RECIPE}
    first = finetune(*model["relu"], X, Y, steps=2, **options)
    again = finetune(*model["relu"], X, Y, steps=2, **options)
    assert_equal(again.params, first.params)
    with pytest.raises(ValueError, match="or of another model: choose another folder"):
        finetune(*model["gelu"], X, Y, steps=2, **options)


def test_a_checkpoint_of_another_lambda_is_refused(tmp_path):
    def scaled(factor):
        return lambda x: factor * x

    def listed(factors):
        return lambda x: factors[0] * x  # what a digest of code does not see

    def tune(activation):
        small = nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), activation)
        model = nnx.split(small, nnx.Param)
        folder = tmp_path / "run"
        return finetune(*model, X, Y, key=KEY, steps=2, checkpoint=folder, **RECIPE)

    first = tune(scaled(2.0))
    assert_equal(tune(scaled(2.0)).params, first.params)
    for other in (scaled(3.0), listed([2.0]), listed([3.0])):
        with pytest.raises(ValueError, match="another model: choose another folder"):
            tune(other)


def test_digests_of_programs_differ():
    def scaled(factors):
        return lambda x: factors[0] * x

    def compiled(constant):
        return jax.jit(lambda x: x + constant)

    x = np.ones(3, np.float32)
    kinds = [
        program_digest(scaled([2.0]), x),
        program_digest(scaled([3.0]), x),
        program_digest(compiled(np.ones(3)), x),
        program_digest(compiled(np.zeros(3)), x),
        program_digest(scaled([2.0]), x[:2]),
    ]
    assert len(set(kinds)) == len(kinds)
    assert program_digest(scaled([2.0]), x + 1) == kinds[0]


def test_digests_of_runs_differ():
    a = np.arange(4, dtype=np.float32)
    kinds = [
        run_digest({"s": 1}, a),
        run_digest({"s": 2}, a),
        run_digest({"s": 1}, a.reshape(2, 2)),
        run_digest({"s": 1}, a.view(np.int32)),
        run_digest({"s": 1}, {"x": a}),
        run_digest({"s": 1}, a + 1),
    ]
    assert len(set(kinds)) == len(kinds)
    assert run_digest({"s": 1}, jnp.asarray(a)) == kinds[0]


def test_checkpoints_keep_types(tmp_path):
    state = {"a": jnp.arange(3), "b": np.float32(2), "c": (np.ones(2), np.array(3))}
    saved = Checkpoints(tmp_path / "c", "mine")
    like = jax.tree.map(lambda a: a * 0, state)
    assert saved.load(like) == (0, like)
    saved.save(7, state)
    step, found = saved.load(like)
    assert step == 7
    assert_equal(found, state)
    assert isinstance(found["a"], jax.Array)
    assert isinstance(found["c"][0], np.ndarray)


@pytest.mark.slow
def test_a_classifier_of_texts_learns():
    config = EncoderConfig(
        kind="text", layers=1, heads=2, hidden=8, intermediate=8, vocab=9, positions=6
    )
    model = Classifier(config, 2, read="mean", rngs=nnx.Rngs(0))
    graphdef, start = nnx.split(model, nnx.Param)
    ids = RNG.integers(1, 9, (200, 6)).astype(np.int32)
    mask = np.arange(6) < RNG.integers(2, 7, (200, 1))
    y = ((ids == 3) & mask).any(1).astype(int)  # also where it is but padding
    tokens = Tokens(ids, mask)
    found = finetune(
        graphdef,
        start,
        tokens,
        y,
        key=KEY,
        epochs=15,
        batch_size=20,
        learning_rate=0.02,
    )
    assert found.losses[-10:].mean() < 0.1
    assert 0.3 < y.mean() < 0.7


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": Y[:9]}, ValueError, "inputs and y must have the same length"),
        ({"y": Y + 1}, ValueError, r"y must lie in \[0, 3\)"),
        ({"y": Y.astype(float)}, TypeError, "y must hold integers"),
        ({"y": Y[:0], "inputs": X[:0]}, ValueError, "y must have shape"),
        ({"inputs": X * np.nan}, ValueError, "inputs must be finite"),
        ({"steps": None}, ValueError, "either epochs or steps"),
        ({"epochs": 1}, ValueError, "either epochs or steps"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"accumulate": 3}, ValueError, "batch_size must be a multiple of accumulate"),
        ({"warmup": 1.0}, ValueError, r"warmup must lie in \[0, 1\)"),
        ({"learning_rate": -1}, ValueError, "learning_rate must be"),
        ({"weight_decay": -1}, ValueError, "weight_decay must be"),
        ({"clip": 0}, ValueError, "clip must be"),
        ({"decay": "step"}, ValueError, "decay must be one of"),
        ({"checkpoint_every": 0}, ValueError, "every must be at least 1"),
        ({"compute_dtype": "float16"}, ValueError, "must be float32 or bfloat16"),
        ({"wrt": "head/*"}, ValueError, "wrt='head/\\*' matches no parameter; there"),
        ({"wrt": 3}, TypeError, "wrt must be None, one or several globs"),
        ({"recorder": recorded, "accumulate": 2}, ValueError, "recorder needs"),
        ({"recorder": recorded, "wrt": "*"}, ValueError, "wrt=None and float32, got"),
        (
            {"recorder": recorded, "compute_dtype": "bfloat16"},
            ValueError,
            "recorder needs accumulate=1, wrt=None and float32",
        ),
    ],
)
def test_refuses(change, error, message):
    with pytest.raises(error, match=message):
        run(**change)
