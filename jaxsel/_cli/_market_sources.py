"""`jaxsel market sources`: who earned the best answers to queries."""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

from ._checks import recorded
from ._output import (
    TABLE,
    Record,
    check_ending,
    check_outputs,
    fingerprint,
    publish,
    say,
    say_checks,
)
from ._parser import Commands, Parser, add_table_out

_DESCRIPTION = """\
Divide the score of each query's best document among all documents that could have
served it: exact Shapley values, with standard errors over queries. Pay the sources of
retrieved answers by them. With --by-owner, owners are the players, and gain nothing by
copies of their own documents.

TABLE has a row for each document that was a candidate of a query, with the columns
query, document and score (of any unit; below zero counts as zero), and with --by-owner
owner. Writes a table of values, and beside it a manifest that records how it came
about."""

_EXAMPLES = """\
examples:
  jaxsel market sources retrieved.csv --out documents.csv
  jaxsel market sources retrieved.csv --by-owner --owner publisher --out owners.csv"""

_NAMES = ("query", "document", "score", "owner")


def add(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "sources",
        help="who earned the best answers to queries",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, words={"scores": "scores of TABLE"})
    parser.add_argument("table", metavar="TABLE", help="scores of documents by query")
    for name in _NAMES:
        parser.add_argument(
            f"--{name}",
            metavar="COLUMN",
            default=name,
            help=f"the column of it (default: {name})",
        )
    parser.add_argument(
        "--by-owner", action="store_true", help="value owners instead of documents"
    )
    add_table_out(parser, "values")


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    check_ending("--out", args.out, TABLE)
    out = Path(args.out)
    paths = [out.with_suffix(".json"), out]
    check_outputs(paths, inputs=[args.table], force=args.force)
    from jaxsel.value import max_shapley

    with recorded() as checks:
        names, scores, ids, owners = _read(args)
        values = max_shapley(scores, ids=ids, n=len(names), owners=owners)
    if owners is None:
        values = dataclasses.replace(values, index=tuple(names))
    table = values.to_pandas().sort_values("rank")
    record = Record(
        command=args.command_line,
        config={name: getattr(args, name) for name in (*_NAMES, "by_owner")},
        started=started,
        inputs=[{"source": args.table, **fingerprint(args.table)}],
        checks=checks,
    )
    manifest = publish({out: table.to_csv}, record)
    say_checks(checks)
    players = "owners" if args.by_owner else "documents"
    say(
        table.head(10).round(4).to_string(),
        f"{len(scores)} queries, mean best score {table['value'].sum():.4g}, shared by "
        f"{len(table)} {players}",
        f"wrote {out}, {manifest}",
    )


def _read(args: argparse.Namespace) -> tuple[list[Any], Any, Any, list[Any] | None]:
    """Return documents, scores `[q, m]` and ids `[q, m]`, and documents' owners."""
    import numpy as np
    import pandas as pd

    from ._tables import check_numbers, listing, named_as_asked, read_frame

    asked = [args.query, args.document, args.score]
    asked += [args.owner] if args.by_owner else []
    frame = named_as_asked(
        args.table,
        read_frame(args.table, (args.query, args.document, args.owner)),
        asked,
    )
    missing = [name for name in asked if name not in frame.columns]
    if missing:
        raise ValueError(
            f"{args.table} has no column {listing(map(repr, missing))}; it has "
            f"{listing(map(repr, frame.columns))}"
        )
    gaps: Any = frame[asked].isna().any(axis=1)
    if gaps.any():
        raise ValueError(
            f"{args.table} must have no gaps in {listing(map(repr, asked))}, but row "
            f"{int(np.argmax(gaps))} has one"
        )
    score = frame[args.score]
    check_numbers(args.table, score)
    queries, _ = pd.factorize(frame[args.query])
    documents, names = pd.factorize(frame[args.document])
    place: Any = frame.groupby(queries).cumcount()
    shape = int(queries.max()) + 1, int(place.max()) + 1
    scores, ids = np.full(shape, np.nan), np.full(shape, -1)
    scores[queries, place], ids[queries, place] = score, documents
    if not args.by_owner:
        return list(names), scores, ids, None
    of_document: Any = frame.groupby(documents)[args.owner]
    several = np.flatnonzero(of_document.nunique() > 1)
    if several.size:
        raise ValueError(
            f"{args.table} must have one owner for each document, but "
            f"{names[several[0]]!r} has {of_document.nunique()[several[0]]}"
        )
    return list(names), scores, ids, of_document.first().tolist()
