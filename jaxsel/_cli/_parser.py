"""Arguments and formatting shared by the parsers of all commands."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

Commands = argparse._SubParsersAction


_LARGEST = 2**63 - 1  # that NumPy counts to


class Parser(argparse.ArgumentParser):
    """Argument parser: no abbreviations, help unwrapped, errors on one line."""

    def __init__(self, **options: Any) -> None:
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, **options)
        self.add_argument(
            "--no-cache",
            action="store_true",
            default=argparse.SUPPRESS,  # a subcommand's default must not override it
            help="keep no compiled programs, and use none that were kept",
        )

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Parse as argparse does; refuse unknown arguments, naming this command."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [
                name for action in self._actions for name in action.option_strings
            ]
            guess = did_you_mean(unknown[0].partition("=")[0], options)
            if unknown[0].startswith("-"):
                self.error(f"there is no option {unknown[0]}{guess}")
            self.error(f"{unknown[0]!r} is one argument too many{guess}")
        if not hasattr(parsed, "parser"):  # a subcommand's comes first
            parsed.parser = self
        return parsed, unknown

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Convert as argparse does; errors name the type of number; refuse NaN."""
        if action.type not in (int, float):
            return super()._get_value(action, arg_string)
        kind = "a whole number" if action.type is int else "a number"
        try:
            number = action.type(arg_string)
        except ValueError:
            number = None
        if number is None or number != number:
            raise argparse.ArgumentError(action, f"must be {kind}, got {arg_string!r}")
        if action.type is int and abs(number) > _LARGEST:
            raise argparse.ArgumentError(
                action, f"must be at most {_LARGEST}, got {arg_string}"
            )
        return number

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        raise argparse.ArgumentError(
            action,
            f"must be one of {', '.join(choices)}, got {str(value)!r}"
            f"{did_you_mean(str(value), choices)}",
        )

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: error: {message} (see {self.prog} --help)\n")
        sys.exit(2)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ": did you mean ...?" for the known word that is closest, or nothing."""
    known = list(dict.fromkeys(known))
    lower = {name.lower(): name for name in reversed(known)}
    close: Sequence[str] = difflib.get_close_matches(word.lower(), lower, 1, 0.6)
    if not close:  # such as tmc for tmc_shapley
        close = [name for name in lower if len(word) > 2 and word.lower() in name][:1]
    return f": did you mean {lower[close[0]]}?" if close else ""


def add_reading_options(parser: Parser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("what to read")
    group.add_argument(
        "--label-column",
        "--label",
        metavar="COLUMN",
        help="tables: the column of labels; all others are features",
    )
    group.add_argument(
        "--x-key",
        metavar="NAME",
        default="x",
        help=".npz: the array of features (default: x)",
    )
    group.add_argument(
        "--y-key",
        metavar="NAME",
        default="y",
        help=".npz: the array of labels (default: y)",
    )
    group.add_argument(
        "--data-dir",
        metavar="FOLDER",
        help="NAME:SPLIT: where data sets were prepared (default: TFDS's own folder)",
    )
    return group


def add_column_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--id-column",
        metavar="COLUMN",
        help="tables: the column that names the samples: no feature, but in the output",
    )
    group.add_argument(
        "--drop",
        metavar="COLUMN",
        action="append",
        default=[],
        help="tables: a column that is no feature; may be repeated",
    )


def add_table_options(group: argparse._ArgumentGroup) -> None:
    add_column_options(group)
    group.add_argument(
        "--drop-unlabelled",
        action="store_true",
        help="tables: leave out rows without a label; others keep their row numbers",
    )
    add_encode(group)


def add_encode(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--encode",
        choices=("auto", "none"),
        default="auto",
        metavar="HOW",
        help="tables: auto, encode categories, dates and gaps where there are any, as "
        "jaxsel.tables does; none, take numbers as they are (default: auto)",
    )


def add_table_out(parser: Parser, rows: str, plot: str | None = None) -> None:
    """Add --out for a table of `rows`, --plot for a picture of `plot`, and --force."""
    parser.add_argument(
        "--out", metavar="OUT.csv", required=True, help=f"the table of {rows}"
    )
    if plot is not None:
        parser.add_argument(
            "--plot", metavar="FILE", help=f"draw the {plot}: .png, .svg or .pdf"
        )
    add_force(parser)


def add_force(parser: Parser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="replace files that exist already"
    )
