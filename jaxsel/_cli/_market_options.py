"""The options of `jaxsel market`, and the help that explains them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ._parser import (
    Commands,
    Parser,
    add_encode,
    add_force,
    add_reading_options,
)


class _Methods:
    """Names of `jaxsel.market.METHODS`, imported once a parser needs them: slow."""

    def __iter__(self) -> Iterator[str]:
        from jaxsel.market import METHODS

        return iter(METHODS)


WORDS = {
    **dict.fromkeys(("x", "x_val"), "DATA"),
    **dict.fromkeys(("y", "y_val", "labels"), "labels of DATA"),
}
"""Users' names of the functions' arguments, where they name DATA."""

_DATA = """\
DATA is one of
  FILE.npz      arrays x (one row a sample) and y; other names with --x-key, --y-key
  FILE.npy      samples, with --labels for the labels
  FILE.csv      or FILE.parquet: --label-column, and columns of features
  NAME:SPLIT    a data set of `jaxsel data list`, such as digits:test"""


def add_request(actions: Commands[Parser]) -> Parser:
    parser = actions.add_parser(
        "request",
        help="the trainer asks",
        description="Write a request. With --predictions, the hard samples are those "
        "of DATA that were\npredicted wrongly; half of them are held out for `jaxsel "
        f"market rank`. Otherwise all\nof DATA is shown.\n\n{_DATA}",
        epilog="examples:\n"
        "  jaxsel market request hard.npz --budget 32 --out request.npz\n"
        "  jaxsel market request val.npz --predictions predicted.npy --budget 32 \\\n"
        "      --held-out-to held_out.npz --out request.npz",
    )
    parser.add_argument("data", metavar="DATA", help="hard, or validation samples")
    parser.add_argument(
        "--budget", type=int, metavar="N", required=True, help="samples to send at most"
    )
    parser.add_argument(
        "--method",
        choices=_Methods(),
        default="retrieve",
        metavar="METHOD",
        help="how owners should choose: %(choices)s (default: retrieve)",
    )
    parser.add_argument(
        "--features", metavar="FILE", help="features of DATA, [n, d]: .npy, or .npz"
    )
    parser.add_argument(
        "--hide-samples",
        action="store_true",
        help="show the features only; owners send features as well",
    )
    parser.add_argument(
        "--out", metavar="REQUEST.npz", required=True, help="the request"
    )
    add_force(parser)
    group = parser.add_argument_group("the hard set")
    group.add_argument(
        "--predictions",
        metavar="FILE",
        help="predicted classes of DATA [n], or scores [n, classes]: .npy, or .npz; or "
        "classes in a CSV or parquet file, with --prediction-column",
    )
    group.add_argument(
        "--prediction-column",
        metavar="COLUMN",
        help="CSV, parquet: the column of --predictions",
    )
    group.add_argument(
        "--held-out-to",
        metavar="FILE.npz",
        help="where to write the hard samples held out; needed with --predictions",
    )
    group.add_argument(
        "--held-out",
        type=float,
        default=0.5,
        metavar="FRACTION",
        help="of the hard samples (default: 0.5)",
    )
    group.add_argument(
        "--minimum",
        type=int,
        default=10,
        metavar="N",
        help="with fewer on either side, the hard samples are not split (default: 10)",
    )
    group.add_argument("--seed", type=int, default=0, help="of the split (default: 0)")
    add_encode(_add_reading(parser))
    return parser


def add_answer(actions: Commands[Parser]) -> Parser:
    parser = actions.add_parser(
        "answer",
        help="an owner answers",
        description="Choose samples of DATA for a request, within its budget, and "
        "never more than half\nof DATA by default. Matching gradients "
        f"needs a model: a small network\nis trained on DATA.\n\n{_DATA}",
        epilog="examples:\n"
        "  jaxsel market answer request.npz mine.npz --owner north --out north.npz\n"
        "  jaxsel market answer request.npz --refuse 'not for sale' --owner north "
        "--out no.npz",
    )
    parser.add_argument("request", metavar="REQUEST", help="the trainer's request")
    parser.add_argument("data", metavar="DATA", nargs="?", help="the owner's samples")
    parser.add_argument(
        "--owner", metavar="NAME", required=True, help="the owner's name"
    )
    parser.add_argument(
        "--method",
        choices=_Methods(),
        metavar="METHOD",
        help="%(choices)s (default: as the request asks)",
    )
    parser.add_argument(
        "--metric",
        choices=("cosine", "l2"),
        default="cosine",
        help="distance between features (default: cosine)",
    )
    parser.add_argument(
        "--features",
        metavar="FILE",
        help="features of DATA, in the feature space of the request: .npy, or .npz",
    )
    parser.add_argument(
        "--standardize",
        action="store_true",
        help="compare samples with each column centred and divided by its standard "
        "deviation in DATA; they are sent as they are. For retrieve and --unlabelled",
    )
    parser.add_argument(
        "--unlabelled",
        action="store_true",
        help="DATA has no labels, or they are not to be used: samples get that of the "
        "nearest hard sample. The --label-column, if given, is no feature. Not for "
        "func_feat and grad_match, which train on labels",
    )
    parser.add_argument(
        "--max-samples",
        type=int,
        metavar="N",
        help="samples to send at most, whatever the budget",
    )
    parser.add_argument(
        "--max-share",
        type=float,
        default=0.5,
        metavar="FRACTION",
        help="send this part of DATA at most, whatever the budget (default: 0.5); one "
        "sample stays behind in any case",
    )
    parser.add_argument(
        "--allow-all",
        action="store_true",
        help="send all of DATA if the budget and --max-samples allow",
    )
    parser.add_argument("--refuse", metavar="REASON", help="decline; without DATA")
    parser.add_argument(
        "--seed", type=int, default=0, help="of random choices (default: 0)"
    )
    parser.add_argument("--out", metavar="ANSWER.npz", required=True, help="the answer")
    add_force(parser)
    add_max_bytes(parser)
    _add_reading(parser)
    return parser


def _add_reading(parser: Parser) -> argparse._ArgumentGroup:
    parser.set_defaults(words=WORDS)
    group = add_reading(parser)
    group.add_argument("--labels", metavar="FILE", help="labels of DATA: .npy, or .npz")
    return group


def add_reading(parser: Parser) -> argparse._ArgumentGroup:
    group = add_reading_options(parser)
    group.add_argument(
        "--columns",
        metavar="A,B,...",
        help="CSV, parquet: the columns of features (default: all but the label's)",
    )
    group.add_argument(
        "--drop",
        metavar="COLUMN",
        action="append",
        default=[],
        help="CSV, parquet: a column that is no feature, as an id; may be repeated",
    )
    return group


def add_max_bytes(parser: Parser) -> None:
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=1 << 30,
        metavar="N",
        help="largest request or answer to read (default: 1 GiB)",
    )
