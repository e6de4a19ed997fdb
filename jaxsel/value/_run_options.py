"""The options that all values by retraining share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypedDict, TypeVar

import jax
import numpy.typing as npt

from jaxsel._inputs.checks import shared_options

from ._executor import Executor

_P = ParamSpec("_P")
_T = TypeVar("_T")


class CallOptions(TypedDict, total=False):
    """The part of `RunOptions` that every value takes."""

    batch_size: int | None
    mesh: jax.sharding.Mesh | None
    axis: str | None
    progress: bool


class PlayerOptions(CallOptions, total=False):
    """The part of `RunOptions` for exact values of a utility."""

    owners: npt.ArrayLike | None


class SampleOptions(CallOptions, total=False):
    """The part of `RunOptions` for estimates without a utility."""

    checkpoint: str | os.PathLike[str] | None
    executor: Executor | None


class RunOptions(PlayerOptions, SampleOptions, total=False):
    """Keyword arguments that values by retraining take, None or False by default.

    `data_oob` and `g_shapley` have no `owners`; `loo`, `exact_shapley` and
    `exact_semivalue` have neither `checkpoint` nor `executor`.

    Attributes:
        owners: The owner of each point, `[n]`, by labels of any kind. Owners are then
            the players, who bring all of their points; `Values.index` has their labels,
            by first appearance.
        batch_size: Coalitions, bags or permutations of a call. If None, 1024 coalitions
            or 256 bags or permutations, fewer of many points or on the host. It sets
            speed and memory, not results.
        mesh: Devices to split each call over, from `jaxsel.make_mesh`, or any other
            mesh.
        axis: Which axis of the mesh; its only one, or "data", if None.
        progress: Whether to show a bar.
        checkpoint: Folder in which to keep the state, every 30 seconds, at the end, and
            when Ctrl-C ends the run; a run that finds its own state there resumes.
        executor: Computes batches on other threads, processes or hosts: it has the
            `submit` of `concurrent.futures`. Results are the same. See `Executor`.
    """


DEFAULTS: RunOptions = {
    "owners": None,
    "batch_size": None,
    "mesh": None,
    "axis": None,
    "progress": False,
    "checkpoint": None,
    "executor": None,
}


def run_options(
    kind: type[CallOptions],
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate a value that takes `RunOptions`, or a part of them."""
    return shared_options(kind, DEFAULTS)
