"""One call of every public function that takes a mesh: small, and of uneven lengths."""

import dataclasses
import inspect

import jax
import numpy as np
from flax import nnx

import jaxsel
from jaxsel import filter as filters, match, models, retrieve, value
from jaxsel.data import open_rows
from jaxsel.value._retrained import ESTIMATORS

N, M, D = 24, 13, 3  # 24 is a multiple of 3, 4 and 8; 13 of none
KEY = jax.random.key(0)
_rng = np.random.default_rng(0)
X, X_VAL = (_rng.normal(size=(n, D)).astype(np.float32) for n in (N, M))
Y, Y_VAL = (_rng.integers(0, 3, n) for n in (N, M))
T, T_VAL = X.sum(1), X_VAL.sum(1)
ROWS = open_rows(X, labels=Y)
PARAMS = {"w": _rng.normal(size=(D, 3)).astype(np.float32)}


def loss(params, example):
    x, y = example
    return jax.nn.logsumexp(x @ params["w"]) - (x @ params["w"])[y]


def utility():
    few = np.r_[:7]
    return value.ModelUtility(
        value.LogisticRegression(), X[few], np.arange(7) % 2, X_VAL, np.arange(M) % 2
    )


FEW = value.MaxSamples(5)
RETRAINED = {
    "trainings": 96,
    "learner": value.LogisticRegression(),
    "x": X,
    "y": Y,
    "x_val": X_VAL,
    "y_val": Y_VAL,
    "key": KEY,
    "stop": FEW,
    "learning_rate": 0.1,
}


def _retrained(entry):
    def call(**options):
        game = "utility" in entry.arguments
        more = {"utility": utility()} if game else {"batch_size": 5}
        return entry.bound(**RETRAINED, **more)(**options)

    return call


def _knn(name, x=X, y=Y, x_val=X_VAL, y_val=Y_VAL, **given):
    def call(**options):
        return getattr(value, name)(x, y, x_val, y_val, **given, **options)

    return call


def _registered(name):
    registered = value.VALUES[name]
    options = {} if registered.utility == "ball" else {"k": 3}
    if registered.targets:
        options |= {"y": T, "y_val": T_VAL}
    return _knn(name, **options, **registered.needs)


def _fed_avg(**options):
    model = nnx.Linear(D, 3, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model, nnx.Param)
    owner = np.arange(N) % 5
    return models.fed_avg(
        graphdef, params, X, Y, owner, key=KEY, rounds=2, local_steps=3, **options
    ).params


def _nearest(name, size):
    def call(features=X, labels=Y, hard_width=D, **options):
        return getattr(retrieve, name)(
            features,
            np.pad(X_VAL[:5], ((0, 0), (0, hard_width - D))),
            size,
            labels=labels,
            hard_labels=Y_VAL[:5],
            chunk_size=8,
            **options,
        )

    return call


def _chosen(selector):
    def call(**options):
        return selector(X, X_VAL, 6, **options)

    return call


CALLS = {
    **{f"value.{name}": _registered(name) for name in value.VALUES},
    "value.threshold_counts": _knn("threshold_counts", radius=1.5),
    **{
        f"value.{name}": _retrained(entry)
        for name, entry in ESTIMATORS.items()
        if "mesh" in entry.arguments
    },
    "retrieve.nearest": _nearest("nearest", 4),
    "retrieve.retrieve_nearest": _nearest("retrieve_nearest", 7),
    **{
        f"match.{name}": _chosen(selector)
        for name, selector in match.SELECTORS.items()
        if "mesh" in selector.arguments
    },
    "match.influence_scores": lambda **options: match.influence_scores(
        X, X_VAL[:2], **options
    ),
    "match.submodularity": lambda **options: dataclasses.astuple(
        match.submodularity(X, 6, penalty=Y, **options)
    ),
    "match.choose_checkpoint": lambda **options: (
        match.choose_checkpoint([(X, X_VAL), (X + 1, X_VAL)], 6, **options).errors
    ),
    "filter.streamed_losses": lambda **options: filters.streamed_losses(
        loss, PARAMS, (ROWS, ROWS.labels), **options
    ),
    "filter.sample_losses": lambda examples=(X, Y), **options: filters.sample_losses(
        loss, PARAMS, examples, chunk_size=8, **options
    ),
    "models.fed_avg": _fed_avg,
}


def discovered():
    """Return the public functions and classes whose signature has a mesh, by name."""
    found = set()
    for room in jaxsel._ROOMS:
        for name, thing in vars(getattr(jaxsel, room)).items():
            ours = getattr(thing, "__module__", "").startswith("jaxsel")
            if name.startswith("_") or not ours or not callable(thing):
                continue
            try:
                parameters = inspect.signature(thing).parameters
            except ValueError:  # of NumPy's and of exceptions there is none
                continue
            if "mesh" in parameters:
                found.add(f"{room}.{name}")
    return found


def same(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=2e-5)


def shared():
    """Return x, y, x_val and y_val, of even lengths."""
    return X, Y, X_VAL[:12], Y_VAL[:12]


BY_PARTS = (
    "omp",
    "grad_match",
    "func_feat",
    "sample_losses",
    "data_oob",
    "g_shapley",
    "banzhaf",
    "fed_avg",
)


def by_parts(name, part, **options):
    """Call a function with arrays of which each process has a `part`."""
    x, y, x_val, y_val = map(part, shared())
    if name == "omp":
        found = match.omp(x, X_VAL.mean(0), 6, **options)
        return found.indices, found.weights
    if name == "grad_match":
        found = match.grad_match(x, x_val, 6, labels=y, hard_labels=y_val, **options)
        return found.indices, found.weights
    if name == "func_feat":
        found = match.func_feat(x, x_val, x, x_val, 6, **options)
        return found.indices, found.weights
    if name == "sample_losses":
        return filters.sample_losses(loss, PARAMS, (x, y), **options)
    if name == "data_oob":
        learner = value.LogisticRegression()
        found = value.data_oob(
            learner, x, y, key=KEY, stop=FEW, batch_size=5, **options
        )
        return found.values
    if name == "g_shapley":
        learner = value.LogisticRegression()
        options |= {"key": KEY, "learning_rate": 0.1, "stop": FEW, "batch_size": 5}
        return value.g_shapley(learner, x, y, x_val, y_val, **options).values
    if name == "banzhaf":
        learner = value.LogisticRegression()
        game = value.ModelUtility(learner, x, y, x_val, y_val)
        return value.banzhaf(game, key=KEY, stop=FEW, **options).values
    graphdef, params = nnx.split(nnx.Linear(D, 3, rngs=nnx.Rngs(0)), nnx.Param)
    owner = part(np.arange(N) % 5)
    given = {"key": KEY, "rounds": 2, "local_steps": 3}
    return models.fed_avg(graphdef, params, x, y, owner, **given, **options).params
