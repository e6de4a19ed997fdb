"""The options that the applications share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypedDict, TypeVar

from jaxsel._inputs.checks import shared_options

from ._application import Embed
from ._learners import LOGISTIC, Learner

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DrawOptions(TypedDict, total=False):
    """The part of `TaskOptions` that every application takes."""

    n_val: int
    seeds: int
    embed: Embed | None
    progress: bool


class TrainOptions(DrawOptions, total=False):
    """The part of `TaskOptions` for applications that draw one training set."""

    n: int
    n_test: int
    learner: Learner


class TaskOptions(TrainOptions, total=False):
    """Keyword arguments that the applications share.

    An application takes the options in its signature, which shows its defaults.

    Attributes:
        n: Training points.
        n_val: Validation points, which only value functions see. Their labels are
            right, and none is marked or foreign.
        n_test: Test points, for accuracy; nothing else sees them.
        balanced: Whether each part gets every class equally often, to within one.
        learner: `accuracy(x, y, x_test, y_test, key)`, such as `retrain_logistic()`. It
            gets the same key for all training sets of a seed.
        embed_learner: Whether the learner too sees embedded samples.
        seeds: Number of repetitions.
        embed: Optional function from samples to features `[n, d]`, which value
            functions then see. It must come from other data: see `train_embedding`.
        progress: Whether to show a bar.
    """

    balanced: bool
    embed_learner: bool


DEFAULTS: TaskOptions = {
    "n": 1000,
    "n_val": 500,
    "n_test": 1000,
    "balanced": False,
    "learner": LOGISTIC,
    "embed_learner": False,
    "seeds": 10,
    "embed": None,
    "progress": False,
}


def task_options(
    kind: type[DrawOptions], **defaults: Any
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate an application that takes `TaskOptions`, or a part of them.

    Args:
        kind: The part.
        **defaults: In place of the usual ones.
    """
    return shared_options(kind, {**DEFAULTS, **defaults})
