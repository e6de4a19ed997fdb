"""`jaxsel market`: ask owners of data for samples, answer, and rank the answers."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from . import _market_datasets, _market_rank, _market_sources, _market_value
from ._checks import recorded
from ._market_data import (
    agreed,
    describe,
    encoding,
    leave_out_predictions,
    plain_labels,
    read_data,
    read_predictions,
    read_unlabelled,
    warn,
)
from ._market_options import add_answer, add_request
from ._output import Record, check_outputs, publish, result_path, say, say_checks
from ._parser import Commands, Parser
from ._tables import listing

if TYPE_CHECKING:
    import numpy as np

    from jaxsel.data import Dataset
    from jaxsel.market import HardSet, OwnerModel, Request

    from ._encoding import Encoding

_DESCRIPTION = """\
A trainer shows hard samples, which its model gets wrong, to owners of data. Each owner
sends the samples that should help most, within a budget. The trainer learns from each
answer in turn, and ranks the owners by what was gained on hard samples held out.

Requests and answers are files without pickle, with versions and checksums. The
trainer's model is in neither; docs/market.md says what else each side learns."""

_ENCODED = (
    "columns are encoded as numbers: the request tells owners the medians, standard "
    "deviations and categories of DATA"
)

_EXAMPLES = """\
examples:
  jaxsel market request val.npz --predictions predicted.npy --budget 32 \\
      --held-out-to held_out.npz --out request.npz
  jaxsel market answer request.npz mine.npz --owner north --out north.npz
  jaxsel market rank request.npz held_out.npz north.npz south.npz \\
      --train train.npz --out ranking.json"""


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "market",
        help="ask owners of data for samples, answer, rank the answers",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(show_help=parser.print_help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    add_request(actions).set_defaults(run=_request)
    add_answer(actions).set_defaults(run=_answer)
    _market_rank.add(actions)
    _market_value.add(actions)
    _market_datasets.add(actions)
    _market_sources.add(actions)


def _request(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = result_path(args.out)
    if args.prediction_column is not None and args.predictions is None:
        raise ValueError(
            f"--prediction-column {args.prediction_column} is a column of "
            "--predictions: name that file, too, which may be DATA itself"
        )
    if (args.predictions is None) != (args.held_out_to is None):
        raise ValueError("--predictions and --held-out-to go together")
    if args.hide_samples and args.features is None:
        raise ValueError("--hide-samples needs --features to show instead")
    extra = (
        []
        if args.held_out_to is None
        else [result_path(args.held_out_to, "--held-out-to")]
    )
    roles = ("data", "labels", "predictions", "features")
    _check_outputs(args, [*extra, out.with_suffix(".json"), out], roles)
    import jax
    import numpy as np

    from jaxsel.market import METHODS, hard_set, make_request

    from ._read import check_table_options

    check_table_options(args, args.data)
    encode = encoding(args.encode, gaps=METHODS[args.method].table)
    leave_out_predictions(args, encode)
    data = read_data(args, args.data, labels=args.labels, encode=encode)
    encoder = None if args.hide_samples else encode.encoder
    features = _features(args, len(data))
    rows, hard = np.arange(len(data)), None
    if args.predictions is not None:
        with recorded() as doubts:
            hard = hard_set(
                read_predictions(args),
                plain_labels(data.y),
                key=jax.random.key(args.seed),
                held_out=args.held_out,
                minimum=args.minimum,
            )
        say_checks(doubts)
        encode.checks += doubts
        rows = hard.shared
    request = make_request(
        None if args.hide_samples else data.x[rows],
        data.y[rows],
        budget=args.budget,
        method=args.method,
        features=None if features is None else features[rows],
        columns=None if args.hide_samples or encoder else data.feature_names,
        encoder=encoder,
        classes=np.unique(data.y).tolist(),
    )
    writers: dict[Path, Callable[[Path], object]] = {}
    if hard is not None:
        shown = features if args.hide_samples and features is not None else data.x
        x, y = shown[hard.held_out], plain_labels(data.y[hard.held_out])
        writers[extra[0]] = lambda path: _save_samples(path, x, y)
    writers[out] = request.save
    names = ("budget", "method", "hide_samples", "held_out", "minimum")
    names += ("prediction_column",)
    record = _record(args, started, names, roles, data, encode)
    manifest = publish(writers, record)
    say(
        *_about_request(request, hard),
        *([] if encoder is None else [_ENCODED]),
        f"Wrote {', '.join(map(str, [*writers, manifest]))}",
    )


def _answer(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = result_path(args.out)
    if (args.refuse is None) == (args.data is None):
        raise ValueError("either DATA or --refuse must be given")
    if args.unlabelled and args.labels is not None:
        raise ValueError("--labels and --unlabelled must not be given together")
    roles = ("request", "data", "labels", "features")
    _check_outputs(args, [out.with_suffix(".json"), out], roles)
    import jax
    import numpy as np

    from jaxsel.market import Request, answer, refuse

    from ._read import check_table_options

    request = Request.load(args.request, max_bytes=args.max_bytes)
    data, checks = None, []
    if args.refuse is not None:
        reply = refuse(request, owner=args.owner, reason=args.refuse)
    else:
        check_table_options(args, args.data)
        shown = request.schema.sample_shape is not None
        # Of DATA only the labels count then, so that its columns may be any.
        encode = agreed(request) if shown or not args.features else encoding("auto")
        if args.unlabelled:
            data = read_unlabelled(args, args.data, encode=encode)
        else:
            data = read_data(args, args.data, labels=args.labels, encode=encode)
        features = _features(args, len(data))
        if shown or features is None:
            ordered = _in_order(data, request.schema.columns)
        else:
            ordered = dataclasses.replace(data, x=features, feature_names=None)
        method = args.method or request.method
        with recorded() as checks:
            reply = answer(
                request,
                ordered.x if shown else None,
                None if args.unlabelled else ordered.y,
                owner=args.owner,
                features=features if shown else ordered.x,
                model=_owner_model(args, method, request, ordered),
                method=method,
                metric=args.metric,
                max_samples=args.max_samples,
                max_share=args.max_share,
                allow_all=args.allow_all,
                key=jax.random.key(args.seed),
            )
        if not len(reply):
            classes = listing(np.unique(plain_labels(ordered.y)).astype(str))
            has = "" if args.unlabelled else f"; DATA has {classes}"
            checks.append(f"nothing is sent: {reply.reason}{has}")
        say_checks(checks)
    names = ("owner", "method", "metric", "unlabelled", "allow_all", "refuse")
    names += ("max_samples", "max_share", "standardize")
    record = _record(args, started, names, roles, data)
    record = dataclasses.replace(record, checks=checks)
    manifest = publish({out: reply.save}, record)
    say(
        f"{len(reply)} samples for {request!r}",
        f"chosen by {reply.method}: {reply.status}"
        + (f", {reply.reason}" if reply.reason else ""),
        f"Wrote {out}, {manifest}",
    )


def _features(args: argparse.Namespace, count: int) -> np.ndarray | None:
    """Read `--features`, a row for each of `count` samples; None if not given.

    Raises:
        ValueError: If there are more rows, or fewer.
    """
    from ._read import read_array

    if args.features is None:
        return None
    features = read_array(args.features, args.x_key)
    if len(features) != count:
        raise ValueError(
            f"--features must have a row for each of the {count} samples, got "
            f"{len(features)}"
        )
    return features


def _in_order(data: Dataset, columns: tuple[str, ...] | None) -> Dataset:
    """Put the columns of a table into the request's order.

    Raises:
        ValueError: If they are others.
    """
    from jaxsel._inputs.frames import in_order

    x = in_order("DATA", data.x, data.feature_names, columns)
    return data if x is data.x else dataclasses.replace(data, x=x, feature_names=None)


def _owner_model(
    args: argparse.Namespace, method: str, request: Request, data: Dataset
) -> OwnerModel | None:
    """Return the model that samples are compared by: for gradients, a network."""
    import jax

    from jaxsel.market import METHODS, network_model

    if not METHODS[method].gradients or request.schema.classes is None:
        return _model_without_training(args, method, request, data)
    if args.standardize:
        raise ValueError(f"--standardize must not be given: {method} scales by itself")
    if args.unlabelled:
        raise ValueError(f"--unlabelled leaves {method} without labels to train on")
    if data.x.dtype.kind not in "biuf":
        raise ValueError(f"{method} needs DATA of numbers, got {data.x.dtype}")
    if request.x is None and request.schema.sample_shape is not None:
        raise ValueError(
            f"{method} needs a request that shows samples, got one of features: choose "
            "another --method"
        )
    return network_model(
        request,
        data.x,
        data.y,
        key=jax.random.key(args.seed),
        features=not args.features,
        name="DATA",
    )


def _model_without_training(
    args: argparse.Namespace, method: str, request: Request, data: Dataset
) -> OwnerModel | None:
    """Return a model that standardizes columns, or None; check that it may be used."""
    from jaxsel.market import METHODS, standardized_model

    rules = METHODS[method]
    compared = (rules.features and not rules.gradients) or args.unlabelled
    raw = request.x is not None and args.features is None
    if not args.standardize:
        if compared and raw and request.features is not None:
            warn(
                "the request has features, but --features is not given: samples are "
                "compared as they are"
            )
        return None
    if not (compared and raw) or data.x.dtype.kind not in "biuf":
        raise ValueError(
            "--standardize must not be given here: it is for retrieve and for "
            "--unlabelled, without --features, where the request shows samples"
        )
    return standardized_model(data.x)


def _save_samples(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    import numpy as np

    with path.open("wb") as file:
        np.savez(file, x=x, y=y)


def _check_outputs(
    args: argparse.Namespace, paths: list[Path], roles: tuple[str, ...]
) -> None:
    inputs = [getattr(args, role) for role in roles]
    inputs = [source for source in inputs if source is not None]
    check_outputs(paths, inputs=inputs, force=args.force)


def _record(
    args: argparse.Namespace,
    started: float,
    names: tuple[str, ...],
    roles: tuple[str, ...],
    data: Dataset | None,
    encode: Encoding | None = None,
) -> Record:
    sources = {role: getattr(args, role) for role in roles}
    reading = ("label_column", "columns", "drop", "x_key", "y_key")
    return Record(
        command=args.command_line,
        config={name: getattr(args, name) for name in (*names, *reading)}
        | ({} if encode is None else encode.describe()),
        started=started,
        inputs=[
            describe(role, source, data if role == "data" else None)
            for role, source in sources.items()
            if source is not None
        ],
        seeds=[args.seed],
        checks=() if encode is None else encode.checks,
    )


def _about_request(request: Request, hard: HardSet | None) -> list[str]:
    lines = [repr(request)]
    if hard is not None and hard.split:
        lines.append(f"{len(hard.held_out)} other hard samples are held out")
    elif hard is not None:
        lines.append("too few to split: the same hard samples are held out as well")
    return lines
