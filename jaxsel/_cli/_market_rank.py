"""`jaxsel market rank`: owners ranked by the accuracy that their answers bring."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsel._files.staged import staged

from ._market_data import agreed, describe, read_data, warn
from ._market_options import add_max_bytes, add_reading
from ._output import Record, check_outputs, say
from ._parser import Commands, Parser, add_force

if TYPE_CHECKING:
    from jaxsel.market import Answer, Ranking, Request, Trainer

_DESCRIPTION = """\
Rank owners by their answers. A small network (one hidden layer) is trained on TRAIN and
the samples that the request shows, then trained on with those and the samples of each
answer in turn; the score is its accuracy on HELD_OUT. It is the only model here: to
score with one of your own, call jaxsel.market.rank.

Columns of tables are brought into the request's order by their names. An answer is
refused by name, and the others are ranked, if it is damaged, does not fit the request,
has numbers far outside those of TRAIN (--reach), or consists of copies: of the samples
shown, of HELD_OUT, or of each other. Single copies are left out. Writes a JSON file
with the ranking and how it came about."""


def add(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "rank",
        help="the trainer ranks the answers",
        description=_DESCRIPTION,
        epilog="examples:\n"
        "  jaxsel market rank request.npz held_out.npz north.npz south.npz \\\n"
        "      --train train.npz --out ranking.json",
    )
    parser.set_defaults(run=run)
    parser.add_argument("request", metavar="REQUEST", help="the request")
    parser.add_argument(
        "held_out", metavar="HELD_OUT", help="hard samples that no owner has seen"
    )
    parser.add_argument(
        "answers", metavar="ANSWER", nargs="+", help="the owners' answers"
    )
    parser.add_argument(
        "--train", metavar="TRAIN", required=True, help="the trainer's own samples"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="repetitions (default: 3)"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=500,
        metavar="N",
        help="of 64 samples each, in each of the two trainings (default: 500)",
    )
    parser.add_argument(
        "--retrain",
        action="store_true",
        help="start from new weights with each answer, rather than train on",
    )
    parser.add_argument(
        "--without-shown",
        action="store_true",
        help="do not train on the samples that the request shows: differences between "
        "owners are larger then, but what resembles those samples counts as a gain, "
        "though the trainer has them",
    )
    parser.add_argument(
        "--reach",
        type=float,
        default=10.0,
        metavar="N",
        help="refuse answers with numbers more than N times the width of the trainer's "
        "(1st to 99th percentile, by column) outside these percentiles (default: 10)",
    )
    parser.add_argument(
        "--out", metavar="RANKING.json", required=True, help="the ranking"
    )
    add_force(parser)
    add_max_bytes(parser)
    add_reading(parser)


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = Path(args.out)
    if out.suffix != ".json":
        raise ValueError(f"--out must end in .json, got {args.out!r}")
    if args.seeds < 1 or args.steps < 1:
        raise ValueError("--seeds and --steps must be at least 1")
    sources = [args.request, args.held_out, args.train, *args.answers]
    check_outputs([out], inputs=sources, force=args.force)
    from jaxsel._inputs.checks import check_positive
    from jaxsel.market import Request, Trainer, rank

    check_positive("--reach", args.reach)
    request = Request.load(args.request, max_bytes=args.max_bytes)
    train, held_out = (
        read_data(args, source, encode=agreed(request))
        for source in (args.train, args.held_out)
    )
    trainer = Trainer(
        request,
        train,
        held_out,
        seeds=args.seeds,
        steps=args.steps,
        retrain=args.retrain,
        without_shown=args.without_shown,
        names=("TRAIN", "HELD_OUT"),
    )
    answers, refused = _load(args, request, trainer)
    for reason in refused.values():
        sys.stderr.write(f"jaxsel: {reason}\n")
    if not answers:
        raise ValueError("no answer is left to rank")
    before = trainer.hits(None)
    ranking = rank(answers.values(), trainer.hits, baseline=before)
    for warning in trainer.warnings:
        warn(warning)
    by_owner = {answer.owner: (path, answer) for path, answer in answers.items()}
    rows = _rows(ranking, by_owner)
    record = Record(
        command=args.command_line,
        config={
            name: getattr(args, name)
            for name in (
                *("steps", "retrain", "without_shown", "reach"),
                *("label_column", "columns", "drop", "x_key", "y_key"),
            )
        },
        started=started,
        inputs=[
            describe("request", args.request),
            describe("held_out", args.held_out, held_out),
            describe("train", args.train, train),
            *(describe("answer", path) for path in args.answers),
        ],
        seeds=list(range(args.seeds)),
    )
    facts = json.loads(record.manifest({}))
    del facts["outputs"]
    result = {
        "ranking": rows,
        "conclusions": list(ranking.conclusions()),
        "without": [round(float(score), 6) for score in before.mean(axis=1)],
        "held_out": len(held_out),
        "shown": trainer.shown,
        "warnings": trainer.warnings,
        "refused": [{"file": f, "reason": r} for f, r in refused.items()],
        **facts,
    }
    with staged([out]) as (part,):
        part.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    say(*_table(rows, ranking), f"Wrote {out}")


def _load(
    args: argparse.Namespace, request: Request, trainer: Trainer
) -> tuple[dict[str, Answer], dict[str, str]]:
    """Read answers, and return those that may be ranked, and why others may not.

    Returns:
        Both by file.
    """
    from jaxsel.market import Answer

    by_path: dict[str, Answer] = {}
    damaged: dict[str, str] = {}
    for path in args.answers:
        try:
            answer = Answer.load(path, request, max_bytes=args.max_bytes)
        except (ValueError, OSError) as error:
            damaged[path] = str(error)
            continue
        if path in by_path:
            damaged[path] = (
                f"{path} is refused: owner {answer.owner!r} has answered already"
            )
        by_path[path] = answer
    answers, refused = trainer.admit(by_path, reach=args.reach)
    refused |= damaged
    order = dict.fromkeys(path for path in args.answers if path in refused)
    return answers, {path: refused[path] for path in order}


def _rows(
    ranking: Ranking, by_owner: dict[str, tuple[str, Answer]]
) -> list[dict[str, Any]]:
    import numpy as np

    known = {
        "stderr": ranking.stderr,
        "gain": ranking.gain,
        "gain_stderr": ranking.gain_stderr,
        "p_value": ranking.p_values,
    }
    apart, beyond = ranking.apart, ranking.beyond_chance
    rows = []
    for i, owner in enumerate(ranking.owners):
        path, answer = by_owner[owner]
        level = np.ones(len(ranking), bool) if apart is None else ~apart[i]
        level[i] = False
        rows.append(
            {
                "place": int(ranking.places[i]),
                "tied": bool(np.sum(ranking.places == ranking.places[i]) > 1),
                "level_with": [ranking.owners[j] for j in np.flatnonzero(level)],
                "owner": owner,
                "file": path,
                "samples": len(answer),
                "method": answer.method,
                "status": answer.status,
                "score": round(float(ranking.mean[i]), 6),
                **{
                    name: None if array is None else round(float(array[i]), 6)
                    for name, array in known.items()
                },
                "beyond_chance": beyond is not None and bool(beyond[i]),
            }
        )
    return rows


def _table(rows: Sequence[dict[str, Any]], ranking: Ranking) -> list[str]:
    from jaxsel._inputs.show import printable_name

    names = [printable_name(row["owner"]) for row in rows]
    width = max(len("owner"), *map(len, names))
    lines = [
        f"place  {'owner':{width}}  samples  method      status      score    gain  "
        "±stderr       p"
    ]
    for name, row in zip(names, rows, strict=True):
        first = rows[0]["owner"]
        level = row["owner"] == first or first in row["level_with"]
        mark = "=" if row["tied"] else "~" if level and row["level_with"] else " "
        place = f"{row['place']}{mark}"
        lines.append(
            f"{place:>5}  {name:{width}}  {row['samples']:7}  {row['method']:10}  "
            f"{row['status']:9}  {row['score']:6.3f}  {row['gain']:+6.3f}  "
            f"{row['gain_stderr']:7.3f}  {row['p_value']:6.2g}"
        )
    marks = {place.strip()[-1] for line in lines[1:] for place in [line[:5]]}
    if "=" in marks:
        lines.append("= tied: in the order of names")
    if "~" in marks:
        lines.append("~ not told apart from the first by more than chance")
    if ranking.baseline is not None:
        lines.append(f"without any answer: {ranking.baseline.mean():.3f}")
    gained = any(row["beyond_chance"] and row["gain"] > 0 for row in rows)
    first, *others = ranking.conclusions()
    return [*lines, first if gained else f"Check: {first}", *others]
