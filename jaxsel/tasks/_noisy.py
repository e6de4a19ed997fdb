"""Wrong labels: how soon inspection finds them."""

# The decorator fills in all options.
# pyright: reportTypedDictNotRequiredAccess=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._runs.progress import track
from jaxsel.data import flip_labels

from ._application import (
    ValueFunction,
    check_methods,
    check_share,
    check_source,
    draw_runs,
    features,
    value_all,
    valued_rows,
    warn_if_seen,
)
from ._curves import Curves, stack
from ._detection import Detection, detection_curve
from ._options import DrawOptions, task_options


@task_options(DrawOptions)
def noisy_labels(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    n: int = 1000,
    rate: float = 0.1,
    key: jax.Array,
    **options: Unpack[DrawOptions],
) -> Curves:
    """Flip a share of the training labels, and inspect the lowest values first.

    For each seed, training and validation sets are drawn anew and disjointly, and each
    chosen label becomes one of the other classes, all equally likely. Validation labels
    stay right.

    Args:
        x: Source, images `[m, h, w, c]` or a table `[m, d]`. Bytes count as 0..1;
            columns of a table must be on one scale.
        y: Its classes `[m]`, counted from 0.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added.
        n: Training points.
        rate: Share of the training labels to flip.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Validation points, seeds and features: see `TaskOptions`.

    Returns:
        Share of the wrong labels found, against the share inspected, `[seeds, n + 1]`.
        The measures are "auc" and "found_at_bad", as in `Detection`.

    Costs one call of each method for each seed.

    Raises:
        ValueError: If there are too few rows, `rate` is out of range, or a method's
            values do not fit.
        TypeError: If a method is not a function.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, section 4.3 and appendix E.1
        (10 % flipped); Ghorbani and Zou, Data Shapley, ICML 2019.
    """
    embed, n_val = options["embed"], options["n_val"]
    check_methods(methods)
    source = check_source(x, y)
    check_share("rate", rate, n)
    sizes = {"n": n, "n_val": n_val}
    runs = draw_runs(source, sizes, seeds=options["seeds"], key=key)
    warn_if_seen(embed, source.x[valued_rows(runs, 0)])
    detections = []
    for run in track(runs, progress=options["progress"], label="Noisy labels"):
        (x_train, y_train), (x_val, y_val) = map(source.take, run.parts)
        flipped, wrong = (
            np.asarray(a)
            for a in flip_labels(
                run.keys.corrupt, y_train, rate, n_classes=source.n_classes
            )
        )
        embedded = [features(embed, part) for part in (x_train, x_val)]
        values = value_all(
            methods, embedded[0], flipped.astype(np.int64), embedded[1], y_val, run.keys
        )
        detections.append({m: detection_curve(v, wrong) for m, v in values.items()})
    return Curves(
        name=f"Noisy labels (n={n}, n_val={n_val}, rate={rate:g})",
        x=detections[0][next(iter(detections[0]))].inspected,
        curves=stack([{m: d.found for m, d in f.items()} for f in detections]),
        summary=detection_summary(detections),
        xlabel="Share of samples inspected",
        ylabel="Share of wrong labels found",
        percent_x=True,
    )


def detection_summary(
    detections: list[dict[str, Detection]],
) -> dict[str, dict[str, np.ndarray]]:
    """Return each method's AUC and share found at the number of bad ones, `[seeds]`."""
    return {
        m: {
            measure: np.array([getattr(f[m], measure) for f in detections])
            for measure in ("auc", "found_at_bad")
        }
        for m in detections[0]
    }
