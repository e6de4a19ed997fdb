"""The record of `python -m benchmarks.errors`, and the tables made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

OURS = "jaxsel adjusted_semivalue"
PERMUTATIONS = "jaxsel permutations"
TESTING = "jaxsel group testing"
MSR = "shapiq RegressionMSR"


class Score(NamedTuple):
    """Error and time of an estimator on a game at one number of trainings.

    Attributes:
        error: Mean squared error over players and seeds, in variances of the utility.
        stderr: Its standard error over seeds.
        seconds: Median CPU time of a run, utilities not counted, as they are looked up.
        seeds: Number of runs.
    """

    error: float
    stderr: float
    seconds: float
    seeds: int


Row = Mapping[str, Score]


@dataclass
class Record:
    """All scores, by game and trainings a player.

    Attributes:
        seeds: Runs of an estimator.
        searched: Runs of a setting that searches a grid.
        shapiq: Version of shapiq, or None where it was not measured.
        rows: Scores by name of the estimator.
    """

    seeds: int
    searched: int
    shapiq: str | None = None
    rows: dict[tuple[str, int], Row] = field(default_factory=dict)

    def add(self, game: str, trainings: int, runs: Mapping[str, Any]) -> None:
        """Add the runs of a game, `squares` and `seconds` of each estimator."""
        self.rows[game, trainings] = {
            name: _score(run["squares"], run["seconds"]) for name, run in runs.items()
        }

    def save(self, path: Path) -> None:
        """Write the record as JSON, a line for each estimator of a row."""
        rows = [
            {"game": game, "trainings": trainings, "scores": row}
            for (game, trainings), row in self.rows.items()
        ]
        head = {"seeds": self.seeds, "searched": self.searched, "shapiq": self.shapiq}
        path.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read a file that `save` wrote."""
        kept = json.loads(path.read_text())
        rows: dict[tuple[str, int], Row] = {
            (row["game"], row["trainings"]): {
                name: Score(*score) for name, score in row["scores"].items()
            }
            for row in kept.pop("rows")
        }
        return cls(**kept, rows=rows)


def _score(squares: list[float], seconds: float) -> Score:
    spread = np.std(squares, ddof=1) if len(squares) > 1 else np.nan
    error, stderr = np.mean(squares), spread / np.sqrt(len(squares))
    short = [float(f"{number:.4g}") for number in (error, stderr, seconds)]
    return Score(short[0], short[1], short[2], len(squares))


def peers(row: Row) -> Row:
    """Return the scores of a row that are not ours."""
    return {name: row[name] for name in row if not name.startswith("jaxsel")}


def best(row: Row) -> tuple[str, Score] | None:
    """Return the peer with the smallest error, chosen by the exact values."""
    others = peers(row)
    return min(others.items(), key=lambda item: item[1].error) if others else None


def as_text(record: Record) -> str:
    """Return ERRORS.md."""
    peer = f"shapiq {record.shapiq}" if record.shapiq else "shapiq"
    searched = f"{record.searched} for settings that search a grid"
    if not record.searched:
        searched = "settings that search a grid left out"
    lines = [
        "# Errors at equal trainings",
        "",
        f"Made by `python -m benchmarks.errors --shapiq PYTHON --write` ({record.seeds}"
        f" seeds; {searched}; ShaplEIG, which needs PyTorch, was not run). The mean "
        "squared error of Shapley values, as a share of the variance of the utility, "
        "and that of others in multiples of that of `adjusted_semivalue`. Of "
        f"{peer} "
        "the best of all estimators and settings below is taken, row by row, by its "
        "true error: nobody can choose like that without the exact values. Below 1 it "
        "is ahead of ours; ~ marks gaps of less than two standard errors.",
        "",
        "| game | trainings a player | adjusted | permutations | times | group testing "
        "| times | best of shapiq | times |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (game, trainings), row in record.rows.items():
        ours = row[OURS]
        cells = [game, str(trainings), f"{ours.error:.2e}"]
        for name in (PERMUTATIONS, TESTING):
            cells += [f"{row[name].error:.2e}", times(row[name], ours)]
        first = best(row)
        if first is None:
            cells += ["–", "–"]
        else:
            name = first[0].removeprefix("shapiq ")
            cells += [f"{name}: {first[1].error:.2e}", times(first[1], ours)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *_by_estimator(record)]) + "\n"


def as_guide(record: Record) -> str:
    """Return the table of docs/retraining.md: ratios by game, one for each size."""
    sizes = sorted({size for _, size in record.rows})
    lines = [
        "| game | permutations | group testing | RegressionMSR | the best of shapiq |",
        "|---|---|---|---|---|",
    ]
    for game in dict.fromkeys(game for game, _ in record.rows):
        if any((game, size) not in record.rows for size in sizes):
            continue  # a row with a gap could not be read
        rows = [record.rows[game, size] for size in sizes]
        cells = [game]
        for name in (PERMUTATIONS, TESTING, MSR):
            cells.append(", ".join(times(row[name], row[OURS]) for row in rows))
        firsts = [best(row) for row in rows]
        cells.append(
            ", ".join(
                times(first[1], row[OURS])
                for first, row in zip(firsts, rows, strict=True)
                if first is not None
            )
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def times(other: Score, ours: Score) -> str:
    """Return the ratio of two errors, with ~ if it may be chance."""
    ratio = other.error / ours.error
    text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
    return text if _apart(other, ours) else f"~{text}"


def _apart(score: Score, other: Score) -> bool:
    return abs(score.error - other.error) > 2 * np.hypot(score.stderr, other.stderr)


def _by_estimator(record: Record) -> list[str]:
    """Return the table of estimators: rows in which each is ahead, means, CPU time."""
    sizes = sorted({size for _, size in record.rows})
    heads = [f"error at {size}" for size in sizes] + [f"CPU ms at {s}" for s in sizes]
    lines = [
        "",
        "## By estimator",
        "",
        "Rows in which an estimator is ahead of `adjusted_semivalue`, and by more than "
        "two standard errors; its error in multiples of that of `adjusted_semivalue`, "
        "as the geometric mean over games; and the CPU time that an estimate takes "
        "besides the utilities, on one thread, as the median over games.",
        "",
        f"| estimator | ahead | clearly | {' | '.join(heads)} |",
        "|---" * (3 + len(heads)) + "|",
    ]
    names = dict.fromkeys(name for row in record.rows.values() for name in row)
    for name in names:
        rows = [row for row in record.rows.values() if name in row]
        ahead = [row for row in rows if row[name].error < row[OURS].error]
        clear = [row for row in ahead if _apart(row[name], row[OURS])]
        cells = [name, f"{len(ahead)} of {len(rows)}", str(len(clear))]
        cells += [_mean_ratio(record, name, size) for size in sizes]
        cells += [_milliseconds(record, name, size) for size in sizes]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rows(record: Record, name: str, size: int) -> Iterable[Row]:
    return [row for (_, s), row in record.rows.items() if s == size and name in row]


def _mean_ratio(record: Record, name: str, size: int) -> str:
    rows = _rows(record, name, size)
    logs = [np.log(row[name].error / row[OURS].error) for row in rows]
    return f"{np.exp(np.mean(logs)):.3g}" if logs else "–"


def _milliseconds(record: Record, name: str, size: int) -> str:
    seconds = [row[name].seconds for row in _rows(record, name, size)]
    return f"{1e3 * np.median(seconds):.3g}" if seconds else "–"
