"""Tables by size: KNN-LOO's curve and the adaptation."""

from __future__ import annotations

import numpy as np

from experiments._kit.words import spread
from jaxsel.report import Table

from .methods import named
from .nearest import INSPECTED, MEASURES, SETTINGS
from .run import CURVES, DOMAINS, Study
from .sizes import ADAPTED, LEFT_OUT_MOST


def nearest_table(result: Study) -> Table:
    """Tabulate the detection of wrong labels by the number of validation points."""
    curves = result.nearest
    return Table(
        columns=(
            "Classes",
            "Validation points",
            *(f"{m}: AUC" for m in MEASURES),
            *(f"KNN-LOO: found at {share:.0%}" for share in INSPECTED),
            "KNN-LOO: zero",
        ),
        rows=[
            (
                setting,
                m,
                *(spread(curves["auc"][:, s, i, j]) for j in range(len(MEASURES))),
                *(
                    spread(curves["found"][:, s, i, MEASURES.index("KNN-LOO"), k])
                    for k in range(len(INSPECTED))
                ),
                spread(curves["zero"][:, s, i]),
            )
            for s, setting in enumerate(SETTINGS)
            for i, m in enumerate(CURVES.n_val)
        ],
        formats=("", ",d", ".3f", ".3f", *(".0%" for _ in INSPECTED), ".0%"),
        caption=f"A tenth of wrong labels among {CURVES.n:,} points of Fashion-MNIST: "
        "AUC, the share found by KNN-LOO when so many are inspected, and the share of "
        "points whose KNN-LOO is zero; mean ± standard deviation over seeds.",
    )


def domain_table(result: Study) -> Table:
    """Tabulate accuracy in the target domain by the number of source points."""
    results = result.domain_sizes
    return Table(
        columns=("MNIST points", "All", *(named(m) for m in ADAPTED), "Kept"),
        rows=[
            (
                n,
                spread(results["before"][:, i]),
                *(
                    None if np.isnan(accuracies).all() else spread(accuracies)
                    for accuracies in results["after"][:, i].T
                ),
                spread(results["kept"][:, i, ADAPTED.index("KNN-Shapley")]),
            )
            for i, n in enumerate(DOMAINS.n)
        ],
        formats=(",d", *(".1%" for _ in range(len(ADAPTED) + 2))),
        caption="Accuracy on digits of a model that is trained on all MNIST points, or "
        "on those of positive value alone, and the share that KNN-Shapley keeps; "
        f"{DOMAINS.n_val} digits to validate, {DOMAINS.n_test:,} to test. LOO is "
        f"computed up to {LEFT_OUT_MOST:,} points.",
    )
