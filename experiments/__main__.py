"""`python -m experiments`: experiments of papers in miniature, in a report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments._kit.words import listed
from jaxsel.cli import (
    Parser,
    add_debug,
    add_report_options,
    run_command,
    write_report,
)

from ._kit.seeds import KINDS, Workers, lines_of_progress
from .filter import command as filtering
from .mycroft import command as mycroft
from .secure import command as secure
from .selectformer import command as selectformer
from .selectformer.curve import command as selectformer_curve
from .tour import command as tour
from .values import command as values

PAPERS = {
    "mycroft": mycroft,
    "selectformer": selectformer,
    "selectformer-curve": selectformer_curve,
    "secure": secure,
    "values": values,
    "filter": filtering,
    "tour": tour,
}

_DESCRIPTION = """\
The experiments of papers in miniature, on real data.

What each experiment finds for each seed is kept in a folder beside the report, and read
where it is there already: run a killed run again, and it goes on. What another source
found, or other versions of packages, is found anew."""

_EXAMPLES = """\
examples:
  python -m experiments mycroft
  python -m experiments mycroft --full --force
  python -m experiments mycroft --executor processes --workers 4
  python -m experiments mycroft --data food101 --target vit --paper
  python -m experiments selectformer
  python -m experiments selectformer --data glue/sst2 --target distilbert --paper
  python -m experiments selectformer-curve
  python -m experiments secure
  python -m experiments values
  python -m experiments values --data cifar10 --target vit
  python -m experiments filter --out repro-filter-2
  python -m experiments filter --data cifar10 --others cifar100 --paper
  python -m experiments tour"""


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
        for flag, text in _flags(command).items():
            paper.add_argument(f"--{flag}", action="store_true", help=text)
        add_report_options(paper, out=f"repro-{name}", seeds=command.SEEDS)
        paper.set_defaults(out=None, seeds=None)
        if command.SPREAD:
            _add_workers(paper)
        if hasattr(command, "CELL"):
            _add_cell(paper, command)
    return parser


def _flags(command: Any) -> dict[str, str]:
    """Return the flags that a command passes to its experiment, with their help."""
    return {"full": command.FULL, **getattr(command, "FLAGS", {})}


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


def _add_cell(parser: Parser, command: Any) -> None:
    group = parser.add_argument_group("the paper's own cells", command.CELL)
    group.add_argument("--data", metavar="NAME", help="a prepared set of TFDS")
    for name, about in command.CELL_OPTIONS.items():
        metavar, many = ("NAME", "+") if name == "others" else ("FOLDER", None)
        group.add_argument(f"--{name}", metavar=metavar, nargs=many, help=about)
    for name, why in command.CELL_LACKS.items():
        group.add_argument(
            f"--{name}", action=_Lacking, help=argparse.SUPPRESS, const=why
        )
    group.add_argument(
        "--paper",
        action="store_true",
        dest="grid",
        help=command.CELL_PAPER,
    )


class _Lacking(argparse.Action):
    """Refuse an option that only other papers have, with a replacement."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"there is no option {option_string}: {self.const}")


def _run(args: argparse.Namespace) -> None:
    command = PAPERS[args.paper]
    options: dict[str, Any] = {flag: getattr(args, flag) for flag in _flags(command)}
    config: dict[str, Any] = {"paper": args.paper, **options}
    make, lasts, suffix = command.make, command.LASTS, ""
    what = command.HELP
    if args.full:
        lasts = command.LASTS_FULL
    if command.SPREAD:
        options["workers"] = Workers(args.executor, args.workers)
    cell = _cell(args, command)
    if cell:
        options = {**cell, "paper": args.grid}
        config = {"paper": args.paper, **cell, "grid": args.grid}
        make, lasts = command.make_cell, command.LASTS_CELL
        what, suffix = _named(**cell)
    if args.out is None:
        args.out = f"repro-{args.paper}{suffix}"
    if args.seeds is None:
        args.seeds = command.SEEDS_CELL if suffix else command.SEEDS

    def write(
        folder: Path, seeds: Sequence[int], progress: bool
    ) -> tuple[Path, Path, str]:
        runs = folder / "runs"
        sys.stdout.write(
            f"{args.paper}: {what}\n{_counted(seeds)}: {lasts}\n"
            f"Results of single runs are kept in {runs}, and read where they are "
            f"there; the report will be {folder / 'report.html'}\n"
        )
        sys.stdout.flush()
        with lines_of_progress(shown=not progress):
            report, summary = make(runs, seeds=seeds, progress=progress, **options)
        return *report.save(folder), summary

    write_report(args, write, config=config)


def _cell(args: argparse.Namespace, command: Any) -> dict[str, Any]:
    """Return the options of a cell of the paper; empty if no cell is asked for.

    Raises:
        ValueError: If an option is missing, or does not go with a cell.
    """
    if not hasattr(command, "CELL"):
        return {}
    cell = {name: getattr(args, name) for name in ("data", *command.CELL_OPTIONS)}
    if not args.grid and all(value is None for value in cell.values()):
        return {}
    needed = ("data", *command.CELL_NEEDS)
    missing = [f"--{name}" for name in needed if cell[name] is None]
    if missing:
        raise ValueError(
            f"a cell needs {listed([f'--{name}' for name in needed])}: {missing[0]} is "
            "missing"
        )
    for option, value in (
        ("--full", args.full),
        ("--executor", args.executor != "threads"),
        ("--workers", args.workers is not None),
    ):
        if value:
            raise ValueError(
                f"{option} does not go with --data: a cell has sizes of its own, and "
                "its seeds run one after the other"
            )
    return cell


def _named(
    data: str, target: str | None = None, others: Sequence[str] | None = None
) -> tuple[str, str]:
    """Return a description of a cell, and the suffix of its folder."""
    words, parts = data, [data]
    if target is not None:
        words += f", with the target in {target}"
        parts.append(Path(target).resolve().name)
    if others is not None:
        words += f", with others of {listed([*others])}"
        parts += others
    return words, "".join(f"-{part}" for part in parts).replace("/", "-")


def _counted(seeds: Sequence[int]) -> str:
    return f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"


if __name__ == "__main__":
    sys.exit(main())
