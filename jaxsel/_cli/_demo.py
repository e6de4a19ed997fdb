"""`jaxsel demo`: the whole story on real data, in a report."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path

from ._parser import Commands, Parser
from ._reported import add_report_options, write_report

_DESCRIPTION = """\
Five owners offer handwritten digits: one pool is clean, one has wrong labels, one
corrupted pixels, one the wrong classes, one is small but good. A trainer who fails on
some classes values what is on offer, ranks the owners, buys the best samples within a
budget, and trains again.

Prints a summary, and writes report.html, to be opened in a browser; report.json, the
same numbers; and manifest.json, which records how they came about. Takes about half a
minute on two cores with 10 seeds, and downloads nothing. Film reviews are chosen in
secret as well if `jaxsel models prepare minilm` and `jaxsel data prepare
movie_polarity` were run."""

_EXAMPLES = """\
examples:
  jaxsel demo
  jaxsel demo --out report --seeds 3"""


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "demo",
        help="value and buy handwritten digits from five owners",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_report_options(parser, out="demo", seeds=10)
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="interpreter of an environment with SPU, such as that of `make secure`: "
        "taken for the choice in secret if this environment has no SPU",
    )


def run(args: argparse.Namespace) -> None:
    write_report(args, functools.partial(_write, python=args.python), config={})


def _write(
    folder: Path, seeds: Sequence[int], progress: bool, *, python: str | None
) -> tuple[Path, Path, str]:
    from jaxsel.demo import run_demo

    return run_demo(folder, seeds=seeds, progress=progress, python=python)
