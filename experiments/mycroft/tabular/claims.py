"""Claims about tables and decision paths as rows of data, the paper's and ours."""

from __future__ import annotations

from collections.abc import Mapping

from experiments._kit.claims import ABOVE, BELOW, SeedTest, Stated

from .measured import BEST, LITTLE, MANY, RANKED, READINGS
from .paths import BUDGET, OTHERS, SPLITS
from .run import USEFUL
from .select import DISTANCES
from .trainer import GRID

_MEAN_F1 = f"mean F1 with {BUDGET} samples"
_ADULT = "kinds of high incomes (Adult) in place of attacks on a network"
_TREES = f"{_ADULT}; bounds and budgets of combinations are ours"
_OWN_TABLES = "ours, tables"


def _paths(family: str) -> dict[str, Stated]:
    """State the claims of Figures 10 and 11, by one depth of the owners' trees."""
    return {
        "same path, random": Stated(
            text="Samples of the same decision path are above random",
            where="Appendix E.2, Figure 10",
            measure=f"{_MEAN_F1}: same path less random",
            test=ABOVE,
            differs=_ADULT,
            family=family,
        ),
        "Mycroft, same path": Stated(
            text="Mycroft is above samples of the same decision path",
            where="Appendix E.2, Figure 10",
            measure=f"{_MEAN_F1}: Mycroft less same path",
            test=ABOVE,
            differs=_ADULT,
            family=family,
        ),
        **{
            f"combined, {name}": Stated(
                text=f"Half of {max(SPLITS)} samples by {words} add nothing to "
                f"Mycroft's (less than {LITTLE} of F1)",
                where="Appendix E.2, Figure 11; the bound is ours",
                measure=f"mean F1 with {max(SPLITS)} samples: combined less Mycroft",
                test=SeedTest("below", LITTLE),
                differs=_TREES,
                family=family,
            )
            for name, words in zip(OTHERS, ("the decision path", "random"), strict=True)
        },
    }


TABLES: Mapping[str, Stated] = {
    **{
        f"{name}, {key}": Stated(
            text=f"{BUDGET} samples by {name} {text}",
            where=where,
            measure=measure,
            test=ABOVE,
            differs=_ADULT,
            family="tables",
        )
        for name in READINGS
        for key, text, where, measure in (
            (
                "random",
                f"are above {BUDGET} at random",
                "Section 4.2, Figure 1a",
                f"{_MEAN_F1} over owners that hold the kind, less random's",
            ),
            (
                "reached",
                "reach full information more often",
                "Section 4.2, Figure 1b",
                "share of pairs that reach F1 with everything, less random's",
            ),
            (
                "useful",
                "find more of the useful owners",
                "Section 5, scenario 4, Table 4",
                f"owners with F1 of {USEFUL} or more, less random's",
            ),
        )
    },
    "confidence": Stated(
        text=f"{BUDGET} samples by the owner's confidence are below Mycroft's",
        where="Appendix E.2",
        measure=f"{_MEAN_F1}: confidence less Mycroft",
        test=BELOW,
        differs=_ADULT,
        family="tables",
    ),
    "total variation": Stated(
        text=f"{BUDGET} samples by total variation are below Mycroft's",
        where="Appendix E.2",
        measure=f"{_MEAN_F1}: total variation less Mycroft",
        test=BELOW,
        differs="rows as distributions over columns; the paper does not say how",
        family="tables",
    ),
    "classifiers": Stated(
        text=f"The {BEST} is the best classifier, before XGBoost and random forests",
        where="Figures 7 to 9, IoT-23",
        measure=f"{_MEAN_F1} by Mycroft: the tree's less each of the others'",
        test=ABOVE,
        differs=f"{_ADULT}; each has the best of {len(GRID[BEST])} settings, the paper "
        "names none",
        because="XGBoost is not installed (`pip install xgboost-cpu`)",
        family="tables",
    ),
    "sometimes": Stated(
        text=f"{BUDGET} samples are sometimes useful where everything is not",
        where="Section 5, scenario 4, Appendix F",
        measure=f"share of pairs with F1 of {USEFUL} or more by {BUDGET} samples only",
        test=SeedTest("share"),
        differs=_ADULT,
        family="tables",
    ),
    **_paths("paths"),
    "traffic": Stated(
        text="Five samples by Mycroft are above 100 at random, and reach full "
        "information in 65 % of the cases against 30 %",
        where="Figure 1, IoT-23",
        because="these are figures for traffic whose attacks were staged in a "
        "laboratory and are alike; a kind of Adult's high incomes is a crowd of "
        "different rows",
    ),
    "autoencoder": Stated(
        text="Autoencoder distances do worse than the binning distance",
        where="Appendix E.2",
        because="no autoencoder of tables is trained in this study",
    ),
}
"""The paper's claims."""


def _rows(text: str, measure: str) -> Stated:
    return Stated(
        text=f"{BUDGET} samples by {text}",
        where="ours",
        measure=f"{_MEAN_F1}: {measure}",
        test=ABOVE,
        family=_OWN_TABLES,
    )


OUR_TABLES: Mapping[str, Stated] = {
    **{
        f"above, {name}": _rows(f"{name} are above Mycroft's", f"{name} less Mycroft")
        for name in (*DISTANCES, *RANKED)
    },
    "many": _rows(
        f"Mycroft are above {MANY} at random",
        f"Mycroft less that with {MANY} at random",
    ),
    "other paths": Stated(
        text="Samples of the same decision path are above those of other paths",
        where="ours",
        measure=f"{_MEAN_F1}: same path less other paths",
        test=ABOVE,
        family=_OWN_TABLES,
    ),
    **_paths("paths, grown trees"),
}
"""Claims that are not in the paper, and its claims on paths by trees grown further."""
