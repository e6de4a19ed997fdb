"""`jaxsel filter`: samples with losses like clean ones."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ._checks import recorded
from ._output import (
    Record,
    check_outputs,
    fingerprint,
    publish,
    result_path,
    say,
    say_checks,
    show_progress,
)
from ._parser import Commands, Parser, add_force

if TYPE_CHECKING:
    import numpy as np

_DESCRIPTION = """\
Keep the samples whose loss, under a model trained on clean data, is like that of clean
samples: up to the threshold below which LOSSES are distributed most like --benchmark.
Both are .npy or .npz files (array --key), or tables with a --column of losses. Train
the model on other clean samples than those of --benchmark.

Writes OUT.npz, for jaxsel.Selection.load, lowest loss first, and beside it OUT.json,
which records how it came about."""

_EXAMPLES = """\
examples:
  jaxsel filter losses.npy --benchmark clean.npy --out kept.npz
  jaxsel filter losses.csv --benchmark clean.csv --column loss --id-column id \\
      --out kept.npz --csv kept.csv"""


_WORDS = {"losses": "LOSSES", "benchmark_losses": "--benchmark"}


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "filter",
        help="keep samples with losses like clean ones",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, words=_WORDS)
    parser.add_argument("losses", metavar="LOSSES", help="of the samples to filter")
    parser.add_argument(
        "--benchmark", metavar="FILE", required=True, help="losses of clean samples"
    )
    parser.add_argument(
        "--column", metavar="COLUMN", help="tables, which need it: the losses"
    )
    parser.add_argument(
        "--id-column", metavar="COLUMN", help="LOSSES: names the samples, for --csv"
    )
    parser.add_argument(
        "--key", metavar="NAME", default="losses", help=".npz: (default: losses)"
    )
    parser.add_argument("--out", metavar="OUT.npz", required=True, help="the selection")
    parser.add_argument(
        "--csv", metavar="FILE", help="write a table: index or id, loss, kept"
    )
    add_force(parser)


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = result_path(args.out)
    extras = [] if args.csv is None else [Path(args.csv)]
    check_outputs(
        [*extras, out.with_suffix(".json"), out],
        inputs=[args.losses, args.benchmark],
        force=args.force,
    )
    import jax.numpy as jnp
    import numpy as np

    from jaxsel import Selection, loss_threshold

    with recorded() as checks:
        losses, ids = _read(args, args.losses, args.id_column)
        benchmark, _ = _read(args, args.benchmark, None)
        threshold = loss_threshold(benchmark, losses, progress=show_progress())
    kept = threshold.keeps(losses)
    order = np.argsort(losses, kind="stable")
    indices = jnp.asarray(order[kept[order]], jnp.int32)
    selection = Selection(
        indices=indices,
        weights=jnp.ones(len(indices), jnp.float32),
        n_valid=jnp.int32(len(indices)),
        method=f"loss_threshold(value={threshold.value:.6g})",
    )
    writers: dict[Path, Callable[[Path], object]] = {}
    if extras:
        import pandas as pd

        index = pd.RangeIndex(len(losses), name="index")
        if ids is not None:
            index = pd.Index(ids, name=args.id_column)
        table = pd.DataFrame({"loss": losses, "kept": kept}, index=index)
        writers[extras[0]] = table.to_csv
    writers[out] = selection.save
    sources = {"losses": args.losses, "benchmark": args.benchmark}
    names = ("column", "id_column", "key")
    config = {name: getattr(args, name) for name in names}
    record = Record(
        command=args.command_line,
        config={**config, "threshold": threshold.value, "distance": threshold.distance},
        started=started,
        inputs=[
            {"role": role, "source": source, **fingerprint(source)}
            for role, source in sources.items()
        ],
        checks=checks,
    )
    manifest = publish(writers, record)
    say_checks(checks)
    say(
        f"{threshold.n_kept} of {threshold.n} samples kept ({threshold.share:.1%}): "
        f"those with a loss of at most {threshold.value:.4g}",
        f"they differ from the {threshold.n_benchmark} of the benchmark by "
        f"{threshold.distance:.3f} (Kolmogorov-Smirnov distance)",
        f"Wrote {', '.join(map(str, [*writers, manifest]))}",
    )


def _read(
    args: argparse.Namespace, path: str, id_column: str | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return losses, and ids if a table has them."""
    import numpy as np

    from ._read import read_array, read_ids
    from ._tables import (
        TABLES,
        choose_columns,
        listing,
        named_as_asked,
        numbers,
        read_frame,
    )

    if Path(path).suffix.lower() not in TABLES:
        if id_column is not None:
            raise ValueError(f"--id-column is for tables, and {path} is none")
        losses = np.asarray(read_array(path, args.key, remedy="see --key"))
        if losses.ndim != 1:
            raise ValueError(
                f"{path} must hold one loss a sample, [n], got {losses.shape}"
            )
        return losses, None
    import pandas as pd

    frame = read_frame(path, () if id_column is None else (id_column,))
    if args.column is None:
        raise ValueError(
            f"{path} needs --column, which of its columns holds the losses: "
            f"{listing(frame.columns)}"
        )
    frame = named_as_asked(path, frame, (args.column, id_column))
    chosen = choose_columns(
        path, frame, apart=(id_column,), columns=[args.column], drop=()
    )
    ids = None if id_column is None else read_ids(path, frame[id_column])
    empty = np.flatnonzero(frame[args.column].isna())
    if empty.size:
        raise ValueError(
            f"{path} must have a loss in every row, but {args.column!r} is empty in "
            f"row {empty[0]} ({len(empty)} of {len(frame)} rows): fill these in, or "
            "leave the rows out"
        )
    losses = frame[args.column]
    others = np.flatnonzero(pd.isna(pd.to_numeric(losses, errors="coerce")))
    if others.size:
        raise TypeError(
            f"{path} must have numbers in column {args.column!r}, but row {others[0]} "
            f"has {losses.iloc[others[0]]!r} ({len(others)} of {len(frame)} rows have "
            "others): correct these, or leave the rows out"
        )
    return numbers(path, frame[chosen])[:, 0], ids
