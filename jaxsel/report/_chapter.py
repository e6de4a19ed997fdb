"""Building blocks of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from jaxsel._inputs.show import brief

if TYPE_CHECKING:
    import matplotlib.figure

Cell = Any
"""Text, a number, None, or a pair (mean, spread) shown as mean ± spread if known."""


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading within a chapter, listed in the contents."""

    text: str


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure with its description and caption.

    Attributes:
        plot: The matplotlib figure, best made with `new_figure`. Figures that follow
            one another stand side by side where there is room.
        alt: Description for a reader who cannot see it.
        caption: The text below it.
        format: "svg" is sharp, and its text and axes follow the reader's theme; "png"
            is smaller where there are more than a few thousand marks.
    """

    plot: matplotlib.figure.Figure
    alt: str
    caption: str
    format: Literal["svg", "png"] = "svg"

    def __post_init__(self):
        for name in ("alt", "caption"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} must say what the figure shows, got nothing")
        if self.format not in ("svg", "png"):
            raise ValueError(f"format must be 'svg' or 'png', got {self.format!r}")


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table; its first column names the rows.

    Attributes:
        columns: Heading of each column.
        rows: Cells of each row: text, a number, None, or a pair (mean, spread).
        caption: The text above it.
        formats: Format of the numbers of each column, such as ".3f" or ".1%"; "" is
            for text. The JSON file has them in full.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str
    formats: Sequence[str] = ()

    def __post_init__(self):
        if self.formats and len(self.formats) != len(self.columns):
            raise ValueError(
                f"formats must have one entry for each of {len(self.columns)} columns, "
                f"got {len(self.formats)}"
            )
        for i, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows must have {len(self.columns)} cells each, row {i} has "
                    f"{len(row)}"
                )


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Chapter:
    """A part of a report.

    Attributes:
        title: Its heading.
        blocks: The visible parts, in order. A string is a paragraph of plain text,
            in which `backticks` mark code.
        data: The numbers behind the figures: nested mappings and sequences of text,
            numbers and arrays, for the JSON file.
    """

    title: str
    blocks: Sequence[str | Heading | Figure | Table]
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
