"""`jaxsel market rank`: whose samples help on the hard samples held out."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsel._staged import staged

from ._market_data import describe, plain_labels, read_data
from ._market_options import add_max_bytes
from ._output import Record, check_outputs, say
from ._parser import Commands, Parser, add_force, add_reading_options

if TYPE_CHECKING:
    import numpy as np

    from jaxsel.data import Dataset
    from jaxsel.market import Answer, Ranking, Request

_DESCRIPTION = """\
Rank owners by their answers. A small network (one hidden layer) is trained on TRAIN,
then trained on with TRAIN and the samples of each answer in turn; the score is its
accuracy on HELD_OUT. To score with a model of your own, call jaxsel.market.rank.

An answer that is damaged, or does not fit the request, is refused by name, and the
others are ranked. Writes a JSON file with the ranking and how it came about."""


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
    parser.add_argument("request", metavar="REQUEST", help="what was asked")
    parser.add_argument(
        "held_out", metavar="HELD_OUT", help="hard samples that no owner has seen"
    )
    parser.add_argument(
        "answers", metavar="ANSWER", nargs="+", help="what the owners sent"
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
        "--out", metavar="RANKING.json", required=True, help="the ranking"
    )
    add_force(parser)
    add_max_bytes(parser)
    add_reading_options(parser)


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = Path(args.out)
    if out.suffix != ".json":
        raise ValueError(f"--out must end in .json, got {args.out!r}")
    if args.seeds < 1 or args.steps < 1:
        raise ValueError("--seeds and --steps must be at least 1")
    sources = [args.request, args.held_out, args.train, *args.answers]
    check_outputs([out], inputs=sources, force=args.force)
    from jaxsel.market import Request, rank

    request = Request.load(args.request, max_bytes=args.max_bytes)
    train, held_out = (read_data(args, s) for s in (args.train, args.held_out))
    trainer = _Trainer(request, train, held_out, args)
    answers, refused = _load(args.answers, request, trainer, args.max_bytes)
    for reason in refused.values():
        sys.stderr.write(f"jaxsel: {reason}\n")
    if not answers:
        raise ValueError("no answer is left to rank")
    baseline = trainer.score(None)
    ranking = rank(answers.values(), trainer.score, baseline=baseline)
    by_owner = {answer.owner: (path, answer) for path, answer in answers.items()}
    rows = _rows(ranking, by_owner)
    record = Record(
        command=args.command_line,
        config={
            name: getattr(args, name)
            for name in ("steps", "retrain", "label_column", "x_key", "y_key")
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
        "without": [round(score, 6) for score in baseline],
        "held_out": len(held_out),
        "refused": [{"file": f, "reason": r} for f, r in refused.items()],
        **facts,
    }
    with staged([out]) as (part,):
        part.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    say(*_table(rows, ranking), f"Wrote {out}")


class _Trainer:
    """The trainer's samples, and what it makes of an answer."""

    def __init__(
        self,
        request: Request,
        train: Dataset,
        held_out: Dataset,
        args: argparse.Namespace,
    ) -> None:
        import numpy as np

        from jaxsel._checks import check_finite

        from ._market_model import Scale

        self.args = args
        if (
            train.x.shape[1:] != held_out.x.shape[1:]
            or train.x.dtype.kind not in "biuf"
        ):
            raise ValueError(
                "TRAIN and HELD_OUT must hold numbers of one shape, got samples of "
                f"shape {train.x.shape[1:]} and {held_out.x.shape[1:]}"
            )
        known = () if request.schema.classes is None else request.schema.classes
        labels = [plain_labels(train.y), plain_labels(held_out.y)]
        if known:
            labels.append(np.asarray(known))
        if len({array.dtype.kind == "U" for array in labels}) > 1:
            raise ValueError(
                "TRAIN, HELD_OUT and the request must have labels of one kind, but "
                "some are texts and some are numbers"
            )
        for name, data in (("TRAIN", train), ("HELD_OUT", held_out)):
            check_finite(name, data.x)
        self.classes = np.unique(np.concatenate(labels))
        self.scale = Scale.of(train.x)
        self.train = self._pair(train.x, train.y)
        self.held_out = self._pair(held_out.x, held_out.y)
        self.shape = train.x.shape[1:]
        self.base: list[Any] = []

    def check(self, answer: Answer) -> None:
        """Refuse an answer that can't be learnt from."""
        import numpy as np

        sent = _sent(answer)
        if answer.y is None:
            raise ValueError("y is missing: without labels nothing is learnt")
        if sent is None or sent.shape[1:] != self.shape or sent.dtype.kind == "U":
            raise ValueError(f"x must hold samples of shape {self.shape} as TRAIN does")
        if not np.isin(answer.y, self.classes).all():
            raise ValueError(
                "y must hold classes of TRAIN, HELD_OUT or the request: "
                f"{', '.join(map(str, self.classes[:20]))}"
            )

    def score(self, answer: Answer | None) -> list[float]:
        """Return the accuracy on the hard samples held out, for each seed."""
        import jax
        import numpy as np

        from ._market_model import Network

        rows, codes = self.train
        if answer is not None and answer.y is not None:
            more, more_codes = self._pair(np.asarray(_sent(answer)), answer.y)
            rows = np.concatenate([rows, more])
            codes = np.concatenate([codes, more_codes])
        scores = []
        for seed in range(self.args.seeds):
            keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(3)]
            if len(self.base) == seed:
                new = Network.new(rows.shape[1], len(self.classes), keys[0])
                if not self.args.retrain:
                    new = new.trained(*self.train, keys[1], self.args.steps)
                self.base.append(new)
            after = self.base[seed].trained(rows, codes, keys[2], self.args.steps)
            scores.append(after.accuracy(*self.held_out))
        return scores

    def _pair(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        return self.scale(x), np.searchsorted(self.classes, plain_labels(y))


def _sent(answer: Answer) -> np.ndarray | None:
    return answer.features if answer.x is None else answer.x


def _load(
    paths: Sequence[str], request: Request, trainer: _Trainer, max_bytes: int
) -> tuple[dict[str, Answer], dict[str, str]]:
    """The answers that may be used, and why others may not, by their file."""
    from jaxsel.market import Answer

    answers: dict[str, Answer] = {}
    refused: dict[str, str] = {}
    for path in paths:
        try:
            answer = Answer.load(path, request, max_bytes=max_bytes)
        except (ValueError, OSError) as error:
            refused[path] = str(error)
            continue
        try:
            trainer.check(answer)
            if answer.owner in {other.owner for other in answers.values()}:
                raise ValueError(f"owner {answer.owner!r} has answered already")
        except ValueError as error:
            refused[path] = f"{path} is refused: {error}"
            continue
        answers[path] = answer
    return answers, refused


def _rows(
    ranking: Ranking, by_owner: dict[str, tuple[str, Answer]]
) -> list[dict[str, Any]]:
    stderr, gain = ranking.stderr, ranking.gain
    rows = []
    for i, owner in enumerate(ranking.owners):
        path, answer = by_owner[owner]
        rows.append(
            {
                "owner": owner,
                "file": path,
                "samples": len(answer),
                "method": answer.method,
                "status": answer.status,
                "score": round(float(ranking.mean[i]), 6),
                "stderr": None if stderr is None else round(float(stderr[i]), 6),
                "gain": None if gain is None else round(float(gain[i]), 6),
            }
        )
    return rows


def _table(rows: Sequence[dict[str, Any]], ranking: Ranking) -> list[str]:
    width = max(len("owner"), *(len(row["owner"]) for row in rows))
    lines = [
        f"{'owner':{width}}  samples  method      status      score  stderr    gain"
    ]
    for row in rows:
        stderr = "     –" if row["stderr"] is None else f"{row['stderr']:6.3f}"
        lines.append(
            f"{row['owner']:{width}}  {row['samples']:7}  {row['method']:10}  "
            f"{row['status']:9}  {row['score']:6.3f}  {stderr}  {row['gain']:+6.3f}"
        )
    if ranking.baseline is not None:
        lines.append(f"without any answer: {ranking.baseline.mean():.3f}")
    return lines
