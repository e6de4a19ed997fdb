"""The attributions by name, for the command line and for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jaxsel._inputs.show import brief
from jaxsel._results.types import Values

from ._influence import network_influence
from ._metagradient import metagradient
from ._source import source
from ._tracin import network_tracin
from ._trak import trak


@brief
@dataclasses.dataclass(frozen=True)
class Attribution:
    """An attribution of a recipe's networks, and the retraining that it predicts.

    Attributes:
        function: Computes it from recipe, x, y, x_val, y_val, and `key`, `seeds`,
            `output` and `reduce`.
        help: What it is, for the command line.
        same_run: Whether it predicts the very runs that it has differentiated, as
            `same_seed` in `tasks.retrain_subsets`, rather than networks of other seeds.
    """

    function: Callable[..., Values]
    help: str
    same_run: bool = False


ATTRIBUTIONS: dict[str, Attribution] = {
    "network_influence": Attribution(
        network_influence, "a damped Gauss-Newton step, for networks of other seeds"
    ),
    "source": Attribution(
        source, "the training's own response in a few segments, without a damping"
    ),
    "network_tracin": Attribution(
        network_tracin, "products of gradients along the training, cheap"
    ),
    "trak": Attribution(
        trak, "a regression on projected gradients, for large networks"
    ),
    "metagradient": Attribution(
        metagradient,
        "the exact derivative through the training, for the very networks trained",
        same_run=True,
    ),
}
