"""Arguments and formatting shared by the parsers of all commands."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

Commands = argparse._SubParsersAction


class Parser(argparse.ArgumentParser):
    """Shows help as it was written, takes no abbreviations, and errs on one line."""

    def __init__(self, **options: Any) -> None:
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, **options)
        self.add_argument(
            "--no-cache",
            action="store_true",
            default=argparse.SUPPRESS,  # a command's must not undo what precedes it
            help="keep no compiled programs, and use none that were kept",
        )

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: error: {message} (see {self.prog} --help)\n")
        sys.exit(2)


def add_reading_options(parser: Parser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("what to read")
    group.add_argument(
        "--label-column",
        metavar="COLUMN",
        help="CSV, parquet: the column of labels; all others are features",
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


def add_force(parser: Parser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="replace files that exist already"
    )
