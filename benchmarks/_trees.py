"""Shapley values of decision trees on two processes, and pyDVL's on as many."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxsel import value

from ._retrain import gaussians
from ._workers import pool

Call = Callable[[], np.ndarray]


class Trees:
    """A task, and two processes that stay until it goes.

    Args:
        quick: Whether the run is tiny.
    """

    def __init__(self, *, quick: bool) -> None:
        self.task = gaussians(20 if quick else 200, 10)
        self.permutations = 4 if quick else 16
        stack = contextlib.ExitStack()
        self.pool = stack.enter_context(pool(2))
        weakref.finalize(self, stack.close)

    def ours(self, executor: Any = None) -> Call:
        """Return a call of `tmc_shapley` on an executor, a permutation a work item."""
        task, model = self.task, _tree()
        utility = value.ModelUtility(model, task.x, task.y, task.x_val, task.y_val)
        options: Any = {
            "key": jax.random.key(0),
            "stop": value.MaxSamples(self.permutations),
            "tolerance": 0,
            "executor": executor,
        }
        return lambda: np.asarray(value.tmc_shapley(utility, **options).values)

    def pydvl(self, processes: int) -> Call:
        """Return pyDVL's values of as many permutations, by joblib's processes.

        Raises:
            ImportError: If pyDVL is not installed.
        """
        from joblib import parallel_config

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            from pydvl.valuation.dataset import Dataset
            from pydvl.valuation.methods.shapley import ShapleyValuation
            from pydvl.valuation.samplers import PermutationSampler
            from pydvl.valuation.scorers import SupervisedScorer
            from pydvl.valuation.stopping import MinUpdates
            from pydvl.valuation.utility import ModelUtility

        task = self.task
        train, test = Dataset(task.x, task.y), Dataset(task.x_val, task.y_val)

        def call() -> np.ndarray:
            model: Any = _tree()
            scorer = SupervisedScorer(model, test, default=0.0, range=(0, 1))
            valuation = ShapleyValuation(
                ModelUtility(model, scorer, show_warnings=False),
                PermutationSampler(seed=0),
                is_done=MinUpdates(self.permutations),
                show_warnings=False,
            )
            with parallel_config(n_jobs=processes), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return valuation.fit(train).result.values

        return call


def _tree() -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=5, random_state=0)
