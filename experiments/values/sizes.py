"""Domain adaptation from MNIST to digits, by the number of source points."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from experiments._kit.scenes.samples import Part
from experiments._kit.scenes.valuations import Samples, knn_methods, retrained_methods
from jaxsel.tasks import RANDOM, domain_adaptation

from .cases import EXACT
from .methods import logistic

ADAPTED = ("KNN-Shapley", "KNN-LOO", "LOO", RANDOM, "KNN-Banzhaf")
"""The values, those of the study first. TMC-Shapley would take too long."""
LEFT_OUT_MOST = 1000
"""Source points up to which LOO, which trains once for each of them, is computed."""


class DomainSizes(NamedTuple):
    """Numbers of source points, and of target points to validate and to test on."""

    n: tuple[int, ...] = (200, 500, 1000, 2000)
    n_val: int = 700
    n_test: int = 1000


def sizes_seed(
    source: Part, target: Part, sizes: DomainSizes, seed: int
) -> dict[str, np.ndarray]:
    """Keep the source points of positive value, for each number of source points.

    Returns:
        "before", `[sizes]`, the accuracy in the target domain with all points; "after"
        and "kept", `[sizes, methods]`, that with points of positive value, and their
        share; NaN for LOO beyond `LEFT_OUT_MOST`.
    """
    key = jax.random.key((19 << 16) + seed)
    learner = logistic()
    before, after, kept = [], [], []
    for i, n in enumerate(sizes.n):
        methods = knn_methods()
        if n <= LEFT_OUT_MOST:
            methods |= retrained_methods(learner, Samples(), only=("LOO",))
        curves = domain_adaptation(
            (source.x, source.y),
            (target.x, target.y),
            methods,
            n=n,
            n_val=sizes.n_val,
            n_test=sizes.n_test,
            learner=EXACT,
            seeds=1,
            key=jax.random.fold_in(key, i),
        )
        before.append(curves.reference["before"][0])
        for measure, rows in (("after", after), ("kept", kept)):
            by_method = {
                m: summary[measure][0] for m, summary in curves.summary.items()
            }
            rows.append([by_method.get(m, np.nan) for m in ADAPTED])
    return {
        "before": np.array(before),
        "after": np.array(after),
        "kept": np.array(kept),
    }
