"""Methods of `benchmarks.networks` on one set-up, with results that a folder keeps."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxsel
from jaxsel import attribute, tasks
from jaxsel.attribute._damping import default_damping
from jaxsel.attribute._networks import trained_networks

from . import _dattri as peer
from ._networks import SETUPS, bm25, last_inputs
from ._setups import Data, subsets
from .attribute import called, cosine

CHOICE, KEY = 100, jax.random.key
FACTORS = 0.1, 0.3, 1.0, 3.0, 10.0
TRAK_DAMPINGS = 0.01, 0.1, 1.0, 10.0
PEER_DAMPINGS = 0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0
CHOSEN = ", a chosen damping"


class Entry(NamedTuple):
    """A method, with a grid if its damping is chosen.

    Attributes:
        name: For the table.
        scores: From a key and a damping to scores `[t, n]`.
        grid: Dampings to choose from.
        chosen_by: The method by which a damping is chosen, if it is another.
        is_peer: Whether it is dattri's.
    """

    name: str
    scores: Callable[[jax.Array, float | None], Any]
    grid: tuple[float, ...] = ()
    chosen_by: Entry | None = None
    is_peer: bool = False


class Bench:
    """A set-up with its truth and its results so far, which a folder keeps."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.setup = name, SETUPS[name]
        self.folder = folder / name.replace(", ", "-").replace(" ", "-")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.setup.load()
        self.n = len(self.data.x)
        self._file = self.folder / "results.json"
        self.kept: dict[str, Any] = {}
        if self._file.exists():
            self.kept = json.loads(self._file.read_text())

    @functools.cached_property
    def damping(self) -> float:
        """The default damping of influence."""
        recipe, samples = self.setup.recipe, self.setup.recipe.check(*self.data)
        return default_damping(
            recipe, trained_networks(recipe, samples, KEY(0), 1), self.n
        )

    def truth(self, first: int, key: int) -> tasks.SubsetRuns:
        """Train on the halves drawn from `first` on, or load their runs."""
        path = self.folder / f"{first}.npz"
        if not path.exists():
            start = time.process_time()
            runs = tasks.retrain_subsets(
                self.setup.recipe,
                *self.data,
                key=KEY(key),
                subsets=subsets(self.n // 2, first, self.n),
                seeds=self.setup.seeds,
                chunk_size=self.setup.chunk_size,
            )
            self.keep(f"truth {first}", time.process_time() - start)
            runs.save(path)
        return tasks.SubsetRuns.load(path)

    @functools.cached_property
    def trained(self) -> Any:
        """Parameters of run 0."""
        recipe, samples = self.setup.recipe, self.setup.recipe.check(*self.data)
        return recipe.train(jax.random.fold_in(KEY(0), 0), samples.x, samples.y)

    @functools.cached_property
    def accuracy(self) -> float:
        """The accuracy of run 0."""
        recipe, samples = self.setup.recipe, self.setup.recipe.check(*self.data)
        right = recipe.apply(self.trained, samples.x_val).argmax(1) == samples.y_val
        return float(right.mean())

    def keep(self, name: str, result: Any) -> None:
        """Keep a result in the folder."""
        self.kept[name] = result
        self._file.write_text(json.dumps(self.kept, indent=1))

    def measured(self, entry: Entry) -> dict[str, Any]:
        """Return scores, errors and seconds of a method, kept ones if there are."""
        if entry.name in self.kept:
            return self.kept[entry.name]
        damping = self._chosen(entry.chosen_by or entry) if entry.grid else None
        start = time.process_time()
        scores = jax.block_until_ready(entry.scores(KEY(0), damping))
        seconds = time.process_time() - start
        score = tasks.lds(scores, self.truth(10_000, 0), key=KEY(0))
        result = {
            "mean": score.mean,
            "errors": (score.stderr_targets, score.stderr_subsets),
            "damping": damping,
            "seconds": seconds,
            "agreement": score.agreement,
            "ceiling": score.ceiling,
        }
        self.keep(entry.name, result)
        return result

    def _chosen(self, entry: Entry) -> float:
        runs = self.truth(20_000, CHOICE)

        def score(damping: float) -> float:
            name = f"{entry.name} of {damping:.3g}"
            if name not in self.kept:
                scores = entry.scores(KEY(CHOICE), damping)
                self.keep(name, tasks.lds(scores, runs, key=KEY(0)).mean)
            return self.kept[name]

        return max(entry.grid, key=score)

    def networks(
        self, key: jax.Array, count: int, size: int | None = None
    ) -> peer.Twins:
        """Return networks that are trained by a key, in torch."""
        recipe, samples = self.setup.recipe, self.setup.recipe.check(*self.data)
        trained = trained_networks(recipe, samples, key, count, size=size)
        members = [jax.tree.map(lambda a, i=i: a[i], trained) for i in range(count)]
        losses = [
            recipe.losses(recipe.apply(p, samples.x_val), samples.y_val)
            for p in members
        ]
        return peer.Twins(members, self.data, np.asarray(losses))

    def entries(self) -> list[Entry]:
        """Return baselines, ours and dattri's."""
        influence = tuple(factor * self.damping for factor in FACTORS)
        asked = self.setup.solver
        solver: dict[str, Any] = {"solver": asked} if asked else {}
        log_odds: dict[str, Any] = {"seeds": self.setup.networks, "output": "log_odds"}
        halves: dict[str, Any] = {"seeds": 10, "share": 0.5}
        several = [
            self._own("network_influence", seeds=self.setup.networks, **solver),
            self._own("network_influence", **log_odds, **solver),
            self._own("network_influence", influence, **log_odds, **solver),
            self._own("source", solver="ekfac", **log_odds),
        ]
        return [
            *self._baselines(),
            self._own("network_tracin", checkpoints=1),
            self._own("network_tracin", checkpoints=1, normalise=True),
            self._own("network_tracin", seeds=10),
            self._own("network_influence", **solver),
            self._own("source", solver="ekfac"),
            *(several if self.setup.networks > 1 else []),
            self._own("trak", **halves),
            self._own("trak", TRAK_DAMPINGS, **halves),
            *(self._peers(influence) if self.setup.peers else []),
        ]

    def _baselines(self) -> list[Entry]:
        """Return methods that do not differentiate the network."""
        knn = f"`knn_shapley(k={self.setup.k})`"
        entries = [
            self._fixed("random", self._random),
            self._fixed("cosine, minus for other labels", lambda: cosine(self.data)),
            self._fixed(knn, lambda: self._knn(self.data)),
        ]
        if len(jax.tree.leaves(self.trained)) > 1:
            name = f"{knn} of the last layer's inputs"
            entries.append(self._fixed(name, lambda: self._knn(self._inner())))
        if self.setup.texts is not None:
            entries.append(self._fixed("BM25, minus for other labels", self._bm25))
        return entries

    def _random(self) -> np.ndarray:
        shape = len(self.data.x_val), self.n
        return np.random.default_rng(0).normal(size=shape)

    def _knn(self, samples: Data) -> Any:
        return jaxsel.knn_shapley(*samples, k=self.setup.k, reduce=None)

    def _inner(self) -> Data:
        apply = self.setup.recipe.apply
        x, x_val = (
            np.asarray(last_inputs(self.trained, apply, jax.numpy.asarray(x)))
            for x in (self.data.x, self.data.x_val)
        )
        return self.data._replace(x=x, x_val=x_val)

    def _bm25(self) -> np.ndarray:
        assert self.setup.texts is not None
        scores = bm25(*self.setup.texts())
        return scores * np.where(self.data.y == self.data.y_val[:, None], 1, -1)

    def _fixed(self, name: str, scores: Callable[[], Any]) -> Entry:
        return Entry(name, lambda key, damping: scores())

    def _own(self, name: str, grid: tuple[float, ...] = (), **options: Any) -> Entry:
        function = getattr(attribute, name)

        def scores(key: jax.Array, damping: float | None) -> Any:
            chosen = {} if damping is None else {"damping": damping}
            recipe = self.setup.recipe
            return function(
                recipe, *self.data, key=key, reduce=None, **options, **chosen
            )

        return Entry(called(name, options) + CHOSEN * bool(grid), scores, grid)

    def _peers(self, influence: tuple[float, ...]) -> list[Entry]:
        def solved(count: int, chosen_by: Entry | None = None) -> Entry:
            def scores(key: jax.Array, damping: float | None) -> Any:
                return self.networks(key, count).conjugate_gradients(damping or 0)

            name = f"dattri CG, {count} network{'s' * (count > 1)}{CHOSEN}"
            return Entry(name, scores, (*influence, 0.1), chosen_by, True)

        def trak(key: jax.Array, damping: float | None) -> Any:
            return self.networks(key, 10, self.n // 2).trak(damping or 0)

        name = f"dattri TRAK, 10 networks on halves{CHOSEN}"
        single = solved(1)
        return [
            single,
            solved(5, single),
            Entry(name, trak, PEER_DAMPINGS, is_peer=True),
        ]
