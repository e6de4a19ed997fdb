"""Checkpoints of passes over candidates: a killed call resumes from its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsel._devices.mesh import is_on
from jaxsel._inputs.rows import Rows
from jaxsel._runs.fingerprint import fingerprint
from jaxsel._runs.saved_stream import SavedStream

from ._stream import Codes, Stream


def saved_pass(
    folder: str | os.PathLike[str] | None,
    every: int,
    stream: Stream,
    shape: tuple[int | str, ...],
) -> SavedStream:
    """Return the checkpoints of a pass's lists of neighbours.

    Args:
        folder: The folder, or None.
        every: Chunks between two saves.
        stream: Candidates and hard samples.
        shape: Number of neighbours, rows of a chunk and devices, which also decide the
            lists bit by bit.
    """
    if folder is None:
        return SavedStream(None, every, {})
    codes = stream.codes
    labels = codes.labels.about if isinstance(codes, Codes) else None
    settings = {
        "features": about(stream.features),
        "labels": labels,
        "metric": stream.metric,
        "shape": shape,
    }
    arrays = (
        stream.queries,
        stream.centre,
        None if isinstance(codes, Codes) else codes,
        stream.hard_codes,
    )
    return SavedStream(folder, every, settings, arrays)


def check_folder(
    folder: str | os.PathLike[str] | None,
    stream: Stream,
    mesh: jax.sharding.Mesh | None,
) -> None:
    """Raise if a checkpoint is asked for candidates that are on devices only."""
    if folder is not None and mesh is not None and is_on(stream.features, mesh):
        raise ValueError(
            "checkpoint must be None for candidates that are on the devices already, "
            f"got {folder!r}"
        )


def about(features: np.ndarray | jax.Array | Rows) -> Any:
    """Return a fingerprint of candidates: of all numbers, or of the file's metadata."""
    if isinstance(features, Rows):
        return features.about
    if isinstance(features, np.memmap) and features.filename:
        status = Path(features.filename).stat()
        where = [os.fspath(features.filename), status.st_size, status.st_mtime_ns]
        return [*where, features.offset, features.shape, str(features.dtype)]
    return fingerprint(np.asarray(features))


def of_pass(folder: str | os.PathLike[str] | None, k: int | None) -> Path | None:
    """Return the folder of the pass that finds k neighbours, or that ranks all."""
    name = "by_rank" if k is None else f"neighbours_{k}"
    return None if folder is None else Path(folder) / name
