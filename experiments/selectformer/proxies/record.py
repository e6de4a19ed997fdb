"""The record of proxies' ranks and purchases, and the tables of docs/accuracy.md.

    python -m experiments.selectformer.proxies.record repro-selectformer/runs

adds the seeds of a run to the record and fills the page in. All pools with twenty seeds
take longer than one session has, so that the record collects them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.words import standard_error
from experiments.selectformer.scores.trial import BUDGETS
from experiments.selectformer.sources import NAMES, kind

from .points import candidates, points
from .tries import HELD_OUT, best_tries

Record = dict[str, Any]

RECORD = Path(__file__).with_name("record.json")
PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"
ORACLE = "the target itself: the paper's Oracle"
SHOWN = {
    "paper, 1 phase": "the paper's last phase alone",
    "paper, 2 phases": "the paper's two phases",
    "paper, 3 phases": "the paper's three phases",
    "Bolt": "Bolt's softmax in the paper's two phases",
    "MPCFormer": "MPCFormer's softmax, distilled on the bootstrap set",
    "MPCFormer, own": "MPCFormer's last phase, distilled on own samples too",
    "bootstrap probe": "linear probe, labels only",
    "1 layer": "1 layer, linear attention, distilled",
    "hidden probe": "64 hidden units, distilled on ranks",
    "probe": "linear probe, distilled on own samples",
    "probe, margin": "the same, ranked by its margin",
}
"""Points of the tables, by name, with a description for readers."""

_PLACE = re.compile(r"<!-- from record: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def read() -> Record:
    """Read the record of the checkout."""
    return json.loads(RECORD.read_text("utf-8"))


def add(record: Record, runs: Path) -> Record:
    """Add the results of a folder of runs; seeds of a pool that are known are replaced.

    Args:
        record: By pool; left as it is.
        runs: Folder of the files that `run_proxies` keeps.

    Returns:
        The new record. By pool: `n` samples; `judged`, rank correlation of each
        candidate's tries on the held-out deal; and by seed `ranks` of each point,
        `shares` of its choice that the target would make, first of a random choice, and
        `points` of accuracy beyond a random purchase, first of the target itself and
        last of all of the pool. None stands where the guard refused a proxy.

    Raises:
        ValueError: If a run's pool has another size, or its search chose other settings
            than the record has: their seeds must not be averaged.
    """
    pools = {name: {**pool} for name, pool in record.items()}
    for path in sorted(runs.glob("proxies-*.npz")):
        match = re.fullmatch(r"proxies-(\w+)-(\d+)", path.stem)
        if match is None:
            continue
        name, seed = match[1], match[2]
        with np.load(path) as run:
            usual = run["random"][0].mean()
            gains = [run["ideal"][0, 0], *run["bought"][0], run["pool"]]
            figures = {
                "ranks": _rounded(run["spearman"], 4),
                "shares": _rounded(np.delete(run["overlap"], 1), 4),
                "points": _rounded(100 * (np.array(gains) - usual), 3),
            }
            n = int(run["n"])
        with np.load(runs / f"settings-proxies-{name}-{HELD_OUT}.npz") as settings:
            names = candidates(kind(name))
            judged = dict(zip(names, map(_rounded, settings["judged"]), strict=True))
        pool = pools.setdefault(name, {"n": n, "judged": judged, "seeds": {}})
        if pool["n"] != n or _chosen(pool["judged"]) != _chosen(judged):
            raise ValueError(
                f"{path} has another size or other settings than the record's seeds of "
                f"{name}: remove these from {RECORD.name} first"
            )
        seeds = sorted(
            {**pool["seeds"], seed: figures}.items(), key=lambda i: int(i[0])
        )
        pools[name] = {"n": n, "judged": judged, "seeds": dict(seeds)}
    return {name: pools[name] for name in NAMES if name in pools}


def fill(page: str, record: Record) -> str:
    """Fill the marked places of a page in.

    Args:
        page: Markdown with places such as `<!-- from record: ranks -->`.
        record: See `add`.
    """
    tables = {"ranks": _ranks, "points": _points}

    def replacement(place: re.Match[str]) -> str:
        lines = "\n".join(tables[place[1]](record))
        return f"<!-- from record: {place[1]} -->\n\n{lines}\n\n<!-- end -->"

    return _PLACE.sub(replacement, page)


def column(record: Record, pool: str, field: str) -> dict[str, np.ndarray]:
    """Return a figure of all seeds of a pool by point, `[S]` each, NaN if refused.

    Args:
        record: See `add`.
        pool: Its name.
        field: "ranks", "shares" or "points".
    """
    names = {
        "ranks": [*points()],
        "shares": ["random", *points()],
        "points": [ORACLE, *points(), "all"],
    }[field]
    rows = [seed[field] for seed in record[pool]["seeds"].values()]
    values = np.array(rows, float).T
    return dict(zip(names, values, strict=True))


def _chosen(judged: Mapping[str, list[float | None]]) -> dict[str, int]:
    """Return the place of each candidate's best try."""
    places = best_tries(np.array([*judged.values()], float))
    return dict(zip(judged, places.tolist(), strict=True))


def _rounded(values: np.ndarray, digits: int = 4) -> list[float | None]:
    numbers = [round(float(v), digits) for v in values]
    return [number if np.isfinite(number) else None for number in numbers]


def _ranks(record: Record) -> list[str]:
    ranks = {name: column(record, name, "ranks") for name in record}
    shares = {name: column(record, name, "shares") for name in record}

    def cell(name: str, point: str) -> str:
        known = shares[name][point][np.isfinite(shares[name][point])]
        share = f" ({_short(float(known.mean()))})" if len(known) else ""
        return f"{_with_error(ranks[name][point])}{share}"

    rows = [
        [says, *(cell(name, point) for name in record)] for point, says in SHOWN.items()
    ]
    chance = [f"({_short(shares[name]['random'].mean())})" for name in record]
    return _table(record, [*rows, ["a random choice", *chance]])


def _points(record: Record) -> list[str]:
    gains = {name: column(record, name, "points") for name in record}
    rows = [
        [says, *(_with_error(gains[name][point], sign=True) for name in record)]
        for point, says in [
            *SHOWN.items(),
            (ORACLE, ORACLE),
            ("all", "all of the pool"),
        ]
    ]
    return _table(record, rows)


def _table(record: Record, rows: list[list[str]]) -> list[str]:
    heads = [
        f"{NAMES[name]}, {pool['n']} samples, {len(pool['seeds'])} seeds"
        for name, pool in record.items()
    ]
    lines = [["way", *heads], ["---", *["--:"] * len(heads)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _with_error(values: np.ndarray, *, sign: bool = False) -> str:
    """Format a mean over accepted seeds with its error, and count the refused ones."""
    known = values[np.isfinite(values)]
    if not len(known):
        return "all refused"
    digits = 1 if sign else 2
    text = _short(float(known.mean()), digits, sign=sign)
    if len(known) > 1:
        text += f" ± {_short(standard_error(known), digits)}"
    refused = len(values) - len(known)
    return text + (f", {refused} refused" if refused else "")


def _short(number: float, digits: int = 2, *, sign: bool = False) -> str:
    number = round(number, digits) + 0.0  # no minus before a 0
    text = f"{number:{'+' if sign else ''}.{digits}f}"
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def main(folders: list[str]) -> int:
    """Add the runs of folders to the record, and fill the page in."""
    record: Mapping[str, Any] = read() if RECORD.exists() else {}
    for folder in folders:
        record = add(dict(record), Path(folder))
    text = json.dumps(record, separators=(",", ":"))
    # A line for each seed, so that a difference shows what was added.
    text = re.sub(r'("\d+":\{"ranks")', r"\n\1", text)
    RECORD.write_text(text + "\n", "utf-8")
    PAGE.write_text(fill(PAGE.read_text("utf-8"), dict(record)), "utf-8")
    for name, pool in record.items():
        sys.stdout.write(f"{name}: {len(pool['seeds'])} seeds, {BUDGETS[0]:.0%}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
