"""Report chapter: groups of near-duplicates, with their rows or pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxsel._inputs.checks import check_count
from jaxsel.report import (
    COLORS,
    Chapter,
    Figure,
    Table,
    new_figure,
    plot_images,
    style,
)

from ._groups import Groups

_IN_GROUP = 6  # rows of a group that are shown
_TEXT = 200  # characters of a text that are shown


class Shown(NamedTuple):
    """Columns and pictures of a table, beside rows of a report.

    Attributes:
        columns: By their names, `[n]` each: ids, texts, columns of the table.
        images: `[n, height, width]`, or None.
    """

    columns: Mapping[str, np.ndarray]
    images: np.ndarray | None = None


def chapter(result: Groups, shown: Sequence[Shown | None], *, budget: int) -> Chapter:
    """Return the chapter; see `NearDuplicates.chapter`.

    Raises:
        ValueError: If a column or the pictures have another length than their table.
    """
    budget = check_count("budget", budget)
    groups = [result.group, result.group_val]
    for number, (part, group) in enumerate(zip(shown, groups, strict=False)):
        _check_lengths(part, group, ("x", "x_val")[number])
    largest = _largest(groups, budget)
    blocks: list[Any] = [_summary(result)]
    if len(result):
        blocks.append(_plot(result, groups))
        if (pictures := _pictures(groups, shown, largest)) is not None:
            blocks.append(pictures)
        blocks.append(_table(result, shown, largest))
    return Chapter(
        title=_title(result),
        blocks=blocks,
        data={
            "metric": result.metric,
            "threshold": result.threshold,
            "n_pairs": result.n_pairs,
            "group": result.group,
            "partner": result.partner,
            "keep": result.keep,
            **({} if result.group_val is None else {"leaked": result.leaked}),
        },
    )


def _check_lengths(part: Shown | None, group: np.ndarray | None, table: str) -> None:
    if part is None or group is None:
        return
    images = {} if part.images is None else {"images": part.images}
    for name, column in {**part.columns, **images}.items():
        if len(column) != len(group):
            raise ValueError(
                f"{name} must have one entry for each of the {len(group)} rows of "
                f"{table}, got {len(column)}"
            )


def _largest(groups: list[np.ndarray | None], budget: int) -> list[int]:
    """Return the groups of most rows, at most `budget`; ties by number."""
    rows = np.concatenate([g for g in groups if g is not None])
    sizes = np.bincount(rows[rows >= 0])
    return np.argsort(-sizes, kind="stable")[:budget].tolist()


def _title(result: Groups) -> str:
    if result.group_val is not None:
        leaks, m = len(result.leaked), len(result.group_val)
        return f"{leaks} of {m} rows of the second table leak"
    dropped = len(result.group) - len(result.keep)
    return f"{dropped} of {len(result.group)} rows are near-duplicates of others"


def _summary(result: Groups) -> str:
    rule = (
        f"cosine of at least {result.threshold:g}"
        if result.metric == "cosine"
        else f"distance of at most {result.threshold:g}"
    )
    text = (
        f"{result.n_pairs} pairs of rows have a {rule}, and connect "
        f"{int((result.group >= 0).sum())} rows to {len(result)} groups. "
    )
    if result.group_val is None:
        return f"{text}{len(result.keep)} rows remain if one of each group is kept."
    return (
        f"{text}Each pair is a row of the first table and one of the second, where "
        f"{len(result.leaked)} rows are concerned. {len(result.keep)} rows of the "
        "first table have no near-duplicate there."
    )


def _plot(result: Groups, groups: list[np.ndarray | None]) -> Figure:
    rows = np.concatenate([g for g in groups if g is not None])
    sizes = np.bincount(rows[rows >= 0])
    kinds, counts = np.unique(sizes, return_counts=True)
    known = result.closeness[result.partner >= 0]
    figure = new_figure(8.8, 2.8)
    with style():
        groups_ax, pairs_ax = figure.subplots(1, 2)
        groups_ax.bar(range(len(kinds)), counts, color=COLORS[0])
        step = -(-len(kinds) // 10)
        groups_ax.set_xticks(
            range(0, len(kinds), step), [str(k) for k in kinds[::step]]
        )
        groups_ax.set_xlabel("rows in a group")
        groups_ax.set_ylabel("groups")
        pairs_ax.hist(known, bins=30, color=COLORS[1])
        pairs_ax.set_xlabel(
            "cosine with partner"
            if result.metric == "cosine"
            else "distance to partner"
        )
        pairs_ax.set_ylabel("rows")
    return Figure(
        plot=figure,
        alt=f"Groups have {kinds[0]} to {kinds[-1]} rows, most often "
        f"{kinds[counts.argmax()]}; rows and their partners have values from "
        f"{known.min():.3g} to {known.max():.3g}.",
        caption="How many groups there are of each size, and how near rows are to "
        "their partners, the first rows that they nearly duplicate.",
    )


def _members(groups: list[np.ndarray | None], number: int) -> list[tuple[int, int]]:
    """Return the tables and rows of a group, at most a few."""
    both = [
        (table, int(row))
        for table, group in enumerate(groups)
        if group is not None
        for row in np.flatnonzero(group == number)[:_IN_GROUP]
    ]
    # Of two tables some of each.
    firsts = [pair for pair in both if pair[0] == 0]
    others = [pair for pair in both if pair[0] == 1][: _IN_GROUP // 2]
    return [*firsts[: _IN_GROUP - len(others)], *others]


def _pictures(
    groups: list[np.ndarray | None], shown: Sequence[Shown | None], numbers: list[int]
) -> Figure | None:
    """Draw a row of pictures for each group, blank where it has fewer."""
    images = [None if part is None else part.images for part in shown]
    if images[0] is None or images[0].ndim != 3:
        return None
    if groups[1] is not None and (len(images) < 2 or images[1] is None):
        return None
    cells: list[np.ndarray] = []
    captions: list[str] = []
    for number in numbers:
        members = _members(groups, number)
        pictures = [np.asarray(images[table])[row] for table, row in members]
        blank = np.full_like(pictures[0], pictures[0].min())
        spare = _IN_GROUP - len(pictures)
        cells += [*pictures, *[blank] * spare]
        names = [f"{('', 'test ')[table]}{row}" for table, row in members]
        captions += [*names, *[""] * spare]
    return Figure(
        plot=plot_images(
            np.stack(cells),
            columns=_IN_GROUP,
            captions=captions,
            rows=[f"group {number}" for number in numbers],
            size=0.9,
        ),
        alt=f"Pictures of {len(numbers)} groups, a row each, with their row numbers.",
        caption=f"The groups of most rows, at most {_IN_GROUP} pictures of each.",
        format="png",
    )


def _table(result: Groups, shown: Sequence[Shown | None], numbers: list[int]) -> Table:
    groups = [result.group, result.group_val]
    partners = [result.partner, result.partner_val]
    closeness = [result.closeness, result.closeness_val]
    columns = [{} if part is None else dict(part.columns) for part in shown]
    names = list(dict.fromkeys(name for part in columns for name in part))
    rows: list[list[Any]] = []
    for number in numbers:
        for table, row in _members(groups, number):
            partner, near = partners[table], closeness[table]
            assert partner is not None
            assert near is not None
            part = columns[table] if table < len(columns) else {}
            rows.append(
                [
                    str(number),
                    *([] if groups[1] is None else [("first", "second")[table]]),
                    str(row),
                    str(int(partner[row])),
                    float(near[row]),
                    *(_cell(part[name][row]) if name in part else "" for name in names),
                ]
            )
    more = len(result) - len(numbers)
    rest = f" {more} more groups are not shown." if more else ""
    tables = [] if groups[1] is None else ["table"]
    return Table(
        columns=["group", *tables, "row", "partner", result.metric, *names],
        rows=rows,
        caption=f"The groups of most rows, at most {_IN_GROUP} rows of each.{rest}",
        formats=["", *[""] * len(tables), "", "", ".4g", *[""] * len(names)],
    )


def _cell(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
