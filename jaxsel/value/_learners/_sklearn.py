"""scikit-learn's estimators behind the same interface: one fit after the other."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from jaxsel._devices.platform import one_thread_if_small
from jaxsel.value._examples import Examples


@dataclasses.dataclass
class SklearnModel:
    """A fitted estimator, or the label that stands in for one.

    Attributes:
        estimator: The fitted one; None of no points or one class, or after an error.
        classes: Of the subset, in order.
        renumbered: Whether the estimator knows them as 0, 1, ...
        error: Why there is no estimator, or why it could not predict.
    """

    estimator: Any = None
    classes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    renumbered: bool = False
    error: str | None = None


class SklearnModels(NamedTuple):
    """Models of B subsets, and how many classes there are in all."""

    models: list[SklearnModel]
    classes: int

    @property
    def errors(self) -> list[str | None]:
        """Reasons why models have no scores; None for those that have."""
        return [model.error for model in self.models]


@dataclasses.dataclass(frozen=True)
class SklearnLearner:
    """Any estimator of scikit-learn, or one with the same interface.

    The slow path: every subset is a fit of its own, on the host, spread over processes
    by joblib; up to 2^20 numbers with one thread of BLAS. Examples that count more than
    once are sample weights, or repeated rows where `fit` takes none. With one process,
    a linear estimator of `warm_start=True` begins each subset with the coefficients of
    the last one of the same classes, and takes fewer steps along a permutation. A
    subset of one class predicts it always. Should `fit` refuse classes with a gap, as
    boosted trees may that want 0, 1, ..., it gets those of the subset numbered anew.

    Many estimators refuse small subsets: five neighbours need five points, and
    cross-validation some of each class. Where `fit` or `predict` raises, scores are
    NaN: `ModelUtility` then takes its `default_score` for the coalition, and `data_oob`
    leaves out the bag. Both warn how many there were, and of the first error.

    Args:
        estimator: Cloned for each subset. A classifier with `predict_proba` gives
            probabilities; others give their predictions alone. One that draws needs a
            `random_state`, for a subset to have one utility only.
        n_jobs: Processes at once, as joblib counts them: -1 for all cores.
        catch_errors: Whether to go on as above where the estimator raises; if not, its
            error ends the run.
    """

    estimator: Any
    _: dataclasses.KW_ONLY
    n_jobs: int = 1
    catch_errors: bool = True

    warm = False
    host = True

    def __post_init__(self) -> None:
        for name in ("fit", "predict", "get_params"):
            if not hasattr(self.estimator, name):
                raise TypeError(
                    f"estimator must have a method {name!r}, got {self.estimator!r}"
                )

    @property
    def workers(self) -> int:
        """Number of processes that `n_jobs` comes to."""
        import joblib

        return int(cast(Any, joblib).effective_n_jobs(self.n_jobs))

    @property
    def probabilistic(self) -> bool:
        """True if the estimator has `predict_proba`."""
        return hasattr(self.estimator, "predict_proba")

    @property
    def regression(self) -> bool:
        """True if the estimator is a regressor."""
        from sklearn import base

        return base.is_regressor(self.estimator)

    def prepare(self, data: Examples) -> Examples:
        """Return the examples as they are.

        Raises:
            ValueError: If a regressor gets classes, or a classifier targets.
        """
        if self.regression == bool(data.n_classes):
            received = "class labels" if data.n_classes else "targets"
            raise ValueError(
                f"estimator must fit {received}, got {self.estimator!r}"
                + (": for targets use metric='r2'" if data.n_classes else "")
            )
        return data

    def numbered(self, codes: Mapping[Any, int]) -> SklearnLearner:
        """Return a learner with class weights by code, since it fits codes.

        Args:
            codes: Number of each class, by its label.

        Raises:
            ValueError: If a weight is of no class.
        """
        renamed: dict[str, dict[int, Any]] = {}
        for name, weights in self.estimator.get_params().items():
            if not (name.endswith("class_weight") and isinstance(weights, Mapping)):
                continue
            others = [label for label in weights if label not in codes]
            if others:
                raise ValueError(
                    f"{name} of the estimator must be of the classes, got "
                    f"{others[0]!r} beside {', '.join(map(repr, [*codes][:5]))}"
                )
            renamed[name] = {codes[label]: w for label, w in weights.items()}
        if not renamed:
            return self
        from sklearn import base

        estimator = cast(Any, base.clone(self.estimator)).set_params(**renamed)
        return dataclasses.replace(self, estimator=estimator)

    def fit(
        self,
        data: Examples,
        weights: Any,
        key: Any = None,
        start: Any = None,
    ) -> SklearnModels:
        """Train on each subset: see `Learner.fit`.

        Raises:
            ValueError: If weights are no whole numbers and `fit` takes no weights.
        """
        del key, start
        x, y, weights = np.asarray(data.x), np.asarray(data.y), np.asarray(weights)
        if data.n_classes:
            y = y.astype(np.int64)  # as scikit-learn has classes, and torch wants them
        weighted = "sample_weight" in inspect.signature(self.estimator.fit).parameters
        if not weighted and (weights != weights.round()).any():
            raise ValueError(
                f"weights must be whole numbers, as {type(self.estimator).__name__} "
                "takes no sample weights, got "
                f"{weights[weights != weights.round()][0]}"
            )
        shared = self.estimator, x, y, bool(data.n_classes), weighted, self.catch_errors
        warm = self.n_jobs == 1 and self.estimator.get_params().get("warm_start")
        begun = _Begun() if warm is True else None
        with one_thread_if_small(x):
            models = in_parallel(self.n_jobs, _fit, weights, begun, *shared)
        return SklearnModels(models, data.n_classes)

    def predict(self, params: SklearnModels, x: Any) -> np.ndarray:
        """Return scores, `[B, m, classes]` or `[B, m, 1]`: see `Learner.predict`.

        They are NaN for models without an estimator, or whose estimator raises here,
        whose `error` says why.
        """
        x = np.array(x)  # a copy, since torch wants what it may write to
        shared = x, params.classes, self.catch_errors
        with one_thread_if_small(x):
            results = in_parallel(self.n_jobs, _predict, params.models, *shared)
        for model, (_, error) in zip(params.models, results, strict=True):
            model.error = model.error or error
        return np.stack([scores for scores, _ in results])


def in_parallel(
    n_jobs: int, function: Callable[..., Any], things: Iterable[Any], *rest: Any
) -> list[Any]:
    """Return `function(thing, *rest)` of each thing, by processes of joblib."""
    if n_jobs == 1:  # setting joblib up takes as long as a quick fit
        return [function(thing, *rest) for thing in things]
    import joblib

    library: Any = joblib
    jobs = (library.delayed(function)(thing, *rest) for thing in things)
    return list(library.Parallel(n_jobs=n_jobs)(jobs))


class _Begun:
    """Coefficients of the last subset, from which the next one's fit begins."""

    def __init__(self) -> None:
        self.last = SklearnModel()

    def begin(self, fresh: Any, classes: np.ndarray) -> Any:
        last = self.last.estimator
        # A forest of `warm_start` would keep its trees and train none.
        linear = hasattr(last, "coef_") and np.array_equal(classes, self.last.classes)
        return copy.deepcopy(last) if linear else fresh


def _fit(
    w: np.ndarray,
    begun: _Begun | None,
    estimator: Any,
    x: np.ndarray,
    y: np.ndarray,
    classify: bool,
    weighted: bool,
    catch: bool,
) -> SklearnModel:
    from sklearn import base

    rows = np.flatnonzero(w)
    classes = np.unique(y[rows]) if classify else np.zeros(0, int)
    if not len(rows) or len(classes) == 1:
        return SklearnModel(None, classes)
    options = {}
    if weighted and (w[rows] != 1).any():
        options["sample_weight"] = w[rows]
    else:
        rows = np.repeat(rows, w[rows].astype(int))
    first = None
    for renumbered in (False, True):
        labels = np.searchsorted(classes, y[rows]) if renumbered else y[rows]
        if renumbered and not (classify and (labels != y[rows]).any()):
            break
        try:
            model = cast(Any, base.clone(estimator))
            if begun is not None:
                model = begun.begin(model, classes)
            model = model.fit(x[rows], labels, **options)
            fitted = SklearnModel(model, classes, renumbered)
            if begun is not None:
                begun.last = fitted
            return fitted
        except MemoryError:
            raise
        except Exception as error:
            first = first or error
    if not catch and first is not None:
        raise first
    return SklearnModel(None, classes, error=_told(first))


def _predict(
    model: SklearnModel, x: np.ndarray, classes: int, catch: bool
) -> tuple[np.ndarray, str | None]:
    """Return scores, and the error that made them NaN, or None."""
    nothing = np.full((len(x), classes or 1), np.nan, np.float32)
    if model.error is not None:
        return nothing, model.error
    try:
        scores = class_scores(model, x, classes)
    except MemoryError:
        raise
    except Exception as error:
        if not catch:
            raise
        return nothing, _told(error)
    if np.isnan(scores).any():
        return nothing, "its predictions are NaN"
    return scores, None


def class_numbers(model: SklearnModel, codes: np.ndarray) -> np.ndarray:
    """Return the numbers of the classes that an estimator calls by codes."""
    return model.classes[codes] if model.renumbered else codes


def class_scores(model: SklearnModel, x: np.ndarray, classes: int) -> np.ndarray:
    """Return scores `[m, classes]`, or `[m, 1]` of targets: see `Learner.predict`."""
    estimator = model.estimator
    if not classes:
        outputs = np.zeros(len(x)) if estimator is None else estimator.predict(x)
        return outputs[:, None].astype(np.float32)
    scores = np.full((len(x), classes), -np.inf, np.float32)
    if estimator is None:
        # All alike of no points; else the one class that there is.
        scores[:, model.classes if len(model.classes) else slice(None)] = 0
    elif hasattr(estimator, "predict_proba"):
        with np.errstate(divide="ignore"):
            outputs = np.log(estimator.predict_proba(x))
        scores[:, class_numbers(model, estimator.classes_)] = outputs
    else:
        scores[np.arange(len(x)), class_numbers(model, estimator.predict(x))] = 0
    return scores


def _told(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
