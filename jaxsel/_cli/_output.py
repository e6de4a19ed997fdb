"""Output files of the commands, written in one step together with a manifest."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsel._files.staged import staged

if TYPE_CHECKING:
    from jaxsel.data import Dataset

TABLE, PICTURES = (".csv",), (".png", ".svg", ".pdf")

HASH_LIMIT = 1 << 30  # bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Provenance of a run, recorded in its manifest beside the outputs.

    Attributes:
        command: The command line.
        config: Every option that went into the result.
        started: `time.perf_counter()` when it began.
        inputs: One entry for each; see `fingerprint`.
        devices: Number of devices used.
        seeds: Seeds of random draws, or None if nothing is random.
        checks: Warnings for the user; see `say_checks`.
    """

    command: str
    config: Mapping[str, Any]
    started: float
    inputs: Sequence[Mapping[str, Any]] = ()
    devices: int = 1
    seeds: Sequence[int] | None = None
    checks: Sequence[str] = ()

    def manifest(self, outputs: Mapping[Path, Path]) -> str:
        """Return the manifest as JSON.

        Args:
            outputs: Final path of each file, and where it lies now.
        """
        import jax
        import numpy as np

        from jaxsel import __version__

        device = jax.devices()[0]
        config = json.dumps(self.config, sort_keys=True)
        facts = {
            "command": self.command,
            "config": self.config,
            "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
            "seeds": self.seeds,
            "inputs": self.inputs,
            "checks": self.checks,
            "outputs": [
                {"file": path.name, **fingerprint(now)} for path, now in outputs.items()
            ],
            "versions": {
                "jaxsel": __version__,
                "jax": jax.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
            "device": {
                "platform": device.platform,
                "kind": device.device_kind,
                "used": self.devices,
            },
            "seconds": round(time.perf_counter() - self.started, 3),
            "finished": datetime.datetime.now(datetime.UTC).isoformat(
                timespec="seconds"
            ),
        }
        return json.dumps(facts, indent=1, allow_nan=False) + "\n"


def publish(writers: Mapping[Path, Callable[[Path], object]], record: Record) -> Path:
    """Write the files of a result and their manifest, the result itself last.

    Args:
        writers: Final path of each file, and a function that writes it to a path. The
            last is the result; the manifest lies beside it as `.json`.
        record: Further entries of the manifest.

    Returns:
        Path of the manifest.
    """
    *others, result = writers
    manifest = result.with_suffix(".json")
    paths = [*others, manifest, result]
    with staged(paths) as parts:
        part = dict(zip(paths, parts, strict=True))
        for path, write in writers.items():
            write(part[path])
        part[manifest].write_text(record.manifest({p: part[p] for p in writers}))
    return manifest


def check_outputs(paths: Sequence[Path], *, inputs: Iterable[str], force: bool) -> None:
    """Raise before the work if its results could not, or should not, be written.

    Raises:
        FileExistsError: If a file is there and `force` is off.
        FileNotFoundError: If a folder is not there.
        ValueError: If two are the same file, or one is an input.
    """
    taken = {Path(source).resolve() for source in inputs}
    for path in paths:
        if path.resolve() in taken:
            raise ValueError(f"{path} must not be written twice, nor over an input")
        taken.add(path.resolve())
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: name a file")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent} is not a folder: make it first")
        if path.exists() and not force:
            raise FileExistsError(f"{path} exists: --force replaces it")


def check_ending(option: str, name: str | None, endings: Sequence[str]) -> Path | None:
    """Return the path of an option's file, or None; raise for another ending."""
    path = None if name is None else Path(name)
    if path is not None and path.suffix not in endings:
        raise ValueError(f"{option} must end in {', '.join(endings)}, got {name!r}")
    return path


def result_path(out: str, option: str = "--out") -> Path:
    """Return the path of a result; check that its suffix differs from its manifest's.

    Raises:
        ValueError: If the path does not end in `.npz`.
    """
    if Path(out).suffix != ".npz":
        raise ValueError(f"{option} must end in .npz, got {out!r}")
    return Path(out)


def fingerprint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return size and sha256 of a file; files above 1 GiB are not hashed."""
    size = os.stat(path).st_size
    if size > HASH_LIMIT:
        return {"bytes": size, "sha256": None, "note": "not hashed: above 1 GiB"}
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": size, "sha256": digest}


def fingerprint_files(folder: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Return size and sha256 of files, each and all, in their order.

    Args:
        folder: The folder that their names are relative to.
        files: At least one.
    """
    shards = [{"file": os.path.relpath(f, folder), **fingerprint(f)} for f in files]
    sums = [shard["sha256"] for shard in shards]
    entry: dict[str, Any] = {"bytes": sum(shard["bytes"] for shard in shards)}
    if None in sums:
        entry |= {"sha256": None, "note": "not hashed: files above 1 GiB"}
    else:
        entry["sha256"] = hashlib.sha256("\n".join(sums).encode()).hexdigest()
    return {**entry, "shards": shards}


def fingerprint_dataset(data: Dataset) -> dict[str, Any]:
    """Return size and sha256 of the arrays of a prepared data set, as `fingerprint`."""
    import numpy as np

    # An array of objects holds pointers: hash the texts instead.
    arrays = [a.astype(str) if a.dtype == object else a for a in (data.x, data.y)]
    size = sum(array.nbytes for array in arrays)
    if size > HASH_LIMIT:
        return {"bytes": size, "sha256": None, "note": "not hashed: above 1 GiB"}
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return {"bytes": size, "sha256": digest.hexdigest()}


def say(*lines: str) -> None:
    """Write lines to standard output."""
    try:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    except OSError as error:
        error.filename = error.filename or "standard output"
        raise


def say_checks(checks: Iterable[str]) -> None:
    """Write warnings to standard error, a line each."""
    for check in checks:
        sys.stderr.write(f"Check: {check}\n")


def show_progress() -> bool:
    """Return whether stderr is a terminal: progress bars would clutter a log file."""
    return sys.stderr.isatty()
