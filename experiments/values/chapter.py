"""The study in miniature as a chapter of a report."""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments._kit.claims import (
    claim_table,
    differs_table,
    matrix,
    tally,
    untested_table,
)
from jaxsel.report import Chapter, Heading

from .claims import CLAIMS, study_claims
from .claims_bounds import bound_table
from .claims_pretrained import pretrained_figure, pretrained_table
from .figures import (
    curve_figure,
    embedding_figure,
    gallery_figure,
    runtime_figure,
)
from .networks_table import networks_table, networks_words
from .ours import our_claims, our_table
from .ranks import TESTED
from .run import CURVES, Study
from .size_tables import domain_table, nearest_table
from .tables import (
    adaptation_table,
    class_correlation,
    detection_table,
    embedding_table,
    learning_table,
    order_table,
    rank_table,
    watermark_table,
)
from .words import WORDS


def study_chapter(result: Study) -> Chapter:
    """Return the chapter on the study: its claims with verdicts, figures and tables."""
    names, claims = [*result.applications], study_claims(result)
    untested = untested_table(claims)
    detected = [n for n in names if n.split("-")[0] in ("noisy", "pattern", "instance")]
    blocks = (
        "Is a closed form for nearest neighbours as good as values that train a model "
        "thousands of times? The study says yes, and faster by orders of magnitude; "
        "and that leave-one-out values are hardly better than chance. Its experiments, "
        "smaller and on other data, with a KNN-LOO that compares with the neighbour "
        "that moves up.",
        matrix(claims, "The study's claims, by its own methods."),
        runtime_figure(result),
        _verdicts(result),
        *([] if untested is None else [untested]),
        Heading("What was measured for each claim"),
        claim_table(
            claims,
            "The study's claims, by its own methods alone. Where pairs were counted, "
            "nothing was tested.",
            n_seeds=len(result.seeds),
        ),
        differs_table(CLAIMS, "By what each claim is judged."),
        Heading("Methods that the study lacks"),
        our_table(result),
        Heading("Wrong labels and watermarks"),
        detection_table(result),
        *(curve_figure(result, name) for name in detected),
        watermark_table(result),
        *_pretrained(result),
        Heading("KNN-LOO by the number of validation points"),
        nearest_table(result),
        _nearest_words(result),
        Heading("Summarisation and acquisition"),
        learning_table(result),
        *(curve_figure(result, n) for n in ("summary-adult", "acquisition-mnist")),
        Heading("Domain adaptation"),
        adaptation_table(result),
        domain_table(result),
        Heading("What networks learn without half of their points"),
        networks_table(result),
        networks_words(result),
        Heading("Embeddings"),
        embedding_table(result),
        embedding_figure(result),
        gallery_figure(result),
        _class_words(result),
        Heading("Rank correlation"),
        rank_table(result),
        _rank_words(result),
        Heading("Theorem 2"),
        order_table(result),
        _order_words(),
        Heading("Theorems 3 and 4"),
        bound_table(),
        _bound_words(),
        Heading("How it was measured"),
        _method(result),
    )
    title = f"Values of data: of the study's claims {study_tally(result)}"
    return Chapter(title=title, blocks=blocks, data=_data(result))


def _data(result: Study) -> dict[str, Any]:
    return {
        "seeds": result.seeds,
        "full": result.full,
        "accelerated": result.accelerated,
        "sizes": dataclasses.asdict(result.sizes),
        "rank_sizes": dataclasses.asdict(result.rank_sizes),
        "claims": [dataclasses.asdict(claim) for claim in study_claims(result)],
        "ours": [dataclasses.asdict(claim) for claim in our_claims(result)],
        "nearest": result.nearest,
        "domain_sizes": result.domain_sizes,
        "networks": result.networks,
        "applications": {
            name: {
                "name": curves.name,
                "x": curves.x,
                "mean": curves.mean(),
                "summary": curves.summary,
                "reference": curves.reference,
            }
            for name, curves in result.applications.items()
        },
        "rank_methods": TESTED,
        "ranks": result.ranks,
        "embeddings": result.embeddings,
        "pretrained": result.pretrained,
        "order": result.order,
        "runtime": result.runtime,
    }


def _pretrained(result: Study) -> list[Any]:
    if not result.pretrained:
        return []
    return [
        Heading("Pretrained features of images"),
        pretrained_table(result),
        pretrained_figure(result, "noisy"),
        pretrained_figure(result, "instance"),
    ]


def study_tally(result: Study) -> str:
    """Count claims by the settings in which they hold."""
    return tally(study_claims(result))


def _verdicts(result: Study) -> str:
    missing = []
    if "noisy-words" not in result.applications:
        missing.append(
            "Posts are left out: `jaxsel data prepare newsgroups` adds them."
        )
    if "noisy-texts" not in result.applications:
        missing.append(
            "Reviews are left out: `jaxsel models prepare minilm` and `jaxsel data "
            "prepare movie_polarity` add them."
        )
    if not result.pretrained:
        missing.append(
            "Pretrained features of images are left out: `jaxsel models prepare "
            "efficientnet_lite0` adds them."
        )
    if not result.accelerated:
        missing.append(
            "Networks were not trained again for values: that is left to machines with "
            "an accelerator."
        )
    return " ".join(
        (
            f"Of the study's claims {study_tally(result)}. “Best” holds if "
            "a paired test puts a method above each other one that the study compares, "
            "and fails if one puts another of these above it, at 5 % for all of these "
            "together. “Near random” is an AUC less than 0.05 from one half. A claim "
            "on values that train a model again is tested only where the study trains "
            "the same kind of model: logistic regression or naive Bayes.",
            *missing,
        )
    )


def _class_words(result: Study) -> str:
    rho = class_correlation(result)
    return (
        "Here six classes of Fashion-MNIST are valued; one network was trained on the "
        "other four, the other one on MNIST. The number of points of each class among "
        "the top tenth has a mean Spearman correlation of "
        f"{rho.mean():.2f} between embeddings."
    )


def _nearest_words(result: Study) -> str:
    shares = CURVES.n_val[0] * 5 / CURVES.n, CURVES.n_val[-1] * 5 / CURVES.n
    return (
        "Leave-one-out changes the 5 nearest of each validation point only. Each point "
        f"is among these {shares[0]:g} times on average with {CURVES.n_val[0]} "
        f"validation points, and {shares[1]:g} times with {CURVES.n_val[-1]}. The "
        "study shows its curve of KNN-LOO as a picture, without figures, and does not "
        "say how many validation points it has: the curves can't be compared."
    )


def _rank_words(result: Study) -> str:
    ranks, sizes = result.ranks, result.rank_sizes
    return (
        f"The truth is the mean of two estimates by group testing, {sizes.tests:,} "
        "coalitions each, for a logistic regression on 12 principal components. Of "
        f"its variance {ranks['reliability'].mean():.0%} is not sampling error, by its "
        "standard errors, and the two estimates correlate by "
        f"{ranks['halves'].mean():.2f}: no correlation with it can be much above the "
        "root of that share. Of TMC-Shapley's own variance, with "
        f"{sizes.samples.permutations} permutations, "
        f"{ranks['few'].mean():.0%} is not sampling error. Half of the {sizes.n} "
        "training images and all validation images are adversarial, as in the paper; "
        "its model is a network of three hidden layers on MNIST. Groups' means "
        "correlate more than points by construction, so that smoothed figures compare "
        "with one another only."
    )


def _order_words() -> str:
    return (
        "The proof grants KNN-LOO the pairs whose points are both among the K nearest, "
        "since elsewhere its difference need not have the sign of the difference of "
        "labels. But the definition asks for the sign of the expected gain, and for "
        "pairs of different values only. For i ≤ K < j the difference is that of "
        "match i and match K + 1: if it is not 0 it has the sign of what point i adds "
        "in place of any other, whatever label j has, and that is the sign of the "
        "expected gain. So KNN-LOO errs on no pair; it is silent on most. With several "
        "validation points, of which the theorem speaks only where all agree, both err."
    )


def _bound_words() -> str:
    return (
        "Theorem 3's proof bounds differences between the values of two points, which "
        "is what is tested; as printed it bounds the values, which a model breaks that "
        "depends on nothing but the number of its points. Theorem 4's proof takes the "
        "definition of uniform stability, which removes a point, for one that replaces "
        "it. Two removals make a replacement, so that the bounds need a factor of 2: "
        "without it a clipped sum breaks the one on leave-one-out values. Upper "
        "bounds say nothing of which values differ more; so the values themselves are "
        "compared."
    )


def _method(result: Study) -> str:
    sizes = result.sizes
    samples, two, bayes = sizes.samples, sizes.two, sizes.bayes
    n = len(result.seeds)
    return (
        f"All figures are of {n} seed{'s' if n > 1 else ''}; each deals training, "
        f"validation and test data anew: {sizes.n}, {sizes.n_val} and {sizes.n_test:,} "
        "points, but for the acquisition (100 to start with, half of them noisy; 100 "
        f"to score; a pool of {sizes.pool:,}, three quarters noisy; "
        f"{sizes.rounds} purchases of 50). Images are averaged to 8×8 pixels, which "
        "all values see (14×14 where embeddings are compared); Adult and reviews are "
        f"projected to {sizes.width} principal components of other rows; posts are "
        f"{WORDS} weights of words. K is 5. "
        "Values that train again use logistic regression, naive Bayes for digits, "
        "posts and the acquisition: "
        f"{samples.permutations} permutations of TMC-Shapley ({bayes.permutations} for "
        f"digits and posts, {two.permutations} with two classes), truncated at 5 %; "
        f"{samples.passes} passes of G-Shapley; {samples.coalitions:,} coalitions of "
        f"Banzhaf ({two.coalitions:,} with two classes); {samples.bags} bags of "
        "Data-OOB. They would be better with more, and cost more. Test accuracies are "
        "of logistic regression, of a perceptron for pattern watermarks, where the "
        "mark stands for the next class. Sizes and penalties were settled on seed 100 "
        "and those after."
    )
