"""Domain adaptation: keep only source points that help in the target domain."""

# The decorator fills in all options.
# pyright: reportTypedDictNotRequiredAccess=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._runs.progress import track
from jaxsel.data import Dataset

from ._application import (
    Source,
    ValueFunction,
    check_methods,
    check_source,
    draw_runs,
    features,
    value_all,
    valued_rows,
    warn_if_seen,
)
from ._curves import Curves, stack
from ._learners import Scorer
from ._options import TrainOptions, task_options

Domain = Dataset | tuple[npt.ArrayLike, npt.ArrayLike]


@task_options(TrainOptions, n_val=1000)
def domain_adaptation(
    source: Domain,
    target: Domain,
    methods: Mapping[str, ValueFunction],
    *,
    embed_learner: bool = False,
    key: jax.Array,
    **options: Unpack[TrainOptions],
) -> Curves:
    """Value source points for the target domain, and train on the positive ones alone.

    Args:
        source: Where training points come from: a `Dataset`, or samples `[m, ...]` and
            classes `[m]`. Bytes count as 0..1.
        target: Where validation and test points come from, with samples of the same
            shape and classes numbered alike.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added: it keeps half of the points, any of them alike.
        embed_learner: Whether the learner too sees embedded samples.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Sizes, learner, seeds and features: see `TaskOptions`. Training
            points are of the source, validation and test points of the target.

    Returns:
        Test accuracy in the target domain before and after, `[seeds, 2]`. Measures are
        "before", "after", "gain" and "kept", the share of positive values. Where a
        method finds no positive value nothing is removed: "kept" is 0, and "after"
        equals "before".

    Costs one call of each method, and one training for each and one more, for each
    seed.

    Raises:
        ValueError: If there are too few rows, the domains' samples differ in shape, or
            a method's values do not fit.
        TypeError: If a method is not a function.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, section 4.3 and Table 2;
        Ghorbani and Zou, Data Shapley, ICML 2019.
    """
    n, n_val, n_test = options["n"], options["n_val"], options["n_test"]
    embed, seeds = options["embed"], options["seeds"]
    check_methods(methods)
    ours, theirs = _domain("source", source), _domain("target", target)
    if ours.x.shape[1:] != theirs.x.shape[1:]:
        raise ValueError(
            f"source and target must have samples of one shape, got {ours.x.shape[1:]} "
            f"and {theirs.x.shape[1:]}"
        )
    ours_runs = draw_runs(ours, {"n": n}, seeds=seeds, key=key)
    sizes = {"n_val": n_val, "n_test": n_test}
    their_runs = draw_runs(theirs, sizes, seeds=seeds, key=key, which=1)
    warn_if_seen(embed, ours.x[valued_rows(ours_runs, 0)])
    accuracies, kept = [], []
    pairs = list(zip(ours_runs, their_runs, strict=True))
    tracked = track(pairs, progress=options["progress"], label="Domain adaptation")
    for run, their_run in tracked:
        x, y = ours.take(run.parts[0])
        (x_val, y_val), (x_test, y_test) = map(theirs.take, their_run.parts)
        embedded = features(embed, x)
        values = value_all(
            methods, embedded, y, features(embed, x_val), y_val, run.keys
        )
        if embed_learner:
            x, x_test = embedded, features(embed, x_test)
        score = Scorer(options["learner"], x, y, [(x_test, y_test)], run.keys.learn)
        everything = np.arange(n)
        before = score(everything)[0]
        after = {}
        for name, v in values.items():
            positive = np.flatnonzero(v > 0)
            after[name] = score(positive if len(positive) else everything)[0]
        accuracies.append({name: np.array([before, a]) for name, a in after.items()})
        kept.append({name: np.mean(v > 0) for name, v in values.items()})
    curves, shares = stack(accuracies), stack(kept)
    return Curves(
        name=f"Domain adaptation (n={n}, n_val={n_val}, n_test={n_test})",
        x=np.array([0.0, 1.0]),
        curves=curves,
        summary={
            name: {
                "before": c[:, 0],
                "after": c[:, 1],
                "gain": c[:, 1] - c[:, 0],
                "kept": shares[name],
            }
            for name, c in curves.items()
        },
        reference={"before": next(iter(curves.values()))[:, 0]},
        xlabel="Training data",
        ylabel="Test accuracy in the target domain",
        ticks=("all of the source", "positive values"),
    )


def _domain(name: str, domain: Domain) -> Source:
    if isinstance(domain, Dataset):
        domain = (domain.x, domain.y)
    if not isinstance(domain, tuple) or len(domain) != 2:
        raise TypeError(
            f"{name} must be a Dataset or a pair (x, y), got {type(domain).__name__}"
        )
    return check_source(*domain, names=(f"{name} x", f"{name} y"))
