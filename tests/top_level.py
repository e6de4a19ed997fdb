"""One small call of every function at the top level that takes data."""

import inspect

import jax
import numpy as np

import jaxsel
from jaxsel import value
from jaxsel.data import open_rows

N, M, D = 12, 6, 3
KEY = jax.random.key(0)
FEW = value.MaxSamples(4)


def samples(seed=0):
    """Return features and labels of two classes, and of a validation set."""
    rng = np.random.default_rng(seed)
    y, y_val = np.arange(N) % 2, np.arange(M) % 2
    x = rng.normal(size=(N, D)) + y[:, None]
    return x, y, rng.normal(size=(M, D)) + y_val[:, None], y_val


def _knn(name, **options):
    def call(x, y, x_val, y_val):
        return getattr(jaxsel, name)(x, y, x_val, y_val, **options)

    return call


def _game(name, **options):
    def call(x, y, x_val, y_val):
        utility = value.ModelUtility(value.LogisticRegression(), x, y, x_val, y_val)
        return getattr(jaxsel, name)(utility, **options)

    return call


def _matched(name, *more):
    def call(x, y, x_val, y_val):
        return getattr(jaxsel, name)(x, x_val, budget=4, labels=y, hard_labels=y_val)

    return call


CALLS = {
    **{
        name: _knn(name, **registered.needs)
        for name, registered in value.VALUES.items()
        if hasattr(jaxsel, name)
    },
    "influence": _knn("influence"),
    "g_shapley": lambda *data: jaxsel.g_shapley(
        value.LogisticRegression(), *data, key=KEY, learning_rate=0.1, stop=FEW
    ),
    "data_oob": lambda x, y, *_: jaxsel.data_oob(
        value.LogisticRegression(), x, y, key=KEY, stop=FEW
    ),
    **{
        name: _game(name, key=KEY, stop=FEW)
        for name in (
            "adjusted_semivalue",
            "banzhaf",
            "beta_shapley",
            "tmc_shapley",
            "group_testing_shapley",
        )
    },
    "estimate_semivalue": _game("estimate_semivalue", key=KEY, trainings=96),
    "loo": _game("loo"),
    "exact_shapley": _game("exact_shapley"),
    "exact_semivalue": _game("exact_semivalue", kind="banzhaf"),
    "streamed_values": lambda x, y, x_val, y_val: jaxsel.streamed_values(
        jaxsel.knn_shapley, x, y, open_rows(np.asarray(x_val), labels=y_val), k=3
    ),
    "max_shapley": lambda x, *_: jaxsel.max_shapley(x),
    "mmd_values": lambda x, y, x_val, y_val: jaxsel.mmd_values(
        x, x_val, y=y, y_val=y_val
    ),
    "find_label_errors": lambda x, y, *_: jaxsel.find_label_errors(x, y, folds=2),
    "loss_threshold": lambda x, y, x_val, y_val: jaxsel.loss_threshold(
        x_val[:, 0], x[:, 0]
    ),
    "omp": lambda x, y, x_val, y_val: jaxsel.omp(x, np.asarray(x_val)[0], 4),
    "grad_match": _matched("grad_match"),
    "func_feat": lambda x, y, x_val, y_val: jaxsel.func_feat(
        x, x_val, x, x_val, 4, labels=y, hard_labels=y_val
    ),
    "herding": lambda x, y, x_val, y_val: jaxsel.herding(x, np.asarray(x_val)[0], 4),
    "influence_topk": lambda x, y, x_val, y_val: jaxsel.influence_topk(
        x, np.asarray(x_val)[0], 4
    ),
    "facility_location": lambda x, *_: jaxsel.facility_location(x, 4),
    "log_det": lambda x, *_: jaxsel.log_det(x, 4),
    "binning_distance": lambda x, y, x_val, y_val: jaxsel.binning_distance(x, x_val),
    "pseudo_labels": lambda x, y, x_val, y_val: jaxsel.pseudo_labels(x, x_val, y_val),
    "retrieve_binned": lambda x, y, x_val, y_val: jaxsel.retrieve_binned(x, x_val, 4),
    "retrieve_nearest": lambda x, y, x_val, y_val: jaxsel.retrieve_nearest(
        x, x_val, 4, labels=y, hard_labels=y_val
    ),
    "retrieve_targeted": lambda x, y, x_val, y_val: jaxsel.retrieve_targeted(
        x, x_val, 4
    ),
    "select_for_finetuning": lambda x, y, x_val, y_val: jaxsel.select_for_finetuning(
        x, x_val, 4
    ),
}

LABELLED = {
    name
    for name in CALLS
    if name
    not in {
        "knn_regression_shapley",
        "loss_threshold",
        "max_shapley",
        "pseudo_labels",
        "omp",
        "herding",
        "influence_topk",
        "facility_location",
        "log_det",
        "binning_distance",
        "retrieve_binned",
        "retrieve_targeted",
        "select_for_finetuning",
    }
}
"""Functions that take labels of classes."""


def discovered():
    """Return the functions at the top level that take data."""
    return {
        name
        for name, item in vars(jaxsel).items()
        if not name.startswith("_")
        and inspect.isfunction(inspect.unwrap(item))
        and name not in {"make_mesh", "init_multihost", "import_module"}
    }


def leaves(result):
    """Return the numbers of a result, by which two calls are compared."""
    if isinstance(result, jaxsel.LabelErrors):
        return [np.asarray(result.scores), np.asarray(result.indices)]
    if isinstance(result, jaxsel.LossThreshold):
        return [np.asarray(result.value), np.asarray(result.n_kept)]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
