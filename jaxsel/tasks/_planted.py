"""Steps shared by both kinds of watermark: detection, removal and retraining."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsel._runs.progress import track

from ._application import (
    Run,
    Source,
    ValueFunction,
    check_methods,
    check_share,
    draw_runs,
    features,
    lowest_first,
    sizes_of,
    value_all,
    valued_rows,
    warn_if_seen,
)
from ._curves import Curves, stack
from ._detection import detection_curve
from ._learners import Scorer, Test
from ._noisy import detection_summary


class Planted(NamedTuple):
    """A watermarked training set, and the test set that reveals the mark."""

    x: np.ndarray
    y: np.ndarray
    marked: np.ndarray
    question: Test


def watermark_curves(
    source: Source,
    methods: Mapping[str, ValueFunction],
    plant: Callable[[Run, Test, Test], Planted],
    *,
    name: str,
    rate: float,
    remove: float | None,
    key: jax.Array,
    options: Mapping[str, Any],
    foreign: np.ndarray | None = None,
) -> Curves:
    """Run either application: see `pattern_watermark_detection`.

    Args:
        source: Data from which training, validation and test sets are drawn.
        methods: Value functions by name.
        plant: From a run, its training and its test set to a watermarked set.
        name: Of the application, with its settings.
        rate: Share of the training set that is planted.
        remove: Share to remove; as many as are planted if None.
        key: Key of every draw.
        options: `TaskOptions` without `balanced` and `embed_learner`.
        foreign: Samples that are planted, for the check of `embed`.
    """
    n, embed, learner = options["n"], options["embed"], options["learner"]
    check_methods(methods)
    n_marked = check_share("rate", rate, n)
    n_removed = n_marked if remove is None else check_share("remove", remove, n)
    runs = draw_runs(source, sizes_of(options), seeds=options["seeds"], key=key)
    valued = [source.x[valued_rows(runs, 0)], *([] if foreign is None else [foreign])]
    warn_if_seen(embed, *valued)
    detections, after, reference = [], [], []
    for run in track(runs, progress=options["progress"], label=name.split(" (")[0]):
        train, val, test = map(source.take, run.parts)
        planted = plant(run, train, test)
        tests = (planted.question, test)
        score = Scorer(learner, planted.x, planted.y, tests, run.keys.learn)
        unmarked = Scorer(learner, *train, tests, run.keys.learn)
        rows = np.arange(len(planted.y))
        reference.append(
            {
                f"{measure}_{when}": result[i]
                for when, result in (
                    ("before", score(rows)),
                    ("unmarked", unmarked(rows)),
                )
                for i, measure in enumerate(("success", "accuracy"))
            }
        )
        values = value_all(
            methods,
            features(embed, planted.x),
            planted.y,
            features(embed, val[0]),
            val[1],
            run.keys,
        )
        detections.append(
            {m: detection_curve(v, planted.marked) for m, v in values.items()}
        )
        after.append({m: score(lowest_first(v)[n_removed:]) for m, v in values.items()})
    summary = detection_summary(detections)
    for m, results in stack(after).items():
        summary[m] |= {"success_after": results[:, 0], "accuracy_after": results[:, 1]}
    return Curves(
        name=name,
        x=detections[0][next(iter(detections[0]))].inspected,
        curves=stack([{m: d.found for m, d in f.items()} for f in detections]),
        summary=summary,
        reference=stack(reference),
        xlabel="Share of samples inspected",
        ylabel="Share of watermarks found",
        percent_x=True,
    )
