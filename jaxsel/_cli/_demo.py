"""`jaxsel demo`: the whole story on real data, in a report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ._output import Record, check_outputs, say, show_progress, staged
from ._parser import Commands, Parser, add_force

_DESCRIPTION = """\
Five owners offer handwritten digits: one pool is clean, one has wrong labels, one
corrupted pixels, one the wrong classes, one is small but good. A trainer who fails on
some classes values what is on offer, ranks the owners, buys the best samples within a
budget, and trains again. In a second market it sees nothing of what is on offer, shows
each owner samples that it gets wrong, and ranks the owners by what they send.

Prints a summary, and writes report.html, to be opened in a browser; report.json, the
same numbers; and manifest.json, which records how they came about. Takes about a
minute on two cores with 10 seeds, and downloads nothing."""

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
    parser.add_argument(
        "--out", metavar="FOLDER", default="demo", help="where to write (default: demo)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=10,
        metavar="N",
        help="how often to repeat every experiment; the report shows mean and spread "
        "(default: 10)",
    )
    add_force(parser)


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    if args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / name for name in ("report.html", "report.json", "manifest.json")]
    check_outputs(files, inputs=(), force=args.force)
    from jaxsel.tasks import run_demo

    seeds = range(args.seeds)
    page, numbers, summary = run_demo(folder, seeds=seeds, progress=show_progress())
    record = Record(
        command=args.command_line, config={}, started=started, seeds=list(seeds)
    )
    with staged(files[-1:]) as [part]:
        part.write_text(record.manifest({page: page, numbers: numbers}))
    say(summary, "", f"Open {page} in a browser; the numbers are in {numbers}")
