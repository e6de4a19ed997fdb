"""`jaxsel market datasets`: which whole data sets to buy, by one vector of each."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._checks import recorded
from ._output import (
    PICTURES,
    TABLE,
    Record,
    check_ending,
    check_outputs,
    fingerprint,
    publish,
    say,
    say_checks,
)
from ._parser import Commands, Parser, add_table_out

if TYPE_CHECKING:
    import numpy as np

    from jaxsel.market import DatasetValues

_DESCRIPTION = """\
Say which owners' data sets to buy before seeing a sample: each owner sends one vector,
such as the mean gradient of the buyer's model or a mean embedding, and the buyer has
the same of its validation samples. Owners get the Shapley values of how well their
vectors match the target together, so that copies aren't paid twice; the purchase is the
cheapest set that matches nearly best within --budget.

TARGET and each OWNER are .npy files, or .npz files with an array of --key: a vector
[d], or one of each sample [n, d]. Of an owner's rows the mean counts; from rows of the
target follow standard errors. Owners are named by their files. Writes a table, and
beside it a manifest that records how it came about."""

_EXAMPLES = """\
examples:
  jaxsel market datasets target.npy north.npy south.npy --out datasets.csv
  jaxsel market datasets target.npy owners/*.npy --offers offers.csv --budget 5000 \\
      --out datasets.csv --plot datasets.png"""


def add(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "datasets",
        help="which whole data sets to buy, by one vector of each",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, words={"target": "TARGET", "key": "--seed"})
    parser.add_argument("target", metavar="TARGET", help="the vector to match")
    parser.add_argument(
        "owners", metavar="OWNER", nargs="+", help="the vector of each owner"
    )
    parser.add_argument(
        "--offers",
        metavar="TABLE",
        help="a table with the columns owner and price, or count (samples behind an "
        "owner's vector), or both; without it each costs 1",
    )
    parser.add_argument(
        "--budget", type=float, metavar="B", help="the most that the purchase may cost"
    )
    parser.add_argument(
        "--curvature",
        metavar="FILE",
        help="of gradients: the Hessian of the buyer's loss, [d, d], positive definite",
    )
    parser.add_argument(
        "--key", metavar="NAME", default="x", help=".npz: the array (default: x)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of draws, which more than 20 owners need (default: 0)",
    )
    add_table_out(parser, "owners", plot="values")


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    check_ending("--out", args.out, TABLE)
    out, plot = Path(args.out), check_ending("--plot", args.plot, PICTURES)
    sources = [args.target, *args.owners]
    sources += [name for name in (args.offers, args.curvature) if name is not None]
    paths = [*([] if plot is None else [plot]), out.with_suffix(".json"), out]
    check_outputs(paths, inputs=sources, force=args.force)
    import jax
    import numpy as np

    from jaxsel.market import value_datasets

    from ._read import read_array

    names = [Path(path).stem for path in args.owners]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"owners must have files of different names, got {twice[0]}")
    rows = [_read(path, args.key) for path in args.owners]
    widths = dict(zip(args.owners, (a.shape[-1] for a in rows), strict=True))
    if len({*widths.values()}) > 1:
        raise ValueError(f"owners must have vectors of one length, got {widths}")
    with recorded() as checks:
        prices, counts = _offers(args.offers, names, rows)
        target = _read(args.target, args.key)
        curvature = None
        if args.curvature is not None:
            curvature = read_array(args.curvature, args.key, remedy="see --key")
        result = value_datasets(
            np.stack([array.reshape(-1, array.shape[-1]).mean(0) for array in rows]),
            target,
            counts=counts,
            prices=prices,
            budget=args.budget,
            owners=names,
            curvature=curvature,
            key=jax.random.key(args.seed) if len(names) > 20 else None,
        )
    table = result.to_pandas()
    writers: dict[Path, Callable[[Path], object]] = {}
    if plot is not None:
        writers[plot] = lambda path: _plot(result, path)
    writers[out] = table.to_csv
    options = ("offers", "budget", "curvature", "key", "seed")
    record = Record(
        command=args.command_line,
        config={name: getattr(args, name) for name in options},
        started=started,
        inputs=[{"source": source, **fingerprint(source)} for source in sources],
        seeds=[args.seed] if len(names) > 20 else None,
        checks=checks,
    )
    manifest = publish(writers, record)
    say_checks(checks)
    shown = table[["shapley", "price", "bought", "gain"]].head(10).round(3)
    say(
        shown.to_string(),
        *result.summary,
        f"wrote {', '.join(map(str, [*writers, manifest]))}",
    )


def _plot(result: DatasetValues, path: Path) -> None:
    from jaxsel.report import new_figure, style

    figure = new_figure(6.4, 0.3 * len(result) + 1.1)
    with style():
        result.plot(figure.subplots())
    figure.savefig(path)


def _read(path: str, key: str) -> np.ndarray:
    """Read a vector `[d]`, or one of each sample `[n, d]`."""
    import numpy as np

    from ._read import read_array

    array = np.asarray(read_array(path, key, remedy="see --key"))
    if array.ndim not in (1, 2) or not array.size or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} must hold numbers of shape [d] or [n, d], got {array.dtype} of "
            f"shape {list(array.shape)}"
        )
    return array.astype(np.float64)


def _offers(
    path: str | None, names: list[str], rows: list[np.ndarray]
) -> tuple[Any, Any]:
    """Return prices, or None, and the samples behind each vector, or None.

    Counts come from the table, or else from files with one row a sample.
    """
    from ._tables import read_frame

    counts = [len(array) for array in rows] if all(a.ndim == 2 for a in rows) else None
    if path is None:
        return None, counts
    frame = read_frame(path, ("owner",))
    if "owner" not in frame or not {"price", "count"} & {*frame}:
        raise ValueError(
            f"{path} must have the columns owner and price, or count, got "
            f"{', '.join(map(str, frame))}"
        )
    frame = frame.set_index(frame["owner"].astype(str))
    if frame.index.has_duplicates:
        raise ValueError(f"{path} must name each owner once")
    missing = [name for name in names if name not in frame.index]
    if missing:
        raise ValueError(f"{path} must have a row of each owner, lacks {missing[0]}")
    chosen = frame.loc[names]
    prices = chosen["price"].to_numpy() if "price" in chosen else None
    return prices, chosen["count"].to_numpy() if "count" in chosen else counts
