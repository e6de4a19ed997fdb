"""Mycroft's experiments as chapters of a report."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments._kit.claims import (
    claim_table,
    differs_table,
    matrix,
    tally,
    untested_table,
)
from experiments._kit.scenes.owner import CHECKPOINT, NAMES
from experiments._kit.scenes.spoiling import SPOILT
from experiments._kit.words import averaged, compared, listed, sentence
from jaxsel.report import Chapter, Heading, Table

from . import paper
from .case_words import label_words, model_words, noise_words, ranking_words
from .choosing import SELECTORS, SPACES
from .claims import CLAIMS, own_claims, paper_claims
from .figures import (
    answer_table,
    case_table,
    drop_table,
    first_table,
    label_table,
    matched,
    matched_figure,
    owner_ranking_table,
    request_table,
    retrained_table,
    spurious_figures,
    starved_figures,
    variant_table,
)
from .measured import LARGEST, stripes, title, useful_settings
from .ranking import METHODS
from .run import Mycroft
from .spurious import Spurious
from .starved import Starved
from .tabular.chapter import tabular_blocks
from .words import known_mean, trend

DIFFERENCES = (
    (
        "Data",
        "Food-101, dogs, Dogs & Wolves; IoT-23",
        "Fashion-MNIST, MNIST, digits; the census table Adult",
    ),
    (
        "Owner's source",
        "another than the trainer's",
        "the trainer's, but for the digits; backgrounds are planted",
    ),
    (
        "Networks",
        "ResNet-50 trained on ImageNet, gradients of two layers",
        "small CNNs and MLPs from scratch, gradients of the last layer, and of two "
        "beside them",
    ),
    (
        "Features",
        "Unicom",
        "those of the owner's own network; pixels where there are no labels",
    ),
    (
        "FuncFeat's distances",
        "a matrix of all of them (its code: distances from the geometric median)",
        "distances from the geometric median; all of them beside these",
    ),
    (
        "Noise",
        "its code spared the samples that Mycroft had chosen",
        "all of the owner's samples",
    ),
    ("Baseline “nothing”", "none", "fine-tuning on the trainer's own samples"),
    (
        "Tables",
        "7 trainers, 95 owners, 665 cases; XGBoost",
        "6 trainers, 51 owners, 306 cases; scikit-learn's gradient boosting, and "
        "XGBoost where it is installed",
    ),
    (
        "Decision paths",
        "466 cases in which samples of the same and of another path exist",
        "pairs in which the owner holds the kind, and five samples of each exist; "
        "trees of depth 4, as in the authors' code, and with leaves of at least five",
    ),
    (
        "Combined choices",
        "n samples by Mycroft, m by another method",
        "ten in all, of which Mycroft chooses 0, 3, 5, 7 or 10",
    ),
)
"""Differences from the paper, as rows of a table."""


def mycroft_chapters(result: Mycroft) -> list[Chapter]:
    """Report the results of the experiments beside the paper's.

    Returns:
        A chapter on images, and one on tables if there are such results.
    """
    chapters = [mycroft_chapter(result)]
    if result.tabular is not None:
        blocks, data = tabular_blocks(result.tabular, result.paths, result.grown_paths)
        chapters.append(Chapter(title="Mycroft on a table", blocks=blocks, data=data))
    return chapters


def mycroft_chapter(result: Mycroft) -> Chapter:
    """Report the claims and the results of the vision experiments."""
    claims, ours, n = paper_claims(result), own_claims(result), len(result.seeds)
    untested, pictures = untested_table(claims), spurious_figures(result)
    blocks = (
        "A trainer fails on some samples, shows a few of them to an owner of data, and "
        "gets back as many samples as a budget allows. How should the owner choose "
        "them? FuncFeat and GradMatch (`jaxsel.match`) match the mean gradient of the "
        "hard samples under the owner's own model. FuncFeat as published picks by "
        "orthogonal matching pursuit, so that distances bear on weights only; ours "
        "lets them bear on the choice. Retrieval (`jaxsel.retrieve`) takes what is "
        "near in the features of that model, and stands in for the paper's Unicom; "
        "random draws from the classes of the hard samples in proportion, but in the "
        "ranking of owners, where it draws "
        "from all samples of these classes alike. The trainer fine-tunes on its own "
        "samples and those it got, and is measured on hard samples that no owner sees.",
        matrix(claims, "The paper's claims, by the paper's own methods."),
        pictures[0],
        *([] if untested is None else [untested]),
        matrix(ours, "What the paper does not speak of."),
        Heading("What was measured for each claim"),
        claim_table(
            claims, "The paper's claims, by the paper's own methods.", n_seeds=n
        ),
        claim_table(ours, "What the paper does not speak of.", n_seeds=n),
        first_table(result),
        _beside(result),
        Heading("What differs from the paper"),
        _differences(),
        differs_table(CLAIMS, "By what each claim is judged."),
        Heading("Starved classes"),
        _starved_words(result),
        *starved_figures(result),
        matched_figure(result),
        _matched_words(result),
        Heading("A spurious correlation"),
        _spurious_words(result),
        *pictures[1:],
        _space_words(result),
        Heading("Case studies"),
        f"These run on {stripes(result)}, as all that follows on images: a tenth of "
        "the owner's samples are of use.",
        case_table(result),
        drop_table(result),
        noise_words(result),
        label_table(result),
        label_words(result),
        retrained_table(result),
        model_words(result),
        Heading("Other ways to match, small requests, and other answers"),
        variant_table(result),
        request_table(result),
        answer_table(result),
        Heading("Ranking of owners"),
        owner_ranking_table(result),
        ranking_words(result),
        Heading("How it was measured"),
        _method(result),
    )
    data = {
        "seeds": result.seeds,
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "own_claims": [dataclasses.asdict(claim) for claim in ours],
        "full": result.full,
        "selectors": SELECTORS,
        "spaces": SPACES,
        "states": SPOILT,
        "ranking_methods": METHODS,
        "accuracy_on": ("held-out hard samples", "test samples"),
        "sizes": dataclasses.asdict(result.sizes),
        "sizes_of_backgrounds": dataclasses.asdict(result.backgrounds),
        "starved": {
            name: dataclasses.asdict(experiment)
            for name, experiment in result.starved.items()
        },
        "foreign": None
        if result.foreign is None
        else dataclasses.asdict(result.foreign),
        "spurious": dataclasses.asdict(result.spurious),
        "cases": dataclasses.asdict(result.cases),
        "owners": dataclasses.asdict(result.owners),
        "variants": dataclasses.asdict(result.variants),
    }
    title = f"Mycroft in miniature: of the paper's claims {tally(claims)}"
    return Chapter(title=title, blocks=blocks, data=data)


def _differences() -> Table:
    return Table(
        columns=("", "Paper", "Here"),
        rows=DIFFERENCES,
        caption="What a verdict here can't speak for.",
    )


def _beside(result: Mycroft) -> str:
    theirs = [p for column in paper.VISION.values() for p in column if p is not None]
    lead = np.mean([a - b for a, b in theirs])
    dogs = np.mean([a - b for a, b in paper.DOGS_AND_WOLVES])
    ours = [
        f"{_lead(experiment):+.1f} on {title(name)}"
        for name, experiment in result.starved.items()
    ]
    ours += [f"{_lead(s.found):+.1f} on {s.where}" for s in useful_settings(result)]
    return (
        f"With budgets up to {LARGEST} the paper's lead of Mycroft over random is "
        f"{100 * lead:.0f} points on average on food and dogs, and {100 * dogs:.0f} on "
        f"Dogs & Wolves. Ours is {listed(ours)}. With the first two, owner and trainer "
        "draw from one source, so that any sample of the right class is of use; the "
        "paper's claims are about other owners. Accuracies as such do not compare."
    )


def _lead(one: Starved | Spurious) -> float:
    """Return Mycroft's mean lead over random in points, at budgets of the paper."""
    mask = one.budgets <= LARGEST
    ahead = one.published[:, mask, 0] - one.accuracy[:, -1, mask, 0]
    return 100 * float(ahead.mean())


def _starved_words(result: Mycroft) -> str:
    sizes = result.sizes
    parts = [
        f"The trainer has {sizes.own} samples of each class, but "
        f"{max(1, round(sizes.kept * sizes.own))} of each of {sizes.weak} classes "
        f"drawn at random; the owner has {sizes.offered} samples of all classes. The "
        "trainer wants to improve on the starved classes: hard samples are "
        f"misclassified validation samples of these, {sizes.shared} of them shared. "
        f"The trainer's {sizes.val} validation samples are not trained on."
    ]
    for name, experiment in result.starved.items():
        mask = experiment.budgets <= LARGEST
        accuracy = experiment.accuracy[:, :, mask, 0].mean(2)
        published = experiment.published[:, mask, 0].mean(1)
        last = experiment.accuracy[:, :, mask][:, :, -1, 1].mean(0)
        test = (
            experiment.nothing[:, 1].mean(),
            *last,
            experiment.everything[:, 1].mean(),
        )
        parts.append(
            f"On {title(name)} the model has an accuracy of "
            f"{experiment.weak_before.mean():.0%} on starved and "
            f"{experiment.strong_before.mean():.0%} on other classes, and "
            f"{experiment.n_held_out.min()} to {experiment.n_held_out.max()} hard "
            "samples are held out. "
            + sentence(
                f"with budgets up to {LARGEST}, on average, "
                + compared("FuncFeat", accuracy[:, 0], "random", accuracy[:, -1]),
                compared("FuncFeat as published", published, "random", accuracy[:, -1]),
                compared("GradMatch", accuracy[:, 1], "random", accuracy[:, -1]),
                compared("retrieval", accuracy[:, 2], "random", accuracy[:, -1]),
                compared("FuncFeat", accuracy[:, 0], "retrieval", accuracy[:, 2]),
            )
            + f" On test samples of all classes the accuracy is {test[0]:.1%} with "
            f"nothing, {test[1]:.1%} with {experiment.budgets[mask][-1]} samples by "
            f"FuncFeat, {test[4]:.1%} by random, and {test[5]:.1%} with everything."
        )
        short = (experiment.sent < experiment.budgets).any((0, 2))
        if short.any():
            names = listed([NAMES[SELECTORS[i]] for i in np.flatnonzero(short)])
            least = (experiment.sent / experiment.budgets).min()
            parts.append(
                f"Not all budgets were used up: {names} sent as little as {least:.0%} "
                "of one, where no sample was left that would help to match, or none of "
                "the classes asked for."
            )
    return " ".join(parts)


def _matched_words(result: Mycroft) -> str:
    budgets, reached = matched(result)
    shares = reached.mean(1)
    clauses = []
    for how, share in zip(SELECTORS, shares, strict=True):
        half = np.flatnonzero(share >= 0.5)
        b = half[0] if len(half) else -1
        clauses.append(
            f"{NAMES[how]} does so in {share[b]:.0%} of the runs with at most "
            f"{budgets[b]}"
        )
    return (
        "Full information counts as matched where the accuracy with the samples sent "
        "reaches that with all that the owner has. " + sentence(*clauses)
    )


def _spurious_words(result: Mycroft) -> str:
    spurious, sizes = result.spurious, result.backgrounds
    accuracy = spurious.accuracy[..., 0].mean(2)
    published = spurious.published[..., 0].mean(1)
    return (
        f"The trainer's {sizes.own} samples of each of two classes stand before "
        "stripes, vertical ones behind one class and horizontal ones behind the other. "
        "On natural samples, which have it the other way round, its model has an "
        f"accuracy of {spurious.natural_before.mean():.0%}, on spurious ones of "
        f"{spurious.spurious_before.mean():.0%}. A tenth of the owner's "
        f"{sizes.offered} samples are natural. "
        + sentence(
            "over all budgets, "
            + compared("FuncFeat", accuracy[:, 0], "random", accuracy[:, -1]),
            compared("FuncFeat as published", published, "random", accuracy[:, -1]),
            compared("retrieval", accuracy[:, 2], "random", accuracy[:, -1]),
            compared(
                f"FuncFeat with {spurious.budgets[-1]} samples",
                spurious.accuracy[:, 0, -1, 0],
                f"all {sizes.offered}",
                spurious.everything[:, 0],
            ),
        )
    )


def _space_words(result: Mycroft) -> str:
    spurious = result.spurious
    b = int(np.argmin(np.abs(spurious.budgets - 32)))
    clauses = [
        trend(
            NAMES[how],
            spurious.steps,
            spurious.useful_by_checkpoint[:, i, :, b],
        )
        for i, how in enumerate(SPACES)
    ]
    useful = known_mean(spurious.useful_by_checkpoint[:, :2, :, b], 1)
    early, late = known_mean(useful[:, :-1], 1), useful[:, -1]
    pixels = spurious.useful_by_pixels[:, b]
    near = spurious.useful[:, SPACES.index("retrieve"), b]
    suffice = " Pixels suffice here." if pixels.mean() >= near.mean() else ""
    return (
        f"Of the useful samples among {spurious.budgets[b]}: "
        + sentence(*clauses)
        + f" Pixels give retrieval {pixels.mean():.1%}, and random finds "
        f"{averaged('.1%', spurious.useful[:, -1, b])}.{suffice} "
        + sentence(
            compared(
                "matching through earlier checkpoints",
                early,
                "matching through the last one",
                late,
            )
        )
        + " The paper finds that earlier checkpoints give more useful gradients. Its "
        f"two feature spaces gave {paper.USEFUL['Unicom']:.0%} (Unicom) and "
        f"{paper.USEFUL['ResNet-50']:.0%} (ResNet-50)."
    )


def _method(result: Mycroft) -> str:
    sizes = result.sizes
    n = len(result.seeds)
    channels = " and ".join(str(c) for c in sizes.channels)
    return (
        f"All figures are of {n} seed{'s' if n > 1 else ''}; each deals the images "
        "anew and draws noise and weights. Images have "
        f"{sizes.side}×{sizes.side} pixels. Trainer and owner have a CNN of two "
        f"blocks, {channels} channels, trained by Adam; "
        "gradients are those of its last layer, and features what that layer sees, of "
        f"the owner's checkpoint after {result.cases.steps[CHECKPOINT]} of "
        f"{result.cases.steps[-1]} steps, except where checkpoints are compared. "
        "Fine-tuning takes "
        f"{sizes.epochs} passes over the trainer's own samples and those it got, their "
        f"number rounded up to a power of two, and at least {sizes.min_steps} steps. "
        "“Nothing” is the same fine-tuning without anything received: hard samples "
        "were misclassified by one model, and any other gets some of them right. "
        "Owners choose without held-out and test samples. ± in sentences is one "
        "standard error of the difference over seeds, in tables one standard "
        "deviation; what a paired t-test at 5 % does not tell from 0 counts as no "
        "difference. How to train was settled on seeds 100 to 102, but for "
        + (
            "the length of a fine-tuning and the budget of the case studies, which "
            "were raised after a look at seed 0"
            if result.full
            else "the learning rate, which was raised after a run of seeds 0 to 4, and "
            "the number of seeds, raised from five to eight after a look at five"
        )
        + "; the early checkpoint is the paper's choice."
    )
