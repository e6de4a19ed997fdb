"""The study's claims as rows of data, judged by the study's own methods alone."""

from __future__ import annotations

from collections.abc import Mapping

from experiments._kit.claims import ABOVE, SeedTest, Stated, judge
from experiments._kit.judge import Claim, settle
from experiments._kit.scenes.valuations import MAX

from .claims_bounds import bound_findings
from .claims_pretrained import pretrained_findings
from .measured import LITTLE, TABLE_2, on_applications
from .measured_elsewhere import NEAR, on_the_rest
from .ranks import BINS
from .run import Study
from .runtime import TIMED

_OTHERS = "less each other value that the study compares there"
_SMALLER = "300 or 1,000 points of small images"
_DEEP = "the study's model is a network of three hidden layers"
_RESNET = "the study times a ResNet-18, and this is a logistic regression"

CLAIMS: Mapping[str, Stated] = {
    "noisy, near": Stated(
        text="KNN-Shapley finds more wrong labels than KNN-LOO",
        where="Section 4.3, Figures 2a and 6",
        measure="area under the curve of labels found, less KNN-LOO's",
        test=ABOVE,
        differs=_SMALLER,
        family="noisy",
    ),
    "noisy, all": Stated(
        text="KNN-Shapley finds more than all others",
        where="Appendix E.1, Figure 6",
        measure=f"area under the curve of labels found, {_OTHERS}",
        test=ABOVE,
        differs=_SMALLER,
        family="noisy",
    ),
    "noisy, split": Stated(
        text="Shapley values find more than leave-one-out",
        where="Section 4.3, Figures 2a and 6",
        measure="that area, each Shapley value less each leave-one-out value",
        test=ABOVE,
        differs=_SMALLER,
        family="noisy",
    ),
    "marks, near": Stated(
        text="KNN-Shapley finds more marks than KNN-LOO and a random order",
        where="Appendix E.2, Figure 7",
        measure="area under the curve of marks found, less each",
        test=ABOVE,
        differs="marks in a corner, beside the word “TEST”",
        family="marks",
    ),
    "marks, all": Stated(
        text="KNN-Shapley finds more marks than all others",
        where="Appendix E.2, Figure 7a",
        measure=f"area under the curve of marks found, {_OTHERS}",
        test=ABOVE,
        differs="marks in a corner",
        family="marks",
    ),
    "instances": Stated(
        text=f"{MAX} finds more foreign samples than all others",
        where="Section 4.3, Figures 2b and 8",
        measure=f"area under the curve of foreign samples found, {_OTHERS}",
        test=ABOVE,
        differs=_SMALLER,
        family="marks",
    ),
    "summary, near": Stated(
        text="KNN-Shapley summarises better than KNN-LOO",
        where="Section 4.3, Figure 2c",
        measure="mean accuracy over what is kept, less KNN-LOO's",
        test=ABOVE,
        family="summary",
    ),
    "half": Stated(
        text=f"Half by KNN-Shapley costs less than {100 * LITTLE:g} points",
        where="Section 4.3, “comparable utility”; the bound is ours",
        measure="accuracy with half of the points less with all",
        test=SeedTest("above", -LITTLE),
        family="summary",
    ),
    "summary, split": Stated(
        text="Shapley values summarise better than leave-one-out",
        where="Section 4.3, Figure 2c",
        measure="mean accuracy, each Shapley value less each leave-one-out value",
        test=ABOVE,
        family="summary",
    ),
    "summary, others": Stated(
        text="TMC- and G-Shapley are above KNN-Shapley",
        where="Section 4.3, Figure 2c",
        measure="mean accuracy, each less KNN-Shapley's",
        test=ABOVE,
        family="summary",
    ),
    "acquisition, near": Stated(
        text="KNN-Shapley buys better than KNN-LOO and a random choice",
        where="Section 4.3, Figure 2d",
        measure="mean accuracy over purchases, less each",
        test=ABOVE,
        family="acquisition",
    ),
    "acquisition, all": Stated(
        text="KNN-Shapley buys best",
        where="Section 4.3, Figure 2d",
        measure=f"mean accuracy over purchases, {_OTHERS}",
        test=ABOVE,
        family="acquisition",
    ),
    "adaptation, order": Stated(
        text=f"Gains in the order of Table 2: {', '.join(TABLE_2)}",
        where="Table 2",
        measure="gain of each value less that of the next",
        test=ABOVE,
        differs="scikit-learn's digits in place of USPS",
        family="adaptation",
    ),
    "adaptation, all": Stated(
        text="KNN-Shapley adapts best of Table 2",
        where="Table 2",
        measure="gain less each other value's of the table",
        test=ABOVE,
        differs="scikit-learn's digits in place of USPS",
        family="adaptation",
    ),
    "adaptation, gain": Stated(
        text="KNN-Shapley gains",
        where="Table 2",
        measure="accuracy with what is kept less with all",
        test=ABOVE,
        differs="scikit-learn's digits in place of USPS",
        family="adaptation",
    ),
    "adaptation, near": Stated(
        text="KNN-Shapley adapts better than KNN-LOO",
        where="Table 2",
        measure="gain less KNN-LOO's",
        test=ABOVE,
        differs="scikit-learn's digits in place of USPS",
        family="adaptation",
    ),
    "nearest": Stated(
        text="KNN-LOO is near random",
        where=f"Section 4.4, Figure 5; an AUC within {NEAR:g} of one half is our bound",
        measure="area under the curve of labels found, less one half",
        test=SeedTest("within", NEAR),
        differs="validation points of the published code, the text has no number",
    ),
    "embeddings": Stated(
        text="The embedding matters less than the measure",
        where="Section 4.4, Figures 5, 9b and 10",
        measure="area: KNN-Shapley less KNN-LOO, less the range between embeddings",
        test=ABOVE,
        differs="small encoders, none trained on ImageNet",
    ),
    "order, Shapley": Stated(
        text="KNN-Shapley keeps the order of all pairs",
        where="Theorem 2",
        measure="pairs of which the order is known, and told wrong",
        test=SeedTest("counted"),
    ),
    "order, LOO": Stated(
        text="KNN-LOO keeps the order of the K nearest only",
        where="Theorem 2",
        measure="pairs told wrong beyond the K nearest",
        test=SeedTest("counted"),
    ),
    "order, more": Stated(
        text="KNN-Shapley tells the order of more pairs than KNN-LOO",
        where="Theorem 2, and what the text makes of it",
        measure="share of pairs in the right order, less KNN-LOO's",
        test=ABOVE,
        family="order",
    ),
    "classes": Stated(
        text="Top classes of embeddings overlap",
        where="Figures 3 and 11",
        because="the study's are 50 of 200 classes, by networks trained on ImageNet",
    ),
    "ranks, low": Stated(
        text="KNN-Shapley's rank correlation with Shapley values is low",
        where="Appendix D.1",
        because=_DEEP,
    ),
    "ranks, smooth": Stated(
        text=f"Smoothing over {BINS[0]} percentiles raises it",
        where="Appendix D.1",
        because=_DEEP,
    ),
    "ranks, order": Stated(
        text="KNN-Shapley keeps the order better than G-Shapley",
        where="Appendix D.1",
        because=_DEEP,
    ),
    **{
        f"runtime, {name}": Stated(
            text=f"KNN-Shapley is faster than {name} by orders of magnitude",
            where="Section 4.2, Figure 1",
            because=_RESNET,
        )
        for name in TIMED[1:]
    },
}
"""The study's claims."""


def study_claims(result: Study) -> list[Claim]:
    """Judge the study's claims, each family at 5 % together."""
    claims = judge(CLAIMS, [*on_applications(result), *on_the_rest(result)])
    return [*claims, *settle([*bound_findings(), *pretrained_findings(result)])]
