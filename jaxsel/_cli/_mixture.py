"""`jaxsel mixture`: the best mixture of domains, from a table of runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsel._inputs.usual_mistakes import doubt

from ._checks import recorded
from ._output import (
    PICTURES,
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

if TYPE_CHECKING:
    import numpy as np

_DESCRIPTION = """\
Fit a metric as a function of the weights of data domains, and find the best mixture,
how sure it is, and the mixtures to run next.

RUNS is a table with a row for each run: the weights of its domains, which sum to 1, and
in the column of --metric its metric, such as a validation loss; a gap there is a run
that diverged. All other columns are domains, but those that --drop names. Writes a
table of the domains (weight in the best mixture with the ends of its 95 % interval, by
how much the metric is worse without the domain), and beside it a manifest that records
the fit and how it came about; with --next-out also a table of mixtures in the form of
RUNS, to be filled in."""

_EXAMPLES = """\
examples:
  jaxsel mixture runs.csv --metric loss --out best.csv
  jaxsel mixture runs.csv --metric accuracy --goal max --drop run --upper code=0.3 \\
      --next 16 --next-out next.csv --out best.csv --plot response.png"""

_WORDS = {"mixtures": "RUNS", "metrics": "metrics of RUNS"}
_LARGEST_ERROR = 1e-5  # of a sum of weights, as in jaxsel.value


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "mixture",
        help="find the best mixture of domains, from a table of runs",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, words=_WORDS)
    parser.add_argument("table", metavar="RUNS", help="weights and metric of each run")
    parser.add_argument(
        "--metric",
        metavar="COLUMN",
        default="metric",
        help="the column of metrics (default: metric)",
    )
    parser.add_argument(
        "--goal",
        choices=("min", "max"),
        default="min",
        metavar="GOAL",
        help="min for losses, max for accuracies (default: min)",
    )
    parser.add_argument(
        "--model",
        choices=("quadratic", "gp"),
        metavar="NAME",
        help="quadratic or gp (default: the one with the smaller error of runs left "
        "out)",
    )
    parser.add_argument(
        "--drop",
        metavar="COLUMN",
        action="append",
        default=[],
        help="a column that is no domain; may be repeated",
    )
    parser.add_argument(
        "--upper",
        metavar="DOMAIN=WEIGHT",
        action="append",
        default=[],
        help="the most that a domain may weigh, 0 to 1; may be repeated",
    )
    parser.add_argument(
        "--next",
        type=int,
        metavar="N",
        default=8,
        help="how many mixtures to propose (default: 8)",
    )
    parser.add_argument(
        "--next-out", metavar="NEXT.csv", help="write the proposed mixtures"
    )
    add_table_out(parser, "domains", plot="response")


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    check_ending("--out", args.out, TABLE)
    plot = check_ending("--plot", args.plot, PICTURES)
    next_out = check_ending("--next-out", args.next_out, TABLE)
    if args.next < 1:
        raise ValueError(f"--next must be at least 1, got {args.next}")
    out = Path(args.out)
    paths = [path for path in (plot, next_out) if path is not None]
    paths += [out.with_suffix(".json"), out]
    check_outputs(paths, inputs=[args.table], force=args.force)
    import pandas as pd

    from jaxsel.value import mixture_response

    with recorded() as checks:
        names, mixtures, metrics = _read(args)
        response = mixture_response(
            mixtures,
            metrics,
            goal=args.goal,
            model=args.model,
            upper=_upper(args.upper, names),
            names=names,
        )
        best = response.best()
        design = pd.DataFrame(response.next_design(args.next), columns=names)
    table = _domains(best)
    writers: dict[Path, Callable[[Path], object]] = {}
    if plot is not None:
        writers[plot] = lambda path: _plot(response, path)
    if next_out is not None:
        # The column is for the metrics of these runs, as in RUNS.
        blank = design.assign(**{args.metric: ""})
        writers[next_out] = lambda path: blank.to_csv(path, index=False)
    writers[out] = table.to_csv
    options = ("metric", "goal", "model", "drop", "upper", "next")
    record = Record(
        command=args.command_line,
        config={name: getattr(args, name) for name in options}
        | {"response": _described(response, best)},
        started=started,
        inputs=[{"source": args.table, **fingerprint(args.table)}],
        checks=checks,
    )
    manifest = publish(writers, record)
    say_checks(checks)
    low, high = best.interval
    say(
        table.round(3).to_string(),
        f"{args.metric} of this mixture: {best.metric:.4g}, 95 % interval {low:.4g} to "
        f"{high:.4g}",
        f"fitted: {response.model} to {'the logarithm of ' if response.log else ''}"
        f"{args.metric} in {len(response.metrics)} runs; root mean square error of "
        f"runs left out {response.loo_errors[response.model]:.3g}",
        f"{len(design)} mixtures to run next:",
        design.head(10).round(3).to_string(index=False),
        f"wrote {', '.join(map(str, [*writers, manifest]))}",
    )


def _domains(best: Any) -> Any:
    """Return a table of the domains."""
    import pandas as pd

    columns = {
        "weight": best.mixture,
        "low": best.weight_intervals[:, 0],
        "high": best.weight_intervals[:, 1],
        "without": best.without,
        "without_stderr": best.without_error,
        "dispensable": [name in best.dispensable for name in best.names],
    }
    return pd.DataFrame(columns, index=pd.Index(best.names, name="domain"))


def _described(response: Any, best: Any) -> dict[str, Any]:
    """Return the fit for the manifest."""
    return {
        "runs": len(response.metrics),
        "diverged": response.diverged,
        "model": response.model,
        "log": response.log,
        "loo_error": float(response.loo_errors[response.model]),
        "noise": float(response.noise),
        "best": best.metric,
        "interval": list(best.interval),
    }


def _plot(response: Any, path: Path) -> None:
    from jaxsel.report import new_figure, style

    figure = new_figure(8, 3.2)
    with style():
        response.plot(ax=figure.subplots(1, 2))
    figure.savefig(path)


def _read(args: argparse.Namespace) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return domains, weights `[R, D]` and metrics `[R]`.

    Raises:
        ValueError: If a column is missing or holds no numbers, or weights do not sum
            to 1.
    """
    import numpy as np

    from ._tables import (
        check_numbers,
        choose_columns,
        listing,
        named_as_asked,
        read_frame,
    )

    frame = named_as_asked(
        args.table, read_frame(args.table), [args.metric, *args.drop]
    )
    names = choose_columns(
        args.table, frame, apart=[args.metric], columns=None, drop=args.drop
    )
    if args.metric in args.drop or len(names) < 2:
        raise ValueError(
            f"{args.table} must have a column {args.metric!r} and two domains or more, "
            f"got {listing(map(repr, names)) or 'none'}"
        )
    for name in (args.metric, *names):
        domain = ", or leave a column that is no domain out with --drop"
        remedy = "" if name == args.metric else domain
        check_numbers(args.table, frame[name], f": correct it{remedy}")
    weights: Any = frame[names].to_numpy(np.float64, na_value=np.nan)
    metrics: Any = frame[args.metric].to_numpy(np.float64, na_value=np.nan)
    sums = weights.sum(axis=1)
    digits = next((q for q in (2, 3, 4) if (weights == weights.round(q)).all()), None)
    rounding = 0.0 if digits is None else len(names) / 2 * 10.0**-digits
    far = np.abs(sums - 1)
    wrong = np.flatnonzero(~(far <= max(_LARGEST_ERROR, rounding)))
    if wrong.size:
        row = wrong[0]
        raise ValueError(
            f"{args.table} must have weights that sum to 1 in each row, but row {row} "
            f"sums to {sums[row]:.6g} over {listing(map(repr, names))}: leave columns "
            "that are no domains out with --drop, or divide each row by its sum"
        )
    if (far > _LARGEST_ERROR).any():
        doubt(
            f"weights of {args.table} are rounded to {digits} digits, and sum to "
            f"{sums.min():.6g} to {sums.max():.6g}: each row is divided by its sum"
        )
    return names, weights / sums[:, None], metrics


def _upper(given: list[str], names: list[str]) -> np.ndarray | None:
    """Return upper bounds of the weights, `[D]`, or None for none."""
    import numpy as np

    if not given:
        return None
    bounds = np.ones(len(names))
    for text in given:
        name, _, weight = text.rpartition("=")
        try:
            bounds[names.index(name)] = float(weight)
        except ValueError:
            raise ValueError(
                f"--upper must be DOMAIN=WEIGHT with one of {', '.join(names)}, got "
                f"{text!r}"
            ) from None
        if not 0 <= bounds[names.index(name)] <= 1:
            raise ValueError(f"--upper must have weights from 0 to 1, got {text!r}")
    return bounds
