"""What the tests of learners and metrics share: tasks, coalitions, scikit-learn."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxsel import value

KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True)
class Task:
    """Training and validation points; `classes` is 0 where `y` holds targets."""

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    classes: int

    @property
    def n(self) -> int:
        return len(self.x)

    def arrays(self):
        return self.x, self.y, self.x_val, self.y_val

    def scaled(self, scale, offset) -> "Task":
        """The same task in other units."""
        to = lambda x: (x * scale + offset).astype(np.float32)
        return dataclasses.replace(self, x=to(self.x), x_val=to(self.x_val))


def blobs(classes: int, n: int, *, m=50, d=3, seed=0, distance=1.5) -> Task:
    """Normal clouds about random centres: the farther apart, the more separable."""
    rng = np.random.default_rng([seed, classes, n, d])
    centres = rng.normal(size=(classes, d)) * distance
    # Each class at least twice, both in training and in validation.
    y, y_val = (np.arange(size) % classes for size in (n, m))
    rng.shuffle(y)
    rng.shuffle(y_val)
    x, x_val = (
        (centres[codes] + rng.normal(size=(len(codes), d))).astype(np.float32)
        for codes in (y, y_val)
    )
    return Task(x, y.astype(np.int32), x_val, y_val.astype(np.int32), classes)


def line(n: int, *, m=40, d=3, seed=0) -> Task:
    """A linear regression with noise, far from the origin."""
    rng = np.random.default_rng([seed, n, d])
    slope = rng.normal(size=d)
    x, x_val = (rng.normal(size=(size, d)) for size in (n, m))
    y, y_val = (
        (a @ slope + 4 + 0.3 * rng.normal(size=len(a))).astype(np.float32)
        for a in (x, x_val)
    )
    return Task(x.astype(np.float32), y, x_val.astype(np.float32), y_val, 0)


def every_size(n: int, *, seed=0) -> np.ndarray:
    """One random coalition of each size from 1 to n, `[n, n]`."""
    rng = np.random.default_rng([seed, n])
    rank = np.stack([rng.permutation(n) for _ in range(n)])
    return (rank <= np.arange(n)[:, None]).astype(np.float32)


def of_classes(y: np.ndarray, kept: Sequence[Sequence[int]]) -> np.ndarray:
    """The coalitions of all points of these classes, `[len(kept), n]`."""
    return np.stack([np.isin(y, some) for some in kept]).astype(np.float32)


def prefixes(n: int, *, seed=0) -> np.ndarray:
    """All prefixes of a random permutation but the empty one, `[n, n]`."""
    rank = np.random.default_rng([seed, n]).permutation(n)
    return (rank <= np.arange(n)[:, None]).astype(np.float32)


def bags(n: int, rows: int = 8, *, seed=0) -> np.ndarray:
    """Bootstrap bags: how often each point was drawn, `[rows, n]`."""
    rng = np.random.default_rng([seed, n, rows])
    return rng.multinomial(n, np.full(n, 1 / n), size=rows).astype(np.float32)


def varied(n: int) -> np.ndarray:
    """Coalitions of every size and bags, of one shape: programs are compiled once."""
    return np.concatenate([every_size(n), bags(n)])


def examples(learner, task: Task):
    """The training data as `ModelUtility` prepares them."""
    data = value.Examples(
        x=jnp.asarray(task.x), y=jnp.asarray(task.y), n_classes=task.classes
    )
    return learner.prepare(data)


@functools.partial(jax.jit, static_argnums=0)
def _scores(learner, data, weights, x, key, start):
    params = learner.fit(data, weights, key, start)
    return learner.predict(params, x), params


def scores(learner, task: Task, weights, *, key=KEY, start=None, x_val=None):
    """Return scores `[B, m, C]` in float64, and the parameters."""
    x_val = task.x_val if x_val is None else x_val
    data = examples(learner, task)
    found, params = _scores(learner, data, jnp.asarray(weights), x_val, key, start)
    return np.asarray(found, np.float64), params


def probabilities(learner, task: Task, weights, **options):
    """Return probabilities `[B, m, C]`: scores are their logarithms, up to a constant.

    In float64, lest their rounding hides that of the learner.
    """
    return special.softmax(scores(learner, task, weights, **options)[0], axis=-1)


Make = Callable[[int], Any]  # from the number of rows to a scikit-learn estimator


def fit(model: Any, x, y, **options) -> Any:
    """Fit a scikit-learn model in float64, without warnings of what is fine here."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        # It goes on with L-BFGS then, to the same tolerance.
        warnings.filterwarnings("ignore", message="Line search of Newton solver")
        return model.fit(np.asarray(x, np.float64), y, **options)


def _fitted(make: Make, task: Task, weights) -> Any:
    """A scikit-learn model of one coalition, with its points as often as they count."""
    rows = np.repeat(np.arange(task.n), np.asarray(weights, int))
    return fit(make(len(rows)), task.x[rows], task.y[rows])


def _one_class(task: Task, weights) -> int | None:
    present = np.unique(task.y[np.asarray(weights) > 0])
    return int(present[0]) if len(present) == 1 else None


def expected_probabilities(make: Make, task: Task, weights) -> np.ndarray:
    """Return scikit-learn's probabilities `[B, m, C]`; 0 for classes not in a row."""
    found = np.zeros((len(weights), len(task.x_val), task.classes))
    for row, some in zip(found, weights, strict=True):
        only = _one_class(task, some)
        if only is None:
            model = _fitted(make, task, some)
            row[:, model.classes_] = model.predict_proba(task.x_val.astype(np.float64))
        else:
            row[:, only] = 1
    return found


def expected_predictions(make: Make, task: Task, weights) -> np.ndarray:
    """Return scikit-learn's predictions, `[B, m]`."""
    found = np.zeros((len(weights), len(task.x_val)))
    for row, some in zip(found, weights, strict=True):
        only = _one_class(task, some) if task.classes else None
        if only is None:
            model = _fitted(make, task, some)
            row[:] = model.predict(task.x_val.astype(np.float64))
        else:
            row[:] = only
    return found
