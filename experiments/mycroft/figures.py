"""Tables and figures of Mycroft's vision experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments._kit.scenes.owner import NAMES
from experiments._kit.scenes.spoiling import SPOILT
from experiments._kit.words import spread
from jaxsel.report import Figure, Table, new_figure, plot_curves, style

from . import paper
from .cases import RETRAINED
from .choosing import PUBLISHED, SELECTORS, SPACES
from .measured import stripes, title
from .ranking import METHODS, OFFERS
from .run import Mycroft
from .spurious import Spurious
from .starved import Starved
from .variants import ALL, ANSWERS, WAYS
from .words import known_mean

AS_PUBLISHED = "FuncFeat as published"


def first_table(result: Mycroft) -> Table:
    """Set our accuracies beside the paper's Table 1."""
    ours = {
        title(name): (experiment.budgets, experiment.published, experiment.accuracy)
        for name, experiment in result.starved.items()
    }
    others = {"Another source": result.foreign, "Backgrounds": result.spurious}
    for name, experiment in others.items():
        if experiment is not None:
            ours[name] = experiment.budgets, experiment.published, experiment.accuracy
    theirs = {**paper.VISION, "Dogs & Wolves": paper.DOGS_AND_WOLVES}
    budgets = sorted(
        {int(b) for known, *_ in ours.values() for b in known if b <= 128}
        | set(paper.BUDGETS)
    )
    rows = []
    for budget in budgets:
        row: list[str | None] = [str(budget)]
        for known, published, accuracy in ours.values():
            budget_indices = np.flatnonzero(known == budget)
            both = (
                published[:, budget_indices, 0].mean(0),
                accuracy[:, -1, budget_indices, 0].mean(0),
            )
            row.append(
                _pair(*(float(means[0]) for means in both))
                if len(budget_indices)
                else None
            )
        paper_index = paper.BUDGETS.index(budget) if budget in paper.BUDGETS else None
        for column in theirs.values():
            pair = None if paper_index is None else column[paper_index]
            row.append(None if pair is None else _pair(*pair))
        rows.append(row)
    return Table(
        columns=("Budget", *ours, *(f"Paper: {name}" for name in theirs)),
        rows=rows,
        caption="Accuracy on hard samples, Mycroft / random: ours (FuncFeat as "
        "published, held-out hard samples, means over seeds) beside the paper's Table "
        "1.",
    )


def _pair(a: float, b: float) -> str:
    return f"{a:.2f} / {b:.2f}"


def starved_figures(result: Mycroft) -> list[Figure]:
    shown = {title(name): experiment for name, experiment in result.starved.items()}
    if result.foreign is not None:
        shown["MNIST, the owner's digits from another source"] = result.foreign
    return [
        budget_figure(
            experiment,
            f"{name}: accuracy on held-out hard samples against the budget; bands are "
            "one standard deviation over seeds.",
        )
        for name, experiment in shown.items()
    ]


def matched(result: Mycroft) -> tuple[np.ndarray, np.ndarray]:
    """Return where full information has been matched by each budget.

    Returns:
        Budgets `[B]`, and for each selector and each pair of seed and data set whether
        the accuracy with this budget or a smaller one reached that with everything,
        `[4, pairs, B]`.
    """
    reached = [
        np.maximum.accumulate(
            experiment.accuracy[..., 0] >= experiment.everything[:, 0, None, None],
            axis=2,
        )
        for experiment in result.starved.values()
    ]
    budgets = next(iter(result.starved.values())).budgets
    return budgets, np.moveaxis(np.concatenate(reached), 1, 0)


def matched_figure(result: Mycroft) -> Figure:
    budgets, reached = matched(result)
    figure = new_figure()
    with style():
        ax = figure.subplots()
    shares = reached.mean(1)
    plot_curves(
        budgets,
        {NAMES[how]: share[None] for how, share in zip(SELECTORS, shares, strict=True)},
        ax=ax,
        xlabel="Samples sent at most",
        ylabel="Share of runs",
        xscale="log",
        percent=True,
    )
    return Figure(
        plot=figure,
        caption=f"Share of the {reached.shape[1]} runs, of all data sets and seeds, in "
        "which full information is matched with so many samples (as the paper's "
        "Figure 1b has it for tables).",
        alt="Share of runs that match full information: "
        + "; ".join(
            f"{NAMES[how]} "
            + ", ".join(
                f"{share:.0%} with {b}" for b, share in zip(budgets, line, strict=True)
            )
            for how, line in zip(SELECTORS, shares, strict=True)
        )
        + ".",
    )


def spurious_figures(result: Mycroft) -> list[Figure]:
    spurious = result.spurious
    accuracy = budget_figure(
        spurious,
        "Backgrounds: accuracy on held-out hard samples, all natural, against the "
        "budget.",
    )
    b = int(np.argmin(np.abs(spurious.budgets - 32)))
    curves = {
        NAMES[how]: _filled(spurious.useful_by_checkpoint[:, i, :, b])
        for i, how in enumerate(SPACES)
    }
    levels = {
        "retrieval by pixels": spurious.useful_by_pixels[:, b],
        "random": spurious.useful[:, -1, b],
    }
    figure = new_figure()
    with style():
        ax = figure.subplots()
    plot_curves(
        spurious.steps,
        curves,
        levels=levels,
        ax=ax,
        xlabel="Steps of the owner's training",
        ylabel=f"Useful among {spurious.budgets[b]}",
        percent=True,
    )
    ax.set_ylim(0, 1.03)
    useful = Figure(
        plot=figure,
        caption=f"Share of natural samples among {spurious.budgets[b]}, by the "
        "checkpoint of the owner's model (the paper's Figure 6).",
        alt=f"Share of natural samples after {_listed(spurious.steps)} steps: "
        + _means(curves)
        + f"; {_means({name: level[:, None] for name, level in levels.items()})}.",
    )
    return [accuracy, useful]


def case_table(result: Mycroft) -> Table:
    """Show accuracy with spoilt data, without labels, and with another model."""
    cases = result.cases
    held_out = cases.by_spoiling[..., 0]
    rows: list[Sequence[object]] = [
        (
            state.capitalize(),
            spread(cases.published[:, i, 0]),
            *(spread(held_out[:, i, j]) for j in range(5)),
        )
        for i, state in enumerate(SPOILT)
    ]
    rows.append(
        (
            "No labels, by pixels",
            None,
            None,
            None,
            spread(cases.unlabelled[:, 0, 0]),
            spread(cases.unlabelled[:, 1, 0]),
            None,
        )
    )
    rows.append(
        (
            "Owner with an MLP",
            None,
            *(spread(cases.other_model[:, j, 0]) for j in range(3)),
            None,
            None,
        )
    )
    rows += [
        (
            f"Gradients after {steps} steps",
            None,
            *(spread(cases.by_checkpoint[:, j, i, 0]) for j in range(3)),
            None,
            None,
        )
        for i, steps in enumerate(cases.steps)
    ]
    return Table(
        columns=(
            "Owner's data",
            AS_PUBLISHED,
            *map(_headed, SELECTORS),
            "Everything",
        ),
        rows=rows,
        formats=("", *[".1%"] * 6),
        caption=f"Case studies: accuracy on held-out hard samples with {cases.budget} "
        "samples, mean ± standard deviation over seeds.",
    )


def drop_table(result: Mycroft) -> Table:
    cases = result.cases
    held_out = np.concatenate(
        [cases.by_spoiling[..., 0], cases.published[:, :, None, 0]], axis=2
    )
    rows = []
    for state, (mycroft, random) in paper.DROPS.items():
        drop = held_out[:, 0] - held_out[:, SPOILT.index(state)]
        rows.append(
            (
                state.capitalize(),
                *(spread(100 * drop[:, j]) for j in (-1, 0, 2, 3)),
                100 * mycroft,
                100 * random,
            )
        )
    return Table(
        columns=(
            "All of the owner's samples",
            AS_PUBLISHED,
            "FuncFeat",
            "Retrieval",
            "Random",
            "Paper: Mycroft",
            "Paper: random",
        ),
        rows=rows,
        formats=("", *[".1f"] * 6),
        caption="Accuracy lost to noise, in percentage points, beside the paper's.",
    )


def label_table(result: Mycroft) -> Table:
    cases = result.cases
    ours = cases.unlabelled[..., 0].mean(0), cases.by_spoiling[:, 0, 0, 0].mean()
    rows = [(f"Ours: {stripes(result)}", *ours[0], ours[1])]
    rows += [(f"Paper: {name}", *row) for name, row in paper.NO_LABELS.items()]
    return Table(
        columns=("Data", "Retrieval, no labels", "Random, no labels", "With labels"),
        rows=rows,
        formats=("", ".2f", ".2f", ".2f"),
        caption=f"Missing labels: ours with {cases.budget} samples, beside the paper's "
        "Table 2 with 32.",
    )


def retrained_table(result: Mycroft) -> Table:
    cases = result.cases
    names = {"nothing": "nothing", "everything": "everything", **NAMES}
    names[PUBLISHED] = AS_PUBLISHED
    return Table(
        columns=("Received", "Fine-tuned", "Trained from scratch"),
        rows=[
            (
                names[what][0].upper() + names[what][1:],
                spread(cases.tuned[:, i, 0]),
                spread(cases.retrained[:, i, 0]),
            )
            for i, what in enumerate(RETRAINED)
        ],
        formats=("", ".1%", ".1%"),
        caption="Fine-tuning against training from scratch: accuracy on held-out hard "
        f"samples with {cases.budget} samples.",
    )


def variant_table(result: Mycroft) -> Table:
    """Set other ways to match beside FuncFeat as published, by budget."""
    variants = result.variants
    names = {PUBLISHED: AS_PUBLISHED, "equation 2": "with all distances (equation 2)"}
    names |= {"two layers": "by gradients of two layers", "craig": "CRAIG"}
    rows: list[tuple[object, ...]] = [
        (
            names[how],
            *(spread(variants.accuracy[:, i, b]) for b in range(len(variants.budgets))),
            *(spread(variants.useful[:, i, b]) for b in range(len(variants.budgets))),
        )
        for i, how in enumerate(ALL)
    ]
    random = [spread(variants.random[:, b]) for b in range(len(variants.budgets))]
    rows.append(("random", *random, *[None] * len(variants.budgets)))
    return Table(
        columns=(
            "Choice",
            *(f"Accuracy, {b} samples" for b in variants.budgets),
            *(f"Useful of {b}" for b in variants.budgets),
        ),
        rows=rows,
        formats=("", *[".1%"] * (2 * len(variants.budgets))),
        caption="Other ways to match: accuracy on held-out hard samples, and the share "
        "of natural samples sent, those that fill a budget at random included.",
    )


def request_table(result: Mycroft) -> Table:
    """Show how many hard samples a request needs."""
    variants = result.variants
    names = {PUBLISHED: AS_PUBLISHED, **NAMES}
    return Table(
        columns=("Choice", *(f"{n} hard samples" for n in variants.n_hard)),
        rows=[
            (
                names[way],
                *(
                    spread(variants.by_hard[:, i, h])
                    for h in range(len(variants.n_hard))
                ),
            )
            for i, way in enumerate(WAYS)
        ],
        formats=("", *[".1%"] * len(variants.n_hard)),
        caption=f"Accuracy with {variants.main} samples, by the number of hard samples "
        "that the trainer shares.",
    )


def answer_table(result: Mycroft) -> Table:
    """Show the accuracy with noisy and with synthetic answers."""
    variants = result.variants
    return Table(
        columns=("The owner sends", "Accuracy"),
        rows=[
            (f"its samples, {name}" if i == 0 else name, spread(variants.answers[:, i]))
            for i, name in enumerate(ANSWERS)
        ],
        formats=("", ".1%"),
        caption=f"Accuracy with {variants.main} samples that FuncFeat as published "
        "chose: as they are, with normal noise of this standard deviation on pixels "
        "from 0 to 1, and with means of two chosen samples of the class in place of "
        "each.",
    )


def owner_ranking_table(result: Mycroft) -> Table:
    owners = result.owners
    return Table(
        columns=(
            "Owner",
            "Has",
            AS_PUBLISHED,
            *(NAMES[how] for how in METHODS),
            "everything",
            "Paper: Mycroft",
            "Paper: random",
            "Paper: everything",
        ),
        rows=[
            (
                name,
                what,
                spread(owners.published[:, i]),
                *(spread(owners.accuracy[:, j, i]) for j in range(len(METHODS))),
                spread(owners.everything[:, i]),
                *paper.OWNERS[name],
            )
            for i, (name, what) in enumerate(OFFERS.items())
        ],
        formats=("", "", *[".2f"] * 8),
        caption="Accuracy on held-out hard samples, all natural, with "
        f"{owners.budget} samples of one owner, and with all it has, beside the "
        "paper's.",
    )


def _headed(how: str) -> str:
    """Return a selector's name as it begins a heading."""
    return NAMES[how][0].upper() + NAMES[how][1:]


def budget_figure(one: Starved | Spurious, caption: str) -> Figure:
    budgets, accuracy = one.budgets, one.accuracy[..., 0]
    curves = {AS_PUBLISHED: one.published[..., 0]}
    curves |= {NAMES[how]: accuracy[:, i] for i, how in enumerate(SELECTORS)}
    levels = {"everything": one.everything[:, 0], "nothing": one.nothing[:, 0]}
    figure = new_figure()
    with style():
        ax = figure.subplots()
    plot_curves(
        budgets,
        curves,
        levels=levels,
        ax=ax,
        xlabel="Samples sent at most",
        ylabel="Accuracy on hard samples",
        xscale="log",
        percent=True,
    )
    return Figure(
        plot=figure,
        caption=caption,
        alt=f"Accuracy with {_listed(budgets)} samples: {_means(curves)}; "
        + _means({name: level[:, None] for name, level in levels.items()})
        + ".",
    )


def _means(curves: Mapping[str, np.ndarray]) -> str:
    return "; ".join(
        f"{name} " + ", ".join(f"{value:.1%}" for value in curve.mean(0))
        for name, curve in curves.items()
    )


def _filled(curve: np.ndarray) -> np.ndarray:
    """Put the mean over the other seeds where a curve `[S, C]` is NaN."""
    return np.where(np.isfinite(curve), curve, known_mean(curve, 0))


def _listed(items: np.ndarray) -> str:
    return ", ".join(map(str, items))
