"""Sentences on the results of the case studies and of the ranking of owners."""

from __future__ import annotations

import numpy as np

from experiments._kit.scenes.owner import NAMES
from experiments._kit.scenes.ranking import firsts
from experiments._kit.scenes.spoiling import PERMUTED, SPOILT
from experiments._kit.words import (
    averaged,
    compared,
    listed,
    sentence,
    significant_sign,
)

from . import paper
from .choosing import SELECTORS, SPACES
from .ranking import METHODS
from .run import Mycroft
from .words import trend


def noise_words(result: Mycroft) -> str:
    """Describe the accuracy lost by spoiling all of the owner's samples."""
    cases = result.cases
    held_out = cases.by_spoiling[:, :, SELECTORS.index("random"), 0]
    published = cases.published[..., 0]
    parts = [
        "Every one of the owner's samples is corrupted (a patch masked, brightness, "
        f"contrast and perspective changed), or {PERMUTED:.0%} of its labels are "
        "permuted, and its model is trained on them."
    ]
    for state, (theirs, random) in paper.DROPS.items():
        state_index = SPOILT.index(state)
        lost, lost_by_random = (
            a[:, 0] - a[:, state_index] for a in (published, held_out)
        )
        comparison = compared(
            "the loss of FuncFeat as published", lost, "that of random", lost_by_random
        )
        ours = significant_sign(lost - lost_by_random)
        order = "smaller" if theirs < random else "larger"
        parts.append(
            sentence(f"with {state}, {comparison}")
            + (
                " The order is the paper's."
                if ours and ours == np.sign(theirs - random)
                else f" In the paper Mycroft's is {order}."
            )
        )
    i = SPOILT.index("permuted labels")
    parts.append(
        "Of the labels that were sent, "
        + listed(
            [
                f"{averaged('.0%', cases.right[:, i, j])} by {NAMES[how]}"
                for j, how in enumerate(SELECTORS)
            ]
        )
        + " are right; among all the owner's, "
        f"{cases.right[:, i, -1].mean():.0%}. The public code of the paper left the "
        "samples that its method had chosen as they were; here nothing is spared."
    )
    return " ".join(parts)


def label_words(result: Mycroft) -> str:
    """Compare retrieval by pixels, without labels, with random choice and FuncFeat."""
    cases = result.cases
    near, random = cases.unlabelled[:, 0, 0], cases.unlabelled[:, 1, 0]
    return (
        "Without labels the owner has no model, so that pixels are the feature space, "
        "and samples get the label of the nearest hard sample. "
        + sentence(
            compared(
                "retrieval",
                near,
                "a likewise labelled random choice from all classes",
                random,
            ),
            compared(
                "retrieval", near, "FuncFeat with labels", cases.by_spoiling[:, 0, 0, 0]
            ),
        )
        + f" Of retrieval's pseudo-labels {cases.pseudo_right[:, 0].mean():.0%} are "
        f"right, of the random choice's {cases.pseudo_right[:, 1].mean():.0%}. The "
        "paper compares by the features of Unicom, an encoder that needs no labels of "
        "the owner's."
    )


def model_words(result: Mycroft) -> str:
    """Describe the effect of fine-tuning, another architecture and the checkpoint."""
    cases = result.cases
    clean, other = cases.by_spoiling[:, 0, ..., 0], cases.other_model[..., 0]
    ratio = cases.steps_retrained.mean() / cases.steps_tuned.mean()
    matching = cases.by_checkpoint[..., 0]
    return " ".join(
        (
            sentence(
                "with what FuncFeat as published chose, "
                + compared(
                    "fine-tuning",
                    cases.tuned[:, 1, 0],
                    "training from scratch",
                    cases.retrained[:, 1, 0],
                ),
                f"from scratch takes {ratio:.1f} times the steps",
                "with everything, "
                + compared(
                    "fine-tuning",
                    cases.tuned[:, -1, 0],
                    "training from scratch",
                    cases.retrained[:, -1, 0],
                ),
            ),
            sentence(
                *(
                    compared(
                        f"{NAMES[how]} through the owner's MLP",
                        other[:, j],
                        "through its CNN",
                        clean[:, j],
                    )
                    for j, how in enumerate(SPACES)
                )
            ),
            "In the paper fine-tuning and training from scratch do about as well, and "
            "another architecture makes a small difference.",
            "By checkpoint: "
            + sentence(
                *(
                    trend(NAMES[how], cases.steps, matching[:, j])
                    for j, how in enumerate(SPACES)
                )
            ),
        )
    )


def ranking_words(result: Mycroft) -> str:
    """Say how far the owners' order agrees with that by full information."""
    from scipy.stats import kendalltau, spearmanr

    owners = result.owners
    columns = np.array(list(paper.OWNERS.values())).T
    theirs = [
        (float(spearmanr(c, columns[2])[0]), float(kendalltau(c, columns[2])[0]))  # pyright: ignore
        for c in columns[:2]
    ]
    clauses = [
        f"{NAMES[how]} " + averaged(".2f", owners.spearman[:, j], owners.kendall[:, j])
        for j, how in enumerate(METHODS)
    ]
    hits = [
        f"{firsts(owners.accuracy[:, j], owners.everything)} by {NAMES[how]}"
        for j, how in enumerate(METHODS)
    ]
    return (
        "Each owner answers one request through the market's protocol. Spearman's and "
        "Kendall's correlation with the ranking by full information, means over seeds: "
        + sentence(*clauses)
        + " In the paper, from its table: Mycroft "
        f"{theirs[0][0]:.2f} and {theirs[0][1]:.2f}, random {theirs[1][0]:.2f} and "
        f"{theirs[1][1]:.2f}. Runs of {len(owners.everything)} in which the owner "
        f"that is best by full information comes first, alone: {listed(hits)}."
    )
