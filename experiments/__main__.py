"""`python -m experiments`: experiments of papers in miniature, in a report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxsel.cli import (
    Parser,
    add_debug,
    add_report_options,
    run_command,
    write_report,
)

from .filter import command as filtering
from .mycroft import command as mycroft
from .secure import command as secure
from .seeds import KINDS, Workers
from .selectformer import command as selectformer
from .selectformer.curve import command as selectformer_curve
from .values import command as values

PAPERS = {
    "mycroft": mycroft,
    "selectformer": selectformer,
    "selectformer-curve": selectformer_curve,
    "secure": secure,
    "values": values,
    "filter": filtering,
}

_DESCRIPTION = """\
The experiments of papers in miniature, on real data.

What each experiment finds for each seed is kept in a folder beside the report, and read
where it is there already: run a killed run again, and it goes on. What another source
found, or other versions of packages, is found anew."""

_EXAMPLES = """\
examples:
  python -m experiments mycroft
  python -m experiments mycroft --full --out repro --force
  python -m experiments mycroft --executor processes --workers 4
  python -m experiments selectformer --out repro-selectformer
  python -m experiments selectformer-curve --out repro-selectformer/curve
  python -m experiments secure --out repro-secure
  python -m experiments values --out repro-values
  python -m experiments filter --out repro-filter"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a paper's experiments and return the exit status, as `jaxsel.cli.main`."""
    return run_command(make_parser(), sys.argv[1:] if argv is None else list(argv))


def make_parser() -> Parser:
    """Return the parser of the command, with an action for each paper."""
    parser = Parser(
        prog="python -m experiments", description=_DESCRIPTION, epilog=_EXAMPLES
    )
    parser.set_defaults(show_help=parser.print_help)
    add_debug(parser)
    papers = parser.add_subparsers(title="papers", metavar="PAPER", dest="paper")
    for name, command in PAPERS.items():
        paper = papers.add_parser(
            name, help=command.HELP, description=command.DESCRIPTION
        )
        paper.set_defaults(run=_run)
        paper.add_argument("--full", action="store_true", help=command.FULL)
        add_report_options(paper, out="repro", seeds=command.SEEDS)
        if command.SPREAD:
            _add_workers(paper)
    return parser


def _add_workers(parser: Parser) -> None:
    parser.add_argument(
        "--executor",
        choices=KINDS,
        default="threads",
        help="where experiments run: threads of this process (default), processes that "
        "each read the data and compile, or tasks of Ray",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="how many run at once (default: as many as processors, here or of Ray)",
    )


def _run(args: argparse.Namespace) -> None:
    command = PAPERS[args.paper]
    spread: dict[str, Any] = {}
    if command.SPREAD:
        spread = {"workers": Workers(args.executor, args.workers)}

    def write(
        folder: Path, seeds: Sequence[int], progress: bool
    ) -> tuple[Path, Path, str]:
        report, summary = command.make(
            folder / "runs", seeds=seeds, full=args.full, progress=progress, **spread
        )
        return *report.save(folder), summary

    write_report(args, write, config={"paper": args.paper, "full": args.full})


if __name__ == "__main__":
    sys.exit(main())
