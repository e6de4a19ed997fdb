"""Which of the paper's claims hold here, and how our own methods compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from experiments.values.judge import (
    Claim,
    Finding,
    above,
    below,
    every,
    settle,
    untested,
    within,
)
from jaxsel.demo.scenes.owner import CHECKPOINT
from jaxsel.demo.scenes.ranking import firsts
from jaxsel.demo.scenes.spoiling import SPOILT
from jaxsel.demo.scenes.trainer import Sizes

from . import paper
from .choosing import PUBLISHED, SELECTORS, SPACES
from .comparing import compare, points, tested
from .paper import UNTESTED
from .ranking import METHODS
from .run import Mycroft
from .spurious import Spurious
from .starved import FOREIGN, Starved
from .tabular.claims import (
    NO_XGBOOST,
    UNTESTED as OF_TABLES,
    own_path_findings,
    own_table_findings,
    path_findings,
    table_findings,
)
from .tabular.select import OURS
from .variants import ALL, ANSWERS, WAYS

TITLES = {"fashion_mnist": "Fashion-MNIST", "mnist": "MNIST"}
NEAR, ENOUGH = 5, 83
"""Bounds of words: points by which accuracies differ little, and the per cent of full
information's accuracy that the paper reaches with its largest budget."""

NONE = "none"
"""The test of a claim that the miniature does not bear on."""


PLACES = {
    "choice": "Section 4.2",
    "noise": "Section 5, Table 2",
    "design": "Section 4.3",
    "ranking": "Section 5, scenario 4",
    "tables": "Sections 4.2 and 5, Figure 1",
    "paths": "Appendix E.2, Figure 10",
}
"""Where in the paper the claims of a family stand."""


class Setting(NamedTuple):
    """Accuracies on held-out hard samples in one experiment with budgets.

    Attributes:
        where: On which data.
        scale: How large it is, and by what model.
        found: The experiment.
    """

    where: str
    scale: str
    found: Starved | Spurious

    def by(self, how: str) -> np.ndarray:
        """Return what a selector reaches by budget, `[S, B]`."""
        return self.found.accuracy[:, SELECTORS.index(how), :, 0]

    def ahead(self) -> np.ndarray:
        """Return how far Mycroft as published is above random, `[S, B]`."""
        return self.found.published[..., 0] - self.by("random")


def paper_claims(result: Mycroft) -> list[Claim]:
    """Judge the paper's claims, by its own methods; those of a family together.

    Claims that the miniature does not bear on come last, with the reason for a verdict.
    """
    found = [one for s in useful_settings(result) for one in choice_findings(s)]
    found += _noise(result) + _design(result) + [_ranking(result)]
    if result.tabular is not None:
        found += table_findings(result.tabular)
    if result.paths is not None:
        found += path_findings(result.paths)
    rest = [*UNTESTED, *OF_TABLES]
    if result.tabular is None or "XGBoost" not in result.tabular.classifiers:
        rest.append(NO_XGBOOST)
    found += [
        Finding(NONE, text, "", "", "", untested(because), NONE, place=where)
        for text, where, because in rest
    ]
    return settle(
        [
            dataclasses.replace(one, place=one.place or PLACES[one.family])
            for one in found
        ]
    )


def own_claims(result: Mycroft) -> list[Claim]:
    """Judge what the paper does not speak of: our own methods, and other settings."""
    found: list[Finding] = []
    alike = [*_starved_settings(result)]
    for setting in (*useful_settings(result), *alike):
        found += own_findings(setting)
    for setting in alike:
        found.append(
            compare(
                "ours, images",
                "Mycroft is above random where owner and trainer share a source",
                setting.where,
                setting.scale,
                setting.ahead().mean(axis=1),
                above,
                "Mycroft less random, all budgets",
            )
        )
    found += _on_stripes(result)
    if result.tabular is not None:
        found += own_table_findings(result.tabular)
    if result.paths is not None:
        found += own_path_findings(result.paths)
    if result.grown_paths is not None:
        options = {"family": "paths, grown trees", "tree": OURS}
        found += path_findings(result.grown_paths, **options)
        found += own_path_findings(result.grown_paths, OURS)
    return settle(found)


def useful_settings(result: Mycroft) -> Iterator[Setting]:
    """Yield the experiments in which most of an owner's samples are of little use.

    The paper's owners have data of another source; that is what its claims are about.
    """
    yield Setting(
        stripes(result),
        f"{_scale(result.backgrounds)}, a tenth of {result.backgrounds.offered:,} "
        "samples of use",
        result.spurious,
    )
    if result.foreign is not None:
        yield Setting(
            "MNIST, the owner's digits from another source",
            f"MLP, {FOREIGN.side}×{FOREIGN.side} pixels",
            result.foreign,
        )


def _starved_settings(result: Mycroft) -> Iterator[Setting]:
    for name, one in result.starved.items():
        yield Setting(TITLES.get(name, name), _scale(result.sizes), one)


def choice_findings(setting: Setting) -> list[Finding]:
    where, scale, found = setting
    ahead = setting.ahead()
    said = ", ".join(
        f"{points(line)} with {budget}"
        for line, budget in zip(ahead.T, found.budgets, strict=True)
    )
    reached, full = found.published[:, -1, 0], found.everything[:, 0]
    return [
        Finding(
            "choice",
            "Mycroft is above random at every budget",
            where,
            scale,
            f"Mycroft less random: {said}",
            every([tested(line, above) for line in ahead.T]),
        ),
        Finding(
            "choice",
            f"Mycroft with {found.budgets[-1]} samples reaches {ENOUGH} % of the "
            "accuracy of full information",
            where,
            scale,
            f"{reached.mean():.1%} and {full.mean():.1%}",
            tested(reached - ENOUGH / 100 * full, above),
        ),
    ]


def _noise(result: Mycroft) -> list[Finding]:
    """Test losses, and what is left of the lead: a choice near zero loses little."""
    cases = result.cases
    ours, where = cases.published[..., 0], stripes(result)
    random = cases.by_spoiling[:, :, SELECTORS.index("random"), 0]
    scale = f"{_scale(result.backgrounds)}, all of the owner's samples spoilt"
    states = [(i, state) for i, state in enumerate(SPOILT) if state in paper.DROPS]
    lost, lost_by_random = ours[:, :1] - ours, random[:, :1] - random
    return [
        compare(
            "noise",
            f"{state.capitalize()} cost Mycroft less than random",
            where,
            scale,
            lost[:, i] - lost_by_random[:, i],
            lambda d: below(d, 0.0),
            f"losses {100 * lost[:, i].mean():.1f} of {100 * ours[:, 0].mean():.1f} "
            f"and {100 * lost_by_random[:, i].mean():.1f} of "
            f"{100 * random[:, 0].mean():.1f}; difference",
        )
        for i, state in states
    ] + [
        compare(
            "noise",
            f"Mycroft is above random with {state}",
            where,
            scale,
            ours[:, i] - random[:, i],
            above,
            f"{100 * ours[:, i].mean():.1f} and {100 * random[:, i].mean():.1f}; "
            "difference",
        )
        for i, state in states
    ]


def _design(result: Mycroft) -> list[Finding]:
    spurious, cases = result.spurious, result.cases
    at = int(np.argmin(np.abs(spurious.budgets - 32)))
    gradients = SPACES.index("grad_match")
    by_step = spurious.useful_by_checkpoint[:, gradients, :, at]
    clean = cases.by_spoiling[:, 0, SELECTORS.index("grad_match"), 0]
    near = lambda d: within(d, NEAR / 100)
    scale = f"{_scale(result.backgrounds)}, {cases.budget} samples"
    return [
        compare(
            "design",
            "An earlier checkpoint gives gradient matching more useful samples",
            stripes(result),
            f"{_scale(result.backgrounds)}, {spurious.budgets[at]} samples",
            by_step[:, CHECKPOINT] - by_step[:, -1],
            above,
            f"useful after {spurious.steps[CHECKPOINT]} less after "
            f"{spurious.steps[-1]} steps",
        ),
        compare(
            "design",
            f"Fine-tuning is as good as training from scratch (within {NEAR} points)",
            stripes(result),
            scale,
            cases.tuned[:, 1, 0] - cases.retrained[:, 1, 0],
            near,
            "fine-tuned less from scratch",
        ),
        compare(
            "design",
            "Another architecture of the owner's changes gradient matching little "
            f"(within {NEAR} points)",
            stripes(result),
            scale,
            cases.other_model[:, gradients, 0] - clean,
            near,
            "MLP less CNN",
        ),
    ]


def _ranking(result: Mycroft) -> Finding:
    owners = result.owners
    ours = np.array(
        [
            rank_correlation(one, full)
            for one, full in zip(owners.published, owners.everything, strict=True)
        ]
    )
    random = owners.spearman[:, METHODS.index("random")]
    known = np.isfinite(ours) & np.isfinite(random)
    means = [
        f"{values[known].mean():.2f}" if known.any() else "undefined"
        for values in (ours, random)
    ]
    hits = [
        firsts(values, owners.everything)
        for values in (owners.published, owners.accuracy[:, METHODS.index("random")])
    ]
    return Finding(
        "ranking",
        "Mycroft orders owners more like full information than random does",
        f"{stripes(result)}, five owners",
        f"{_scale(result.backgrounds)}, {owners.budget} samples",
        f"Spearman {means[0]} and {means[1]}; the best owner first in {hits[0]} and "
        f"{hits[1]} of {len(ours)} runs",
        tested(ours - random, above),
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation, NaN where one of both is constant."""
    from scipy.stats import rankdata

    if not np.ptp(a) or not np.ptp(b):
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _on_stripes(result: Mycroft) -> list[Finding]:
    """Test other ways to match, small requests and answers, beside what is published.

    They form a family of their own.
    """
    cases, one = result.cases, result.variants
    accuracy = np.moveaxis(one.accuracy, 1, 0)
    by: dict[str, np.ndarray] = dict(zip(ALL, accuracy, strict=True))
    main = f"{_scale(result.backgrounds)}, {one.main} samples"
    everywhere = f"{_scale(result.backgrounds)}, all budgets"
    hard = {way: one.by_hard[:, i] for i, way in enumerate(WAYS)}
    few, many = int(one.n_hard[0]), int(one.n_hard[-1])
    rows = [
        (
            "Without labels, retrieval by pixels is above a random choice",
            main,
            cases.unlabelled[:, 0, 0] - cases.unlabelled[:, 1, 0],
            above,
            "retrieval less random",
        ),
        *(
            (
                text,
                everywhere,
                (by[how] - by[PUBLISHED]).mean(axis=1),
                test,
                f"{what} less the code's",
            )
            for how, text, test, what in (
                (
                    "equation 2",
                    "FuncFeat with all distances (the paper's equation 2) is above "
                    "FuncFeat with those of the median (its code)",
                    above,
                    "the equation's",
                ),
                (
                    "two layers",
                    "FuncFeat by the gradients of two layers, as in the paper, is "
                    "above FuncFeat by those of the last layer",
                    above,
                    "two layers'",
                ),
                (
                    "craig",
                    "Representatives of the owner's gradients (CRAIG) are below "
                    "Mycroft, as the paper says of other coreset methods",
                    lambda d: below(d, 0.0),
                    "CRAIG's",
                ),
            )
        ),
        (
            f"A request of {few} hard samples is enough for Mycroft to be above random",
            main,
            hard[PUBLISHED][:, 0] - hard["random"][:, 0],
            above,
            "Mycroft less random",
        ),
        (
            f"{few} hard samples are as good for Mycroft as {many} (within {NEAR} "
            "points)",
            main,
            hard[PUBLISHED][:, 0] - hard[PUBLISHED][:, -1],
            lambda d: within(d, NEAR / 100),
            f"{few} less {many}",
        ),
        *(
            (
                f"An answer of Mycroft's is as good with {name} (within {NEAR} points)",
                main,
                one.answers[:, i] - one.answers[:, 0],
                lambda d: within(d, NEAR / 100),
                "spoilt less as it is",
            )
            for i, name in enumerate(ANSWERS)
            if i
        ),
    ]
    where = stripes(result)
    return [
        compare("ours, stripes", text, where, scale, d, test, what)
        for text, scale, d, test, what in rows
    ]


def own_findings(setting: Setting) -> list[Finding]:
    where, scale, found = setting
    pairs: Mapping[str, tuple[np.ndarray, str]] = {
        "FuncFeat whose distances bear on the choice is above the paper's": (
            setting.by("func_feat") - found.published[..., 0],
            "ours less the paper's, all budgets",
        ),
        "Retrieval in the features of the owner's model is above random": (
            setting.by("retrieve") - setting.by("random"),
            "retrieval less random, all budgets",
        ),
        "Retrieval in the features of the owner's model is above Mycroft": (
            setting.by("retrieve") - found.published[..., 0],
            "retrieval less Mycroft, all budgets",
        ),
    }
    return [
        compare("ours, images", text, where, scale, d.mean(axis=1), above, what)
        for text, (d, what) in pairs.items()
    ]


def stripes(result: Mycroft) -> str:
    """Return the words for the data of a trainer that lacks some backgrounds."""
    name = next(iter(result.starved))
    return f"{TITLES.get(name, name)} before stripes"


def _scale(sizes: Sizes) -> str:
    return f"{sizes.net.upper()}, {sizes.side}×{sizes.side} pixels"
