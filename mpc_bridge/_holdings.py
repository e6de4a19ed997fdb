"""A party's files, checked before anybody hears of them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel.proxy import (
    Manifest,
    OutOfBounds,
    check_ring,
    out_of_bounds,
    scale_head,
)
from jaxsel.proxy.families import Ranges

from ._arrays import ArrayFile
from ._config import Config, Inputs
from ._handshake import Refused, digest
from ._scoring import ring_of
from .engines import Engine, engine_of

Read = Callable[[slice], Any]

_HASHED = 1 << 10  # rows that are hashed at once
_CHUNK = 1 << 26  # bytes of an array that are checked at once


@dataclasses.dataclass(frozen=True)
class Public:
    """The public part of a run.toml, read and checked.

    Attributes:
        manifests: Of each phase.
        pool: The rows that are for sale, ascending.
    """

    manifests: tuple[Manifest, ...]
    pool: np.ndarray

    def terms(self, config: Config) -> dict[str, Any]:
        """Return the terms that both parties must share, by name."""
        session, appraisal = config.session, config.appraisal
        terms = {
            "session.name": digest(session.name),
            "session.seed": session.seed,
            "session.samples": session.samples,
            "session.leak": session.leak,
            "delivery": "the chosen rows" if session.deliver else "none",
            "session.exclude": digest(self.pool.astype("<i8").tobytes()),
            "number of phases": len(config.phases),
            "appraisal.mode": appraisal.mode,
            "appraisal.threshold": appraisal.threshold,
        }
        for i, phase in enumerate(config.phases):
            manifest = self.manifests[i]
            terms |= {
                f"phases[{i}].keep": phase.keep,
                f"phases[{i}].batch_size": phase.batch_size or "by memory",
                f"fraction bits of phase {i + 1}": manifest.fixed_point.fraction_bits,
                f"manifest of phase {i + 1}": digest(manifest.to_json()),
            }
        return terms


def read_public(config: Config) -> Public:
    """Read the manifests and the excluded rows.

    Raises:
        Refused: If a file is missing, damaged, or does not fit.
    """
    if not config.phases:
        raise Refused("phases must have at least one entry")
    manifests = tuple(
        _manifest(f"phases[{i}].manifest", phase.manifest)
        for i, phase in enumerate(config.phases)
    )
    n, exclude = config.session.samples, config.session.exclude
    if isinstance(exclude, Path):
        rows = ArrayFile("session.exclude", exclude)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise Refused(
                "session.exclude must hold whole numbers [m]",
                f"{rows.dtype} of shape {rows.shape}",
            )
        rows = rows[:]
    else:
        rows = np.array(exclude, np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        raise Refused(
            f"session.exclude must hold rows in [0, {n})",
            f"rows from {rows.min()} to {rows.max()}",
        )
    if len(np.unique(rows)) < len(rows):
        raise Refused("session.exclude must hold each row once")
    pool = np.setdiff1d(np.arange(n), rows)
    first, last = config.phases[0].keep, config.phases[-1].keep
    if first >= len(pool):
        raise Refused(
            f"phases[0].keep must be below the {len(pool)} rows that are left before",
            str(first),
        )
    threshold = config.appraisal.threshold
    engine = engine_of(config.session.engine)
    limit = 2.0 ** (engine.ring - 2 - engine.most_bits) / last
    if threshold is not None and abs(threshold) >= limit:
        raise Refused(
            f"appraisal.threshold must be below {limit:g} in size", f"{threshold}"
        )
    return Public(manifests, pool)


def check_choices(
    config: Config, public: Public, engine: type[Engine], fraction_bits: int
) -> None:
    """Refuse scores that choosing or appraising would carry out of the ring.

    Args:
        config: Of the run.
        public: Its public part.
        engine: Of the run.
        fraction_bits: Of all numbers.

    Raises:
        ValueError: If they may: the place and both numbers are named.
    """
    limit = 2.0 ** (engine.ring - 2 - fraction_bits)
    remaining = len(public.pool)
    manifests = [
        scale_head(manifest, **ring_of(engine, fraction_bits))[0]
        for manifest in public.manifests
    ]
    for manifest, phase in zip(manifests, config.phases, strict=True):
        what, times = "the difference of two scores", 2.0
        if config.session.leak == "set":
            what, times = (
                "a score with its row below",
                2.0 ** (remaining - 1).bit_length(),
            )
        ranges = Ranges(manifest, fraction_bits, engine.ring)
        ranges.fits("score", what, times * ranges.bound("score"), limit)
        remaining = phase.keep
    if config.appraisal.mode != "none":
        ranges = Ranges(manifests[-1], fraction_bits, engine.ring)
        largest = remaining * ranges.bound("score")
        ranges.fits("score", f"the sum of {remaining} scores", largest, limit)


def read_own_weights(
    config: Config, public: Public, *, published: bool = False
) -> list[dict[str, np.ndarray]]:
    """Return the weights of the model owner's folders, checked: read once.

    Args:
        config: Of the run.
        public: Its public part.
        published: Read the folders that the data owner was given.

    Raises:
        Refused: If weights are missing, or are not those of the manifest.
    """
    from ._export import read_weights

    part = config.data_owner if published else config.model_owner
    assert part is not None
    by_phase = []
    for i, folder in enumerate(part.weights):
        name = f"{'data' if published else 'model'}_owner.weights[{i}]"
        manifest = public.manifests[i]
        if _manifest(f"{name}/manifest.json", folder / "manifest.json") != manifest:
            raise Refused(f"{name} must be of the manifest of phase {i + 1}")
        try:
            weights = read_weights(folder, manifest)
            check_ring(manifest, weights)
        except (OSError, ValueError, TypeError) as error:
            raise Refused(
                f"{name} must hold the manifest's weights", str(error)
            ) from None
        by_phase.append(weights)
    return by_phase


def open_samples(config: Config, public: Public) -> list[Callable[[np.ndarray], Read]]:
    """Check the data owner's files, and return a reader for each phase.

    Each maps rows of the pool to a reader of slices of these rows.

    Raises:
        Refused: If an array is missing, or has another shape or values than agreed.
    """
    assert config.data_owner is not None
    n = config.session.samples
    return [
        _open(f"data_owner.inputs[{i}]", inputs, manifest, n, public.pool)
        for i, (inputs, manifest) in enumerate(
            zip(config.data_owner.inputs, public.manifests, strict=True)
        )
    ]


def open_own_samples(config: Config, public: Public) -> list[Any]:
    """Check samples that the model owner has; return x and mask of each phase.

    Raises:
        Refused: As `open_samples` does.
    """
    assert config.model_owner is not None
    readers = []
    for i, inputs in enumerate(config.model_owner.samples):
        name, manifest = f"model_owner.samples[{i}]", public.manifests[i]
        n = len(ArrayFile(f"{name}.x", inputs.x))
        rows = np.arange(n)
        read = _open(name, inputs, manifest, n, rows)(rows)
        readers.append(read(slice(0, n)))
    return readers


def digest_samples(readers: Sequence[Any], pool: np.ndarray) -> list[str]:
    """Hash the inputs that each phase reads from the pool.

    Args:
        readers: Of each phase, of `open_samples`.
        pool: Rows of it, ascending.
    """
    digests: list[str] = []
    for reader in readers:
        read, content = reader(pool), hashlib.sha256()
        for start in range(0, len(pool), _HASHED):
            for part in read(slice(start, start + _HASHED)):
                if part is not None:
                    content.update(f"{part.dtype} {part.shape} ".encode())
                    content.update(np.ascontiguousarray(part).tobytes())
        digests.append(f"sha256:{content.hexdigest()}")
    return digests


def _open(
    name: str, given: Inputs, manifest: Manifest, n: int, pool: np.ndarray
) -> Callable[[np.ndarray], Read]:
    """Check arrays of n samples, of which those in the pool are read."""
    inputs, onehot = manifest.inputs, manifest.inputs.embed == "onehot"
    shape: tuple[int, ...] = (n, inputs.length, inputs.width)
    if inputs.kind == "features":
        shape = (n, inputs.width)
    elif onehot:
        shape = (n, inputs.length)
    x = ArrayFile(f"{name}.x", given.x)
    kind = "token ids" if onehot else "numbers of float32"
    if x.shape != shape or (x.dtype.kind not in "iu" if onehot else x.dtype != "f4"):
        raise Refused(
            f"{name}.x must hold {kind} of shape {shape}",
            f"{x.dtype} of shape {x.shape}",
        )
    # What is larger could leave the ring. The others hear the rule, not how many rows.
    beyond = _beyond(manifest, x, pool)
    if beyond.remedy is not None:
        rule = f"finite numbers of at most {beyond.bound:g} in size, the manifest's "
        rule += "bound of the inputs"
        if onehot:
            rule = f"token ids in [0, {inputs.vocab or 0})"
        raise Refused(f"{name}.x must hold {rule}", beyond.remedy)
    mask = None
    if given.mask is not None:
        if not inputs.masked:
            raise Refused(f"{name}.mask must not be given: the manifest has no mask")
        mask = ArrayFile(f"{name}.mask", given.mask)
        if mask.shape != shape[:2] or mask.dtype.kind not in "biuf":
            raise Refused(
                f"{name}.mask must hold zeros and ones of shape {shape[:2]}",
                f"{mask.dtype} of shape {mask.shape}",
            )
        for part in _chunks(mask):
            if not np.isin(part, (0, 1)).all() or not part.any(1).all():
                raise Refused(
                    f"{name}.mask must hold zeros and ones, a one in each row at least"
                )

    def reader(rows: np.ndarray) -> Read:
        def read(part: slice) -> Any:
            chosen = rows[part]
            return x[chosen], None if mask is None else mask[chosen]

        return read

    return reader


def _chunks(array: ArrayFile) -> Iterator[np.ndarray]:
    rows = max(1, _CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def _beyond(manifest: Manifest, x: ArrayFile, pool: np.ndarray) -> OutOfBounds:
    """Find the rows of a pool beyond the manifest's bound, a chunk at a time."""
    step = max(1, _CHUNK // max(1, x[:1].nbytes))
    chunks = [pool[start : start + step] for start in range(0, len(pool), step)]
    outliers = [out_of_bounds(manifest, x[rows]) for rows in chunks]
    return OutOfBounds(
        np.concatenate(
            [rows[chunk.rows] for rows, chunk in zip(chunks, outliers, strict=True)]
        ),
        len(pool),
        outliers[0].bound,
        max(chunk.largest for chunk in outliers),
    )


def _manifest(name: str, path: Path) -> Manifest:
    try:
        return Manifest.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        raise Refused(f"{name} must be a manifest", f"{path}: {error}") from None
