"""Inputs and peers of the benchmark of label errors."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments._kit.texts import read_texts
from jaxsel import data, models
from jaxsel.labels._folds import deal_folds

RATE, FOLDS = 0.1, 5
_HIDDEN = 384  # of MiniLM
# Rows of the largest, for time's sake; movie_polarity is whole.
ROWS = {"adult": 10_000, "tweets": 8100, "movie_polarity": 10_568, "newsgroups": 4000}

Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Predicted:
    """Probabilities of a made-up model, and labels.

    Attributes:
        probs: `[n, K]` float64.
        y: `[n]`.
    """

    probs: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """Features and right labels of a data set.

    Attributes:
        x: `[n, d]` float32.
        y: `[n]`.
        n_classes: Number of classes.
    """

    x: np.ndarray
    y: np.ndarray
    n_classes: int

    def flipped(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return labels of which a tenth is wrong, and which are."""
        flipped, wrong = data.flip_labels(
            jax.random.key(seed), self.y, RATE, n_classes=self.n_classes
        )
        return np.asarray(flipped).astype(np.int64), np.asarray(wrong)


def predicted(n: int, classes: int) -> Predicted:
    """Return softmax probabilities that are right for most of the labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    probs = rng.normal(size=(n, classes))
    noisy = np.where(rng.random(n) < RATE, rng.integers(classes, size=n), y)
    probs[np.arange(n), noisy] += rng.normal(5, 2, size=n)
    np.exp(probs, out=probs)
    probs /= probs.sum(axis=1, keepdims=True)
    return Predicted(probs, y)


@functools.lru_cache(maxsize=1)
def load(name: str, n: int | None = None) -> Labelled:
    """Return features and labels of a prepared data set, its first n rows.

    Texts are the mean of MiniLM's last layer; encoding takes minutes the first time.
    Tweets are drawn so that their classes are alike.

    Raises:
        OSError: If the data set, or the encoder, is not prepared.
    """
    if name in ("movie_polarity", "tweets"):
        texts = read_texts(name, ROWS[name])
        x, y, classes = texts.features[:, -_HIDDEN:], texts.labels, texts.n_classes
    else:
        split = f"train[:{ROWS[name]}]" if name in ROWS else "train"
        dataset = data.load(name, split=split)
        y, classes = np.asarray(dataset.y), dataset.n_classes
        x = _encoded(dataset.x) if dataset.x.dtype == object else dataset.as_features()
    return Labelled(x[:n].astype(np.float32), y[:n].astype(np.int64), classes)


def _encoded(texts: np.ndarray) -> np.ndarray:
    return models.text_features(
        [str(text) for text in texts],
        models.load_target(models.prepare_model("minilm")),
        length=64,
        cache=models.cache_folder("features"),
    )


@functools.cache
def converged_probs(task: Labelled) -> np.ndarray:
    """Return the same as `sklearn_probs`, by Newton steps that go to the end."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    learner = LogisticRegression(solver="newton-cg", tol=1e-9, max_iter=10_000)
    split = PredefinedSplit(deal_folds(task.y, folds=FOLDS))
    x = task.x.astype(np.float64)
    x -= x.mean(axis=0)
    return np.asarray(
        cross_val_predict(learner, x, task.y, cv=split, method="predict_proba")
    )


def sklearn_probs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return cross-validated probabilities of scikit-learn's logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    fold = deal_folds(y, folds=FOLDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops after 100 steps
        probs: Any = cross_val_predict(
            LogisticRegression(),
            x,
            y,
            cv=PredefinedSplit(fold),
            method="predict_proba",
        )
    return probs


def cleanlab_issues(task: Predicted) -> Call:
    """Return cleanlab's search for label issues, in one process.

    Raises:
        ImportError: If cleanlab is not installed.
    """
    from cleanlab.filter import find_label_issues  # pyright: ignore

    return lambda: find_label_issues(
        task.y, task.probs, n_jobs=1, return_indices_ranked_by="self_confidence"
    )


def cleanlab_search(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cleanlab's scores `[n]`, and the labels that it takes, the worst first."""
    from cleanlab.filter import find_label_issues  # pyright: ignore
    from cleanlab.rank import get_label_quality_scores  # pyright: ignore

    probs = sklearn_probs(x, y)
    rows = find_label_issues(
        y, probs, n_jobs=1, return_indices_ranked_by="self_confidence"
    )
    return get_label_quality_scores(y, probs, method="self_confidence"), rows


def detection(scores: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    """Return the area under the ROC curve, and the average precision, of low scores."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return (
        float(roc_auc_score(wrong, -scores)),
        float(average_precision_score(wrong, -scores)),
    )
