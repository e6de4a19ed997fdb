"""`jaxsel attribute`: the effect of each training sample on a network."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxsel._inputs.usual_mistakes import no_doubts
from jaxsel.attribute import ATTRIBUTIONS

from ._checks import recorded, same_inputs
from ._output import Record, show_progress
from ._parser import Commands, Parser
from ._value import (
    check_destinations,
    explain,
    labelled,
    publish_values,
    recorded_options,
)
from ._value_data import WORDS, read_data
from ._value_options import add_output_options, add_sample_options, add_sources

if TYPE_CHECKING:
    import jax
    import numpy as np

    from jaxsel import Values
    from jaxsel.attribute import Recipe

_DESCRIPTION = """\
Train a network on TRAIN, and estimate what each sample adds to its output for the
samples of VAL: by how much the loss on VAL would rise without it, in nats. Samples with
wrong labels get the lowest scores, mostly negative ones. For classes only; `jaxsel
value` needs no network.

TRAIN and VAL are files or prepared data sets as for `jaxsel value`. Features should be
of like scale: see --standardize. With --check N the scores are compared with networks
that are trained again on N parts of TRAIN, and beside them the values of `jaxsel
value`, which cost far less. Do this before you rely on scores.

Writes OUT.npz, for `jaxsel select` and jaxsel.Values.load, and beside it OUT.json,
which records how it came about."""

_EXAMPLES = """\
examples:
  jaxsel attribute digits:train digits:test --out scores.npz --check 64
  jaxsel attribute pool.csv --label-column income --split 0.2 --out s.npz --csv s.csv
  jaxsel attribute mnist:train[:2000] mnist:test[:100] --network cnn --out cnn.npz
  jaxsel select scores.npz --budget 200 --out selection.npz"""

_TRAINING = ("network", "hidden", "epochs", "batch_size", "rate", "momentum")
_OPTIONS = ("networks", "seed", "output", "reduce", "check", *_TRAINING)
_LEAST_CHECK = 8
_WORDS = WORDS | {
    "recipe": "the network",
    "seeds": "--networks",
    "the learning rate": "--rate",
    "scale the columns": "--standardize the columns",
}


class Measured(NamedTuple):
    """Measurements beside the values: lines for the user, figures and warnings."""

    lines: list[str]
    figures: dict[str, Any]
    checks: list[str]


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "attribute",
        help="estimate what each sample teaches a network",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    # Options of `jaxsel value` which reading and the manifest know.
    absent = ("merge", "checkpoint", "checkpoint_every", "decode", "score")
    parser.set_defaults(run=run, words=_WORDS, chunk_size=None, **dict.fromkeys(absent))
    add_sources(parser)
    group = parser.add_argument_group("which attribution")
    listed = "; ".join(f"{name}, {item.help}" for name, item in ATTRIBUTIONS.items())
    group.add_argument(
        "--method",
        choices=tuple(ATTRIBUTIONS),
        default="network_influence",
        metavar="METHOD",
        help=f"{listed} (default: network_influence)",
    )
    group.add_argument(
        "--networks",
        type=int,
        default=5,
        metavar="N",
        help="networks to train, each from its own seed; scores are their mean, with "
        "its standard error (default: 5)",
    )
    group.add_argument(
        "--output",
        choices=("loss", "margin", "log_odds"),
        default="loss",
        help="of the network for VAL: the negative loss; the logit of the label above "
        "the largest other; or its log-odds (default: loss)",
    )
    group.add_argument(
        "--reduce",
        choices=("mean", "none"),
        default="mean",
        help="over VAL: mean; or none, one row for each sample (default: mean)",
    )
    group.add_argument(
        "--check",
        type=int,
        metavar="N",
        help="train networks on N parts of TRAIN, and report how well the scores "
        f"predict them, {_LEAST_CHECK} or more; 64 cost a few minutes at most for "
        "small networks",
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of all draws (default: 0)"
    )
    group = parser.add_argument_group("the network and its training")
    group.add_argument(
        "--network",
        choices=("mlp", "cnn"),
        default="mlp",
        help="mlp, dense layers; cnn, two convolutions, for images (default: mlp)",
    )
    group.add_argument(
        "--hidden",
        type=int,
        default=64,
        metavar="UNITS",
        help="mlp: units of the hidden layer; 0 for logistic regression (default: 64)",
    )
    for flag, kind, default, text in (
        ("--epochs", int, 20, "passes over TRAIN"),
        ("--batch-size", int, 50, "samples in a step"),
        ("--rate", float, 0.05, "learning rate"),
        ("--momentum", float, 0.9, "of SGD"),
    ):
        group.add_argument(
            flag,
            type=kind,
            default=default,
            metavar="N" if kind is int else "R",
            help=f"{text} (default: {default})",
        )
    add_sample_options(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    options: dict[str, Any] = {name: getattr(args, name) for name in _OPTIONS}
    options["reduce"] = None if args.reduce == "none" else args.reduce
    _check(args)
    out, extras = check_destinations(args, options)
    with recorded() as doubts:
        data = read_data(
            args,
            ATTRIBUTIONS[args.method].function,
            options,
            progress=show_progress(),
        )
        y, y_val, n_classes = _classes(data.train.y, data.validation[1])
    recipe = _recipe(args, data.train.x.shape[1:], data.x.shape[1], n_classes)
    samples = data.x, y, data.validation[0], y_val

    def call(*samples: Any) -> Values:
        import jax

        return ATTRIBUTIONS[args.method].function(
            recipe,
            *samples,
            key=jax.random.key(args.seed),
            seeds=args.networks,
            output=args.output,
            reduce=options["reduce"],
        )

    values, checks = explain(call, *samples)
    measured = _measure(args, recipe, values, samples)
    record = Record(
        command=args.command_line,
        config=recorded_options(args, options, data) | measured.figures,
        started=started,
        inputs=data.inputs,
        seeds=[args.seed],
        checks=[*doubts, *checks, *measured.checks, *same_inputs(data.inputs)],
    )
    publish_values(out, extras, labelled(values, data), data, record, *measured.lines)


def _check(args: argparse.Namespace) -> None:
    for name, least in (
        *dict.fromkeys(("networks", "epochs", "batch_size"), 1).items(),
        ("hidden", 0),
        ("check", _LEAST_CHECK),
    ):
        number = getattr(args, name)
        if number is not None and number < least:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} must be at least {least}, got {number}")
    if not args.rate > 0:
        raise ValueError(f"--rate must be above 0, got {args.rate}")
    if not 0 <= args.momentum < 1:
        raise ValueError(f"--momentum must be in [0, 1), got {args.momentum}")


def _classes(y: np.ndarray, y_val: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return labels as numbers of their classes, and the number of classes.

    Raises:
        TypeError: If texts stand beside numbers.
        ValueError: If they are no classes, of one class only, or have none in common.
    """
    import numpy as np

    from jaxsel._inputs.labels import check_shared_labels, encode_labels

    names = "TRAIN", "VAL"
    for name, labels in zip(names, (y, y_val), strict=True):
        numeric = labels.dtype.kind in "fc" and bool((labels != np.round(labels)).any())
        if labels.ndim != 1 or numeric:
            raise ValueError(
                f"labels of {name} must be one class a sample, got {labels.dtype} of "
                f"shape {labels.shape}: for numeric targets take jaxsel value --method "
                "knn_regression_shapley"
            )
    codes, codes_val, n_classes = encode_labels(y, y_val, names=names)
    if n_classes < 2:
        raise ValueError(f"labels must be of two classes or more, got {y[:1]} only")
    check_shared_labels(y, y_val, codes, codes_val, names=names)
    return codes, codes_val, n_classes


def _recipe(
    args: argparse.Namespace, shape: tuple[int, ...], width: int, n_classes: int
) -> Recipe:
    import optax

    from jaxsel import models
    from jaxsel.attribute import Recipe

    if args.network == "cnn" and len(shape) not in (2, 3):
        raise ValueError(
            "--network cnn needs images, [n, height, width] or with channels last, got "
            f"samples of shape {list(shape)}"
        )
    sizes = (width, args.hidden, n_classes) if args.hidden else (width, n_classes)

    def model(rngs: Any) -> Any:
        if args.network == "cnn":
            return models.CNN(shape, n_classes, rngs=rngs)
        return models.MLP(*sizes, rngs=rngs)

    return Recipe(
        model,
        optax.sgd(args.rate, momentum=args.momentum),
        epochs=args.epochs,
        batch_size=args.batch_size,
    )


def _measure(
    args: argparse.Namespace,
    recipe: Recipe,
    values: Values,
    samples: tuple[Any, Any, Any, Any],
) -> Measured:
    """Measure the first network's accuracy, and with --check the scores."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    x, y, x_val, y_val = samples
    key = jax.random.key(args.seed)

    @jax.jit
    def right(key: jax.Array, x: Any, y: Any, x_val: Any, y_val: Any) -> jax.Array:
        params = recipe.train(jax.random.fold_in(key, 0), x, y)
        return jnp.mean(recipe.apply(params, x_val).argmax(1) == y_val)

    accuracy = float(
        right(key, np.asarray(x, np.float32), y, np.asarray(x_val, np.float32), y_val)
    )
    usual = float(np.bincount(y_val).max() / len(y_val))
    lines = [
        f"the first network classifies {accuracy:.1%} of VAL correctly; always the "
        f"most frequent class would be right for {usual:.1%}"
    ]
    figures: dict[str, Any] = {"accuracy": accuracy}
    checks = []
    if accuracy <= usual:
        checks.append(
            f"the first network classifies {accuracy:.1%} of VAL correctly, no more "
            f"than always the most frequent class, {usual:.1%}: scores of a network "
            "that has not learned say nothing. Try another --rate, more --epochs, or "
            "--standardize"
        )
    if args.check is not None:
        line, more = _compare(args, recipe, values, samples, key)
        lines.append(line)
        figures["lds"] = more
        if more["knn_shapley"][0] >= more[args.method][0]:
            checks.append(
                f"values of jaxsel value predict these networks no worse than "
                f"{args.method}, and cost less"
            )
    return Measured(lines, figures, checks)


def _compare(
    args: argparse.Namespace,
    recipe: Recipe,
    values: Values,
    samples: tuple[Any, Any, Any, Any],
    key: jax.Array,
) -> tuple[str, dict[str, Any]]:
    """Compute linear datamodelling scores of the values and of KNN values."""
    import jax
    import numpy as np

    from jaxsel import tasks
    from jaxsel.value import knn_shapley

    same_run = ATTRIBUTIONS[args.method].same_run
    share, seeds = (0.95, args.networks) if same_run else (0.5, 2)
    runs = tasks.retrain_subsets(
        recipe,
        *samples,
        key=key,
        subsets=args.check,
        share=share,
        seeds=seeds,
        same_seed=same_run,
        output=args.output,
        progress=show_progress(),
    )
    with no_doubts():
        usual = knn_shapley(*samples, k=5, reduce=values.reduce)
    figures: dict[str, Any] = {}
    ceiling = None
    for name, scores in ((args.method, values), ("knn_shapley", usual)):
        lds = tasks.lds(scores, runs, key=jax.random.fold_in(key, 0))
        errors = lds.stderr_subsets, lds.stderr_targets  # the second NaN for a mean
        figures[name] = [lds.mean, float(np.nanmax(errors))]
        ceiling = lds.ceiling
    says = ", ".join(
        f"{name} {mean:.2f} ± {error:.2f}" for name, (mean, error) in figures.items()
    )
    most = "" if ceiling is None else f", at most {ceiling:.2f}"
    return (
        f"rank correlation with networks trained on {args.check} parts of "
        f"{share:.0%} of TRAIN: {says}{most}"
    ), figures
