"""In-run values refuse by name what they cannot value."""

import in_run_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from in_run_cases import B, run

from jaxsel.attribute import Adam, InRun, Sgd, in_run_shapley, in_run_step


def test_dropout_and_batch_statistics_are_refused():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, layer):
            self.layer = layer
            self.last = nnx.Linear(4, 2, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return self.last(self.layer(x))

    def loss(net, example):
        return cases.cross_entropy(net(example[0]), example[1])

    x, y = cases.normal(B, 4), np.zeros(B, np.int32)
    for layer, kind in (
        (nnx.BatchNorm(4, rngs=nnx.Rngs(0)), "BatchNorm"),
        (nnx.Dropout(0.5, rngs=nnx.Rngs(0)), "Dropout"),
    ):
        with pytest.raises(ValueError, match=f"evaluation mode.*{kind}"):
            in_run_shapley(
                loss,
                Net(layer),
                (x, y),
                (x, y),
                optimizer=Sgd(0.1),
                key=jax.random.key(0),
                steps=1,
                batch_size=2,
            )


def test_nan_is_refused_by_the_name_of_its_step_or_target():
    loss, params, _, targets = cases.dense()
    with pytest.raises(ValueError, match=r"batch's has NaN or infinity at step \d"):
        run(Sgd(1e30), name="tied dense")
    bad = targets[0].copy()
    bad[2] = np.nan
    recorder = InRun(loss, (bad, targets[1]), B, optimizer=Sgd(0.1))
    _, state = recorder.step(
        recorder.init(params), params, None, cases.dense().examples, jnp.arange(B)
    )
    with pytest.raises(ValueError, match="of target 2 have NaN or infinity .1 of 4"):
        recorder.finish(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 3}, "order must be 1 or 2, got 3"),
        ({"order": 2, "follow": True}, "order must be 1 with follow=True, got 2"),
        ({"steps": None}, "either epochs or steps, got epochs=None, steps=None"),
        ({"epochs": 1.0}, "either epochs or steps, got epochs=1.0, steps=12"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 25}, "batch_size must be at most the 24 examples, got 25"),
        ({"reduce": "max"}, "reduce must be one of 'mean', None, got 'max'"),
    ],
)
def test_arguments_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        run(Sgd(0.1), **options)


def test_other_arguments_are_refused_by_name():
    loss, params, examples, targets = cases.dense()
    with pytest.raises(TypeError, match=r"Sgd or attribute.Adam.*got Gradient"):
        InRun(loss, targets, B, optimizer=optax.sgd(0.1))
    with pytest.raises(ValueError, match="targets must have the form and shapes"):
        in_run_step(loss, params, examples, (targets[0][:, 1:], targets[1]), step=0.1)
    with pytest.raises(ValueError, match="must be the n = 5 samples, got 6"):
        InRun(loss, targets, 5, optimizer=Sgd(0.1), examples=examples)
    recorder = InRun(loss, targets, B, optimizer=Adam(0.1))
    begun = recorder.init(params)
    with pytest.raises(ValueError, match="rows must be integers of shape .6., one"):
        recorder.step(begun, params, None, examples, jnp.arange(3))
    with pytest.raises(ValueError, match="opt_state must be that of an Adam"):
        recorder.step(
            begun, params, optax.sgd(0.1).init(params), examples, jnp.arange(B)
        )
    with pytest.raises(ValueError, match=r"state must hold values of shape .7, 4."):
        InRun(loss, targets, 7, optimizer=Sgd(0.1)).finish(begun)
    for make, message in (
        (lambda: Sgd(-1.0), "learning_rate must be finite and above zero, got -1"),
        (lambda: Sgd(0.1, momentum=1.0), r"momentum must lie in .0, 1., got 1"),
        (lambda: Adam(0.1, b1=1.5), r"b1 must lie in .0, 1., got 1.5"),
        (lambda: Adam(0.1, eps=0.0), "eps must be finite and above zero, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    rates = Sgd(lambda step: jnp.where(step < 3, 0.1, jnp.nan))
    with pytest.raises(ValueError, match="learning_rate must be finite at each step"):
        run(rates)
