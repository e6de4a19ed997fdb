"""Options, output files and manifest shared by commands that write a report."""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxsel._files.staged import staged

from ._output import Record, check_outputs, say, show_progress
from ._parser import Parser, add_force

Write = Callable[[Path, Sequence[int], bool], tuple[Path, Path, str]]
"""From a folder, seeds, and whether to show progress, to the page and the numbers that
were written, and a summary to print."""


def add_report_options(parser: Parser, *, out: str, seeds: int) -> None:
    """Add --out, --seeds and --force, with these defaults."""
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        default=out,
        help=f"where to write (default: {out})",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=seeds,
        metavar="N",
        help="how often to repeat every experiment; the report shows mean and spread "
        f"(default: {seeds})",
    )
    add_force(parser)


def check_report_packages() -> None:
    """Raise before the work if a package that a report needs is missing.

    Raises:
        ImportError: If one is.
    """
    for name in ("matplotlib", "jinja2"):
        importlib.import_module(name)


def write_report(
    args: argparse.Namespace, write: Write, *, config: Mapping[str, Any]
) -> None:
    """Write a report and its manifest, and print the report's paths."""
    started = time.perf_counter()
    if args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    check_report_packages()
    folder = Path(args.out)
    files = [folder / name for name in ("report.html", "report.json", "manifest.json")]
    if folder.is_dir():
        check_outputs(files, inputs=(), force=args.force)
    elif folder.exists():
        raise FileExistsError(f"{folder} is a file: --out names a folder")
    seeds = range(args.seeds)
    page, numbers, summary = write(folder, seeds, show_progress())
    record = Record(
        command=args.command_line,
        config=dict(config),
        started=started,
        seeds=list(seeds),
    )
    with staged(files[-1:]) as [part]:
        part.write_text(record.manifest({page: page, numbers: numbers}))
    lines = [summary, ""] if summary else []
    say(*lines, f"Open {page} in a browser; the numbers are in {numbers}")
