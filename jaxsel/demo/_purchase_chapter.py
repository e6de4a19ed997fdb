"""The purchase as a chapter of the report."""

from __future__ import annotations

import numpy as np

from jaxsel.report import Chapter, Heading

from ._market import OWNERS
from ._purchase import Purchase
from ._purchase_figures import (
    KINDS,
    accuracy_table,
    budget_figures,
    detection_figure,
    image_figures,
    offer_table,
    owner_figures,
    owner_table,
)
from .words import finding, listed, significant_sign


def purchase_chapter(result: Purchase) -> Chapter:
    """Return the chapter on the purchase: text, figures, tables and plain numbers."""
    main = result.main
    budget, offered = int(result.budgets[main]), int(result.sizes.sum())
    before, everything = result.before[:, 0].mean(), result.everything[:, 0].mean()
    random, chosen = result.random[:, main, 0].mean(), result.chosen[:, main, 0].mean()
    seeds = "1 seed" if len(result.seeds) == 1 else f"{len(result.seeds)} seeds"
    detection = result.detection
    auc = np.array([d.auc for d in detection])
    caught = np.array([d.found_at_bad for d in detection])
    order = np.argsort(-result.owner_value.mean(0), kind="stable")
    agreement = _agreement(result)
    blocks = (
        f"Accuracy on the test set goes from {before:.1%} to {chosen:.1%} with "
        f"jaxsel's purchase, and to {random:.1%} with a random purchase of the same "
        f"size. Buying everything, {offered / budget:.1f} times as much, gives "
        f"{everything:.1%}.",
        "A trainer wants to recognise handwritten digits, but has a single example of "
        "each of three classes. Five owners offer digits. Nobody knows whose are worth "
        f"having. The trainer values all {offered} samples with `jaxsel.knn_shapley` "
        f"against its own validation set, buys {budget} of them, and trains again.",
        offer_table(result),
        Heading(_by_budget(result)),
        accuracy_table(result),
        *budget_figures(result),
        "Each sample has two values, both means over the validation digits. The plain "
        "mean tells good samples from bad ones: nothing is bought whose plain mean is "
        "not positive. The mean weighted by the trainer's error on each validation "
        "digit tells which samples this trainer lacks: the highest are bought first. "
        "Each class gets a share of the budget in proportion to the trainer's error on "
        "it, because the tenth copy of a good sample is worth less than its value "
        "says. The test set serves for the accuracies here and nothing else.",
        Heading(_of_owners(agreement)),
        "Owners are ranked by the mean value of their samples, weighted by the "
        "trainer's error. As a check, the trainer was also trained with "
        f"{result.n_alone} random samples from one owner alone: the last column. Over "
        f"{seeds}, the two orders of the owners have a mean rank correlation "
        f"(Spearman) of {agreement.mean():.2f}.",
        owner_table(result, order),
        *owner_figures(result, order),
        Heading("The most and the least valuable images"),
        f"From seed {result.seeds[0]}, where the weak classes are "
        f"{listed(list(map(str, result.weak[0])))}. Below each image is the label it "
        "is sold with; where that is wrong, the true one follows.",
        *image_figures(result),
        Heading(
            f"The samples of lowest value hold {caught.mean():.0%} of the wrong labels"
        ),
        "Whoever inspects the samples from the lowest plain value up, and as many as "
        f"have wrong labels, finds {caught.mean():.1%} of the wrong labels. The area "
        f"under the ROC curve is {auc.mean():.3f}, where chance is 0.5.",
        detection_figure(result),
        Heading("How it was measured"),
        f"All figures are means over {seeds}, with one standard deviation over them. "
        "Each seed draws anew the weak classes, who gets which digits, the noise and "
        "the initial weights. The digits are those of scikit-learn, 8×8 pixels; every "
        "fifth of each class is in the test set. The network has one hidden layer of "
        "64 units and starts every training from the same weights.",
    )
    data = {
        "seeds": result.seeds,
        "weak": result.weak,
        "owners": OWNERS,
        "offered": result.sizes,
        "budgets": result.budgets,
        "main_budget": budget,
        "accuracy_on": KINDS,
        "accuracy": {
            "before": result.before,
            "random": result.random,
            "jaxsel": result.chosen,
            "everything": result.everything,
            "everything_of_positive_value": result.harmless,
            "one_owner": result.alone,
        },
        "n_positive": result.n_harmless,
        "n_from_one_owner": result.n_alone,
        "owner_value": result.owner_value,
        "owner_positive": result.owner_positive,
        "owner_bought": result.owner_bought,
        "rank_correlation_of_owners": agreement,
        "wrong_labels": {
            "inspected": detection[0].inspected,
            "found": np.stack([d.found for d in detection]),
            "auc": auc,
            "found_when_inspecting_as_many_as_are_wrong": caught,
        },
        "images": {
            "given": result.gallery.given,
            "true": result.gallery.true,
            "values": result.gallery.values,
        },
    }
    title = finding(
        "Samples bought with jaxsel",
        result.chosen[:, main, 0],
        "random ones",
        result.random[:, main, 0],
        "accuracy",
        ".1%",
    )
    return Chapter(title=title, blocks=blocks, data=data)


def _by_budget(result: Purchase) -> str:
    ahead = result.chosen[..., 0] - result.random[..., 0]
    better = sum(significant_sign(differences) > 0 for differences in ahead.T)
    if len(result.seeds) == 1:
        return "What each budget gives, by 1 seed"
    return f"jaxsel's choice does better with {better} of {len(result.budgets)} budgets"


def _of_owners(agreement: np.ndarray) -> str:
    correlation = f"rank correlation {agreement.mean():.2f}"
    if significant_sign(agreement) > 0:
        return f"Values rank the owners much as training on each does: {correlation}"
    return (
        f"Whether values rank the owners as training does cannot be told: {correlation}"
    )


def _agreement(result: Purchase) -> np.ndarray:
    """Return Spearman's correlation of values with accuracies, `[S]`."""
    from scipy.stats import spearmanr

    return np.array(
        [
            spearmanr(values, accuracy)[0]
            for values, accuracy in zip(
                result.owner_value, result.alone[..., 0], strict=True
            )
        ]
    )
