"""The evaluation of proxies as a chapter of a report."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

import numpy as np

from experiments._kit.claims import (
    claim_table,
    differs_table,
    matrix,
    tally,
    untested_table,
)
from experiments._kit.judge import HOLDS
from experiments._kit.texts import LENGTH
from experiments._kit.words import listed, standard_error
from experiments.selectformer.scores.trial import DRAWS, MODEL
from experiments.selectformer.sources import NAMES
from jaxsel.proxy import Front
from jaxsel.report import (
    COLORS,
    Chapter,
    Figure,
    Heading,
    Table,
    new_figure,
    style,
)

from . import tables
from .claims import CLAIMS, judged
from .costs import ENGINE, ROWS, Price, prices, search
from .finals import FinalPool
from .measured import OURS, TWO, labels_first
from .points import RATES, SEARCHED, points
from .run import Proxies
from .searched import SearchedPool
from .trial import BOOTSTRAP, OWN

_ORIGINS = (
    ("paper", "the paper's", "s"),
    ("peer", "peers' parts in them", "^"),
    ("ours", "ours", "o"),
)
_FINALS = (
    "The final models above are linear, so that hundreds of purchases are trained in "
    "minutes. The paper fine-tunes the target on each purchase. Where the target is "
    "small enough for that, it is done beside: its head begins as a linear probe of "
    "what was bought, as for the bootstrap set."
)

PAPERS = "3,521 labels on average"
"""How large the paper's bootstrap sets are."""

_INFERENCE = (
    "How often a proxy predicts the class itself. The paper's section 7.1 puts 36 "
    "emulators into all of BERT, feed-forward parts and all, and fine-tunes that: not "
    "done here, so that these figures say nothing on it."
)

DIFFERENCES = (
    (
        "MiniLM with 6 layers, a ViT with 6 layers of width 64",
        "BERT, DistilBERT and ViT with 6 or 12 layers of width 768",
    ),
    ("pools of 1,000 to 2,000 samples", "6,000 to 188,000 samples"),
    (
        "movie polarity, tweets, Reuters R8, 20 Newsgroups, Fashion-MNIST",
        "SST2, QNLI, QQP, AG News, Yelp, CIFAR-10 and CIFAR-100",
    ),
    (
        "a linear model on public features is trained on what was bought; of images "
        "the target is fine-tuned as well",
        "the target is fine-tuned on what was bought",
    ),
    (
        "proxies are cut from the target, fine-tuned on the bootstrap set; variants "
        "with --full also from a sub-model that is fine-tuned by itself",
        "cut from such a sub-model, M_g: the bottom layers",
    ),
    (
        f"the learning rate is the best of {len(RATES)} on a held-out deal that the "
        "guard accepts, and lower where it refuses that",
        "not said",
    ),
    ("all transformers read the mean over rows", "not said"),
    ("in the middle of three phases: 3 layers, all heads", "not said"),
    (
        "emulators learn half from activations of the bootstrap set, half from a "
        "million synthesised samples; variants with --full also from 5.12 million "
        "synthesised ones alone; in vivo for 20 epochs",
        "5.12 million synthesised samples; in vivo training not described",
    ),
    ("bytes with folded weights, counted", "bytes and hours measured on CrypTen"),
)
"""Our setup and the paper's, row by row."""


def proxies_chapter(
    result: Proxies,
    searched: Mapping[str, SearchedPool],
    finals: Mapping[str, FinalPool],
    variants: Proxies | None = None,
) -> Chapter:
    """Show the rank correlation, purchases and secure cost of each point.

    Args:
        result: Of all pools.
        searched: Purchases by schedules of a search, by pool; none of a single seed.
        finals: Fine-tuned final models, by pool; some pools, or none.
        variants: Of the paper's phases, on some of the pools and seeds.
    """
    known = points()
    by_pool = {name: prices(result, name, known) for name in result.pools}
    shares = _shares(by_pool)
    counted = next(iter(by_pool.values()))  # of two classes
    fronts = {
        name: search(
            result,
            name,
            ENGINE,
            points={k: p for k, p in known.items() if p.origin == "paper"},
        )
        for name in result.pools
    }
    claims = judged(result)
    untested = untested_table(claims, "Claims on which these pools do not bear.")
    return Chapter(
        title="Proxies: fidelity, accuracy, and what they cost in secret",
        blocks=[
            matrix(claims, "The paper's claims and ours, pool by pool."),
            _figure(result, {k: v.hours for k, v in counted[ENGINE].items()}),
            _introduction(),
            *summary(result, shares),
            Heading("How settings were found"),
            tables.settings(result, known),
            Heading("How well each ranks"),
            tables.fidelity(result, known),
            Heading("What a purchase trains"),
            tables.accuracy(result, known),
            tables.budgets(result, known),
            *([_FINALS, tables.finals(result, finals, known)] if finals else []),
            *([] if variants is None else _variants(variants)),
            Heading("What it costs in secret"),
            tables.cost(known, counted, shares),
            _fronts(fronts),
            *([tables.searched(result, searched)] if searched else []),
            Heading(f"Of the claims {tally(claims)}"),
            claim_table(
                claims, "The paper's claims, and ours.", n_seeds=len(result.seeds)
            ),
            *([] if untested is None else [untested]),
            differs_table(CLAIMS, "By what each claim is judged."),
            Heading("What else goes with a proxy"),
            tables.beside(result, known),
            Heading("Proxies as models"),
            _INFERENCE,
            tables.inference(result),
            Heading("How it was measured"),
            _method(result),
            Table(
                columns=("Here", "In the paper"),
                rows=[
                    (
                        f"bootstrap sets of {labels_first([*result.pools.values()])}",
                        PAPERS,
                    ),
                    *DIFFERENCES,
                ],
                caption="What differs from the paper.",
            ),
        ],
        data={
            "seeds": result.seeds,
            "points": result.points,
            "candidates": result.candidates,
            "overlap_of": ("random", "the target itself", *result.points),
            "claims": [dataclasses.asdict(claim) for claim in claims],
            "prices": {
                name: {
                    engine: {key: price._asdict() for key, price in of.items()}
                    for engine, of in engines.items()
                }
                for name, engines in by_pool.items()
            },
            "searched": {name: vars(pool) for name, pool in searched.items()},
            "finals": {name: vars(pool) for name, pool in finals.items()},
            "pools": _figures(result),
            "variants": {} if variants is None else _figures(variants),
        },
    )


def _figures(result: Proxies) -> dict[str, dict[str, np.ndarray]]:
    """Map pools to the fields of each by name, but for scores and manifests."""
    return {
        name: {
            field.name: getattr(pool, field.name)
            for field in dataclasses.fields(pool)
            if field.name not in ("scores", "oracle", "manifests")
        }
        for name, pool in result.pools.items()
    }


def _variants(result: Proxies) -> list[Heading | str | Table]:
    known = points(variants=True)
    return [
        Heading("The paper's phases otherwise"),
        f"Over seeds {', '.join(map(str, result.seeds))}: other widths, parts left "
        "exact, the sub-model of section 4.2, emulators from Gaussian samples alone, "
        "and the paper's phases distilled as our probes are.",
        tables.fidelity(result, known),
        tables.accuracy(result, known),
        tables.settings(result, known),
    ]


def _introduction() -> str:
    return (
        "Two parties choose samples in secret: the model owner's target, fine-tuned on "
        "a bootstrap set that it bought at random, should tell which samples it is "
        "unsure of. To run it on secret samples is too dear, so a proxy stands in "
        "(`jaxsel.proxy`). The paper's proxies are transformers whose nonlinearities "
        "small networks emulate, trained on the bootstrap set. Ours are cheaper: a "
        "linear or small head on features of the public encoder, which the data owner "
        "computes in the clear, or one layer with linear attention, distilled from the "
        "target's outputs on samples that the model owner has anyway. Fidelity is how "
        "a proxy ranks beside the target; accuracy is that of a linear model trained "
        "on what was bought."
    )


def _shares(
    by_pool: Mapping[str, Mapping[str, Mapping[str, Price]]],
) -> dict[str, float]:
    """Divide each point's bytes by the paper's two phases', and average over pools."""
    costs = [engines["crypten"] for engines in by_pool.values()]
    return {
        name: float(np.mean([of[name].bytes / of[TWO].bytes for of in costs]))
        for name in costs[0]
    }


def summary(result: Proxies, shares: Mapping[str, float]) -> list[str]:
    """State fidelity, accuracy and cost of the main points, and claims that hold."""
    pools = [*result.pools.values()]
    index = {name: i for i, name in enumerate(result.points)}

    def ranks(name: str) -> str:
        mean = tables.pools_mean([pool.spearman[:, index[name]] for pool in pools])
        return "refused" if mean is None else f"{mean:.2f}"

    def gains(name: str) -> str:
        parts = [pool.beyond(pool.bought)[:, 0, index[name]] for pool in pools]
        mean = tables.pools_mean(parts)
        return "" if mean is None else f", {mean:+.1f} points"

    refused = sum(int(np.isnan(pool.spearman[:, index[TWO]]).sum()) for pool in pools)
    oracle = float(np.mean([pool.beyond(pool.ideal)[:, 0, 0].mean() for pool in pools]))
    ours = [
        f"{says.rstrip(',')}{_lesson(name)}: {ranks(name)} for {shares[name]:.2%} of "
        f"the bytes{gains(name)}"
        for name, says in OURS.items()
    ]
    lines = [
        "Rank correlation with the target, bytes and points of accuracy beyond a "
        f"random fifth, mean of {len(pools)} pools, {len(result.seeds)} seeds, from "
        f"bootstrap sets of {labels_first(pools)} (the paper's: {PAPERS}). The paper's "
        f"two phases: {ranks(TWO)}{gains(TWO)}, refused in "
        f"{refused} of {len(pools) * len(result.seeds)} seeds. {'. '.join(ours)}. The "
        f"target's own choice: {oracle:+.1f} points.",
        "Without samples of the model owner's own the probe has "
        f"{ranks('bootstrap probe')}, and distilled on those of another source "
        f"{ranks('probe, other')}. {tables.BY_CONSTRUCTION}",
    ]
    held = Counter(c.text for c in judged(result) if c.verdict == HOLDS)
    holding = listed(
        [f"“{text}” in {count}" for text, count in held.items()] or ["none"]
    )
    return [
        *lines,
        f"Claims that hold, of {len(pools)} pools and their mean: {holding}.",
    ]


def _lesson(point: str) -> str:
    return "" if point == "bootstrap probe" else ", distilled"


def _figure(result: Proxies, hours: Mapping[str, float]) -> Figure:
    known = points()
    overlap = {
        name: np.mean([p.overlap[:, 2 + i] for p in result.pools.values()], axis=0)
        for i, name in enumerate(result.points)
    }
    overlap = {name: values[np.isfinite(values)] for name, values in overlap.items()}
    shown = [n for n in result.points if hours[n] > 0 and len(overlap[n])]
    figure = new_figure(8.8, 4.0)
    with style():
        ax = figure.subplots()
        for origin, label, marker in _ORIGINS:
            names = [name for name in shown if known[name].origin == origin]
            if not names:
                continue
            errors = [
                standard_error(overlap[name]) if len(overlap[name]) > 1 else 0.0
                for name in names
            ]
            ax.errorbar(
                [hours[name] for name in names],
                [overlap[name].mean() for name in names],
                errors,
                fmt=marker,
                label=label,
                capsize=2,
            )
            for name in names:
                ax.annotate(
                    name,
                    (hours[name], overlap[name].mean()),
                    (5, 4),
                    textcoords="offset points",
                    fontsize=7,
                )
        random = float(np.mean([p.overlap[:, 0].mean() for p in result.pools.values()]))
        ax.axhline(random, color=COLORS[-1], linewidth=0.8)
        ax.set(xscale="log", xlabel=f"Hours of messages for {ROWS:,} samples, {ENGINE}")
        ax.set(ylabel="Overlap with the target's choice")
        ax.legend(loc="lower right")
    text = "; ".join(
        f"{name} {overlap[name].mean():.2f} for {hours[name]:.2g} hours"
        for name in shown
    )
    return Figure(
        plot=figure,
        caption=f"Fidelity and secure cost, mean of {len(result.pools)} pools; the "
        "level line is a random choice."
        + " Bars are one standard error over seeds." * (len(result.seeds) > 1)
        + f" {tables.BY_CONSTRUCTION}",
        alt=f"Overlap with the target's choice: {text}.",
    )


def _fronts(fronts: Mapping[str, Front]) -> Table:
    rows = [
        [
            NAMES[name],
            " → ".join(point.names),
            point.overlap,
            float(held),
            point.hours,
        ]
        for name, front in fronts.items()
        for point, held in zip(front.points, front.held_out, strict=True)
    ]
    return Table(
        columns=("Pool", "Schedule", "Overlap", "Held out", "Hours"),
        rows=rows,
        formats=("", "", ".3f", ".3f", ".3g"),
        caption="Schedules that no cheaper one beats, of all sequences of our "
        f"{len(SEARCHED)} candidates and what each phase leaves, on {ENGINE}. "
        "Held out: what to expect of a schedule that was chosen so.",
    )


def _method(result: Proxies) -> str:
    early = {
        NAMES[name]: stopped
        for name in result.pools
        if (stopped := result.stopped_early(name))
    }
    clauses = [
        f"{pool}: " + ", ".join(f"“{name}” in {count}" for name, count in of.items())
        for pool, of in early.items()
    ]
    stops = (
        f" Trainings that stopped early, of {len(result.seeds)} seeds: "
        f"{listed(clauses)}."
        if clauses
        else ""
    )
    return (
        "One class is kept whole, each other one cut to a ninth of it, a rule that is "
        "inferred from the sizes of the paper's pools; "
        f"{BOOTSTRAP:.0%} are bought at random first. The model owner has {OWN:.0%} as "
        "many samples "
        "more, without labels, dealt likewise; what it distils on is of the kind that "
        "is being sold, so that “another source” is what to expect without any. Texts "
        f"of {LENGTH} tokens at most; images of 28 x 28 pixels, by a ViT that was "
        "trained on digits. Final models: "
        f"`{MODEL!r}` on MiniLM's last layer, or pixels. A random choice is the mean "
        f"of {DRAWS} draws with the same bootstrap set. {len(result.points)} "
        f"ways, seeds {', '.join(map(str, result.seeds))}, each with a deal of its own."
        f"{stops}"
    )
