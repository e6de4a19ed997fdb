"""Warnings about choices that open too much, and rows that a secure run refuses.

They follow from public sizes, or from what one party holds; nothing is sent.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice, check_count, check_same_length
from jaxsel._inputs.show import brief
from jaxsel.proxy._manifest import Manifest

from ._leakage import is_linear_probe

ENOUGH = 8
"""Samples a weight from which the chosen set alone gives a linear probe away.

Weights are d (C - 1). Of standard normal features, a fifth chosen: the guide on leakage
has the figures, and shows that an encoder's features need fewer.
"""

LARGEST_INPUT = 2.0**15
"""Bound on inputs where a manifest names none."""

_CHUNK = 1 << 26  # bytes that are read at once


def choice_warnings(
    manifest: Manifest,
    n: int,
    keep: int,
    *,
    appraisal: Literal["mean", "threshold", "none"] = "none",
) -> tuple[str, ...]:
    """Return warnings about a choice, before it is opened; none if all is well.

    Of public sizes alone; `leakage` measures what these only suggest.

    Args:
        manifest: Of the phase's proxy.
        n: Rows that the choice is made from.
        keep: Rows that it leaves.
        appraisal: Statistic of the chosen rows' scores that both parties learn.

    Raises:
        TypeError: If a count is no whole number.
        ValueError: If `keep` is above n, or the appraisal unknown.
    """
    n, keep = check_count("n", n), check_count("keep", keep)
    check_choice("appraisal", appraisal, ("mean", "threshold", "none"))
    if keep > n:
        raise ValueError(f"keep must be at most the {n} rows, got {keep}")
    messages: list[str] = []
    if keep == 1:
        opened = "keep = 1 opens exactly which sample is the best"
        if appraisal == "mean":
            opened += ", and as their mean its exact score"
        messages.append(f"{opened}: keep more, or set the appraisal to none")
    if keep == n - 1:
        messages.append(
            f"keep = {keep:,} of {n:,} opens exactly which sample is the worst: keep "
            "fewer"
        )
    if is_linear_probe(manifest) and keep < n:
        messages.append(_probe_warning(manifest, n))
    return tuple(messages)


def _probe_warning(manifest: Manifest, n: int) -> str:
    width = manifest.inputs.width
    message = f"{n:,} samples of {width:,} features"
    if n >= ENOUGH * width * (manifest.head.n_classes - 1):
        message = (
            f"a linear probe is recovered from its chosen set alone ({message}): no "
            "engine hides it from the data owner"
        )
    else:
        message = (
            f"a linear probe may be recovered from its answers ({message}): less from "
            "few samples of independent features, but encoders' are not independent"
        )
    return f'{message}; publish it instead (engine = "published"), which costs nothing'


@dataclasses.dataclass(frozen=True)
class PoolChange:
    """The difference of a pool from an earlier one, by the contents of rows.

    Attributes:
        added: Rows of the new pool that the old one had not.
        removed: Rows of the old pool that the new one has not.
        common: Rows of both.
    """

    added: int
    removed: int
    common: int

    def warning(self, *, few: int = 100) -> str | None:
        """Return a warning if two choices together would open more than each alone.

        Args:
            few: Number of changed rows from which there is no warning: the difference
                of two means then depends on the scores of as many.
        """
        changed = self.added + self.removed
        if not self.common or changed >= check_count("few", few):
            return None
        if not changed:
            return (
                "this pool is an earlier one again: another seed opens how its scores "
                "lie to other pivots, another keep which of them lie between two "
                "borders, and two means what these score; take the earlier result"
            )
        rows = "1 row" if changed == 1 else f"{changed:,} rows"
        return (
            f"this pool differs from an earlier one by {rows}: two choices tell how "
            "the changed samples rank, and two opened means how far the scores of so "
            "few samples lie apart; choose from the new rows alone, or open no mean"
        )


def row_digests(
    x: npt.ArrayLike, mask: npt.ArrayLike | None = None, *, secret: bytes = b""
) -> np.ndarray:
    """Return a digest of each row of a pool, to compare pools by later.

    Keep them as secret as the samples: a holder of digests without a `secret` can
    test whether a guessed sample is among them. One pass over the rows.

    Args:
        x: Samples as a proxy reads them, `[n, ...]`.
        mask: Its mask, `[n, L]`, if there is one.
        secret: Key of the digests, up to 64 bytes, the same for all pools to compare.

    Returns:
        Hexadecimal BLAKE2b of 16 bytes each, `[n]`.

    Raises:
        ValueError: If lengths differ, or the secret is too long.
    """
    arrays = [np.asarray(x)] + ([] if mask is None else [np.asarray(mask) != 0])
    for other in arrays[1:]:
        check_same_length("x", arrays[0], "mask", other)
    if len(secret) > hashlib.blake2b.MAX_KEY_SIZE:
        raise ValueError(f"secret must be of at most 64 bytes, got {len(secret)}")
    digests: list[str] = []
    for i in range(len(arrays[0])):
        digest = hashlib.blake2b(digest_size=16, key=secret)
        for array in arrays:
            row = np.ascontiguousarray(array[i])
            # Type and shape tell apart rows of the same bytes.
            digest.update(f"{row.dtype.str}{row.shape}".encode())
            digest.update(row.data)
        digests.append(digest.hexdigest())
    return np.array(digests, "U32")


def compare_pools(old: npt.ArrayLike, new: npt.ArrayLike) -> PoolChange:
    """Return how a pool differs from an earlier one, of `row_digests` of both.

    Rows that a pool holds more than once count once.

    Args:
        old: Digests of the earlier pool, `[n]`.
        new: Digests of this one, `[m]`.

    Returns:
        How many rows came, went and stayed.
    """
    before, now = (np.unique(np.asarray(digests)) for digests in (old, new))
    common = len(np.intersect1d(before, now, assume_unique=True))
    return PoolChange(len(now) - common, len(before) - common, common)


@brief
@dataclasses.dataclass(frozen=True, eq=False)
class OutOfBounds:
    """Rows of a pool that a manifest's bound on the inputs refuses.

    Attributes:
        rows: Their indices in x, `[m]` int64, in the order they were checked.
        n: Samples that were checked.
        bound: The manifest's, on the absolute value.
        largest: The largest finite absolute value among them.
    """

    rows: np.ndarray
    n: int
    bound: float
    largest: float

    @property
    def share(self) -> float:
        """The refused rows, of all."""
        return len(self.rows) / self.n

    @property
    def remedy(self) -> str | None:
        """Advice on the refused rows; None if there are none."""
        if not len(self.rows):
            return None
        rows = "row" if len(self.rows) == 1 else "rows"
        return (
            f"{len(self.rows):,} of {self.n:,} {rows} ({self.share:.2%}) have values "
            f"beyond the manifest's bound of {self.bound:g}, up to {self.largest:g}, "
            "or none that is finite: leave them out (exclude), or ask the model owner "
            "for a manifest with a larger bound (with_bounds, a larger margin)"
        )


def out_of_bounds(
    manifest: Manifest, x: npt.ArrayLike, rows: npt.ArrayLike | None = None
) -> OutOfBounds:
    """Return which rows of a pool lie beyond the manifest's bound on the inputs.

    For the data owner, before a run: the secure run refuses a pool that has any. The
    bound was measured on the bootstrap set, with a margin. One pass over the pool, in
    pieces, so that `x` may be memory-mapped.

    Args:
        manifest: Of the phase's proxy.
        x: Samples as the proxy reads them, `[n, ...]`: numbers, or token ids, which
            the vocabulary bounds.
        rows: Samples to check, whole numbers `[m]`; all if None. Rows that `exclude`
            names need not fit.

    Raises:
        IndexError: If there is no such row.
        ValueError: If there is no sample.
    """
    samples = np.asarray(x)
    if samples.ndim < 2 or not len(samples):
        raise ValueError(f"x must have shape [n, ...], got {samples.shape}")
    asked = np.arange(len(samples)) if rows is None else np.asarray(rows)
    if asked.ndim != 1 or not len(asked) or asked.dtype.kind not in "iu":
        raise ValueError(
            f"rows must be whole numbers of shape [m], got {asked.dtype} of shape "
            f"{asked.shape}"
        )
    onehot = manifest.inputs.embed == "onehot"
    bound = manifest.fixed_point.bounds.get("inputs", LARGEST_INPUT)
    if onehot:
        bound = float((manifest.inputs.vocab or 1) - 1)
    refused: list[np.ndarray] = []
    largest = 0.0
    for indices, part in _pieces(samples, asked):
        size = np.abs(part).astype(np.float64, copy=False)
        inside = (size <= bound) & ((part >= 0) if onehot else True)
        refused.append(indices[~inside.all(1)])  # a NaN is not inside
        largest = max(largest, float(size[np.isfinite(size)].max(initial=0)))
    outside = np.concatenate(refused).astype(np.int64)
    return OutOfBounds(outside, len(asked), float(bound), largest)


def _pieces(
    samples: np.ndarray, asked: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield indices of rows, and these rows, flattened to `[m, -1]`."""
    # At most _CHUNK bytes at once: samples may be memory-mapped.
    step = max(1, _CHUNK // max(1, samples[:1].nbytes))
    for start in range(0, len(asked), step):
        indices = asked[start : start + step]
        part = np.asarray(samples[indices])
        yield indices, part.reshape(len(part), -1)
