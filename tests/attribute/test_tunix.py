"""Hooks for Tunix: beside a loop of optax, in a stand-in with the trainer's calls."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxsel import attribute

N, D, CLASSES, STEPS = 12, 3, 3, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, CLASSES, N)
TARGETS = {"x": X[:4] + 0.1, "y": Y[:4]}


class Adapted(nnx.Module):
    """A frozen layer, and a factor that LoRA trains."""

    def __init__(self, rngs):
        self.base = nnx.Linear(D, CLASSES, rngs=rngs)
        self.factor = nnx.LoRAParam(
            0.1 * jax.random.normal(rngs.params(), (D, CLASSES))
        )

    def __call__(self, x):
        return self.base(x) + x @ self.factor[...]


MODELS = {
    "lora": lambda: Adapted(nnx.Rngs(0)),
    "whole": lambda: nnx.Linear(D, CLASSES, rngs=nnx.Rngs(0)),
}
RULES = {
    "adam": attribute.Adam(0.05, weight_decay=0.01),
    "sgd": attribute.Sgd(0.1, momentum=0.9),
}


def loss_fn(model, inputs, labels):
    scores = model(inputs)
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


@dataclasses.dataclass
class Output:
    """The part of Tunix's LossOutput that is read."""

    primary_loss: object


class Trainer:
    """The calls of tunix.PeftTrainer to its hooks, in their order."""

    def __init__(self, model, tx, *, max_steps=None, accumulate=None, loss=loss_fn):
        self.model = model
        lora = bool(jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))
        self.wrt = nnx.LoRAParam if lora else nnx.Param
        self.optimizer = nnx.Optimizer(model, tx, wrt=self.wrt)
        self.config = types.SimpleNamespace(gradient_accumulation_steps=accumulate)
        self.max_steps, self.loss_fn = max_steps, loss
        self.gen_model_input_fn = lambda b: {"inputs": b["x"], "labels": b["y"]}

    def train(self, hooks):
        hooks.on_train_start(self)
        steps = 0
        while (batch := hooks.load_next_train_batch(self)) is not None:
            if steps == self.max_steps:
                break
            hooks.on_train_step_start(self)
            diff = nnx.DiffState(0, self.wrt)
            gradient = nnx.grad(loss_fn, argnums=diff)(
                self.model, **self.gen_model_input_fn(batch)
            )
            self.optimizer.update(self.model, gradient)
            steps += 1
            hooks.on_train_step_end(self, steps, 0.0)
        hooks.on_train_end(self)


def batches(steps=STEPS):
    for i in range(steps):
        rows = (np.arange(4) + 4 * i) % N
        yield {"x": X[rows], "y": Y[rows]}, rows


def by_loop(model, rule):
    """The recorder in a loop of optax."""
    wrt = nnx.LoRAParam if isinstance(model, Adapted) else nnx.Param
    graphdef, params, rest = nnx.split(model, wrt, ...)

    def loss(params, example):
        scores = nnx.merge(graphdef, params, rest)(example["x"])
        return optax.softmax_cross_entropy_with_integer_labels(scores, example["y"])

    recorder = attribute.InRun(loss, TARGETS, N, optimizer=rule)
    optimizer = rule.optimizer()
    opt_state, state = optimizer.init(params), recorder.init(params)
    for batch, rows in batches():
        gradient, state = recorder.step(
            state, params, opt_state, batch, jnp.asarray(rows)
        )
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        params = optax.apply_updates(params, updates)
    return recorder.finish(state), params


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.every(4)
def test_values_are_those_of_a_loop(model, rule):
    expected, params = by_loop(MODELS[model](), RULES[rule])
    trainer = Trainer(MODELS[model](), RULES[rule].optimizer(), max_steps=STEPS)
    hooks = attribute.TunixHooks(
        trainer, batches(STEPS + 1), TARGETS, N, optimizer=RULES[rule]
    )
    trainer.train(hooks)
    trained = nnx.state(trainer.model, trainer.wrt)
    for a, b in zip(jax.tree.leaves(trained), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    values = hooks.values()
    np.testing.assert_allclose(values.values, expected.values, atol=1e-6)
    assert values.method == expected.method  # of 5 steps, not of the one not taken
    assert hooks.values(reduce=None).values.shape == (4, N)


@pytest.mark.parametrize("kind", ["aux", "output"])
def test_losses_of_tunix(kind):
    def other(model, inputs, labels):
        value = loss_fn(model, inputs, labels)
        metric = types.SimpleNamespace(compute=lambda: value)
        return (value, {"aux": 1}) if kind == "aux" else Output(metric)

    model = MODELS["whole"]()
    plain, changed = (
        Trainer(model, optax.sgd(0.1), loss=loss) for loss in (loss_fn, other)
    )
    values = []
    for trainer in (plain, changed):
        hooks = attribute.TunixHooks(
            trainer, batches(1), TARGETS, N, optimizer=attribute.Sgd(0.1)
        )
        assert hooks.load_next_train_batch(trainer) is not None
        hooks.on_train_step_start(trainer)
        assert hooks.load_next_train_batch(trainer) is None
        values.append(np.asarray(hooks.values().values))
    np.testing.assert_array_equal(*values)
    assert np.any(values[0] != 0)


def test_batches_of_evaluation_begin_anew():
    trainer = Trainer(MODELS["whole"](), optax.sgd(0.1))
    hooks = attribute.TunixHooks(
        trainer,
        batches(),
        TARGETS,
        N,
        optimizer=attribute.Sgd(0.1),
        eval_batches=[TARGETS, TARGETS],
    )
    for _ in range(2):
        rounds = [hooks.load_next_eval_batch(trainer) for _ in range(3)]
        assert [batch is None for batch in rounds] == [False, False, True]


def test_accumulated_gradients_are_refused():
    trainer = Trainer(MODELS["whole"](), optax.sgd(0.1), accumulate=4)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=4"):
        attribute.TunixHooks(
            trainer, batches(), TARGETS, N, optimizer=attribute.Sgd(0.1)
        )
