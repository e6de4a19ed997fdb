"""The options of `jaxsel value`, and the help that explains them."""

from __future__ import annotations

import argparse

from jaxsel.value import VALUES

from ._parser import Parser, add_force, add_reading_options, add_table_options
from ._retrain import LEARNERS, RETRAINING, SCORES

METHODS = (*(name for name, value in VALUES.items() if value.command), *RETRAINING)

DESCRIPTION = """\
Value every sample of TRAIN by what it adds to a model that is tested on VAL: a
nearest-neighbour classifier, or, more slowly, a --learner that is trained again and
again. Samples with wrong labels get the lowest values, mostly negative ones.

TRAIN and VAL are each one of
  FILE.npz      arrays x (one row a sample) and y; other names with --x-key, --y-key
  FILE.npy      features, with --train-labels and --val-labels for the labels
  FILE.csv      (separated by commas, semicolons or tabs), FILE.tsv or FILE.parquet:
                --label-column, and columns of features: numbers, dates, categories,
                with gaps (see --encode). The first line names the columns
  NAME:SPLIT    a data set of `jaxsel data list`, such as digits:train

VAL may be larger than memory, and is then read a chunk at a time. It is
  FOLDER        of .npy files, with --val-labels, or of parquet files
  FOLDER.zarr   a group of arrays x and y, or an array with --val-labels
  FILE.array_record, or a folder of these, with --decode
  FILE.npy or FILE.parquet as above, with --checkpoint

Distances decide, so features should be embeddings, or columns of like scale: see
--standardize. Writes OUT.npz, for `jaxsel select` and jaxsel.Values.load, and beside it
OUT.json, which records how it came about.

Without VAL, --split sets a part of TRAIN aside for it; data_oob needs none."""

EXAMPLES = """\
examples:
  jaxsel value digits:train digits:test --out values.npz --plot values.png
  jaxsel value train.npz val.npz --k 10 --metric cosine --out values.npz
  jaxsel value pool.csv val.csv --label-column income --standardize --out values.npz
  jaxsel value pool.csv --label-column income --split 0.2 --out v.npz --csv v.csv
  jaxsel value pool.csv --label-column income --split 0.2 --method tmc_shapley \\
      --samples 200 --out tmc.npz
  jaxsel value train.npz more.npz --merge values.npz --out all.npz
  jaxsel value train.npz val/ --val-labels val_y/ --checkpoint kept --out v.npz"""


def add_options(parser: Parser) -> None:
    add_sources(parser)
    _add_methods(parser)
    group = add_sample_options(parser)
    group.add_argument(
        "--decode",
        metavar="MODULE:FUNCTION",
        help="array_record: a function that returns the features and the label of a "
        "record, given its bytes; of a module here or installed",
    )
    add_output_options(parser).add_argument(
        "--merge",
        metavar="FILE.npz",
        help="combine with earlier values of the same TRAIN over other samples than "
        "VAL; equals one run over all of them",
    )
    _add_speed(parser)


def add_sources(parser: Parser) -> None:
    parser.add_argument("train", metavar="TRAIN", help="the samples to value")
    parser.add_argument(
        "val", metavar="VAL", nargs="?", help="samples with correct labels"
    )
    parser.add_argument(
        "--split",
        type=float,
        metavar="FRACTION",
        help="instead of VAL: set this part of TRAIN aside for it, the same of each "
        "class, at random by --seed; OUT.json lists the rows",
    )


def add_sample_options(parser: Parser) -> argparse._ArgumentGroup:
    group = add_reading_options(parser)
    add_table_options(group)
    for side in ("train", "val"):
        group.add_argument(
            f"--{side}-labels",
            metavar="FILE",
            help=f"labels of {side.upper()}, or class probabilities: .npy, or .npz"
            + ("; a folder, where VAL is one" if side == "val" else ""),
        )
    for key in ("x", "y"):
        group.add_argument(
            f"--val-{key}-key",
            metavar="NAME",
            help=f".npz: the array in VAL, if named otherwise than --{key}-key",
        )
    group.add_argument(
        "--standardize",
        action="store_true",
        help="files: centre each column, and divide by its standard deviation in "
        "TRAIN; columns that --encode encodes are scaled already",
    )
    return group


def add_output_options(parser: Parser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("what to write")
    group.add_argument("--out", metavar="OUT.npz", required=True, help="the values")
    group.add_argument(
        "--plot", metavar="FILE", help="draw the values: .png, .svg or .pdf"
    )
    group.add_argument(
        "--csv", metavar="FILE", help="write a table: value, rank, error, label"
    )
    add_force(parser)
    return group


def _add_methods(parser: Parser) -> None:
    group = parser.add_argument_group("which value")
    group.add_argument(
        "--method",
        choices=METHODS,
        default="knn_shapley",
        metavar="METHOD",
        help=f"{', '.join(METHODS)} (default: knn_shapley). knn_banzhaf and "
        "threshold are the fastest; regression is for numeric targets; those from "
        "tmc_shapley on retrain a --learner",
    )
    group.add_argument("--k", type=int, help="number of neighbours (default: 5)")
    group.add_argument(
        "--metric", choices=("l2", "cosine"), help="distance (default: l2)"
    )
    group.add_argument(
        "--ties",
        choices=("stable", "average"),
        help="samples at equal distance: in the order of TRAIN, or alike (default: "
        "stable)",
    )
    group.add_argument(
        "--reduce",
        choices=("mean", "max", "none"),
        help="over VAL: mean, with its standard error; max, by which samples foreign "
        "to all of VAL come last; none, one row for each sample of VAL (default: mean)",
    )
    group.add_argument(
        "--hybrid",
        action="store_true",
        default=None,
        help="approximate far neighbours, with a certified bound on the error; faster "
        "on machines where `jaxsel info` shows no compiled operations",
    )
    group.add_argument(
        "--radius",
        type=float,
        help="threshold_knn_shapley, which needs it: the distance up to which samples "
        "are neighbours, in units of --metric",
    )
    group.add_argument(
        "--alpha",
        type=float,
        help="Beta values: weight of small coalitions (default: 16)",
    )
    group.add_argument(
        "--beta",
        type=float,
        help="Beta values: weight of large coalitions (default: 1)",
    )
    group.add_argument(
        "--n-classes",
        type=int,
        metavar="N",
        help="soft_knn_shapley, threshold_knn_shapley: number of classes (default: "
        "those found)",
    )

    group = parser.add_argument_group(f"retraining ({', '.join(RETRAINING)})")
    group.add_argument(
        "--learner",
        choices=tuple(LEARNERS),
        metavar="LEARNER",
        help=f"model to train: {', '.join(LEARNERS)} (default: logistic)",
    )
    group.add_argument(
        "--score",
        choices=SCORES,
        metavar="SCORE",
        help=f"of the learner on VAL: {', '.join(SCORES)} (default: accuracy)",
    )
    group.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="permutations, coalitions or bags to train on (default: 1000; banzhaf: "
        "10000)",
    )
    group.add_argument(
        "--seed", type=int, metavar="N", help="seed of random draws (default: 0)"
    )


def _add_speed(parser: Parser) -> None:
    group = parser.add_argument_group("VAL larger than memory")
    group.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="keep the values so far there; the same command goes on from them after "
        "it was cut off",
    )
    group.add_argument(
        "--checkpoint-every",
        type=int,
        metavar="N",
        help="chunks between two saves (default: 16)",
    )

    group = parser.add_argument_group("speed")
    group.add_argument(
        "--chunk-size",
        type=int,
        metavar="N",
        help="samples of VAL at a time; sets memory and speed, not results (default: "
        "by the size of TRAIN; 4096 where VAL is larger than memory)",
    )
    group.add_argument(
        "--devices",
        type=_devices,
        default="all",
        metavar="N",
        help="how many devices to use, or all (default: all)",
    )
    group.add_argument(
        "--no-progress", action="store_true", help="show no progress bar"
    )


def _devices(text: str) -> int | str:
    if text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number of devices, or all, got {text!r}"
        ) from None
