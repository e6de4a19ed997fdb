"""Samples as attacks on a proxy read them, and the best of these attacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice, check_count
from jaxsel.proxy._manifest import Manifest

from ._attacks import Surrogate, attack
from ._recovery import Recovery

Leak = Literal["rank", "set"]
"""The answer of a choice: the outcomes of comparisons and the set, or the set alone."""

Judge = Callable[[Surrogate], Recovery]

_TABLE = 512  # columns that stand for a large vocabulary
_LARGE = 1024


def check_options(leak: Leak, seed: int, steps: int, enough: float) -> None:
    """Check the options that all attacks share."""
    check_choice("leak", leak, ("rank", "set"))
    check_count("seed", seed, minimum=0)
    check_count("steps", steps)
    if not 0 < enough <= 1:
        raise ValueError(f"enough must be above 0 and at most 1, got {enough}")


def attacked_features(
    manifest: Manifest,
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None,
) -> np.ndarray:
    """Return the features of samples that attacks read, `[n, d]`."""
    rows = np.asarray(x)
    if manifest.inputs.kind == "features":
        return rows.astype(np.float32)
    shown = np.ones(rows.shape[:2], np.float32) if mask is None else np.asarray(mask)
    shown = shown.astype(np.float32)
    shown = shown / np.maximum(shown.sum(1, keepdims=True), 1)
    if manifest.inputs.embed != "onehot":
        mean = np.einsum("nl,nlh->nh", shown, rows.astype(np.float32))
        return np.concatenate([mean, rows[:, 0]], axis=1, dtype=np.float32)
    vocab = manifest.inputs.vocab or 0
    if vocab <= _LARGE:
        table = np.eye(vocab, dtype=np.float32)
    else:
        # Random projections of the bag of tokens, the same in each call.
        draws = np.random.default_rng(0).normal(size=(vocab, _TABLE))
        table = draws.astype(np.float32)
    return np.stack(
        [share @ table[ids] for share, ids in zip(shown, rows, strict=True)]
    )


def standardised(x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return standardised features, the mask of varying columns, and all scales.

    Args:
        x: `[N, d]`.
        n: Number of leading samples that get mean 0 and variance 1.
    """
    mean, scale = x[:n].mean(0, np.float64), x[:n].std(0, np.float64)
    varies = scale > 1e-6 * scale.max(initial=0)
    if not varies.any():
        raise ValueError("x must hold samples that differ, got n times the same one")
    read = ((x[:, varies] - mean[varies]) / scale[varies]).astype(np.float32)
    return read, varies, scale


def best_recoveries(
    read: np.ndarray,
    levels: np.ndarray | None,
    chosen: np.ndarray,
    manifest: Manifest,
    judge: Judge,
    *,
    steps: int,
    seed: int,
    enough: float,
) -> tuple[Recovery | None, Recovery]:
    """Return the best attack on the outcomes, and the best on the set alone.

    Args:
        read: Standardised features, `[n, d]`.
        levels: Places among the pivots, `[n]`; None if they were not opened.
        chosen: `[n]` bool.
        manifest: Of the proxy.
        judge: Return the recovery of a surrogate.
        steps: As for `leakage`.
        seed: As for `leakage`.
        enough: As for `leakage`.
    """

    def recover(answer: np.ndarray) -> list[Recovery]:
        recoveries: list[Recovery] = []
        for surrogate in attack(read, answer, manifest, steps=steps, seed=seed):
            recoveries.append(judge(surrogate))
            if recoveries[-1].rank_correlation >= enough:
                break
        return recoveries

    def best(recoveries: list[Recovery]) -> Recovery:
        return max(recoveries, key=lambda recovery: recovery.rank_correlation)

    of_set = recover(chosen)
    if levels is None:
        return None, best(of_set)
    # The outcomes tell the set as well.
    return best(recover(levels) + of_set), best(of_set)
