"""A report: one HTML file to read, one JSON file with the same numbers."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._files.staged import staged
from jaxsel._inputs.show import brief

from ._chapter import Chapter, Figure, Table
from ._origin import Origin, origin
from ._page import render


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Chapters under one title.

    Attributes:
        title: The heading of the page.
        summary: Summary for a reader in a hurry, one or two sentences.
        chapters: From any room; see `Chapter`.
        story: Paragraphs and figures that the page opens with. If there are any,
            chapters are folded below them: a reader opens one by its title.
    """

    title: str
    summary: str
    chapters: Sequence[Chapter]
    story: Sequence[str | Figure] = ()

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write `report.html` and `report.json`, and return their paths.

        The page stands alone: styles and figures are inside it, and it runs no scripts
        and loads nothing. Both files are complete before either replaces an older one.
        They carry the date in UTC, of `SOURCE_DATE_EPOCH` if that is set, and the git
        commit if jaxsel runs from a checkout.

        Args:
            folder: Made if it does not exist.

        Raises:
            ImportError: If Jinja is not installed.
            TypeError: If a chapter's data does not fit into JSON.
            ValueError: If `SOURCE_DATE_EPOCH` is not a count of seconds.
        """
        stamp = origin()
        contents = {
            "report.html": render(
                self.title, self.summary, self.chapters, stamp, self.story
            ),
            "report.json": json.dumps(
                _plain_report(self, stamp), indent=1, allow_nan=False
            ),
        }
        folder = Path(folder)
        page, numbers = (folder / name for name in contents)
        with staged([page, numbers], folder=folder) as parts:
            for part, text in zip(parts, contents.values(), strict=True):
                part.write_text(text, encoding="utf-8")
        return page, numbers


def _plain_report(report: Report, stamp: Origin) -> dict[str, Any]:
    chapters = []
    for chapter in report.chapters:
        tables = [
            {
                "caption": block.caption,
                "columns": list(block.columns),
                "rows": _plain(block.rows, f"{chapter.title}: rows"),
            }
            for block in chapter.blocks
            if isinstance(block, Table)
        ]
        figures = [
            {"caption": block.caption, "alt": block.alt}
            for block in chapter.blocks
            if isinstance(block, Figure)
        ]
        chapters.append(
            {
                "title": chapter.title,
                "tables": tables,
                "figures": figures,
                "data": _plain(chapter.data, f"{chapter.title}: data"),
            }
        )
    return {
        "title": report.title,
        "summary": report.summary,
        "story": [b if isinstance(b, str) else b.alt for b in report.story],
        **dataclasses.asdict(stamp),
        "chapters": chapters,
    }


def _plain(value: Any, where: str) -> Any:
    """Turn arrays into lists and numbers that are not finite into None."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, Sequence):
        return [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "biufU":
            return _plain(array.tolist(), where)
    raise TypeError(f"{where} cannot be written as JSON: {type(value).__name__}")
