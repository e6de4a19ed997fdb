"""`jaxsel value`: the value of each training sample."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import inspect
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsel.value import ESTIMATORS, VALUES

from ._checks import recorded, same_inputs
from ._merged import describe_merged
from ._output import (
    PICTURES,
    Record,
    check_ending,
    check_outputs,
    publish,
    result_path,
    say,
    say_checks,
    show_progress,
)
from ._parser import Commands, Parser
from ._programs import ignore_failures
from ._retrain import LEARNERS, OPTIONS as OF_RETRAINING, RETRAINING, retraining
from ._value_data import WORDS, Data, read_data
from ._value_options import DESCRIPTION, EXAMPLES, METHODS, add_options

if TYPE_CHECKING:
    import jax
    import numpy as np

    from jaxsel import Values

# Options of the functions; each function's own, and their defaults, are read from its
# signature.
OPTIONS = ("k", "metric", "ties", "reduce", "radius", "alpha", "beta", "n_classes")
# Other options that the manifest records.
_RECORDED = (
    "chunk_size",
    "x_key",
    "y_key",
    "val_x_key",
    "val_y_key",
    "label_column",
    "id_column",
    "drop",
    "drop_unlabelled",
    "split",
    "standardize",
    "decode",
)


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "value",
        help="value training samples",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    parser.set_defaults(run=run, words=_words)
    add_options(parser)


def _words(args: argparse.Namespace) -> dict[str, str]:
    """Return users' names of the method's arguments."""
    if args.method not in RETRAINING:
        return WORDS
    learner = args.learner or "logistic"
    return WORDS | {
        "metric": "--score",
        "n": "--samples",
        LEARNERS[learner]: f"--learner {learner}",
        "a learner of targets, such as RidgeRegression()": "--learner ridge",
    }


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    function, options = _function(args)
    out, extras = check_destinations(args, options)
    from ._read import read_values

    merge: str | None = args.merge
    previous = None if merge is None else read_values(merge)
    with recorded() as doubts:
        data = read_data(args, function, options, progress=_progress(args))
    train, inputs = data.train, data.inputs
    if merge is not None and previous is not None:
        reduce = options.get("reduce", "mean")
        if (len(previous), previous.reduce) != (len(train), reduce):
            raise ValueError(
                "--merge needs values of the same samples with the same --reduce, but "
                f"{merge} holds {previous}, and TRAIN has {len(train)} samples"
            )
        inputs.append(describe_merged(merge, inputs))

    mesh, devices = _mesh(args.devices)
    call = functools.partial(data.valued, mesh=mesh, progress=_progress(args))
    values, checks = explain(call, data.x, train.y, *data.validation)
    checks = [*doubts, *checks]
    checks += same_inputs(inputs) if not any("x_val" in c for c in checks) else []
    k = options.get("k", 0)
    if k > len(train) / 2:
        checks.append(
            f"--k {k} is more than half of the {len(train)} samples of TRAIN, which "
            "says little about any one of them"
        )
    values = labelled(values, data)
    if previous is not None:
        values = previous.merge(values)
    record = Record(
        command=args.command_line,
        config=recorded_options(args, options, data),
        started=started,
        inputs=inputs,
        devices=devices,
        seeds=[options["seed"]] if "seed" in options else data.seeds,
        checks=checks,
    )
    publish_values(out, extras, values, data, record)


def check_destinations(
    args: argparse.Namespace, options: Mapping[str, Any]
) -> tuple[Path, dict[str, Path]]:
    """Return the paths of the result, and of plot and CSV, which can be written."""
    out = result_path(args.out)
    extras = _extras(args, options)
    sources = (args.train, args.val, args.train_labels, args.val_labels)
    check_outputs(
        [*extras.values(), out.with_suffix(".json"), out],
        inputs=[source for source in sources if source is not None],
        force=args.force,
    )
    return out, extras


def labelled(values: Values, data: Data) -> Values:
    """Return values with the ids of TRAIN, if it has any, as their index."""
    ids = data.train.ids
    return (
        values
        if ids is None
        else dataclasses.replace(values, index=tuple(ids.tolist()))
    )


def recorded_options(
    args: argparse.Namespace, options: Mapping[str, Any], data: Data
) -> dict[str, Any]:
    """Return the options as the manifest records them."""
    return {
        "function": args.method,
        **options,
        **{name: getattr(args, name) for name in _RECORDED},
        **data.about,
    }


def publish_values(
    out: Path,
    extras: Mapping[str, Path],
    values: Values,
    data: Data,
    record: Record,
    *more: str,
) -> None:
    """Write values, plot, CSV and manifest, and print a summary and further lines.

    Raises:
        ValueError: If no value is known.
    """
    import numpy as np

    if np.isnan(values.values).all():
        raise ValueError(
            f"all {len(values)} values are unknown (NaN): take more --samples"
        )
    train = data.train
    labels = train.y if train.y.ndim == 1 else None
    writers: dict[Path, Callable[[Path], object]] = {}
    if "--plot" in extras:
        knn_value = VALUES.get(record.config["function"])
        classes = None if knn_value is not None and knn_value.targets else labels
        writers[extras["--plot"]] = lambda path: _plot(values, classes, path)
    if "--csv" in extras:
        writers[extras["--csv"]] = values.to_pandas(labels=labels).to_csv
    writers[out] = values.save
    manifest = publish(writers, record)
    say_checks(record.checks)
    say(
        *_summary(values, train.ids),
        *more,
        f"{time.perf_counter() - record.started:.1f} s, wrote "
        f"{', '.join(map(str, [*writers, manifest]))}",
    )


def _function(args: argparse.Namespace) -> tuple[Callable[..., Values], dict[str, Any]]:
    """Return the function to call, and all its options, defaults included."""
    names = [*OPTIONS, *OF_RETRAINING, "hybrid"]
    if args.split is not None:
        names.remove("seed")  # of the split
    typed = [name for name in names if getattr(args, name) is not None]
    if wrong := [name for name in typed if not _takes(args.method, name)]:
        raise ValueError(_not_taken(args.method, wrong))
    if args.method in RETRAINING:
        return retraining(args)
    function = VALUES[args.method].function
    parameters = inspect.signature(function).parameters
    options = {}
    for name in OPTIONS:
        if name in parameters:
            value = getattr(args, name)
            options[name] = parameters[name].default if value is None else value
    options["method"] = "hybrid" if args.hybrid else "exact"
    if options.get("radius") is inspect.Parameter.empty:
        raise ValueError(
            f"{args.method} needs --radius, the distance up to which samples are "
            "neighbours, such as --radius 1"
        )
    if options["reduce"] == "none":
        options["reduce"] = None
    return function, options


def _takes(method: str, option: str) -> bool:
    """Return whether a method has an option, given by the name of its value."""
    if method in RETRAINING:
        argument = OF_RETRAINING.get(option, option)
        return argument is None or argument in ESTIMATORS[method].arguments
    if option == "hybrid":
        return option in VALUES[method].methods
    return option in inspect.signature(VALUES[method].function).parameters


def _not_taken(method: str, options: list[str]) -> str:
    flags = [f"--{name.replace('_', '-')}" for name in options]
    takers = [
        f"{flag} is for {', '.join(m for m in METHODS if _takes(m, name))}"
        for flag, name in zip(flags, options, strict=True)
    ]
    return (
        f"{method} does not take {', '.join(flags)}: {'; '.join(takers)}; see jaxsel "
        "value --help"
    )


def _extras(args: argparse.Namespace, options: Mapping[str, Any]) -> dict[str, Path]:
    """Return the paths of plot and CSV; raise now if writing them would fail later."""
    paths = {}
    for flag, path, module in (
        ("--plot", args.plot, "matplotlib"),
        ("--csv", args.csv, "pandas"),
    ):
        if path is None:
            continue
        if options.get("reduce", "mean") is None:
            raise ValueError(f"{flag} needs one value a sample, not --reduce none")
        if flag == "--plot":
            check_ending(flag, path, PICTURES)
        importlib.import_module(module)
        paths[flag] = Path(path)
    return paths


def _progress(args: argparse.Namespace) -> bool:
    return show_progress() and not args.no_progress


def _mesh(devices: int | str) -> tuple[jax.sharding.Mesh | None, int]:
    """Return a mesh if several devices are to be used, and how many are used."""
    import jax

    from jaxsel import make_mesh

    available = jax.devices()
    wanted = len(available) if devices == "all" else int(devices)
    if not 1 <= wanted <= len(available):
        raise ValueError(
            f"--devices must be from 1 to {len(available)}, the number of devices "
            f"here, or all, got {wanted}"
        )
    return (None if wanted == 1 else make_mesh(available[:wanted])), wanted


def explain(call: Callable[..., Values], *arrays: Any) -> tuple[Values, list[str]]:
    """Call a function; warnings say which option each array stands for."""
    names = " (x, y, t: TRAIN; x_val, y_val, t_val: VAL)"
    with recorded() as caught:
        ignore_failures()
        values = call(*arrays)
    checks = [
        f"{check}{names}" if re.match(r"[xyt](_val)?\b", check) else check
        for check in caught
    ]
    return values, list(dict.fromkeys(checks))  # a chunk of VAL may repeat another's


def _plot(values: Values, classes: np.ndarray | None, path: Path) -> None:
    from jaxsel.report import new_figure, style

    figure = new_figure(8.8, 3.2)
    with style():
        axes = figure.subplots(1, 2)
    values.plot(axes, labels=classes)
    figure.savefig(path)


def _summary(values: Values, ids: np.ndarray | None) -> list[str]:
    """Return a summary of a few lines."""
    import numpy as np

    lines = [repr(values)]
    if values.values.ndim == 1:
        v = np.asarray(values.values)
        known = v[~np.isnan(v)]
        few = min(10, len(known))
        ids = np.arange(len(v)) if ids is None else ids
        unknown = f", {len(v) - len(known)} unknown" if len(known) < len(v) else ""
        lines += [
            f"from {known.min():.3g} to {known.max():.3g}, mean {known.mean():.3g}; "
            f"{np.sum(known < 0)} of {len(v)} below zero{unknown}",
            f"most valuable:  {' '.join(map(str, ids[values.top(few)]))}",
            f"least valuable: {' '.join(map(str, ids[values.bottom(few)]))}",
        ]
    if values.error_bound is not None:
        bound = float(np.max(np.asarray(values.error_bound)))
        lines.append(f"certified to within {bound:.2g}")
    return lines
