"""Attacks on a proxy with the answer of a choice that was made, for a data owner."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_features, check_finite, check_same_length
from jaxsel.proxy._manifest import Manifest
from jaxsel.proxy._monotonicity import monotonicity

from ._attacked import (
    attacked_features,
    best_recoveries,
    check_options,
    standardised,
)
from ._attacks import Surrogate
from ._recovery import Leakage, Recovery

FEWEST = 2
"""Chosen rows, and others, to attack with and to judge by."""


def leakage_of_answer(
    manifest: Manifest,
    x: npt.ArrayLike | jax.Array,
    chosen: npt.ArrayLike,
    mask: npt.ArrayLike | jax.Array | None = None,
    *,
    levels: npt.ArrayLike | None = None,
    features: npt.ArrayLike | jax.Array | None = None,
    held_out: float = 0.2,
    seed: int = 0,
    steps: int = 200,
    enough: float = 1.0,
) -> Leakage:
    """Attack a secret proxy with the answer of a choice by it.

    A data owner can run this after a choice, on its samples, the manifest, and the
    answer. Some samples are held out, the same share of the chosen as of the others;
    the attacks are fitted to the answer on the rest, and judged by how they rank the
    held-out samples against the answer on these. No weights are needed,
    and none are returned. `leakage` tells the model owner the same beforehand.

    Args:
        manifest: Of the phase's proxy.
        x: The samples that the choice was made from, as the proxy reads them, `[n,
            ...]`.
        chosen: Which of them were chosen, `[n]` bool.
        mask: `[n, L]`, which rows are no padding; all if None.
        levels: How many pivots each score lies above, `[n]`, see `places`; None where
            only the set was opened.
        features: Features that the attacks read instead of x, `[n, d]`.
        held_out: Share of the samples that attacks are judged by.
        seed: Seed of the held-out split, and of random starts.
        steps: As for `leakage`.
        enough: As for `leakage`.

    Returns:
        The recoveries of the best attacks, judged by the answer: without cosines. The
        cost is that of `leakage`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, values are not finite, an argument is out of
            range, or fewer than two chosen or other rows are left to attack with or to
            judge by.

    References:
        As for `leakage`.
    """
    check_options("set" if levels is None else "rank", seed, steps, enough)
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must lie between 0 and 1, got {held_out}")
    flags = np.asarray(chosen)
    if flags.ndim != 1 or flags.dtype != bool:
        raise ValueError(
            f"chosen must be booleans of shape [n], got {flags.dtype} of shape "
            f"{flags.shape}"
        )
    places = None if levels is None else _checked_levels(levels, flags)
    check_same_length("chosen", flags, "x", np.asarray(x))
    if features is None:
        read = attacked_features(manifest, x, mask)
        check_finite("x", read)
    else:
        check_finite("features", values := check_features("features", features))
        check_same_length("features", values, "chosen", flags)
        read = np.asarray(values, np.float32)
    fitted, judged = _split(flags, held_out, seed)
    # Attacks are fitted to the first n rows, and judged by the others.
    order = np.concatenate([fitted, judged])
    n = len(fitted)
    read, varies, _ = standardised(read[order], n)
    opened = flags if places is None else places
    truth, best = opened[judged].astype(np.float64), flags[judged]
    # Of a ranking with ties no other without ties can have more.
    most = monotonicity(np.argsort(np.argsort(truth, kind="stable")), truth)

    def judge(surrogate: Surrogate) -> Recovery:
        scores = surrogate.scores(read[n:])
        named = np.argsort(-scores, kind="stable")[: best.sum()]
        return Recovery(
            surrogate.name,
            min(1.0, monotonicity(scores, truth) / most),
            float(best[named].mean()),
            None,
        )

    options: Any = {"seed": seed, "steps": steps, "enough": enough}
    outcomes, of_set = best_recoveries(
        read[:n],
        None if places is None else _ranks(places[fitted]),
        flags[fitted],
        manifest,
        judge,
        **options,
    )
    return Leakage(
        n=n,
        keep=int(flags[fitted].sum()),
        width=int(varies.sum()),
        fresh=len(judged),
        passes=0 if places is None else int(places.max()),
        outcomes=outcomes,
        chosen=of_set,
        judged_by="answer",
    )


def _checked_levels(levels: npt.ArrayLike, chosen: np.ndarray) -> np.ndarray:
    array = np.asarray(levels)
    if array.dtype.kind not in "iu" or array.shape != chosen.shape:
        raise ValueError(
            f"levels must be whole numbers of shape {chosen.shape}, got {array.dtype} "
            f"of shape {array.shape}"
        )
    if chosen.any() and not chosen.all() and array[chosen].min() < array[~chosen].max():
        raise ValueError("levels must be highest of the chosen rows")
    return array


def _ranks(levels: np.ndarray) -> np.ndarray:
    """Return levels as whole numbers from 0, none left out."""
    return np.unique(levels, return_inverse=True)[1].reshape(levels.shape)


def _split(
    chosen: np.ndarray, held_out: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to attack with, and rows to judge by, of both kinds alike."""
    rng = np.random.default_rng(seed)
    fitted: list[np.ndarray] = []
    judged: list[np.ndarray] = []
    for kind, rows in (
        ("chosen", np.flatnonzero(chosen)),
        ("other", np.flatnonzero(~chosen)),
    ):
        count = round(held_out * len(rows))
        if min(count, len(rows) - count) < FEWEST:
            raise ValueError(
                f"x must hold {FEWEST} {kind} rows to attack with and {FEWEST} to "
                f"judge by, got {len(rows)} with held_out {held_out}"
            )
        drawn = rng.permutation(rows)
        judged.append(drawn[:count])
        fitted.append(drawn[count:])
    return rng.permutation(np.concatenate(fitted)), np.concatenate(judged)
