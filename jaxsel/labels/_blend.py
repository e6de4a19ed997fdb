"""The default model: logistic regression and neighbours, as suits the labels."""

from __future__ import annotations

import numpy as np

from jaxsel._devices.platform import one_thread_if_small
from jaxsel._inputs.columns import with_hinges

from ._inputs import Predictions
from ._logistic import tuned_logistic
from ._neighbours import best_votes
from ._pool import pool
from ._table import Table


def blend(table: Table) -> Predictions:
    """Predict held-out probabilities by the default model.

    Logistic regression predicts each fold from the others, its penalty chosen by the
    held-out likelihood: of a table twice, with columns that bend (`with_hinges`) and
    without. Bends follow curves, but also the plateaus by which flipped labels are
    told from overlap. Neighbours vote on each sample, their number and weights chosen
    by the likelihood, too; a table without neighbours leaves them out. All are pooled
    by powers of the greatest likelihood.
    """
    x, codes, n_classes = table.rows, table.codes, len(table.classes)
    bent = with_hinges(x) if x.ndim == 2 else x
    tables = [bent]
    if bent.shape != x.shape:
        # With the bends set to zero, the compiled program serves again.
        straight = np.zeros_like(bent)
        straight[:, : x.shape[1]] = x
        tables.append(straight)
    penalties, members = list[float](), list[np.ndarray]()
    with one_thread_if_small(bent):
        for columns in tables:
            tuned = tuned_logistic(columns, codes, n_classes, table.fold)
            penalties.append(tuned.l2)
            members.append(tuned.log_probs)
    about = f"logistic regression with l2={penalties[0]:.3g}"
    if len(penalties) > 1:
        about += f", without bends l2={penalties[1]:.3g},"
    metric = ""
    if table.near is not None:
        best = best_votes(table.near, codes, n_classes, np.arange(len(codes)))
        members.append(np.log(best.shares).astype(np.float32))
        about += f" and {best.k} neighbours of sharpness {best.sharpness:g}"
        metric = f", metric={table.metric!r}"
    probs, powers = pool(members, codes)
    weights = ", ".join(map("{:.2f}".format, powers))
    return Predictions(
        probs,
        codes,
        table.classes,
        members=tuple(map(np.exp, members)),
        source=f"{about}, powers {weights}{metric}, folds={table.folds}",
    )
