"""Claims on Mycroft as rows of data, the paper's and ours."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from experiments._kit.claims import ABOVE, BELOW, SeedTest, Stated, judge
from experiments._kit.judge import Claim

from . import paper
from .measured import ENOUGH, LARGEST, NEAR, on_claims, on_ours
from .run import Mycroft
from .tabular.claims import OUR_TABLES, TABLES
from .variants import ANSWERS, HARD

_WITHIN = SeedTest("within", NEAR / 100)
_POINTS = f"within {NEAR} points"
_ACCURACY = "accuracy on held-out hard samples"
_IMAGES = "small networks from scratch; stripes, or digits of another source"
_STRIPES = "small networks from scratch, on stripes"
_SPOILT = "all of the owner's samples are spoilt; the authors' code spared chosen ones"
_FEW = HARD[0]

CLAIMS: Mapping[str, Stated] = {
    "budgets": Stated(
        text="Mycroft is above random at every budget",
        where="Section 4.2, Table 1",
        measure=f"{_ACCURACY}: Mycroft less random, each budget",
        test=ABOVE,
        differs=_IMAGES,
        family="choice",
    ),
    "full": Stated(
        text=f"Mycroft with {LARGEST} samples reaches {ENOUGH} % of the accuracy of "
        "full information",
        where="Section 4.2",
        measure=f"{_ACCURACY}: Mycroft less {ENOUGH / 100:g} times everything",
        test=ABOVE,
        differs=_IMAGES,
        because=f"no budget here is {LARGEST}",
        family="choice",
    ),
    **{
        f"cost, {state}": Stated(
            text=f"{state.capitalize()} cost Mycroft less than random",
            where=f"Section 5, scenario {i}, Figure 2",
            measure="accuracy lost by Mycroft less that lost by random",
            test=BELOW,
            differs=_SPOILT,
            family="noise",
        )
        for i, state in enumerate(paper.DROPS, 1)
    },
    **{
        f"lead, {state}": Stated(
            text=f"Mycroft is above random with {state}",
            where=f"Section 5, scenario {i}, Figure 2",
            measure=f"{_ACCURACY}: Mycroft less random, all samples spoilt",
            test=ABOVE,
            differs=_SPOILT,
            family="noise",
        )
        for i, state in enumerate(paper.DROPS, 1)
    },
    "checkpoint": Stated(
        text="An earlier checkpoint gives gradient matching more useful samples",
        where="Section 4.3, Figure 6",
        measure="useful samples by GradMatch, after the first cycle less at the end",
        test=ABOVE,
        differs=_STRIPES,
        family="design",
    ),
    "tuning": Stated(
        text=f"Fine-tuning is as good as training from scratch ({_POINTS})",
        where="Section 4.3; the bound is ours",
        measure=f"{_ACCURACY}: fine-tuned less from scratch",
        test=_WITHIN,
        differs="lengths of both trainings were settled with starved classes",
        family="design",
    ),
    "architecture": Stated(
        text="Another architecture of the owner's changes gradient matching little "
        f"({_POINTS})",
        where="Section 4.3; the bound is ours",
        measure=f"{_ACCURACY}: by the owner's MLP less by its CNN",
        test=_WITHIN,
        differs="an MLP beside a CNN, not EfficientNetB0 beside ResNet-50",
        family="design",
    ),
    "owners": Stated(
        text="Mycroft orders owners more like full information than random does",
        where="Section 5, scenario 4, Table 4",
        measure="Spearman's correlation with the order by everything, less random's",
        test=ABOVE,
        differs=_STRIPES,
        family="ranking",
    ),
    **TABLES,
    **{
        text: Stated(text=text, where=where, because=because)
        for text, where, because in paper.UNTESTED
    },
}
"""The paper's claims."""


def _ours(kind: str, text: str, measure: str, test: SeedTest = ABOVE) -> Stated:
    family = f"ours, {kind}"
    return Stated(text=text, where="ours", measure=measure, test=test, family=family)


_images = functools.partial(_ours, "images")
_stripes = functools.partial(_ours, "stripes")

OURS: Mapping[str, Stated] = {
    "func_feat": _images(
        "FuncFeat whose distances bear on the choice is above the paper's",
        f"mean {_ACCURACY} over budgets: ours less the paper's",
    ),
    "retrieve, random": _images(
        "Retrieval in the features of the owner's model is above random",
        f"mean {_ACCURACY} over budgets: retrieval less random",
    ),
    "retrieve, Mycroft": _images(
        "Retrieval in the features of the owner's model is above Mycroft",
        f"mean {_ACCURACY} over budgets: retrieval less Mycroft",
    ),
    "one source": _images(
        "Mycroft is above random where owner and trainer share a source",
        f"mean {_ACCURACY} over budgets: Mycroft less random",
    ),
    "unlabelled": _stripes(
        "Without labels, retrieval by pixels is above a random choice",
        f"{_ACCURACY}: retrieval by pixels less random, both labelled by neighbours",
    ),
    "equation 2": _stripes(
        "FuncFeat with all distances (the paper's equation 2) is above FuncFeat with "
        "those of the median (its code)",
        f"mean {_ACCURACY} over budgets: the equation's less the code's",
    ),
    "two layers": _stripes(
        "FuncFeat by the gradients of two layers, as in the paper, is above FuncFeat "
        "by those of the last layer",
        f"mean {_ACCURACY} over budgets: two layers' less the last's",
    ),
    "craig": _stripes(
        "Representatives of the owner's gradients (CRAIG) are below Mycroft, as the "
        "paper says of other coreset methods",
        f"mean {_ACCURACY} over budgets: CRAIG's less the code's",
        BELOW,
    ),
    "few": _stripes(
        f"A request of {_FEW} hard samples is enough for Mycroft to be above random",
        f"{_ACCURACY}: Mycroft less random",
    ),
    "few, all": _stripes(
        f"{_FEW} hard samples are as good for Mycroft as all that the trainer shares "
        f"({_POINTS})",
        f"{_ACCURACY}: by {_FEW} hard samples less by all",
        _WITHIN,
    ),
    **{
        f"answer, {name}": _stripes(
            f"An answer of Mycroft's is as good with {name} ({_POINTS})",
            f"{_ACCURACY}: spoilt answer less the answer as it is",
            _WITHIN,
        )
        for name in ANSWERS[1:]
    },
    **OUR_TABLES,
}
"""Claims that are not in the paper: our own methods, and other settings."""


def paper_claims(result: Mycroft) -> list[Claim]:
    """Judge the paper's claims by its own methods, each family together."""
    return judge(CLAIMS, on_claims(result))


def own_claims(result: Mycroft) -> list[Claim]:
    """Judge claims beyond the paper: our own methods, and other settings."""
    return judge(OURS, on_ours(result))
