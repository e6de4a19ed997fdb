"""The options of `jaxsel errors`, and the help that explains them."""

from __future__ import annotations

import argparse

from jaxsel.labels import FILTERS, RANKINGS

from ._parser import Parser, add_force, add_reading_options, add_table_options

DESCRIPTION = """\
Find the labels of TABLE that are probably wrong. No clean samples are needed: every
sample is predicted by models that have not seen its label.

TABLE is one of
  FILE.csv      (separated by commas, semicolons or tabs), FILE.tsv or FILE.parquet:
                --label, and columns of features: numbers, dates, categories, with gaps
                (see --encode), in any units. The first line names the columns
  FILE.npz      arrays x (one row a sample; images, too) and y; other names with
                --x-key, --y-key
  FILE.npy      features or images, with --labels for the labels
  NAME:SPLIT    a data set of `jaxsel data list`, such as digits:train

Writes into the folder of --out errors.csv (row, counted from 0, given and suggested
label, score, the estimated probability that it is wrong, and the columns of TABLE that
tell most about labels), report.html with these, pictures or texts beside the labels,
report.json, and manifest.json, which records how all this came about."""

EXAMPLES = """\
examples:
  jaxsel errors customers.csv --label segment --out errors
  jaxsel errors digits:train
  jaxsel errors pictures.npy --labels y.npy --pred-probs model.npy
  jaxsel errors reviews.csv --label stars --text review --encoder minilm"""


def words(args: argparse.Namespace) -> dict[str, str]:
    """Return users' names of the functions' arguments."""
    return {
        "x": "--features" if args.features else "TABLE",
        "y": "--labels" if args.labels else "labels of TABLE",
        "key": "--seed",
        "x must be given for rank_by": "--features must be given for --rank-by",
        "classes must be given: pred_probs has": "--pred-probs must have a column of "
        "each label, in sorted order, but has",
        "and y has": "and TABLE",
        "classes": "classes of TABLE",
        "use knn_regression_shapley": "see jaxsel value --method "
        "knn_regression_shapley",
    }


def add_options(parser: Parser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the labelled samples")

    group = add_reading_options(parser)
    group.add_argument("--labels", metavar="FILE", help="labels: .npy, or .npz")
    add_table_options(group)
    group.add_argument(
        "--as-is",
        action="store_true",
        help="CSV, parquet: do not standardize the columns",
    )
    group.add_argument(
        "--text",
        metavar="COLUMN",
        help="CSV, parquet: a column of texts, for the report and --encoder",
    )
    group.add_argument(
        "--encoder",
        metavar="MODEL",
        help="take a prepared encoder's features of the texts, such as minilm",
    )
    group.add_argument(
        "--features",
        metavar="FILE",
        help="take these features instead, such as embeddings: .npy, or .npz",
    )
    group.add_argument(
        "--pred-probs",
        metavar="FILE",
        help="out-of-sample probabilities of your own model, one column a class in "
        "sorted order: .npy, or .npz (array pred_probs)",
    )

    group = parser.add_argument_group("how to look for errors")
    group.add_argument(
        "--filter",
        dest="filter_by",
        choices=FILTERS,
        default="prune_by_noise_rate",
        metavar="FILTER",
        help=f"which labels to suspect: {', '.join(FILTERS)} (default: "
        "prune_by_noise_rate)",
    )
    group.add_argument(
        "--rank-by",
        choices=RANKINGS,
        action="append",
        metavar="RANKING",
        help=f"score of labels: {', '.join(RANKINGS)}; may be repeated, and ranks "
        "are averaged then (default: self_confidence)",
    )
    group.add_argument(
        "--folds", type=int, default=5, metavar="N", help="of the samples (default: 5)"
    )
    group.add_argument(
        "--metric",
        choices=("l2", "cosine"),
        help="distance of neighbours (default: the one that predicts labels better)",
    )
    group.add_argument(
        "--min-per-class",
        type=int,
        default=1,
        metavar="N",
        help="labels of each class that the prune filters leave (default: 1)",
    )
    group.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="shuffle samples before they are dealt out to folds; data_oob needs it",
    )

    group = parser.add_argument_group("what to write")
    group.add_argument(
        "--out",
        metavar="FOLDER",
        default="errors",
        help="where to write (default: errors)",
    )
    group.add_argument(
        "--no-report",
        action="store_true",
        help="write no report, which needs matplotlib and jinja2",
    )
    add_force(parser)
    group.add_argument(
        "--no-progress", action="store_true", help="show no progress bar"
    )
