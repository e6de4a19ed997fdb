"""MLP emulators on the host: refitted, and in the units of their inputs.

An entropy has a ridge where classes are equally likely. Adam's small batches leave it
blurred, of two or three classes by up to a third of the variance: L-BFGS goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from jaxsel._devices.platform import one_thread

Arrays = dict[str, np.ndarray]

_DECAY = (
    1e-4  # of squared weights: they stay small in fixed point, and few rows suffice
)
_STEPS = 500
_SAMPLES = 2048


def by_width(
    params: Arrays, parts: Iterable[tuple[slice, slice, int]]
) -> dict[int, Arrays]:
    """Split the MLPs of one operation by width, in float64.

    Args:
        params: `w1 [in + 1, units]`, with the bias last, `w2 [units, out]`,
            `b2 [mlps, out]`.
        parts: The units, MLPs and width of each run of equal widths.

    Returns:
        By width, `w1 [seeds, in, h]`, `b1 [seeds, h]`, `w2 [seeds, h, out]` and
        `b2 [seeds, out]`.
    """
    w1, w2, b2 = (params[name].astype(np.float64) for name in ("w1", "w2", "b2"))
    results: dict[int, Arrays] = {}
    for units, mlps, width in parts:
        seeds = mlps.stop - mlps.start
        first = w1[:, units].reshape(-1, seeds, width).transpose(1, 0, 2)
        results[width] = {
            "w1": first[:, :-1],
            "b1": first[:, -1],
            "w2": w2[units].reshape(seeds, width, -1),
            "b2": b2[mlps],
        }
    return results


def refit(params: Arrays, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Minimise the squared error of MLPs with one output by L-BFGS, each on its own.

    Of 2048 samples at most, each distinct one counts once. A step costs 6 n d h
    multiplications, and there are 500 at most.

    Args:
        params: As `by_width` gives them, for one width.
        x: Standardised inputs, `[d, n]`.
        y: Standardised outputs, `[1, n]`.
    """
    from scipy import optimize

    minimize = cast(Any, optimize.minimize)
    seeds, d, h = params["w1"].shape
    _, distinct = np.unique(x[:, :_SAMPLES], axis=1, return_index=True)
    x, y = x[:, distinct], y[:, distinct]
    # The ends of w1, b1 and w2 in the flat vector; b2 is the rest.
    bounds = np.cumsum([d * h, h, h])
    names = "w1", "b1", "w2", "b2"

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        w1, b1, w2, b2 = np.split(theta, bounds)
        hidden = w1.reshape(d, h).T @ x + b1[:, None]
        active = np.maximum(hidden, 0)
        error = w2 @ active + b2 - y[0]
        # The gradient at the hidden units; `slope` is half of the whole one.
        back = np.where(hidden > 0, np.outer(w2, error), 0)
        last = active @ error, error.sum(keepdims=True)
        slope = np.concatenate([(x @ back.T).ravel(), back.sum(1), *last])
        value = float(error @ error) / len(error) + _DECAY * float(theta @ theta)
        return value, 2 * (slope / len(error) + _DECAY * theta)

    ends: list[np.ndarray] = []
    with one_thread():
        for seed in range(seeds):
            start = np.concatenate([params[name][seed].ravel() for name in names])
            end = minimize(
                loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
            )
            ends.append(np.asarray(end.x))
    split = np.split(np.stack(ends), bounds, axis=1)
    return {
        name: array.reshape(params[name].shape)
        for name, array in zip(names, split, strict=True)
    }


Samples = tuple[Arrays, np.ndarray, np.ndarray, np.ndarray | None]
"""Their scales, inputs `[in, n]`, outputs `[out, n]`, and which outputs count."""


def best_of(
    ways: Sequence[Arrays], scale: Arrays, held_out: Samples
) -> tuple[Arrays, np.ndarray]:
    """Choose for each seed the parameters that explain most of held-out samples.

    Args:
        ways: Parameters for standardised inputs and outputs, as of `by_width`.
        scale: Means and deviations, which are folded into the weights.
        held_out: The samples to explain.

    Returns:
        The parameters, and their R², `[seeds]`.
    """
    folded = [_fold(params, scale) for params in ways]
    r2 = np.stack([_explained(params, *held_out) for params in folded])
    best: Arrays = {}
    for name in folded[0]:
        stacked = np.stack([way[name] for way in folded], axis=1)  # [seeds, ways, ...]
        best[name] = np.stack(
            [s[k] for s, k in zip(stacked, r2.argmax(0), strict=True)]
        )
    return {name: array.astype(np.float32) for name, array in best.items()}, r2.max(0)


def _fold(params: Arrays, scale: Arrays) -> Arrays:
    # relu((x - μ)/σ w + b) = relu(x (w/σ) + (b - μ w/σ)), and outputs alike.
    w1 = params["w1"] / scale["x_std"]
    return {
        "w1": w1,
        "b1": params["b1"] - (scale["x"] * w1).sum(1),
        "w2": params["w2"] * scale["y_std"],
        "b2": params["b2"] * scale["y_std"] + scale["y"][:, 0],
    }


def _explained(
    params: Arrays, scale: Arrays, x: np.ndarray, y: np.ndarray, mask: np.ndarray | None
) -> np.ndarray:
    hidden = np.einsum("sid,ib->sdb", params["w1"], x, optimize=True)
    hidden = np.maximum(hidden + params["b1"][..., None], 0)
    out = np.einsum("sdo,sdb->sob", params["w2"], hidden, optimize=True)
    error = out + params["b2"][..., None] - y
    if mask is not None:
        error = error * mask
    # Of the held-out samples' variance, one for all outputs.
    return 1 - np.mean(error**2, (1, 2)) / scale["y_std"][0, 0] ** 2
