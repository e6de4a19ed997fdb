"""`jaxsel duplicates`: near-duplicates of a table, and leaks between two."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jaxsel._files.staged import staged
from jaxsel._inputs.usual_mistakes import no_doubts
from jaxsel.neighbors import METRICS

from ._checks import recorded
from ._choose import read_pools
from ._output import (
    Record,
    check_outputs,
    fingerprint,
    say,
    say_checks,
    show_progress,
)
from ._parser import (
    Commands,
    Parser,
    add_column_options,
    add_force,
    add_reading_options,
)
from ._reported import check_report_packages

if TYPE_CHECKING:
    import numpy as np

    from jaxsel.retrieve import NearDuplicates

_TABLE, _GROUPS, _PAGE = "duplicates.csv", "duplicates.npz", "report.html"
_NUMBERS, _MANIFEST = "report.json", "manifest.json"
_RECORDED = ("threshold", "metric", "standardize", "drop", "id_column", "label_column")
_COLUMNS = 5  # of the table that are shown beside rows
_DESCRIPTION = """\
Find groups of rows of TABLE that are nearly the same; or with --against, rows of TEST
that are nearly the same as one of TABLE, and so tell nothing about new data. The search
is exact: no pair is missed.

TABLE and TEST are files or prepared data sets as for `jaxsel value`, of features or
embeddings. Columns of tables are encoded as there; labels are no features.

Writes into the folder of --out duplicates.csv (group, table, row, partner, closeness,
and an id if there is one), duplicates.npz, for jaxsel.retrieve.NearDuplicates.load,
report.html with the groups of most rows, report.json, and manifest.json, which records
how all this came about."""

_EXAMPLES = """\
examples:
  jaxsel duplicates embeddings.npy --threshold 0.95
  jaxsel duplicates train.csv --against test.csv --label segment --standardize
  jaxsel duplicates digits:train --against digits:test --threshold 0.98"""


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "duplicates",
        help="find near-duplicates and leaks",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    # What reading needs beside its options; `jaxsel select` has more of them.
    parser.set_defaults(
        run=run,
        labels=None,
        like_labels=None,
        per_class=False,
        words={"x": "TABLE", "x_val": "TEST"},
    )
    parser.add_argument("source", metavar="TABLE", help="the samples")
    parser.add_argument(
        "--against",
        dest="like",
        metavar="TEST",
        help="find only pairs of a row of TABLE and one of these",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help="least cosine of a pair (default: 0.95), or with l2 the largest distance",
    )
    parser.add_argument(
        "--metric",
        choices=METRICS,
        default="cosine",
        metavar="NAME",
        help=f"{' or '.join(METRICS)} (default: cosine)",
    )
    parser.add_argument(
        "--standardize",
        action="store_true",
        help="files: centre each column and divide it by its deviation in TABLE",
    )
    parser.add_argument(
        "--groups",
        type=int,
        default=20,
        metavar="N",
        help="groups that the report shows (default: 20)",
    )
    parser.add_argument(
        "--out",
        default="duplicates",
        metavar="FOLDER",
        help="where to write (default: duplicates)",
    )
    parser.add_argument(
        "--no-report", action="store_true", help="write no report.html and report.json"
    )
    parser.add_argument(
        "--no-progress", action="store_true", help="show no progress bar"
    )
    add_force(parser)
    add_column_options(add_reading_options(parser))


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    threshold = _threshold(args)
    report = not args.no_report
    if args.groups < 1:
        raise ValueError(f"--groups must be at least 1, got {args.groups}")
    if report:
        check_report_packages()
    folder = Path(args.out)
    names = [_TABLE, _GROUPS, *([_PAGE, _NUMBERS] if report else []), _MANIFEST]
    files = [folder / name for name in names]
    sources = {"table": args.source, "test": args.like}
    sources = {role: source for role, source in sources.items() if source is not None}
    if folder.is_dir():
        check_outputs(files, inputs=sources.values(), force=args.force)
    elif folder.exists():
        raise FileExistsError(f"{folder} is a file: --out names a folder")

    from jaxsel.retrieve import duplicates

    with recorded() as checks:
        first, second, about = read_pools(args, frames=False, names=("TABLE", "TEST"))
        with no_doubts():  # reading has given these
            result = duplicates(
                first.x,
                None if second is None else second.x,
                threshold=threshold,
                metric=args.metric,
                progress=show_progress() and not args.no_progress,
            )
    ids = [first.ids, None if second is None else _ids(args, second.ids)]
    with staged(files, folder=folder) as parts:
        part = dict(zip(names, parts, strict=True))
        _table(result, ids).to_csv(part[_TABLE], index=False)
        _save(result, part[_GROUPS])
        if report:
            _write_report(args, result, ids, (part[_PAGE], part[_NUMBERS]))
        record = Record(
            command=args.command_line,
            config={name: getattr(args, name) for name in _RECORDED}
            | {"threshold": threshold, **about},
            started=started,
            inputs=[
                # A prepared data set is no file.
                {
                    "role": role,
                    "source": source,
                    **(fingerprint(source) if Path(source).is_file() else {}),
                }
                for role, source in sources.items()
            ],
            checks=checks,
        )
        written = {folder / name: part[name] for name in names[:-1]}
        part[_MANIFEST].write_text(record.manifest(written))
    say_checks(checks)
    say(
        str(result),
        f"{time.perf_counter() - started:.1f} s, wrote {', '.join(map(str, files))}",
    )


def _threshold(args: argparse.Namespace) -> float:
    if args.threshold is not None:
        return args.threshold
    if args.metric == "l2":
        raise ValueError(
            "--metric l2 needs --threshold, the largest distance of near-duplicates"
        )
    return 0.95


def _ids(args: argparse.Namespace, ids: np.ndarray | None) -> np.ndarray | None:
    """Return the ids of TEST, where it is a table with the column of ids."""
    import numpy as np

    from ._tables import TABLES, named_as_asked, read_frame

    name: str | None = args.id_column
    if ids is not None or name is None or Path(args.like).suffix.lower() not in TABLES:
        return ids
    with recorded():  # the first reading has given these warnings
        frame = cast(
            Any, named_as_asked(args.like, read_frame(args.like, [name]), [name])
        )
    return np.asarray(frame[name]) if name in frame else None


def _save(result: NearDuplicates, path: Path) -> None:
    """Write to a path that need not end in `.npz`."""
    with tempfile.TemporaryDirectory() as folder:
        path.write_bytes(result.save(Path(folder) / _GROUPS).read_bytes())


def _table(result: NearDuplicates, ids: list[np.ndarray | None]) -> Any:
    """Return the rows in groups, with ids where a table has them."""
    table: Any = result.to_pandas()
    for name, column in (("id", "row"), ("partner_id", "partner")):
        if all(part is None for part in ids):
            break
        places = zip(table["table"], table[column], strict=True)
        sides = [(int(side == "x_val"), row) for side, row in places]
        if column == "partner" and result.group_val is not None:
            sides = [(1 - side, row) for side, row in sides]
        named = [ids[side] for side, _ in sides]
        table[name] = [
            "" if part is None else part[row]
            for part, (_, row) in zip(named, sides, strict=True)
        ]
    return table


def _write_report(
    args: argparse.Namespace,
    result: NearDuplicates,
    ids: list[np.ndarray | None],
    files: tuple[Path, Path],
) -> None:
    from jaxsel.report import Report

    sources = [args.source, args.like]
    columns = [
        None if source is None else _shown(args, source, part)
        for source, part in zip(sources, ids, strict=True)
    ]
    images = [None if source is None else _images(args, source) for source in sources]
    chapter = result.chapter(
        *columns, images=images[0], images_val=images[1], budget=args.groups
    )
    against = "" if args.like is None else f" and {Path(args.like).name}"
    report = Report(
        title=f"Near-duplicates of {Path(args.source).name}{against}",
        summary=f"{chapter.title}.",
        chapters=[chapter],
    )
    with tempfile.TemporaryDirectory() as folder:
        for file, path in zip(report.save(folder), files, strict=True):
            path.write_bytes(file.read_bytes())


def _shown(
    args: argparse.Namespace, source: str, ids: np.ndarray | None
) -> dict[str, Any]:
    """Return ids and the first columns of a table, to show beside its rows."""
    from ._tables import TABLES, named_as_asked, read_frame

    shown: dict[str, Any] = {} if ids is None else {"id": ids}
    if Path(source).suffix.lower() not in TABLES:
        return shown
    asked = [name for name in (args.label_column, args.id_column) if name is not None]
    with recorded():  # the first reading has given these warnings
        frame = named_as_asked(source, read_frame(source, asked), asked)
    others = [name for name in frame.columns if name != args.id_column]
    # The names of a table's columns may be those of the report.
    fixed = ("group", "table", "row", "partner", "id", *METRICS)
    return shown | {
        f"{source}.{name}" if name in fixed else name: frame[name].to_numpy()
        for name in others[:_COLUMNS]
    }


def _images(args: argparse.Namespace, source: str) -> np.ndarray | None:
    """Return pictures `[n, height, width]` of an array file or a data set, or None."""
    import numpy as np

    from ._read import ARRAYS, read_array, read_samples
    from ._tables import TABLES

    suffix = Path(source).suffix.lower()
    if suffix in TABLES:
        return None
    if suffix in ARRAYS:
        array = read_array(source, args.x_key)
    else:
        array = read_samples(source, data_dir=args.data_dir).x
    if array.ndim == 4 and array.shape[-1] == 1:
        array = array[..., 0]
    return np.asarray(array) if array.ndim == 3 else None
