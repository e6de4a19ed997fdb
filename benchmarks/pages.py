"""Tables and sentences of the docs that records fill: `python -m benchmarks.pages`.

A page marks their places by comments, `<!-- from records: NAME -->` to `<!-- end -->`.
"""

from __future__ import annotations

import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from . import _summary
from ._machine import ROOT
from ._records import (
    HISTORY,
    Json,
    busy,
    latest,
    number,
    per_unit,
    read,
    smaller,
    table,
)
from ._summary import Line
from ._targets import rejudged

PLACE = re.compile(r"<!-- from records: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)
PLATFORM = "cpu"
# Wins that the first page on speed shows; every loss is shown beside them.
SHOWN = {
    "knn weighted": "Weighted KNN-Shapley",
    "knn sort-free": "Threshold-KNN-Shapley, beside exact values",
    "retrain tmc small": "TMC-Shapley, 200 points",
    "retrain loo": "Leave-one-out, retrained",
    "retrain tmc large": "TMC-Shapley, 1,000 points, 64 features",
    "labels joint": "Suspected labels of given probabilities",
    "knn exact": "KNN-Shapley, exact",
    "match factored": "Matching 10,000 gradients in factors",
    "match small": "Matching, at the rank",
    "match past the rank": "Matching, past the rank",
    "retrieve million": "20 neighbours from a million",
}
LOST = {  # names of cases in which a peer is faster
    "labels found tweets": "Label errors from features, tweets",
    "labels found newsgroups": "Label errors from features, newsgroups",
    "labels found movie_polarity": "Label errors from features, film reviews",
    "labels found digits": "Label errors from features, digits",
    "labels found adult": "Label errors from features, Adult",
    "retrieve targeted-gcmi": "Graph-cut choice of candidates",
    "retrieve streamed": "Retrieval from files",
}
_DATA = {
    "digits": "digits, 1,442",
    "adult": "Adult, 10,000 rows",
    "tweets": "tweets, 8,100, MiniLM",
    "newsgroups": "newsgroups, 4,000, MiniLM",
    "movie_polarity": "film reviews, 10,568, MiniLM",
}
_RETRAINED = {
    "tmc small": ("`tmc_shapley`, n = 200, d = 10, 2 classes", "marginals"),
    "tmc large": (
        "`tmc_shapley`, digits, n = 1000, d = 64, 10 classes",
        "marginals",
    ),
    "g-shapley": ("`g_shapley`, n = 200, d = 10", "steps"),
    "loo": ("`loo`, n = 1000, d = 10, 2 classes", "fits"),
    "loo digits": ("`loo`, digits, n = 1000, 10 classes", "fits"),
}
_STREAMED = {
    "in memory": "an array in memory",
    "memory-mapped": "memory-mapped",
    "npy": "rows of `.npy` files",
    "zarr": "rows of zarr, zstd",
    "parquet": "rows of parquet lists",
}
Cases = Mapping[tuple[str, str], tuple[Json, Json]]


def fill(text: str, cases: Cases, lines: Sequence[Line]) -> str:
    """Return a page with its marked places made anew.

    Args:
        text: The page.
        cases: Record and case by benchmark and name, of the CPU.
        lines: The summary's, of the CPU.

    Raises:
        ValueError: If a place has a name that is not in `PLACES`.
    """

    def replacement(place: re.Match[str]) -> str:
        name = place[1]
        if name not in PLACES:
            raise ValueError(
                f"from records: {name}: expected one of {', '.join(PLACES)}"
            )
        body = "\n".join(PLACES[name](cases, lines))
        return f"<!-- from records: {name} -->\n\n{body}\n\n<!-- end -->"

    return PLACE.sub(replacement, text)


def pages() -> list[Path]:
    """Return the pages that have marked places."""
    paths = [ROOT / "README.md", ROOT / "benchmarks" / "README.md"]
    paths += sorted((ROOT / "docs").glob("*.md"))
    return [path for path in paths if PLACE.search(path.read_text("utf-8"))]


def on_record(records: Sequence[Json]) -> tuple[Cases, list[Line]]:
    """Return the latest cases and lines of the CPU that most records come from."""
    records = [record for record in records if record["device"]["platform"] == PLATFORM]
    cases = {(key[-2], key[-1]): value for key, value in latest(records).items()}
    return cases, _summary.lines(records)


def _rows(case: Json) -> dict[str, Json]:
    return {row["name"]: row for row in case["contenders"]}


def _said(line: Line) -> str:
    """Return a ratio, with the marks of its caveats."""
    wall = " (wall)" if line.wall else ""
    return f"{number(line.ratios[1])}{wall}{line.marks}"


def _short(text: str) -> str:
    """Return the seconds of "name, seconds/unit"."""
    return text.rsplit(", ", 1)[1].replace("/", " per ", 1)


def _shown(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of `SHOWN`, and all in which ours is slower."""
    shown = [x for x in lines if x.peer and (_key(x) in SHOWN or x.ratios[1] < 1)]
    return sorted(shown, key=lambda line: -line.ratios[1])


def _name(line: Line) -> str:
    return SHOWN.get(_key(line)) or LOST.get(_key(line)) or _key(line)


def _peer(line: Line) -> str:
    return (line.peer or "").rsplit(", ", 1)[0]


def _comparison(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del cases
    shown = _shown(lines)
    body = [[f"{_name(line)}: {_peer(line)}", _said(line)] for line in shown]
    return [*table(["", "× the closest peer"], body), *_footnotes(shown)]


def _speed(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del cases
    shown = _shown(lines)
    body = [
        [
            _name(line),
            _short(line.ours),
            f"{_peer(line)}, {_short(line.peer or '')}",
            _said(line),
        ]
        for line in shown
    ]
    head = ["", "jaxsel", "closest peer", "times as fast"]
    return [*table(head, body), *_footnotes(shown)]


def _key(line: Line) -> str:
    return f"{line.bench} {line.case}"


def _footnotes(lines: Sequence[Line]) -> list[str]:
    notes = _summary.footnotes(lines)
    return [line for note in notes for line in ("", *_text(note))]


def _text(*sentences: str) -> list[str]:
    return textwrap.wrap(
        " ".join(sentences), 96, break_long_words=False, break_on_hyphens=False
    )


def _losses(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del cases
    compared = [line for line in lines if line.peer]
    behind = [line for line in compared if line.ratios[1] < 1]
    return _text(
        f"Of {len(compared)} cases on this machine jaxsel is behind its closest peer "
        f"in {len(behind)}, which are all in the table."
    )


def _retraining(cases: Cases, lines: Sequence[Line]) -> list[str]:
    retrained = {line.case: line for line in lines if line.bench == "retrain"}
    body = []
    for name, (text, unit) in _RETRAINED.items():
        line = retrained[name]
        ours = _rows(cases["retrain", name][1])["jaxsel"]
        peer = _peer(line)
        body.append(
            [
                text,
                f"{_rounded(1 / per_unit(ours, 'cpu_s'))} {unit}",
                "pyDVL with scikit-learn" if peer == "pyDVL" else peer,
                _said(line) if line.peer else "",
            ]
        )
    head = ["work", "per CPU second", "peer", "times"]
    return [*table(head, body), *_footnotes([retrained[name] for name in _RETRAINED])]


def _rounded(value: float) -> str:
    """Return a large number to three digits, with commas."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _labels(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    body = []
    for name, text in _DATA.items():
        rows = _rows(cases["labels", f"found {name}"][1])
        for i, who in enumerate(("jaxsel", "cleanlab")):
            figures = rows[who]["figures"]
            digits = zip(
                ("auc", "ap", "precision", "recall"), (4, 3, 3, 3), strict=True
            )
            cells = [f"{figures[key]:.{places}f}" for key, places in digits]
            body.append([text if i == 0 else "", who, *cells])
    head = ["data", "", "AUC", "average precision", "precision", "recall"]
    return table(head, body)


def _joint(cases: Cases, lines: Sequence[Line]) -> list[str]:
    rows = _rows(cases["labels", "joint"][1])
    (line,) = [x for x in lines if (x.bench, x.case) == ("labels", "joint")]
    mb = {who: number(row["peak_bytes"], 1e6) for who, row in rows.items()}
    ours, peer = (
        f"{number(statistics.median(rows[who]['cpu_s']))} CPU seconds and {mb[who]} MB "
        "beyond the inputs"
        for who in ("jaxsel", "cleanlab")
    )
    sentences = _text(
        "For 1,000,000 x 100 probabilities (float64), `find_label_errors` returned the "
        f"same {rows['jaxsel']['figures']['found']:,.0f} labels in the same order as "
        f"cleanlab. It took {ours}, cleanlab {peer}: jaxsel is {_said(line)} times as "
        f"fast (medians of {line.rounds} rounds)."
    )
    return [*sentences, *_footnotes([line])]


def _retrieval(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    rows = _rows(cases["retrieve", "million"][1])
    ours = [rows[name] for name in ("nearest", "retrieve")]
    seconds = [statistics.median(row["cpu_s"]) for row in ours]
    times = {
        peer: [statistics.median(smaller(row, rows[peer], "cpu_s")[1]) for row in ours]
        for peer in ("faiss", "scikit-learn")
    }
    peaks = [row["peak_bytes"] for row in ours]
    return _text(
        "For 100 hard samples, a million candidates and 768 features, 20 neighbours",
        f"each, `nearest` and `retrieve_nearest` took {_range(seconds)} s on one core: "
        f"{_range(times['faiss'])} times as fast as",
        f"faiss-cpu's `IndexFlatL2`, {_range(times['scikit-learn'])} times as fast as "
        "scikit-learn's brute force, with",
        f"{number(max(peaks), 1e6)} MB of memory beyond the features "
        "(`python -m benchmarks.bench_retrieve`).",
    )


def _range(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _streamed(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    rows = _rows(cases["retrieve", "streamed"][1])
    body = [
        [
            text,
            number(per_unit(rows[name], "cpu_s") * 1e9),
            number(4 * 768 / per_unit(rows[name], "wall_s"), 1e6),
            number(rows[name]["peak_bytes"], 1e6),
        ]
        for name, text in _STREAMED.items()
    ]
    return table(
        ["candidates", "CPU ns each", "MB per second", "peak MB above the inputs"], body
    )


def _billion(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    points, hard = "1,000 validation points", "100 hard samples"
    jobs = [  # records, columns of the rows, and what each row is compared with
        ("knn million jaxsel", "`knn_shapley`", 64, points, 1000),
        ("knn sort-free threshold", "`threshold_knn_shapley`", 64, points, 1000),
        ("retrieve million nearest", "`retrieve.nearest`", 768, hard, 100),
        ("filter stream loss_threshold", "`loss_threshold`", 1, "–", 1),
    ]
    body = []
    for place, call, width, against, count in jobs:
        bench, name, who = place.split()
        row = _rows(cases[bench, name][1])[who]
        nanoseconds = per_unit(row, "cpu_s") * 1e9
        hours = number(nanoseconds * count / 3600)
        body.append([call, str(width), against, number(nanoseconds), hours])
    rows = _rows(cases["retrieve", "streamed"][1])["npy"]
    speed = 4 * 768 / per_unit(rows, "wall_s")
    head = ["call", "columns", "each row against", "ns a pair", "core hours"]
    return [
        *table(head, body),
        "",
        *_text(
            "A file of a billion rows of 768 float16 numbers has 1.5 TB: a pass over",
            f"it at the {number(speed, 1e9)} GB a second of `.npy` files in the page",
            f"cache takes {number(1.536e12 / speed / 60)} minutes, and longer where",
            "the disk is slower.",
        ),
    ]


def _first_calls(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    body = []
    sizes = {
        "knn_shapley": "2,000 points, 100 validation points",
        "omp": "2,000 × 64, 50 chosen",
        "tmc_shapley": "logistic regression, 200 points, two classes",
        "tmc_shapley, 3 classes": "the same, three classes",
    }
    for name, text in sizes.items():
        row = _rows(cases["jobs", f"first {name}"][1])["jaxsel"]
        seconds = [statistics.median(row["cpu_s"]), row["figures"]["all_cpu_s"]]
        cells = [f"{value:.1f}" for value in seconds]
        body.append([f"`{name.split(',')[0]}`", text, *cells])
    result = table(["first call", "", "CPU seconds", "with imports, one run"], body)
    loads = [busy(*cases["jobs", f"first {name}"]) for name in sizes]
    if any(loads):
        top = max(load for load in loads if load)
        result += ["", *_text(f"The machine was busy, at a load of up to {top:.0f}.")]
    return result


def _spread(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    times = []
    for name in ("two processes", "two workers of Ray"):
        rows = _rows(cases["jobs", name][1])
        if "one worker" in rows:
            pair = rows["two workers"], rows["one worker"]
            times.append(statistics.median(smaller(*pair, "wall_s")[1]))
        else:  # of November 2026
            times.append(rows["jaxsel"]["figures"]["speedup"])
    return _text(
        "TMC-Shapley (logistic regression, n = 200, 2,560 permutations in 40 batches)",
        f"then ran {number(times[0])} times as fast on two processes as on one, and",
        f"{number(times[1])} times on two workers of Ray, with all values equal",
        "(medians of five runs each, `python -m benchmarks.bench_jobs`).",
    )


def _blocks(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    shown = {
        "exact block": "exact",
        "paper's block": "the paper's",
        "quadratic block": "quadratic, polynomial norm",
    }
    body = []
    for name, text in shown.items():
        for who, row in _rows(cases["mpc", name][1]).items():
            figures = row["figures"]
            sizes = [f"{figures[key]:,.0f}" for key in ("rounds", "KB one way")]
            body.append([f"{text}, {who}", "8", *sizes])
    head = ["block: hidden 384, 128 rows, all read", "batch", "rounds"]
    return table([*head, "KB one way a sample"], body)


def _pool(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    pool = _rows(cases["mpc", "secure pool"][1])
    aby3, cheetah = (
        f"{pool[name]['figures']['CPU s a party']:.0f}"
        for name in ("spu-aby3", "spu-cheetah")
    )
    (deep,) = _rows(cases["mpc", "secure depth"][1]).values()
    figures = deep["figures"]
    return _text(
        "From start to end, a session that scores 200,000 samples by the linear probe",
        f"and chooses 40,000 took {aby3} CPU seconds a party on ABY3 and {cheetah} on",
        'Cheetah (`python -m benchmarks.bench_mpc --only "secure pool"`); no chosen',
        "row was wrong. A whole target of twelve layers of MiniLM's width with",
        f"quadratic attention takes {figures['CPU s']:.1f} CPU seconds and",
        f"{figures['KB one way'] / 1e3:.0f} MB in one direction for each sample on",
        'ABY3 (`--only "secure depth"`).',
    )


def _not_reached(cases: Cases, lines: Sequence[Line]) -> list[str]:
    del lines
    body = [
        [f"{name[0]} {name[1]}", target.level, target.text, number(verdict["measured"])]
        for name, (record, case) in cases.items()
        for target, verdict in rejudged(record, case)
        if verdict["met"] is False
    ]
    body.sort(key=lambda row: row[1] != "must")
    return table(["case", "", "figure", "measured"], body)


PLACES: dict[str, Callable[[Cases, Sequence[Line]], list[str]]] = {
    "speed": _speed,
    "comparison": _comparison,
    "losses": _losses,
    "retraining": _retraining,
    "label-errors": _labels,
    "joint": _joint,
    "retrieval": _retrieval,
    "streamed": _streamed,
    "billion": _billion,
    "first-calls": _first_calls,
    "spread": _spread,
    "blocks": _blocks,
    "pool": _pool,
    "not-reached": _not_reached,
}


def main() -> None:
    """Make the marked places of all pages anew, and name the pages that changed."""
    recorded = on_record(read(HISTORY.glob("*.json")))
    for path in pages():
        before = path.read_text("utf-8")
        after = fill(before, *recorded)
        if after != before:
            path.write_text(after, "utf-8")
            print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
