"""The pure kernels of values that retrain models, listed in `kernels.py`."""

import dataclasses
from functools import partial

import jax
import numpy as np
import optax

from jaxsel import attribute, value
from jaxsel.attribute._gauss_newton import gauss_newton
from jaxsel.attribute._gauss_newton_cg import gauss_newton_cg
from jaxsel.attribute._metagradient import weight_derivative
from jaxsel.attribute._tracin import tracin_term
from jaxsel.value._metrics import SCORERS
from jaxsel.value._utility import evaluate

N, D, _CLASSES, _SUBSETS = 40, 3, 3, 4


def _subsets(rng):
    # One of them empty, and one of all points.
    masks = rng.integers(0, 2, (_SUBSETS, N)).astype(np.float32)
    masks[0], masks[1] = 0, 1
    return (masks,)


def _classified(rng):
    """Points with a column of ones, and their class by the first coordinate."""
    x = rng.normal(size=(N, D + 1)).astype(np.float32)
    x[:, D] = 1
    return x, np.digitize(x[:, 0], (-0.5, 0.5))


def _two_classes(rng):
    x, classes = _classified(rng)
    rows, columns = np.tril_indices(D + 1)
    return x, x.T[rows] * x.T[columns], np.float32(classes > 0), _subsets(rng)[0].T


def _few_classes(rng):
    x, products, _, weights = _two_classes(rng)
    onehot = np.float32(
        np.digitize(x[:, 0], (-0.5, 0.5)) == np.arange(_CLASSES)[:, None]
    )
    return x, products, onehot, weights


def _many_classes(rng):
    x, classes = _classified(rng)
    return x, np.float32(classes == np.arange(_CLASSES)[:, None]), _subsets(rng)[0]


_PENALTY = np.append(np.ones(D, np.float32), np.float32(0))


@jax.jit
def _fit_two_classes(x, products, positive, weights):
    start = np.zeros((D + 1, _SUBSETS), np.float32)
    active = weights.any(0)
    return value._learners.fit_two_classes(
        x, products, positive, weights, _PENALTY, start, active, 1e-3
    )


@jax.jit
def _fit_few_classes(x, products, onehot, weights):
    start = np.zeros((_CLASSES, D + 1, _SUBSETS), np.float32)
    present = (weights[None] * onehot[:, :, None] > 0).any(1)
    penalty = np.broadcast_to(_PENALTY[:, None], (D + 1, _SUBSETS))
    return value._learners.fit_few_classes(
        x, products, onehot, weights, penalty, present, start, weights.any(0), 1e-3
    )


@jax.jit
def _fit_softmax(x, onehot, weights):
    start = np.zeros((_SUBSETS, _CLASSES, D + 1), np.float32)
    active = weights.any(1)
    present = (weights[:, None] * onehot[None] > 0).any(2)
    penalty = np.broadcast_to(_PENALTY, (_SUBSETS, D + 1))
    return value.fit_softmax(
        x, onehot, weights, penalty, present, start, active, _CURVATURE, 1e-4
    )


_CURVATURE = value.curvature(
    *(np.float64(a) for a in _many_classes(np.random.default_rng(0))[:2]), l2=1.0
)


def _examples(seed):
    x, classes = _classified(np.random.default_rng(seed))
    return value.Examples(x=x[:, :D], y=classes.astype(np.int32), n_classes=_CLASSES)


_DATA, _VAL = _examples(0), _examples(1)


def _learner(learner, data):
    """Return a kernel that trains on subsets, and predicts."""
    data = learner.prepare(data)

    @jax.jit
    def scores(masks):
        params = learner.fit(data, masks, jax.random.key(0))
        return learner.predict(params, _VAL.x)

    return scores


_TWO = dataclasses.replace(_DATA, y=np.int32(_DATA.y > 0), n_classes=2)
_NUMBERS = dataclasses.replace(_DATA, y=_DATA.x[:, 0], n_classes=0)
_LEARNERS = {
    "GaussianNB": _learner(value.GaussianNB(), _DATA),
    "KNN": _learner(value.KNN(3), _DATA),
    "LogisticRegression": _learner(value.LogisticRegression(), _DATA),
    "LogisticRegression-two": _learner(value.LogisticRegression(), _TWO),
    "NearestCentroid": _learner(value.NearestCentroid(), _DATA),
    "RidgeRegression": _learner(value.RidgeRegression(), _NUMBERS),
}


@jax.jit
def _evaluate(masks):
    return evaluate(
        value.GaussianNB(),
        _DATA,
        masks,
        _VAL.x,
        _VAL.y,
        jax.random.key(0),
        empty=1 / _CLASSES,
        metric="accuracy",
    )[0]


def _scores(rng):
    # Whole numbers, so that some tie.
    scores = rng.integers(-3, 4, (_SUBSETS, N, _CLASSES)).astype(np.float32)
    return scores, rng.integers(0, _CLASSES, N).astype(np.int32)


def _predictions(rng):
    scores = rng.normal(size=(_SUBSETS, N, 1)).astype(np.float32)
    return scores, rng.normal(size=N).astype(np.float32)


@jax.jit
def _linear_passes(ranks):
    return value._g_shapley.linear_passes(
        value.LogisticRegression(),
        "likelihood",
        _DATA,
        _VAL.x,
        _VAL.y,
        ranks,
        jax.random.key(0),
        0.1,
    )


def _ranks(rng):
    return (np.stack([rng.permutation(N) for _ in range(_SUBSETS)]).astype(np.int32),)


def _draw(sample, seed):
    return sample(jax.random.key(seed), 3, count=_SUBSETS, n=N)


def _coalitions(sample, *arguments):
    return lambda key, first, **sizes: sample(key, first, 3, *arguments, **sizes)


def _prefixes(ranks):
    return value._sampling.prefix_masks(ranks, np.array([2, -1, 0]), 3, 9, block=8)


_SAMPLES = {
    "permutation_ranks": value._sampling.permutation_ranks,
    "random_coalitions": _coalitions(value._sampling.random_coalitions),
    "sized_coalitions": _coalitions(
        value._sampling.sized_coalitions, np.linspace(0, 1, N, dtype=np.float32)[1:]
    ),
    "bootstrap_counts": value._sampling.bootstrap_counts,
}

_RECIPE = attribute.Recipe(
    (lambda key, x: np.zeros((D, _CLASSES), np.float32), lambda w, x: x @ w),
    optax.sgd(0.1, momentum=0.9),
    epochs=2,
    batch_size=16,
)


def _network(rng):
    x, classes = _classified(rng)
    w = rng.normal(size=(D, _CLASSES)).astype(np.float32)
    return w, x[:, :D], classes.astype(np.int32), x[:4, :D], classes[:4]


@jax.jit
def _gauss_newton(w, x, y, x_val, y_val):
    return gauss_newton(_RECIPE, w, x, y, x_val, y_val, 0.1, chunk_size=16)


@jax.jit
def _gauss_newton_cg(w, x, y, x_val, y_val):
    return gauss_newton_cg(_RECIPE, w, x, y, x_val, y_val, 0.1, chunk_size=16)


@jax.jit
def _weight_derivative(w, x, y, x_val, y_val):
    plan = attribute.TrainingPlan(
        w, np.arange(32, dtype=np.int32).reshape(2, 16), np.full((2, 16), 1 / 16, "f")
    )
    weights = np.ones(N, np.float32)
    each = np.eye(len(x_val), dtype=np.float32)
    return weight_derivative(
        *(_RECIPE, plan, x, y, weights, x_val, y_val, each), segments=2
    )


@jax.jit
def _tracin_term(w, x, y, x_val, y_val):
    state = _RECIPE.optimizer.init(w)
    return tracin_term(
        _RECIPE, w, x, y, x_val, y_val, state=state, normalise=True, chunk_size=16
    )


# Names, functions, and arguments, as of `kernels.Kernel`.
KERNELS = [
    ("fit_two_classes", _fit_two_classes, _two_classes),
    ("fit_few_classes", _fit_few_classes, _few_classes),
    ("fit_softmax", _fit_softmax, _many_classes),
    ("evaluate", _evaluate, _subsets),
    *((f"learner-{name}", scores, _subsets) for name, scores in _LEARNERS.items()),
    ("linear_passes", _linear_passes, _ranks),
    *(
        (f"metric-{name}", jax.jit(metric), _predictions if name == "r2" else _scores)
        for name, metric in SCORERS.items()
    ),
    *(
        (name, partial(_draw, sample), lambda rng: (rng.integers(100),))
        for name, sample in _SAMPLES.items()
    ),
    ("prefix_masks", _prefixes, _ranks),
    ("gauss_newton", _gauss_newton, _network),
    ("gauss_newton_cg", _gauss_newton_cg, _network),
    ("weight_derivative", _weight_derivative, _network),
    ("tracin_term", _tracin_term, _network),
]
