"""Wrong labels against cleanlab: `python -m benchmarks.bench_labels`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import jaxsel
from jaxsel import labels, value

from . import _labels
from ._case import Case, Contender, Target, at_most, faster
from ._harness import main
from ._labels import Call, Labelled, Predicted

DATA = ("digits", "adult", "movie_polarity", "newsgroups", "tweets")
SEEDS = 10
_RECIPE = "jaxsel, cleanlab's recipe"
_T = 1.833  # 95 % quantile of Student's t with 9 degrees of freedom


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    rows = 300 if quick else None
    shown = ("digits",) if quick else DATA
    return [
        _joint(2000 if quick else 1_000_000, 10 if quick else 100),
        *(_folds(name, rows) for name in ("digits", "adult") if name in shown),
        *(_found(name, rows, 2 if quick else SEEDS) for name in shown),
    ]


def _joint(n: int, classes: int) -> Case[Predicted]:
    return Case(
        name="joint",
        title=f"joint: issues of {n:,} x {classes} probabilities, ranked",
        inputs=functools.partial(_labels.predicted, n, classes),
        tiny=functools.partial(_labels.predicted, 300, 5),
        work=n,
        unit="label",
        bytes=8 * classes,
        contenders=[
            Contender(
                name="jaxsel",
                make=_ours,
                check=_same,
                limits={"different": 0},
                note="find_label_errors: suggestions and estimates, too",
            ),
            Contender(
                name="cleanlab",
                make=_labels.cleanlab_issues,
                check=_same,
                limits={"different": 0},
                peer=True,
                note="find_label_issues, n_jobs=1",
            ),
        ],
        targets=[
            faster("jaxsel", "cleanlab", "must", 5),
            faster("jaxsel", "cleanlab", "goal", 10),
        ],
        rounds=5,
    )


def _ours(task: Predicted) -> Call:
    return lambda: jaxsel.find_label_errors(None, task.y, pred_probs=task.probs)


def _same(task: Predicted, result: Any) -> Mapping[str, float]:
    """Compare the found rows with issues sorted by score, the plain implementation."""
    rows = result.indices if isinstance(result, labels.LabelErrors) else result
    mask = labels.label_issues(task.probs, task.y)
    scores = labels.label_scores(task.probs, task.y, rank_by="self_confidence")
    wanted = np.flatnonzero(mask)
    wanted = wanted[np.argsort(scores[wanted])]
    same = len(rows) == len(wanted) and (rows == wanted).all()
    return {"different": float(not same), "found": float(len(rows))}


def _folds(name: str, rows: int | None) -> Case[Labelled]:
    def ours(tol: float) -> Callable[[Labelled], Call]:
        learner = value.LogisticRegression(tol=tol)
        return lambda task: lambda: labels.cross_val_probs(learner, task.x, task.y)

    def check(task: Labelled, probs: np.ndarray) -> Mapping[str, float]:
        off = np.abs(probs - _labels.converged_probs(task))
        return {"off": float(off.mean()), "worst": float(off.max())}

    contenders = [
        Contender(
            name="jaxsel",
            make=ours(1e-4),
            check=check,
            limits={"off": 1e-5, "worst": 1e-2},
        ),
        Contender(
            name="scikit-learn",
            make=lambda task: lambda: _labels.sklearn_probs(task.x, task.y),
            check=check,
            # It stops after 100 steps, and at a gradient of 1e-4.
            limits={"off": 5e-3},
            peer=True,
            note="cross_val_predict, LogisticRegression()",
        ),
    ]
    if name == "adult":
        contenders.append(
            Contender(
                name="jaxsel, tol=1",
                make=ours(1.0),
                check=check,
                limits={"off": 2e-4, "worst": 0.1},
                note="nearer the optimum than scikit-learn",
            )
        )
    return Case(
        name=f"folds {name}",
        title=f"folds {name}: probabilities of 5 folds, logistic regression",
        inputs=functools.partial(_labels.load, name, rows),
        tiny=functools.partial(_labels.load, "digits", 100),
        work=_labels.FOLDS,
        unit="fold",
        contenders=contenders,
        targets=[
            faster(contender.name, "scikit-learn", "goal", 5)
            for contender in contenders
            if not contender.peer
        ],
        rounds=5,
    )


def _found(name: str, rows: int | None, seeds: int) -> Case[Labelled]:
    def ours(**options: Any) -> Callable[[Labelled], Call]:
        def search(task: Labelled, seed: int) -> tuple[np.ndarray, np.ndarray]:
            labels = task.flipped(seed)[0]
            errors = jaxsel.find_label_errors(task.x, labels, **options)
            return errors.scores, errors.indices

        return lambda task: lambda: [search(task, seed) for seed in range(seeds)]

    def theirs(task: Labelled) -> Call:
        import cleanlab  # noqa: F401  # pyright: ignore

        return lambda: [
            _labels.cleanlab_search(task.x, task.flipped(seed)[0])
            for seed in range(seeds)
        ]

    @functools.lru_cache(maxsize=1)
    def of_theirs(task: Labelled) -> Any:
        try:
            return theirs(task)()
        except ImportError:
            return None

    def check(task: Labelled, results: Any) -> Mapping[str, float]:
        return _judge(task, results, of_theirs(task))

    must = "not below cleanlab, paired over the seeds (upper 5 % bound of the loss)"
    return Case(
        name=f"found {name}",
        title=f"found {name}: 10 % of the labels flipped, {seeds} seeds",
        inputs=functools.partial(_labels.load, name, rows),
        tiny=functools.partial(_labels.load, "digits", 100),
        work=seeds,
        unit="search",
        contenders=[
            Contender(name="jaxsel", make=ours(), check=check, limits={"loss": np.inf}),
            Contender(
                name=_RECIPE,
                make=ours(learner=value.LogisticRegression(), duplicates=None),
                check=check,
                limits={"loss": np.inf},
                note="learner=LogisticRegression(), duplicates=None: the same scores",
            ),
            Contender(
                name="cleanlab",
                make=theirs,
                check=check,
                limits={"loss": np.inf},
                peer=True,
                note="cross-validated LogisticRegression(), self-confidence",
            ),
        ],
        targets=[
            at_most("jaxsel", "surely_below_auc", 0, f"AUC {must}", "must"),
            at_most("jaxsel", "surely_below_ap", 0, f"AP {must}", "must"),
            faster("jaxsel", "cleanlab", "goal", 1),
            faster(_RECIPE, "cleanlab", "must", 0.5),
            faster(_RECIPE, "cleanlab", "goal", 1),
            Target(
                text="jaxsel: AUC surely above cleanlab",
                level="goal",
                contender="jaxsel",
                quantity="surely_above_auc",
                bound="at least",
                limit=1,
            ),
            Target(
                text="jaxsel: precision at cleanlab's recall, beyond cleanlab's",
                level="must",
                contender="jaxsel",
                quantity="precision_gain",
                bound="at least",
                limit=0,
            ),
        ],
        rounds=1,
        probed=False,
    )


def _judge(task: Labelled, results: Any, other: Any) -> dict[str, float]:
    """Return AUC, AP, precision and recall, and the gains over cleanlab."""
    measured, gained = [], []
    for seed, (scores, rows) in enumerate(results):
        _, wrong = task.flipped(seed)
        auc, ap = _labels.detection(scores, wrong)
        hits = wrong[rows].sum()
        measured.append([auc, ap, hits / max(len(rows), 1), hits / wrong.sum()])
        if other is not None:
            their_scores, their_rows = other[seed]
            their_auc, their_ap = _labels.detection(their_scores, wrong)
            # As many hits as cleanlab's own choice has, in the order of the scores.
            wanted = max(int(wrong[their_rows].sum()), 1)
            ours = np.cumsum(wrong[np.argsort(scores, kind="stable")])
            precision = wanted / (np.searchsorted(ours, wanted) + 1)
            theirs = wrong[their_rows].mean() if len(their_rows) else 0.0
            gained.append([auc - their_auc, ap - their_ap, precision - theirs])
    names = ("auc", "ap", "precision", "recall")
    figures: dict[str, float] = {}
    figures |= zip(names, np.mean(measured, axis=0).tolist(), strict=True)
    figures["loss"] = 0.0
    if gained:
        mean = np.mean(gained, axis=0)
        error = np.std(gained, axis=0, ddof=1) / np.sqrt(len(gained))
        figures |= {
            "auc_gain": float(mean[0]),
            "ap_gain": float(mean[1]),
            "precision_gain": float(mean[2]),
            "surely_below_auc": float(mean[0] + _T * error[0] < 0),
            "surely_below_ap": float(mean[1] + _T * error[1] < 0),
            "surely_above_auc": float(mean[0] - _T * error[0] > 0),
            "surely_above_ap": float(mean[1] - _T * error[1] > 0),
        }
    return figures


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_labels", cases))
