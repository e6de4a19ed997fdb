"""`jaxsel market value`: steps by which owners value their points among all."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._market_data import describe, read_data
from ._market_limits import add_limits, limits_of
from ._market_options import WORDS, add_max_bytes, add_reading
from ._output import Record, check_outputs, publish, result_path, say
from ._parser import Commands, Parser, add_force

if TYPE_CHECKING:
    import numpy as np

    from jaxsel.market import Valuation, ValueOwner

_DESCRIPTION = """\
Owners value their points by those of all of them, and nobody sees whose points are
where: only sums over owners of how many points lie within a radius of each validation
point, of its label and of others, exact or with noise. The values are those of
threshold KNN-Shapley with all points in one place.

  ask     validation points, radius, owners, epsilon           for all owners
  join    each owner counts, and sends public keys             for all owners
  share   each owner sends shares of its secrets               for all owners
  mask    each owner sends its masked counts                   for the one who asks
  close   the one who asks says whose counts have come         for those owners
  reveal  these owners reveal what takes the masks off         for the one who asks
  sum     the one who asks opens the sums                      for all owners
  finish  each owner values its own points

STATE is a file of the owner's own, which nobody else may see; each step replaces it,
and no step can be done twice. docs/private-values.md says what each side learns."""

_EXAMPLES = """\
examples:
  jaxsel market value ask val.npz --radius 4 --owners a,b,c --epsilon 1 --out asked.npz
  jaxsel market value join asked.npz a.npz --owner a --state mine.npz --out a_keys.npz
  jaxsel market value finish asked.npz mine.npz sums.npz a.npz --out a_values.npz"""

_WORDS = WORDS | {
    "needed": "--needed",
    "accept that with max_epsilon=None": "accept that with --max-epsilon inf",
}
_CONFIG = ("label_column", "columns", "drop", "x_key", "y_key")


def add(actions: Commands[Parser]) -> None:
    """Add the command and its steps."""
    parser = actions.add_parser(
        "value",
        help="owners value their points among all owners', unseen",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(show_help=parser.print_help)
    steps = parser.add_subparsers(title="steps", metavar="STEP")
    _add_ask(steps)
    _add_join(steps)
    for name, what, run in (
        ("share", "KEYS", _share),
        ("mask", "SHARES", _mask),
        ("reveal", "SURVIVORS", _reveal),
    ):
        step = _step(steps, name, run, f"an owner's step: takes {what.lower()}")
        step.add_argument("state", metavar="STATE", help="the owner's own file")
        several: dict[str, Any] = {} if name == "reveal" else {"nargs": "+"}
        help_ = "what was sent to the owner" + (" by all owners" if several else "")
        step.add_argument("sent", metavar=what, help=help_, **several)
    close = _step(steps, "close", _close, "the one who asks: whose counts have come")
    close.add_argument("sent", metavar="MASKED", nargs="+", help="masked counts")
    opened = _step(steps, "sum", _sum, "the one who asks: open the sums")
    for name in ("keys", "shares", "masked", "revealed"):
        opened.add_argument(
            f"--{name}", metavar="FILE", nargs="+", required=True, help="of all owners"
        )
    finish = _step(steps, "finish", _finish, "an owner: value its own points")
    finish.add_argument("state", metavar="STATE", help="the owner's own file")
    finish.add_argument("sums", metavar="SUMS", help="the sums of all owners")
    finish.add_argument("data", metavar="DATA", help="the points that were counted")
    _add_reading(finish)


def _step(
    steps: Commands[Parser],
    name: str,
    run: Callable[[argparse.Namespace], None],
    help_: str,
) -> Parser:
    parser = steps.add_parser(name, help=help_, description=f"{help_.capitalize()}.")
    parser.set_defaults(run=run)
    parser.add_argument("asked", metavar="ASKED", help="the file that `ask` wrote")
    parser.add_argument("--out", metavar="FILE.npz", required=True, help="the result")
    add_force(parser)
    add_max_bytes(parser)
    return parser


def _add_ask(steps: Commands[Parser]) -> None:
    parser = steps.add_parser(
        "ask",
        help="the one who asks: validation points, radius, owners",
        description="Ask owners to value their points. All owners see DATA.",
    )
    parser.set_defaults(run=_ask)
    add = parser.add_argument
    add("data", metavar="DATA", help="validation points and labels")
    add("--radius", type=float, required=True, help="of the balls around them")
    add("--owners", metavar="A,B,...", required=True, help="the owners asked")
    add("--epsilon", type=float, help="of differential privacy (default: exact sums)")
    add("--delta", type=float, default=1e-6, help="of the same (default: 1e-6)")
    add(
        "--colluding",
        type=int,
        default=1,
        metavar="N",
        help="owners that may pool what they know, and still meet enough noise; each "
        "knows its own (default: 1)",
    )
    add(
        "--needed",
        type=int,
        metavar="N",
        help="owners that must be left in the end (default: two thirds, 3 at least)",
    )
    add("--metric", choices=("l2", "cosine"), default="l2", help="(default: l2)")
    add("--max-points", type=int, metavar="N", help="points an owner may have")
    add(
        "--classes",
        metavar="A,B,...",
        help="all labels that owners may have (default: those of DATA)",
    )
    add(
        "--allow-two",
        action="store_true",
        help="allow sums of two owners: each sees the other's counts in them",
    )
    add("--out", metavar="ASKED.npz", required=True, help="the question")
    add_force(parser)
    _add_reading(parser)


def _add_join(steps: Commands[Parser]) -> None:
    parser = _step(steps, "join", _join, "an owner: count its points, send keys")
    add = parser.add_argument
    add("data", metavar="DATA", help="the owner's points and labels")
    add("--owner", metavar="NAME", required=True, help="the owner's name")
    add("--state", metavar="STATE.npz", required=True, help="the owner's own file")
    add_limits(parser)
    _add_reading(parser)


def _add_reading(parser: Parser) -> None:
    parser.set_defaults(words=_WORDS)
    add_reading(parser).add_argument(
        "--labels", metavar="FILE", help="labels of DATA: .npy, or .npz"
    )


def _ask(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = _prepare(args, ("data", "labels"))
    from jaxsel.market import ask_values

    x, y, columns = _points(args)
    classes = None if args.classes is None else args.classes.split(",")
    if classes is not None and y.dtype.kind != "U":
        classes = [int(name) for name in classes]
    asked = ask_values(
        x,
        y,
        radius=args.radius,
        owners=args.owners.split(","),
        epsilon=args.epsilon,
        delta=args.delta,
        colluding=args.colluding,
        needed=args.needed,
        metric=args.metric,
        classes=classes,
        columns=columns,
        max_points=args.max_points,
        allow_two=args.allow_two,
    )
    config = ("radius", "owners", "epsilon", "delta", "colluding", "needed", "metric")
    config += ("max_points", "classes", "allow_two")
    manifest = _publish(args, started, {out: asked.save}, config, ("data", "labels"))
    say(repr(asked), _privacy(asked), f"Wrote {out}, {manifest}")


def _join(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    state = result_path(args.state, "--state")
    out = _prepare(args, ("asked", "data", "labels"), state)
    from jaxsel.market import Valuation, ValueOwner

    asked = Valuation.load(args.asked, max_bytes=args.max_bytes)
    x, y, columns = _points(args)
    limits, budget = limits_of(args, state)
    if budget.path in (state, out, out.with_suffix(".json")):
        raise ValueError(f"--budget must be a file of its own, got {budget.path}")
    owner = ValueOwner(
        asked,
        _ordered(x, columns, asked),
        y,
        owner=args.owner,
        budget=budget,
        **limits,
    )
    keys = owner.keys()
    # The state first: an owner must never have sent a key that it has not saved.
    writers = {state: owner.save, out: keys.save}
    config = ("owner", *limits, "budget", "total_epsilon", "total_delta")
    epsilon, delta = budget.spent
    manifest = _publish(args, started, writers, config, ("asked", "data", "labels"))
    say(
        f"{len(x)} points counted for {asked!r}",
        _privacy(asked),
        f"all questions so far: epsilon = {epsilon:.4g}, delta = {delta:.4g}, says "
        f"{args.budget}",
        f"Wrote {state}, {out}, {manifest}",
    )


def _share(args: argparse.Namespace) -> None:
    from jaxsel.filter import Keys

    def step(owner: ValueOwner, asked: Valuation) -> Any:
        del asked
        return owner.share(_load(args, Keys, args.sent))

    _secret_step(args, step)


def _mask(args: argparse.Namespace) -> None:
    from jaxsel.filter import Shares

    def step(owner: ValueOwner, asked: Valuation) -> Any:
        del asked
        return owner.masked(_load(args, Shares, args.sent))

    _secret_step(args, step)


def _reveal(args: argparse.Namespace) -> None:
    from jaxsel.market import Survivors

    def step(owner: ValueOwner, asked: Valuation) -> Any:
        survivors = Survivors.load(args.sent, asked, max_bytes=args.max_bytes)
        return owner.reveal(survivors)

    _secret_step(args, step)


def _secret_step(
    args: argparse.Namespace, step: Callable[[ValueOwner, Valuation], Any]
) -> None:
    """Take a step of an owner; replace its state before writing the message."""
    started = time.perf_counter()
    sent = [args.sent] if isinstance(args.sent, str) else args.sent
    out = _prepare(args, ("asked", "state"), others=sent)
    from jaxsel.market import Valuation, ValueOwner

    asked = Valuation.load(args.asked, max_bytes=args.max_bytes)
    owner = ValueOwner.load(args.state, asked, max_bytes=args.max_bytes)
    message = step(owner, asked)
    writers = {Path(args.state): owner.save, out: message.save}
    manifest = _publish(args, started, writers, (), ("asked",), sent)
    say(f"Wrote {args.state}, {out}, {manifest}")


def _close(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = _prepare(args, ("asked",), others=args.sent)
    from jaxsel.filter import Counted
    from jaxsel.market import Valuation

    asked = Valuation.load(args.asked, max_bytes=args.max_bytes)
    survivors = asked.survivors(_load(args, Counted, args.sent))
    manifest = _publish(args, started, {out: survivors.save}, (), ("asked",), args.sent)
    gone = [name for name in asked.owners if name not in survivors.owners]
    say(
        f"{len(survivors.owners)} owners are left"
        + (f"; nothing has come of {', '.join(gone)}" if gone else ""),
        f"Wrote {out}, {manifest}",
    )


def _sum(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    sent = [*args.keys, *args.shares, *args.masked, *args.revealed]
    out = _prepare(args, ("asked",), others=sent)
    from jaxsel.filter import Counted, Keys, Revealed, Shares
    from jaxsel.market import Valuation, sum_counts

    asked = Valuation.load(args.asked, max_bytes=args.max_bytes)
    sums = sum_counts(
        asked,
        _load(args, Keys, args.keys),
        _load(args, Shares, args.shares),
        _load(args, Counted, args.masked),
        _load(args, Revealed, args.revealed),
    )
    manifest = _publish(args, started, {out: sums.save}, (), ("asked",), sent)
    say(
        f"sums of {len(sums.owners)} owners, {_noise(asked)}",
        f"Wrote {out}, {manifest}",
    )


def _finish(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    roles = ("asked", "sums", "data", "labels")
    out = _prepare(args, (*roles, "state"))
    from jaxsel.market import CountSums, Valuation, ValueOwner

    asked = Valuation.load(args.asked, max_bytes=args.max_bytes)
    owner = ValueOwner.load(args.state, asked, max_bytes=args.max_bytes)
    sums = CountSums.load(args.sums, asked, max_bytes=args.max_bytes)
    x, y, columns = _points(args)
    values = owner.values(sums, _ordered(x, columns, asked), y)
    manifest = _publish(args, started, {out: values.save}, (), roles)
    say(repr(values), f"Wrote {out}, {manifest}")


def _points(
    args: argparse.Namespace,
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...] | None]:
    """Read points as they are, images as rows, with labels and the columns' names."""
    from jaxsel._inputs.frames import plain_labels

    data = read_data(args, args.data, labels=args.labels)
    # Not scaled by the samples' means, which differ from owner to owner.
    x = data.x if data.x.ndim == 2 else data.as_features()
    return x, plain_labels(data.y), data.feature_names


def _ordered(
    x: np.ndarray, columns: tuple[str, ...] | None, asked: Valuation
) -> np.ndarray:
    from jaxsel._inputs.frames import in_order

    return in_order("DATA", x, columns, asked.schema.columns, of="the valuation")


def _load(args: argparse.Namespace, kind: Any, paths: Sequence[str]) -> list[Any]:
    return [kind.load(path, max_bytes=args.max_bytes) for path in paths]


def _privacy(asked: Valuation) -> str:
    if not asked.variance:
        return "exact sums: no differential privacy"
    return (
        f"epsilon = {asked.epsilon:.4g} at delta = {asked.delta[0]:g}, for one point, "
        f"with {asked.needed - asked.colluding} owners' noise of variance "
        f"{asked.variance} in each count"
    )


def _noise(asked: Valuation) -> str:
    return (
        f"each count with noise of variance {asked.variance} from every owner"
        if asked.variance
        else "exact: no differential privacy"
    )


def _prepare(
    args: argparse.Namespace,
    roles: Sequence[str],
    *outputs: Path,
    others: Sequence[str] = (),
) -> Path:
    """Check all output paths, and return the message's."""
    out = result_path(args.out)
    inputs = [getattr(args, role) for role in roles]
    inputs = [source for source in inputs if source is not None]
    check_outputs(
        [*outputs, out.with_suffix(".json"), out],
        inputs=[*inputs, *others],
        force=args.force,
    )
    return out


def _publish(
    args: argparse.Namespace,
    started: float,
    writers: Mapping[Path, Callable[[Path], object]],
    names: Sequence[str],
    roles: Sequence[str],
    others: Sequence[str] = (),
) -> Path:
    config = [*names, *(_CONFIG if "data" in roles else ())]
    sources = [(role, getattr(args, role)) for role in roles]
    sources += [("message", path) for path in others]
    record = Record(
        command=args.command_line,
        config={name: getattr(args, name) for name in config},
        started=started,
        inputs=[describe(role, path) for role, path in sources if path is not None],
    )
    return publish(writers, record)
