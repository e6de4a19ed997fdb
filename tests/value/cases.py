"""Data to value, and the registered KNN values with references to enumerate."""

import dataclasses
import functools

import numpy as np
import pytest
import references as ref

import jaxsel
from jaxsel import neighbors, value
from jaxsel.neighbors import Exact
from jaxsel.neighbors._distance import error_parts, prepare_exact
from jaxsel.value._registry import KnnValue

RADIUS = {"l2": 2.0, "cosine": 0.5}
ABSENT = 7  # a validation label that no training point has


@dataclasses.dataclass(frozen=True)
class Data:
    """Training and validation points; `y` are classes, `t` regression targets."""

    x: np.ndarray
    y: np.ndarray
    t: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    t_val: np.ndarray

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def n_classes(self) -> int:
        return len(np.union1d(self.y, self.y_val))

    def classes(self):
        return self.x, self.y, self.x_val, self.y_val

    def targets(self):
        return self.x, self.t, self.x_val, self.t_val


@dataclasses.dataclass(frozen=True)
class Method:
    """A KNN value as tests call and enumerate it."""

    name: str
    value: KnnValue

    def call(self, data: Data, k: int, **options) -> jaxsel.Values:
        arrays = data.targets() if self.value.targets else data.classes()
        options = {**self.value.needs, **options}
        if self.value.utility == "ball":  # no order, and no K
            options["radius"] = RADIUS.get(options.get("metric", "l2"), 1.0)
        else:
            options["k"] = k
        return self.value.function(*arrays, **options)

    def utility(self, data: Data, distance, k: int, radius: float) -> ref.Utility:
        match self.value.utility:
            case "share":
                return ref.knn_utility(k)
            case "mean":
                return ref.soft_utility(k, data.n_classes)
            case "ball":
                return ref.threshold_utility(distance, radius, data.n_classes)
            case "decision":
                return ref.decision_utility(k, data.y, data.y_val)
            case "error":
                return ref.regression_utility(k, data.t_val)

    def gains(self, data: Data) -> np.ndarray:
        """Return gains `[m, n]`, or the targets or labels that U takes instead."""
        instead = {"error": data.t, "decision": data.y}.get(self.value.utility)
        if instead is not None:
            return np.tile(instead, (len(data.x_val), 1)).astype(float)
        return ref.matches(data.y, data.y_val)

    def enumerate(self, data: Data, k: int, *, metric="l2", ties="stable"):
        distance = ref.distances(data.x, data.x_val, metric)
        return ref.enumerate_values(
            distance,
            self.gains(data),
            self.utility(data, distance, k, RADIUS[metric]),
            self.value.by_size(data.n),
            ties,
        )


def random(n: int, n_val: int = 12, *, seed: int = 0) -> Data:
    """Points in general position: no ties, and none on the edge of a ball."""
    for attempt in range(100):
        rng = np.random.default_rng([n, seed, attempt])
        x, x_val = (rng.normal(size=(m, 3)).astype(np.float32) for m in (n, n_val))
        if all(_gap(x, x_val, metric) > 1e-4 for metric in RADIUS):
            return _labelled(rng, x, x_val)
    raise RuntimeError(f"no {n} points in general position found")


def grid(n: int, n_val: int = 12, *, seed: int = 0, size: int = 3) -> Data:
    """Points of a small grid, so that many coincide or are equally far."""
    rng = np.random.default_rng([n, seed])
    x, x_val = (rng.integers(0, size, (m, 2)) for m in (n, n_val))
    return _labelled(rng, x, x_val)


def changed(data: Data, **arrays) -> Data:
    """Return the data with other arrays."""
    return dataclasses.replace(data, **arrays)


def spoilt(array, row, value):
    """Return a copy of an array in float32, one row of which is another value."""
    array = np.array(array, np.float32)
    array[row] = value
    return array


def close(actual, expected, atol=2e-6):
    """Assert that values agree up to the rounding of float32."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def _gap(x, x_val, metric):
    distance = ref.distances(x, x_val, metric)
    edge = np.full((len(x_val), 1), RADIUS[metric])
    return np.diff(np.sort(np.hstack([distance, edge]))).min()


def _labelled(rng, x, x_val) -> Data:
    n, n_val = len(x), len(x_val)
    data = Data(
        x=x.astype(np.float32),
        y=rng.integers(0, 3, n),
        t=rng.integers(-8, 8, n) / np.float32(4),
        x_val=x_val.astype(np.float32),
        y_val=rng.choice([0, 1, 2, ABSENT], n_val),
        t_val=rng.integers(-8, 8, n_val) / np.float32(4),
    )
    data.y_val[0] = data.y[0]  # labels that do not meet at all are refused
    return data


def computed(x, x_val):
    """Return squared distances in float32, `[m, n]`, and what settles them."""
    (points, queries), given = prepare_exact(x, x_val, metric="l2")
    norms = neighbors.squared_norms(points)
    near = neighbors.distances(points, queries, norms=norms)
    return near, Exact(*given, *error_parts(norms, queries, "l2"), cosine=False)


def computed_for_one(x, query):
    """Return those of one query, `[n]`."""
    (near,), exact = computed(x, np.asarray(query)[None])
    query, query_error = exact.query[0], exact.query_error[0]
    return near, dataclasses.replace(exact, query=query, query_error=query_error)


OTHER_BETA = KnnValue(
    functools.partial(value.knn_beta_shapley, alpha=2.5, beta=4.0),
    lambda n: ref.beta_weights(n, 2.5, 4),
)
METHODS = [
    *(Method(name, registered) for name, registered in value.VALUES.items()),
    Method("knn_beta_shapley-2.5-4", OTHER_BETA),
]
BY_NAME = {method.name: method for method in METHODS}

each_method = pytest.mark.parametrize("method", METHODS, ids=BY_NAME)
each_tied = pytest.mark.parametrize(
    ("method", "ties"),
    [
        pytest.param(m, ties, id=f"{m.name}-{ties}")
        for m in METHODS
        for ties in m.value.ties
    ],
)
each_how = pytest.mark.parametrize(
    ("method", "how"),
    [
        pytest.param(m, how, id=f"{m.name}-{how}")
        for m in METHODS
        for how in m.value.methods
    ],
)
