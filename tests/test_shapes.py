"""The shapes that kernels are annotated with, against those they are given.

The kernels of `kernels.py` are loaded again, with every listed kernel wrapped so that
jaxtyping and beartype check its arguments and its result. Then each call that reached
one is repeated with one array of another shape, which must be refused.
"""

import functools
import importlib.util
import inspect
import sys
from pathlib import Path

import beartype
import jax
import jax.numpy as jnp
import jaxtyping
import kernels
import numpy as np
import optax
import pytest
from flax import nnx

import jaxsel
from jaxsel import gradients, value
from jaxsel.value._metrics import SCORERS

LEARNERS = [
    value.GaussianNB,
    value.KNN,
    value.LogisticRegression,
    value.NearestCentroid,
    value.RidgeRegression,
]
PRIVATE = [(path, name) for path, names in kernels.PRIVATE.items() for name in names]
# Pytrees, and what may be a number or an array.
UNSHAPED = {
    "match.pursue": {"target", "l2"},
    "attribute.gauss_newton": {"params"},
    "attribute.gauss_newton_cg": {"params"},
    "attribute.tracin_term": {"params"},
    "attribute.in_run_step": {"params", "examples", "targets", "step"},
}
# Their arrays have no axis in common.
UNRELATED = {"filter.ks_threshold"}


def typed(function):
    return jaxtyping.jaxtyped(typechecker=beartype.beartype)(inspect.unwrap(function))


def as_jax(leaf):
    return jnp.asarray(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf


class Calls:
    """Kernels that check their shapes, and the first call of each."""

    def __init__(self):
        self.first = {}

    def checked(self, name, function):
        check = typed(function)

        @functools.wraps(inspect.unwrap(function))
        def call(*args, **kwargs):
            args, kwargs = jax.tree.map(as_jax, (args, kwargs))
            bound = inspect.signature(check).bind(*args, **kwargs)
            shapes = jax.tree.map(_shape, dict(bound.arguments))
            self.first.setdefault(name, (check, shapes))
            return check(*args, **kwargs)

        return call


def _short(path, name):
    return f"{path.split('.')[0]}.{name}"


def _shape(leaf):
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return leaf


def _fresh(name):
    """Import a module of the tests again, under its own name."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def calls():
    """Call every kernel once, with checked shapes."""
    found = Calls()
    with pytest.MonkeyPatch.context() as patch:
        for room, name in kernels.documented():
            if room == "learner":
                continue
            module = getattr(jaxsel, room)
            check = found.checked(f"{room}.{name}", getattr(module, name))
            patch.setattr(module, name, check)
        for path, name in PRIVATE:
            module = importlib.import_module(f"jaxsel.{path}")
            check = found.checked(_short(path, name), getattr(module, name))
            patch.setattr(module, name, check)
        for metric, function in SCORERS.items():
            check = found.checked(f"value.{metric}", function)
            patch.setitem(SCORERS, metric, check)
        for learner in LEARNERS:
            for name in ("fit", "predict"):
                own = f"{learner.__name__}.{name}"
                patch.setattr(learner, name, found.checked(own, getattr(learner, name)))
        for name in ("kernels_retraining", "kernels"):
            patch.setitem(sys.modules, name, sys.modules[name])
        _fresh("kernels_retraining")
        for kernel in _fresh("kernels").KERNELS:
            arguments = kernel.arguments(np.random.default_rng(0))
            jax.eval_shape(kernel.function, *jax.tree.map(jnp.asarray, arguments))
    return found.first


CHECKED = [f"{room}.{name}" for room, name in kernels.documented() if room != "learner"]
CHECKED += [_short(path, name) for path, name in PRIVATE]
CHECKED += [f"value.{name}" for name in SCORERS]
CHECKED += [f"{one.__name__}.{part}" for one in LEARNERS for part in ("fit", "predict")]


def refuses(check, arguments, name, shape):
    """Whether the annotations refuse an argument of this shape."""
    other = jax.ShapeDtypeStruct(shape, arguments[name].dtype)
    leaves, tree = jax.tree.flatten(arguments | {name: other})
    places = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "shape")]

    def run(arrays):
        given = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            given[place] = array
        bound = inspect.signature(check).bind_partial()
        bound.arguments.update(jax.tree.unflatten(tree, given))
        return check(*bound.args, **bound.kwargs)

    try:
        jax.eval_shape(run, [leaves[place] for place in places])
    except jaxtyping.TypeCheckError:
        return True
    except (TypeError, ValueError, IndexError):
        return False  # by the kernel itself, or by JAX
    return False


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.every(8)
def test_other_shapes_are_refused(calls, name):
    check, arguments = calls[name]
    arrays = {
        argument: given.shape
        for argument, given in arguments.items()
        if isinstance(given, jax.ShapeDtypeStruct)
        and argument not in UNSHAPED.get(name, ())
    }
    for argument, shape in arrays.items():
        # Of any number of axes, some have at least one.
        assert refuses(check, arguments, argument, (1, *shape)) or refuses(
            check, arguments, argument, ()
        ), argument
    grown = [
        (argument, (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]))
        for argument, shape in arrays.items()
        for axis in range(len(shape))
    ]
    if len({argument for argument, _ in grown}) > 1 and name not in UNRELATED:
        assert any(refuses(check, arguments, *other) for other in grown)


X, W = np.ones((5, 3), np.float32), jnp.ones(3)


def _loss(w, example):
    return jnp.sum((example @ w) ** 2)


ORACLES = {
    "Dense": lambda: gradients.dense(X),
    "Factored": lambda: gradients.factored(X[:, :2], X),
    "Jvp": lambda: gradients.jvp(_loss, W, X),
    "Projected": lambda: gradients.projected(_loss, W, X, dim=2, key=jax.random.key(0)),
    "Streamed": lambda: gradients.streamed(lambda i: gradients.dense(X[i]), 5),
}


@pytest.mark.every(5)
@pytest.mark.parametrize("name", ORACLES)
def test_oracles(name):
    oracle = ORACLES[name]()
    kind = type(oracle)
    assert kind.__name__ == name
    weights = jnp.ones(5)
    diag, corr, gram, combine, column, columns = (
        functools.partial(typed(getattr(kind, method)), oracle)
        for method in ("diag", "corr", "gram", "combine", "column", "columns")
    )
    target = combine(weights)
    assert diag().shape == corr(target).shape == column(0).shape == (5,)
    assert gram(oracle.take(jnp.arange(2))).shape == (2, 5)
    assert columns(jnp.arange(2)).shape == (2, 5)
    for call in (
        lambda: combine(weights[None]),
        lambda: columns(0),
        lambda: column(weights),
    ):
        with pytest.raises(jaxtyping.TypeCheckError):
            call()


def test_flax_learner():
    learner = value.FlaxLearner(
        lambda rngs: nnx.Linear(3, 2, rngs=rngs), optax.sgd(0.1), steps=2, batch_size=2
    )
    x = jnp.asarray(X)
    data = value.Examples(x=x, y=jnp.arange(5) % 2, n_classes=2)
    fit, predict = (
        functools.partial(typed(getattr(value.FlaxLearner, part)), learner)
        for part in ("fit", "predict")
    )
    key = jax.random.key(0)

    def scores(masks):
        return predict(fit(data, masks, key), x)

    assert jax.eval_shape(scores, jnp.ones((4, 5))).shape == (4, 5, 2)
    with pytest.raises(jaxtyping.TypeCheckError):
        jax.eval_shape(scores, jnp.ones(5))


def test_a_wrong_annotation_is_found():
    def half(x: jaxtyping.Float[jax.Array, " n"]) -> jaxtyping.Float[jax.Array, " n"]:
        return x[::2]

    with pytest.raises(jaxtyping.TypeCheckError):
        typed(half)(jnp.ones(4))
