"""The command line: `jaxsel --help`.

The experiments of the repository have a command of their own, of the same parts.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from ._cli import (
    _attribute,
    _data,
    _demo,
    _duplicates,
    _errors,
    _filter,
    _info,
    _market,
    _mixture,
    _models,
    _proxy,
    _select,
    _value,
)
from ._cli._messages import explain_error
from ._cli._parser import Parser as Parser
from ._cli._programs import keep_no_programs, keep_programs
from ._cli._reported import (
    add_report_options as add_report_options,
    write_report as write_report,
)
from ._version import __version__

_DESCRIPTION = """\
Find, value and buy training data. `jaxsel COMMAND --help` explains each command.

Results are .npz files without pickle, each with a .json manifest beside it that records
command, options, versions and sha256 sums. Files that exist are replaced with --force
only."""

_EXAMPLES = """\
start here:
  jaxsel demo                                                 the whole story, a report
  jaxsel errors customers.csv --label segment                 which labels are wrong?
  jaxsel value digits:train digits:test --out values.npz      what is each sample worth?
  jaxsel select values.npz --budget 200 --out selection.npz   the best 200"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Args:
        argv: Arguments after `jaxsel`; this process's if None.

    Returns:
        0 if it succeeded, 2 after an error of the user's making, which is reported on
        one line of standard error, 130 if it was interrupted.

    Raises:
        SystemExit: For `--help`, `--version` (0), and arguments that don't parse (2).
    """
    return run_command(_parser(), sys.argv[1:] if argv is None else list(argv))


def run_command(parser: Parser, argv: Sequence[str]) -> int:
    """Parse arguments, run the chosen command, and return its exit status.

    Args:
        parser: Sets `run`, a function of the parsed arguments, or `show_help`; has the
            option `--debug`.
        argv: Arguments after the program's name.

    Returns:
        As `main`.

    Raises:
        SystemExit: As `main`.
    """
    if sys.stdout is None:  # closed, as by `jaxsel info >&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    args = parser.parse_args(argv)
    if not hasattr(args, "run"):
        args.show_help()
        return 0
    args.command_line = f"{parser.prog} {shlex.join(argv)}"
    try:
        if getattr(args, "no_cache", False):
            keep_no_programs()
        elif (problem := keep_programs()) is not None:
            sys.stderr.write(
                f"{parser.prog}: warning: compiled programs are not kept: {problem}\n"
            )
        return args.run(args) or 0
    except KeyboardInterrupt:
        sys.stderr.write(f"{parser.prog}: interrupted\n")
        return 130
    except BrokenPipeError:  # as in `jaxsel data list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ImportError, OverflowError) as error:
        if args.debug:
            raise
        sys.stderr.write(f"{parser.prog}: error: {explain_error(error, args)}\n")
        return 2


def add_debug(parser: Parser) -> None:
    """Add the option that shows where in the code an error occurred."""
    parser.add_argument(
        "--debug", action="store_true", help="show where in the code an error occurred"
    )


def _parser() -> Parser:
    parser = Parser(prog="jaxsel", description=_DESCRIPTION, epilog=_EXAMPLES)
    parser.set_defaults(show_help=parser.print_help)
    parser.add_argument("--version", action="version", version=f"jaxsel {__version__}")
    add_debug(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    rooms = (
        _errors,
        _value,
        _attribute,
        _select,
        _duplicates,
        _filter,
        _market,
        _mixture,
        _proxy,
        _data,
        _models,
        _demo,
        _info,
    )
    for command in rooms:
        command.add(commands)
    return parser
