"""All values that retrain models, by name: tests of any kind go through this table."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from jaxsel._inputs.show import brief
from jaxsel._results.types import Values

from ._adjusted import adjusted_semivalue
from ._choice import estimate_semivalue
from ._exact import exact_semivalue, exact_shapley
from ._g_shapley import g_shapley
from ._group_testing import group_testing_shapley
from ._influence import influence
from ._loo import loo
from ._msr import banzhaf
from ._oob import data_oob
from ._permutation import beta_shapley, tmc_shapley


@brief
@dataclasses.dataclass(frozen=True)
class Retraining:
    """A value that retrains models, and the properties that tests depend on.

    Attributes:
        function: The public function. Tests bind its arguments by their names.
        kind: Semivalue of a utility that it returns or estimates with the arguments
            `unbiased`: "shapley", "banzhaf", "beta" or "loo"; None if it returns none.
        unbiased: Arguments without which an estimate of the semivalue has a bias.
        command: Whether `jaxsel value --method` has it.
    """

    function: Callable[..., Values]
    kind: str | None = None
    unbiased: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    command: bool = False

    @cached_property
    def arguments(self) -> frozenset[str]:
        """Names of all arguments."""
        return frozenset(inspect.signature(self.function).parameters)

    def bound(self, **options: Any) -> Callable[..., Values]:
        """Return the function with the options that it takes; others are left out."""
        taken = {k: v for k, v in options.items() if k in self.arguments}

        def call(**more: Any) -> Values:
            return self.function(**{**taken, **more})

        return call


ESTIMATORS = {
    value.function.__name__: value
    for value in (
        Retraining(tmc_shapley, "shapley", {"tolerance": 0}, command=True),
        Retraining(beta_shapley, "beta", command=True),
        Retraining(banzhaf, "banzhaf", command=True),
        Retraining(group_testing_shapley, "shapley"),
        Retraining(adjusted_semivalue, "shapley"),
        Retraining(estimate_semivalue, "shapley"),
        Retraining(exact_semivalue, "shapley"),
        Retraining(exact_shapley, "shapley"),
        Retraining(loo, "loo", command=True),
        Retraining(data_oob, command=True),
        Retraining(g_shapley),
        Retraining(influence),
    )
}
