"""Accuracy after a purchase, as a chapter of a report."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments._kit.claims import (
    averaged,
    by_claim,
    claim_table,
    differs_table,
    matrix,
    tally,
)
from experiments._kit.judge import FAILS, HOLDS
from experiments._kit.words import listed, standard_error
from experiments.selectformer.sources import NAMES
from jaxsel.report import COLORS, Chapter, Figure, Heading, Table, new_figure, style

from .claims import CLAIMS, judged
from .run import Accuracy, Purchases
from .trial import BOOTSTRAP, BUDGETS, DRAWS, LARGER, LEARNER, MODEL
from .ways import WAYS

PAPER = 2.41
"""Points by which the paper's own choice is above Random on average, in its Table 1
without CIFAR-100, at 20 %, by fine-tuned transformers."""


def accuracy_chapter(result: Accuracy) -> Chapter:
    """Show accuracy beyond a random choice, by way to choose, budget and pool."""
    claims = judged(result)
    blocks: list[str | Heading | Figure | Table] = [
        matrix(claims, "Each way to choose, pool by pool."),
        _figure(result),
        "SelectFormer's headline is accuracy: a model that is trained on what its "
        "proxies choose is better than one trained on as many random samples, by "
        f"{PAPER:.1f} points on average in the paper's Table 1 (without CIFAR-100), "
        "and as good as its Oracle. Here every way of choosing buys from the same "
        "pools: one class is kept whole, and each other one cut to a ninth of it, as "
        f"in the paper; {BOOTSTRAP:.0%} are bought at random first, with labels, and a "
        "target is trained on them, whose scores rank the rest. Then a model is "
        "trained on all that was bought, and tested on samples whose classes are as "
        "frequent as in the source. The target is linear on features of a public "
        "encoder, or on pixels: what is said is about such targets, not about the "
        "paper's transformers.",
        _gains(result),
        *verdicts(result),
        Heading(f"Of the claims {tally(claims)}"),
        claim_table(claims, f"At {BUDGETS[0]:.0%}.", n_seeds=len(result.seeds)),
        differs_table(CLAIMS, "By what each claim is judged."),
        Heading("What a random choice needs to be as good"),
        _needs(result),
    ]
    for name, pool in result.pools.items():
        blocks += [Heading(NAMES[name]), _about(pool), _pool(NAMES[name], pool, result)]
    blocks += [Heading("How it was measured"), _method(result)]
    return Chapter(
        title="Accuracy after a purchase",
        blocks=blocks,
        data={
            "seeds": result.seeds,
            "budgets": BUDGETS,
            "larger": LARGER,
            "ways": list(WAYS),
            "claims": [dataclasses.asdict(claim) for claim in claims],
            "pools": {
                name: dataclasses.asdict(pool) for name, pool in result.pools.items()
            },
        },
    )


def verdicts(result: Accuracy) -> list[str]:
    """Rank the ways by the pools in which each is above a random choice.

    Returns:
        A sentence on all ways, one on those that run in secret, and, where a random
        choice is better than a way, one on that.
    """
    claims = judged(result)
    rows = dict(zip(WAYS, by_claim(claims).values(), strict=True))
    counts = [sum(c.verdict == HOLDS for c in tests) for tests in rows.values()]
    pools = [*result.pools.values()]
    means = 100 * np.mean([pool.gains[:, 0].mean(axis=0) for pool in pools], axis=0)
    order = np.lexsort((-means, -np.array(counts)))
    names = [*WAYS]
    shares = [
        f"“{names[i]}” in {counts[i]}, by {means[i]:+.1f} points on average"
        for i in order
    ]
    secret = [names[i] for i in order if WAYS[names[i]].secret]
    best, worst = (counts[names.index(name)] for name in (secret[0], secret[-1]))
    lines = [
        f"At a budget of {BUDGETS[0]:.0%}, above a random choice (5 %, corrected for "
        f"all {len(claims)} tests), of {len(pools)} pools: {listed(shares)}.",
        f"Of the scores that run in secret as they are, “{secret[0]}” is above in "
        f"most pools, and “{secret[-1]}” in fewest: {best} and {worst}.",
    ]
    losses = [
        f"“{name}” on {claim.where} ({claim.measured})"
        for name, tests in rows.items()
        for claim in tests
        if claim.verdict == FAILS
    ]
    if losses:
        lines.append(f"Below a random choice: {listed(losses)}.")
    return lines


def _cell(gains: np.ndarray) -> tuple[float, float | None]:
    """Return the mean and its standard error, None of one seed."""
    error = float(standard_error(gains)) if len(gains) > 1 else None
    return float(gains.mean()), error


def _gains(result: Accuracy) -> Table:
    """Tabulate points beyond a random choice at the first budget, by pool."""
    rows: list[list[object]] = []
    for i, way in enumerate(WAYS.values()):
        gains = [100 * pool.gains[:, 0, i] for pool in result.pools.values()]
        rows.append(
            [
                way.says,
                "yes" if way.secret else "no",
                *map(_cell, gains),
                float(np.mean([of_pool.mean() for of_pool in gains])),
            ]
        )
    whole = [
        100 * (pool.pool - pool.random[:, 0].mean(axis=1))
        for pool in result.pools.values()
    ]
    mean = float(np.mean([of_pool.mean() for of_pool in whole]))
    rows.append(["All of the pool", None, *map(_cell, whole), mean])
    names = [NAMES[name] for name in result.pools]
    return Table(
        columns=("Way", "In secret", *names, "Mean"),
        rows=rows,
        formats=("", "", *(["+.2f"] * (len(names) + 1))),
        caption="Points of test accuracy beyond a random purchase of "
        f"{BUDGETS[0]:.0%}, {averaged(len(result.seeds))}. In secret: whether a "
        "manifest and a choice can express it.",
    )


def _figure(result: Accuracy) -> Figure:
    """Draw points beyond a random choice at the first budget, a bar a way and pool."""
    figure = new_figure(8.8, 3.6)
    width = 0.8 / len(WAYS)
    with style():
        ax = figure.subplots()
        places = np.arange(len(result.pools))
        for i, name in enumerate(WAYS):
            gains = [_cell(100 * pool.gains[:, 0, i]) for pool in result.pools.values()]
            ax.bar(
                places + (i - len(WAYS) / 2 + 0.5) * width,
                [mean for mean, _ in gains],
                width,
                yerr=[error or 0.0 for _, error in gains],
                color=COLORS[i % len(COLORS)],
                label=name,
            )
        ax.axhline(0, color="0.5", linewidth=0.8)
        ax.set_xticks(places, [NAMES[name] for name in result.pools])
        ax.set_ylabel("Points beyond random")
        ax.legend(ncols=2)
    text = "; ".join(
        f"{NAMES[name]}: "
        + ", ".join(
            f"{way} {100 * pool.gains[:, 0, i].mean():+.1f}"
            for i, way in enumerate(WAYS)
        )
        for name, pool in result.pools.items()
    )
    return Figure(
        plot=figure,
        caption=f"What each way gains at {BUDGETS[0]:.0%}; bars of one standard error.",
        alt=f"Points of accuracy beyond a random purchase. {text}.",
    )


def _needs(result: Accuracy) -> Table:
    """Tabulate the least budget at which a random choice is as good as each way.

    Means over seeds are compared; budgets are those that were bought at random.
    """
    budgets = np.array([*BUDGETS, *LARGER, 1.0])
    rows: list[list[object]] = []
    for i, way in enumerate(WAYS.values()):
        row: list[object] = [way.says]
        for pool in result.pools.values():
            usual = np.append(pool.random.mean(axis=(0, 2)), pool.pool.mean())
            wanted = pool.ways[:, 0, i].mean()
            reached = np.flatnonzero(usual >= wanted)
            row.append(
                f"{budgets[reached[0]]:.0%}" if len(reached) else "more than all"
            )
        rows.append(row)
    return Table(
        columns=("Way", *(NAMES[name] for name in result.pools)),
        rows=rows,
        caption=f"The least of {', '.join(f'{b:.0%}' for b in budgets)} of the pool "
        f"with which a random choice is on average as good as each way at "
        f"{BUDGETS[0]:.0%}.",
    )


def _about(pool: Purchases) -> str:
    """Describe a pool and the accuracy of models that need no choice."""
    usual = pool.random[:, 0].mean()
    return (
        f"{pool.n.mean():,.0f} samples are offered, {pool.rare_offered.mean():.0%} of "
        f"them not of the kept class. A random {BUDGETS[0]:.0%} trains a model that is "
        f"right in {usual:.1%} of the test samples, the bootstrap set alone in "
        f"{pool.bootstrap.mean():.1%}, all of the pool in {pool.pool.mean():.1%}."
    )


def _pool(name: str, pool: Purchases, result: Accuracy) -> Table:
    """Tabulate points beyond a random choice by budget, and rare classes bought."""
    rows: list[list[object]] = []
    for i, way in enumerate(WAYS.values()):
        cells: list[object] = [way.says]
        for b in range(len(BUDGETS)):
            cells += [_cell(100 * pool.gains[:, b, i])]
        rows.append([*cells, float(pool.rare[:, 0, i].mean())])
    return Table(
        columns=("Way", *(f"{b:.0%}" for b in BUDGETS), "Rare classes"),
        rows=rows,
        formats=("", *(["+.2f"] * len(BUDGETS)), ".0%"),
        caption=f"{name}: points beyond a random purchase of as many, "
        f"{averaged(len(result.seeds))}, and the share of what {BUDGETS[0]:.0%} buy "
        "that is not of the kept class.",
    )


def _method(result: Accuracy) -> str:
    return (
        "Texts by MiniLM's last layer, mean of 48 tokens at most; Fashion-MNIST by "
        "pixels, 14 x 14. Features are centred, and scaled together. Target and model: "
        f"`{LEARNER!r}`, the model with a tolerance of {MODEL.tol:g}. A random choice "
        f"is the mean of {DRAWS} draws, with the same bootstrap set. Seeds "
        f"{', '.join(map(str, result.seeds))}, each with a deal of its own. Not "
        "measured here: transformers fine-tuned on each purchase, proxies that "
        "approximate the target (their fidelity is in a report of its own), and the "
        "paper's data sets."
    )
