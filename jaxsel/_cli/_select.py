"""`jaxsel select`: the best samples within a budget."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxsel.neighbors import METRICS

from ._checks import recorded
from ._choose import DEFAULT, OPTIONS, SELECTORS, run as choose, words
from ._output import (
    Record,
    check_outputs,
    fingerprint,
    publish,
    result_path,
    say,
    say_checks,
)
from ._parser import (
    Commands,
    Parser,
    add_column_options,
    add_force,
    add_reading_options,
)

if TYPE_CHECKING:
    import numpy as np

    from jaxsel import Selection, Values

_HARD = [name for name, chooser in SELECTORS.items() if chooser.compares is not None]
_ALONE = [name for name, chooser in SELECTORS.items() if chooser.compares is None]
_DESCRIPTION = f"""\
Choose samples by the values that `jaxsel value` wrote, best first; or choose samples of
a pool that look like others, or represent it. Writes OUT.npz, for jaxsel.Selection.load
(arrays indices, weights, n_valid), and beside it OUT.json, which records how it came
about.

A budget alone may buy many samples of a class that is easy to tell apart: --per-class
shares it out evenly among the classes, as far as they go.

POOL and HARD are files or prepared data sets as for `jaxsel value`: features, or
gradients of samples as arrays. Methods that compare POOL with HARD:
{", ".join(_HARD)}.
With itself: {", ".join(_ALONE)}."""

_EXAMPLES = """\
examples:
  jaxsel select values.npz --budget 200 --out selection.npz
  jaxsel select values.npz --above 0 --out harmless.npz
  jaxsel select values.npz --budget 200 --per-class --labels y.npy --out even.npz
  jaxsel select values.npz --budget 200 --per-class --from digits:train --out s.npz
  jaxsel select pool.csv --like failures.csv --budget 500 --standardize --out buy.npz
  jaxsel select pool.npz --method facility_location --budget 100 --out few.npz"""


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "select",
        help="choose the best samples",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, words=words)
    parser.add_argument(
        "source", metavar="VALUES|POOL", help="file of `jaxsel value`, or samples"
    )
    pool = parser.add_argument_group("choosing from a pool")
    pool.add_argument(
        "--like", metavar="HARD", help="samples that the chosen ones should look like"
    )
    pool.add_argument(
        "--method",
        choices=tuple(SELECTORS),
        metavar="NAME",
        help=f"how to choose (default with --like: {DEFAULT})",
    )
    pool.add_argument(
        "--metric",
        choices=METRICS,
        metavar="NAME",
        help=f"of distances: {' or '.join(METRICS)} (default: the method's own)",
    )
    pool.add_argument(
        "--standardize",
        action="store_true",
        help="files: centre each column and divide it by its deviation in POOL",
    )
    pool.add_argument(
        "--like-labels", metavar="FILE", help="labels of HARD: .npy, or .npz"
    )
    parser.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help="samples to choose at most (default: all that are --above)",
    )
    parser.add_argument(
        "--above", type=float, metavar="VALUE", help="only samples worth more than this"
    )
    parser.add_argument(
        "--per-class",
        action="store_true",
        help="VALUES: share the budget evenly among classes; POOL: choose for each "
        "class of HARD; needs labels",
    )
    parser.add_argument("--out", metavar="OUT.npz", required=True, help="the selection")
    parser.add_argument(
        "--csv",
        metavar="FILE",
        help="write a table of them: index in TRAIN, or id, and value",
    )
    add_force(parser)
    group = add_reading_options(parser)
    add_column_options(group)
    labels = group.add_mutually_exclusive_group()
    labels.add_argument(
        "--labels", metavar="FILE", help="labels of the samples: .npy, or .npz"
    )
    labels.add_argument(
        "--from",
        dest="values_of",
        metavar="TRAIN",
        help="take the labels from TRAIN as given to `jaxsel value`",
    )


def run(args: argparse.Namespace) -> None:
    if args.like is not None or args.method is not None:
        choose(args)
        return
    if unused := [name for name in OPTIONS if getattr(args, name)]:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise ValueError(
            f"{options} is for samples of a pool: add --like HARD, or --method for one "
            "that compares the pool with itself"
        )
    started = time.perf_counter()
    out = result_path(args.out)
    sources = {"values": args.source, "labels": args.labels, "train": args.values_of}
    sources = {role: source for role, source in sources.items() if source is not None}
    extras = [] if args.csv is None else [Path(args.csv)]
    check_outputs(
        [*extras, out.with_suffix(".json"), out],
        inputs=sources.values(),
        force=args.force,
    )
    import numpy as np

    from jaxsel._results.best import best_samples

    from ._read import read_values
    from ._select_labels import read_labels

    try:
        values = read_values(args.source)
    except ValueError as error:
        if args.source.lower().endswith(".npz"):
            raise
        raise ValueError(
            f"{error}: to choose from samples add --like HARD, or --method"
        ) from error
    if values.values.ndim > 1:
        raise ValueError(
            f"{args.source} has a value for each sample of VAL: write one of each "
            "sample of TRAIN with `jaxsel value --reduce mean` or max"
        )
    with recorded() as checks:
        labels = read_labels(args, values)
        _check(args, len(values), labels)
        selection = best_samples(
            values,
            budget=args.budget,
            above=args.above,
            labels=labels,
            per_class=args.per_class,
        )
    say_checks(checks)
    options = ("budget", "above", "per_class", "label_column", "x_key", "y_key")
    config = {name: getattr(args, name) for name in options}
    if values.index is not None:
        config["chosen"] = [values.index[i] for i in np.asarray(selection.indices)]
    record = Record(
        command=args.command_line,
        config=config,
        started=started,
        inputs=[
            # A prepared data set is no file.
            {
                "role": role,
                "source": source,
                **(fingerprint(source) if Path(source).is_file() else {}),
            }
            for role, source in sources.items()
        ],
        checks=checks,
    )
    writers: dict[Path, Callable[[Path], object]] = {}
    if extras:
        table = values.to_pandas(labels=labels).iloc[np.asarray(selection.indices)]
        writers[extras[0]] = table.to_csv
    writers[out] = selection.save
    manifest = publish(writers, record)
    files = ", ".join(map(str, [*writers, manifest]))
    say(*_summary(values, selection, labels), f"Wrote {files}")


def _check(args: argparse.Namespace, n: int, labels: np.ndarray | None) -> None:
    if args.budget is None and args.above is None:
        raise ValueError("select needs --budget, --above or both")
    if args.budget is not None and not 1 <= args.budget <= n:
        raise ValueError(
            f"--budget must be from 1 to {n}, the number of samples, got {args.budget}"
        )
    if args.per_class and (labels is None or args.budget is None):
        raise ValueError("--per-class needs --budget, and --labels or --from")


def _summary(
    values: Values, selection: Selection, labels: np.ndarray | None
) -> list[str]:
    import numpy as np

    chosen = np.asarray(selection.indices)
    lines = [f"{len(chosen)} of {len(values)} samples"]
    if len(chosen):
        v = np.asarray(values.values)[chosen]
        v = v[~np.isnan(v)]
        lines[0] += f", worth {v[-1]:.3g} to {v[0]:.3g} each" if len(v) else ""
    if values.index is not None:
        lines.append(
            "indices of OUT.npz are places among these values; rows of TRAIN, or ids, "
            'are in --csv and "chosen" of OUT.json'
        )
    if labels is not None:
        kinds, counts = np.unique(labels[chosen], return_counts=True)
        shares = [f"{k}: {c}" for k, c in zip(kinds[:20], counts[:20], strict=True)]
        more = [f"and {len(kinds) - 20} more classes"] if len(kinds) > 20 else []
        lines.append(f"by class: {', '.join(shares + more)}")
    return lines
