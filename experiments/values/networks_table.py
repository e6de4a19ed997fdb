"""Table of attributions beside retrained networks."""

from __future__ import annotations

import numpy as np

from experiments._kit.words import spread
from jaxsel.report import Table

from .networks import COLUMNS, SCENES
from .run import Study


def networks_table(result: Study) -> Table:
    """Tabulate linear datamodelling scores by method and network."""
    scores, sizes = result.networks, result.network_sizes
    measured = np.flatnonzero(~np.isnan(scores["accuracy"]).all(0))
    rows = [
        (method, *(spread(scores["lds"][:, i, j]) for i in measured))
        for j, method in enumerate(COLUMNS)
    ]
    rows.append(("ceiling", *(spread(scores["ceiling"][:, i]) for i in measured)))
    return Table(
        columns=("Method", *(SCENES[i] for i in measured)),
        rows=rows,
        formats=("", *(".2f" for _ in measured)),
        caption="Rank correlation of summed scores with the losses of networks that "
        f"are trained on halves of {sizes.n} points, mean over {sizes.n_val} targets "
        "± standard deviation over seeds. The ceiling is what the runs' own noise "
        "leaves to any method.",
    )


def networks_words(result: Study) -> str:
    """Say how the networks were trained, and which method is ahead where."""
    scores, sizes = result.networks, result.network_sizes
    measured = np.flatnonzero(~np.isnan(scores["accuracy"]).all(0))
    means = scores["lds"].mean(0)
    ahead = "; ".join(
        f"{SCENES[i]}: {COLUMNS[means[i].argmax()]} with {means[i].max():.2f}, "
        f"KNN-Shapley {means[i, COLUMNS.index('KNN-Shapley')]:.2f} (accuracy "
        f"{scores['accuracy'][:, i].mean():.0%})"
        for i in measured
    )
    return (
        f"The greatest means: {ahead}. Networks are trained for {sizes.epochs} epochs "
        f"by SGD with momentum; {sizes.subsets} halves, two runs each, none of them "
        "seen by an attribution. Attributions are means over "
        f"{sizes.networks} networks, but of one where they follow its very run. "
        "KNN values and cosines know no network; cosines count against a target where "
        "labels differ."
    )
