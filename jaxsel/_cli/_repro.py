"""`jaxsel repro`: experiments of papers in miniature, in a report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ._output import Record, check_outputs, say, show_progress, staged
from ._parser import Commands, Parser, add_force

_DESCRIPTION = """\
The experiments of a paper in miniature, on real data. mycroft: starved classes, a
planted spurious correlation, noise and missing labels, ranking of owners, and the same
on a table; with the paper's figures beside ours.

Needs mnist, fashion_mnist and adult (`jaxsel data prepare`). Takes a quarter of an hour
on two cores, or with --full about an hour. What each experiment finds for each seed is
kept in a folder beside the report, and read where it is there already: run a killed run
again, and it goes on."""

_EXAMPLES = """\
examples:
  jaxsel repro mycroft
  jaxsel repro mycroft --full --out repro --force"""


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "repro",
        help="run a paper's experiments in miniature",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("paper", metavar="PAPER", choices=("mycroft",), help="mycroft")
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        default="repro",
        help="where to write (default: repro)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        metavar="N",
        help="how often to repeat every experiment (default: 5)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="whole images, and all selectors on the table",
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
    from jaxsel.report import Report
    from jaxsel.tasks import mycroft_chapters, run_mycroft

    seeds = range(args.seeds)
    result = run_mycroft(
        folder / "runs", seeds=seeds, full=args.full, progress=show_progress()
    )
    report = Report(
        title="Mycroft in miniature",
        summary="Which samples of an owner's are worth having, and which owners? The "
        "experiments of the Mycroft paper, small and on other data, with the paper's "
        "figures beside what was measured on this machine.",
        chapters=mycroft_chapters(result),
    )
    page, numbers = report.write(folder)
    record = Record(
        command=args.command_line,
        config={"full": args.full},
        started=started,
        seeds=list(seeds),
    )
    with staged(files[-1:]) as [part]:
        part.write_text(record.manifest({page: page, numbers: numbers}))
    say(f"Open {page} in a browser; the numbers are in {numbers}")
