"""`jaxsel errors`: labels of a table that are probably wrong."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsel._files.staged import staged

from ._checks import recorded
from ._encoding import Encoding
from ._errors_options import DESCRIPTION, EXAMPLES, add_options, words
from ._output import (
    Record,
    check_outputs,
    fingerprint,
    fingerprint_dataset,
    say,
    say_checks,
    show_progress,
)
from ._parser import Commands, Parser
from ._programs import ignore_failures
from ._reported import check_report_packages

if TYPE_CHECKING:
    import numpy as np

    from jaxsel.data import Dataset
    from jaxsel.labels import LabelErrors

# Options that the manifest records.
_RECORDED = (
    "filter_by",
    "rank_by",
    "folds",
    "metric",
    "min_per_class",
    "label_column",
    "text",
    "encoder",
    "x_key",
    "y_key",
    "id_column",
    "drop",
    "drop_unlabelled",
    "as_is",
)
_TABLE, _PAGE, _NUMBERS = "errors.csv", "report.html", "report.json"
_MANIFEST = "manifest.json"
_UNLIKE = 1e3  # deviations of columns that differ by more are not of like scale
_MOSTLY = 0.5  # share of suspects that are wrong, below which they are doubtful
_FEW = 11  # suspects from which on not all are printed
_COLUMNS = 5  # of the table that are shown beside suspects


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "errors",
        help="find wrong labels",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    parser.set_defaults(run=run, words=words)
    add_options(parser)


def run(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    report = not args.no_report
    if report:
        check_report_packages()
    folder = Path(args.out)
    names = [_TABLE, *([_PAGE, _NUMBERS] if report else []), _MANIFEST]
    files = [folder / name for name in names]
    inputs = (args.table, args.labels, args.features, args.pred_probs)
    sources = [source for source in inputs if source is not None]
    if folder.is_dir():
        check_outputs(files, inputs=sources, force=args.force)
    elif folder.exists():
        raise FileExistsError(f"{folder} is a file: --out names a folder")

    encoding = Encoding(args.encode)
    with recorded() as doubts:
        data, texts = _read(args, encoding)
    probs = None
    if args.pred_probs is not None:
        from ._read import read_array

        remedy = "the array of --pred-probs must be called so"
        probs = read_array(args.pred_probs, "pred_probs", remedy=remedy)
        probs = _labelled_rows(args, data, probs, "--pred-probs")
    features = _features(args, data, texts, encoding, needed=probs is None)
    errors, checks = _find(args, data, features, probs)
    if "row" in data.extras:
        errors = dataclasses.replace(errors, index=tuple(data.extras["row"].tolist()))
    checks = [*doubts, *checks, *_check_overlap(errors)]
    encoded = encoding.encoder is not None
    checks += [] if features is None or encoded else _check_scales(features)

    paths = dict(zip(names, files, strict=True))
    with staged(files, folder=folder) as parts:
        part = dict(zip(names, parts, strict=True))
        shown = _shown(args, data, errors)
        _write_table(errors, shown, part[_TABLE])
        if report:
            _write_report(
                args, errors, data, texts, shown, (part[_PAGE], part[_NUMBERS])
            )
        record = Record(
            command=args.command_line,
            config={name: getattr(args, name) for name in _RECORDED}
            | ({} if encoding.columns is None else encoding.describe()),
            started=started,
            inputs=_describe(args, data),
            seeds=None if args.seed is None else [args.seed],
            checks=checks,
        )
        written = {paths[name]: part[name] for name in names[:-1]}
        part[_MANIFEST].write_text(record.manifest(written))
    say_checks(checks)
    say(
        str(errors),
        "",
        f"{time.perf_counter() - started:.1f} s, wrote {', '.join(map(str, files))}",
    )


def _read(
    args: argparse.Namespace, encoding: Encoding
) -> tuple[Dataset, np.ndarray | None]:
    """Return the samples, and their texts if they have any."""
    import numpy as np

    from ._read import TABLES, check_table_options, read_samples

    check_table_options(args, args.table)
    table = Path(args.table).suffix.lower() in TABLES
    drop = [*args.drop, *([] if args.text is None else [args.text])]
    if args.text is not None and not table:
        raise ValueError(f"--text names a column of a table, and {args.table} is none")
    # Features from elsewhere: the table has labels, and texts to show.
    elsewhere = args.features is not None or args.encoder is not None
    unused = table and (elsewhere or args.pred_probs is not None)
    texts = _texts(args)
    if texts is not None:
        return texts, texts.x
    data = read_samples(
        args.table,
        labels=args.labels,
        label_column=args.label_column,
        columns=() if unused else None,
        id_column=args.id_column,
        drop=() if unused else drop,
        encode=None if unused else encoding,
        drop_unlabelled=args.drop_unlabelled,
        x_key=args.x_key,
        y_key=args.y_key,
        data_dir=args.data_dir,
        progress=show_progress() and not args.no_progress,
    )
    if data.y.ndim != 1:
        raise ValueError(f"{args.table} must have labels of shape [n]")
    if data.class_names is not None and data.y.min(initial=0) >= 0:
        # By their names, which the report shows.
        data = dataclasses.replace(data, y=np.asarray(data.class_names)[data.y])
    if args.text is not None:
        text = _column(args.table, args.text)
        return data, _labelled_rows(args, data, text, "--text")
    texts = data.x if data.x.dtype.kind in "OU" else None
    return data, texts


def _texts(args: argparse.Namespace) -> Dataset | None:
    """Return the samples of a file of texts; None of any other."""
    import numpy as np

    from jaxsel.data import Dataset

    from ._read import ARRAYS, read_array

    if Path(args.table).suffix.lower() not in ARRAYS:
        return None
    x = np.asarray(read_array(args.table, args.x_key))
    if x.ndim != 1 or x.dtype.kind != "U":
        return None
    if args.labels is None and Path(args.table).suffix.lower() == ".npy":
        raise ValueError(f"{args.table} holds texts only: give its --labels")
    y = np.asarray(read_array(args.labels or args.table, args.y_key))
    return Dataset(x=x, y=y)


def _labelled_rows(
    args: argparse.Namespace, data: Dataset, array: np.ndarray, option: str
) -> np.ndarray:
    """Take the rows of an array that `--drop-unlabelled` keeps of the table.

    Raises:
        ValueError: If it has neither the rows of the table nor those with a label.
    """
    from ._tables import read_frame

    rows = data.extras.get("row")
    if rows is None or len(array) == len(rows):
        return array
    with recorded():  # the first reading has given these warnings
        total = len(read_frame(args.table))
    if len(array) != total:
        raise ValueError(
            f"{option} must have a row for each of the {total} rows of {args.table}, "
            f"or of the {len(rows)} with a label, got {len(array)}"
        )
    return array[rows]


def _column(path: str, name: str) -> np.ndarray:
    """Return a column of a table as texts."""
    from ._tables import choose_columns, named_as_asked, read_frame

    frame = named_as_asked(path, read_frame(path, [name]), [name])
    choose_columns(path, frame, apart=(), columns=[name], drop=())
    return frame[name].fillna("").astype(str).to_numpy(object)


def _features(
    args: argparse.Namespace,
    data: Dataset,
    texts: Any,
    encoding: Encoding,
    *,
    needed: bool,
) -> np.ndarray | None:
    """Return features `[n, d]`; None where probabilities suffice."""
    import numpy as np

    from ._read import TABLES, read_array

    if args.features is not None:
        if args.encoder is not None:
            raise ValueError("--features and --encoder must not both be given")
        features = np.asarray(read_array(args.features, args.x_key))
        return _labelled_rows(args, data, features, "--features")
    if args.encoder is not None:
        if texts is None:
            raise ValueError(
                "--encoder is for texts: those of a data set, an array, or --text"
            )
        return _encode(args, texts)
    if texts is not None and args.text is None:
        if needed:
            raise ValueError(
                f"{args.table} holds texts, which have no features: give --encoder "
                "minilm, or features or probabilities of your own by --features or "
                "--pred-probs"
            )
        return None
    if not data.x.size:
        if needed:
            raise ValueError(f"{args.table} has no columns that could be features")
        return None
    table = Path(args.table).suffix.lower() in TABLES
    if encoding.encoder is not None:
        return data.x  # on one scale already
    if data.name or data.x.ndim > 2 or (table and not args.as_is):
        return data.as_features()
    return np.asarray(data.x)


def _encode(args: argparse.Namespace, texts: Any) -> np.ndarray:
    from jaxsel import models

    known = {model.name: model for model in models.available_models()}
    if args.encoder not in known:
        raise ValueError(
            f"--encoder must be one of {', '.join(known)}, got {args.encoder!r}"
        )
    if known[args.encoder].path is None:
        raise FileNotFoundError(
            f"{args.encoder} is not prepared: run `jaxsel models prepare "
            f"{args.encoder}` first"
        )
    return models.text_features(
        [str(text) for text in texts],
        models.load_target(models.prepare_model(args.encoder)),
        cache=models.cache_folder("features"),
        progress=show_progress() and not args.no_progress,
    )


def _find(
    args: argparse.Namespace, data: Dataset, features: Any, probs: Any
) -> tuple[LabelErrors, list[str]]:
    """Find label errors."""
    import jax

    import jaxsel

    options: dict[str, Any] = {}
    if args.rank_by:
        options["rank_by"] = args.rank_by
    if probs is not None and data.class_names is not None:
        options["classes"] = data.class_names  # in the order of their numbers
    with recorded() as caught:
        ignore_failures()
        label_errors = jaxsel.find_label_errors(
            features,
            data.y,
            pred_probs=probs,
            folds=args.folds,
            key=None if args.seed is None else jax.random.key(args.seed),
            filter_by=args.filter_by,
            min_per_class=args.min_per_class,
            metric=args.metric,
            progress=show_progress() and not args.no_progress,
            **options,
        )
    return label_errors, caught


def _check_scales(features: np.ndarray) -> list[str]:
    import numpy as np

    from jaxsel._inputs.columns import on_one_scale

    if features.ndim != 2 or len(features) < 2:
        return []
    if not np.array_equal(on_one_scale(features), features.astype(np.float32)):
        return []  # scales make no difference
    spread = np.asarray(features, np.float64).std(axis=0)
    # Leave out dead dimensions of encoders, which vary by rounding only.
    spread = spread[spread > np.finfo(np.float64).eps * spread.max(initial=0)]
    if not len(spread) or spread.max() <= _UNLIKE * spread.min():
        return []
    return [
        f"columns of the features differ in scale by {spread.max() / spread.min():.0e}:"
        " those that vary most decide which samples are near"
    ]


def _check_overlap(errors: LabelErrors) -> list[str]:
    """Warn where a suspect is more likely right than wrong, unless all are printed."""
    if len(errors) < _FEW or errors.precision >= _MOSTLY:
        return []
    return [
        f"models agree with {errors.accuracy:.0%} of the labels that they have not "
        f"seen, and only about {errors.precision:.0%} of the {len(errors)} suspects "
        "are wrong: look at the first ones, or give features that tell more"
    ]


def _shown(
    args: argparse.Namespace, data: Dataset, errors: LabelErrors
) -> dict[str, np.ndarray]:
    """Choose the columns to show beside each suspect: its id, and the most telling."""
    from ._read import TABLES
    from ._tables import named_as_asked, read_frame
    from ._telling import telling_columns

    shown = {} if data.ids is None else {"id": data.ids}
    if Path(args.table).suffix.lower() not in TABLES:
        return shown
    apart = args.label_column, args.id_column, args.text
    asked = [name for name in apart if name is not None]
    with recorded():  # the first reading has given these warnings
        frame = named_as_asked(args.table, read_frame(args.table, asked), asked)
    if "row" in data.extras:
        frame = frame.iloc[data.extras["row"]]
    return shown | telling_columns(frame, errors.given, apart=apart, most=_COLUMNS)


def _write_table(errors: LabelErrors, shown: dict[str, np.ndarray], path: Path) -> None:
    rows = errors.indices
    of_file = rows if errors.index is None else [errors.index[i] for i in rows]
    columns: dict[str, Any] = {"row": of_file}
    if "id" in shown:
        columns["id"] = shown["id"][rows]
    columns |= {
        "given": errors.given[rows],
        "suggested": errors.suggested[rows],
        "score": [f"{score:.6g}" for score in errors.scores[rows]],
        "wrong": [f"{wrong:.4f}" for wrong in errors.wrong],
    }
    for name, column in shown.items():
        if name != "id":
            columns[f"table.{name}" if name in columns else name] = column[rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))


def _write_report(
    args: argparse.Namespace,
    errors: LabelErrors,
    data: Dataset,
    texts: Any,
    shown: dict[str, np.ndarray],
    files: tuple[Path, Path],
) -> None:
    from jaxsel.report import Report

    samples = texts
    if samples is None and data.x.ndim >= 3:
        samples = data.x
    report = Report(
        title=f"Wrong labels of {Path(args.table).name}: about {errors.n_errors} of "
        f"{len(errors.given)}",
        summary=f"{errors.summary[-1]}.",
        chapters=[errors.chapter(samples, columns=shown)],
    )
    with tempfile.TemporaryDirectory() as folder:
        for file, path in zip(report.save(folder), files, strict=True):
            path.write_bytes(file.read_bytes())


def _describe(args: argparse.Namespace, data: Dataset) -> list[dict[str, Any]]:
    """Return the manifest's entries of the input files."""
    digest_table: Callable[[], dict[str, Any]] = (
        (lambda: fingerprint_dataset(data))
        if data.name
        else (lambda: fingerprint(args.table))
    )
    entries = [
        {
            "role": "table",
            "source": args.table,
            "x_shape": list(data.x.shape),
            "y_shape": list(data.y.shape),
            **digest_table(),
        }
    ]
    for role in ("labels", "features", "pred_probs"):
        source = getattr(args, role)
        if source is not None:
            entries.append({"role": role, "source": source, **fingerprint(source)})
    return entries
