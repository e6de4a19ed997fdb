"""Utilities of the prefixes of many permutations, a block of sizes at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import gather
from jaxsel._devices.typed import jit

from ._estimator import PART, State
from ._evaluator import Evaluator
from ._sampling import prefix_masks

_PARAMS = PART + "params_"
_SAVED = ("utilities", "ended", "lanes", "size", "block", "rows")


@dataclasses.dataclass
class Walk:
    """Permutations that advance together until each of them ends.

    A call takes as many sizes as fill it. When three quarters of the permutations have
    ended, the others move together, and calls take more sizes: calls of another width
    would be one more program to compile. A permutation's result does not depend on it.

    Attributes:
        utilities: The utility by size, `[count, n + 1]`, NaN where not computed.
        ended: The size at which each permutation ended, `[count]`, n if it did not.
        lanes: Which permutation is in each lane, -1 for none.
        size: The next size.
        block: How many sizes a call has.
        rows: Coalitions of a call.
        params: Of the models of the last call, or None.
        origin: In which row of these each lane's largest prefix is.
    """

    utilities: np.ndarray
    ended: np.ndarray
    lanes: np.ndarray
    size: int
    block: int
    rows: int
    params: Any = None
    origin: np.ndarray | None = None

    @classmethod
    def start(
        cls,
        work: Evaluator,
        lanes: int,
        count: int,
        ends: np.ndarray,
        sizes: tuple[int, int],
    ) -> Walk:
        """Return permutations that have not begun.

        Args:
            work: The utility.
            lanes: How many permutations there are: a power of two.
            count: How many of them are wanted.
            ends: The utility of no points and of all.
            sizes: The smallest and the largest prefix wanted, from 1 to n - 1.
        """
        utilities = np.full((count, work.n + 1), np.nan)
        utilities[:, 0], utilities[:, -1] = ends
        wanted = np.arange(lanes)
        wanted[count:] = -1
        rows = first_rows(work, lanes, sizes)
        ended = np.full(count, work.n)
        return cls(utilities, ended, wanted, sizes[0], rows // lanes, rows)

    def done(self, sizes: tuple[int, int]) -> bool:
        """Return whether all have ended, or the largest prefix wanted is known."""
        return self.size > sizes[1] or not (self.lanes >= 0).any()

    def share(self, sizes: tuple[int, int]) -> float:
        """Return how many permutations the work done so far amounts to, about."""
        active = int((self.lanes >= 0).sum())
        passed = (self.size - sizes[0]) / (sizes[1] - sizes[0] + 1)
        return len(self.utilities) - active + active * passed

    def advance(
        self,
        work: Evaluator,
        ranks: jax.Array,
        sizes: tuple[int, int],
        *,
        tolerance: float,
        patience: int,
    ) -> None:
        """Call the utility with the next block of sizes.

        Args:
            work: The utility.
            ranks: Of `permutation_ranks`, `[lanes, n]`.
            sizes: As for `start`.
            tolerance: See `tmc_shapley`; 0 for no truncation.
            patience: See `tmc_shapley`.
        """
        utilities, lanes, size, block = (
            self.utilities,
            self.lanes,
            self.size,
            self.block,
        )
        like = None
        if self.origin is not None:
            like = self.params, np.repeat(self.origin, block)
        last = sizes[1]
        masks = prefix_masks(ranks, lanes, size, last, block=block)
        values, self.params = work.evaluate(masks, like)
        active = np.flatnonzero(lanes >= 0)
        until = min(size + block, last + 1)
        now = lanes[active]
        utilities[now, size:until] = values.reshape(len(lanes), block)[
            active, : until - size
        ]
        if tolerance:
            # A run may have begun in earlier blocks, up to patience - 1 sizes ago.
            since = max(sizes[0], size - patience + 1)
            full = utilities[0, -1]
            near = np.abs(full - utilities[now, since:until])
            near = near <= tolerance * abs(full - utilities[0, 0])
            steps = _first_run(near, patience)
            self.ended[now] = np.where(steps >= 0, since + steps, work.n)
            lanes[active[steps >= 0]] = -1
        places = np.arange(len(lanes))
        alive = np.flatnonzero(lanes >= 0)
        # Fewer lanes of more sizes each, in powers of two: the call keeps its shape.
        if alive.size and 4 * len(alive) <= len(lanes):
            width = 1 << (len(alive) - 1).bit_length()
            places = np.pad(alive, (0, width - len(alive)))
            lanes = np.pad(lanes[alive], (0, width - len(alive)), constant_values=-1)
        self.lanes, self.origin = lanes, places * block + block - 1
        self.size, self.block = size + block, self.rows // len(lanes)

    def arrays(self) -> State:
        """Return the state `restored` resumes from; {} if models can't be saved."""
        leaves = jax.tree.leaves(self.params)
        if not all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves) or any(
            jnp.issubdtype(leaf.dtype, jax.dtypes.extended) for leaf in leaves
        ):
            return {}
        state = {PART + name: np.array(getattr(self, name)) for name in _SAVED}
        # Of each lane only the model from which the next ones start.
        taken = gather([_take(leaf, self.origin) for leaf in leaves])
        return state | {f"{_PARAMS}{i:04d}": leaf for i, leaf in enumerate(taken)}

    def restored(self, state: State, structure: Any) -> Walk:
        """Return these permutations as far as a state has them; as they are if not.

        Args:
            state: Holds the result of `arrays`, among others.
            structure: Of the parameters that the utility returns, as a pytree.
        """
        leaves = [state[name] for name in sorted(state) if name.startswith(_PARAMS)]
        saved = {n: state[PART + n] for n in _SAVED if PART + n in state}
        # Of another batch size or number of samples: taken anew, all of them.
        if (
            not saved
            or saved["utilities"].shape != self.utilities.shape
            or int(saved["rows"]) != self.rows
            or structure.num_leaves != len(leaves)
        ):
            return self

        def kind(name: str) -> Callable[[Any], Any]:
            return int if isinstance(getattr(self, name), int) else np.array

        return dataclasses.replace(
            self,
            **{name: kind(name)(array) for name, array in saved.items()},
            params=jax.tree.unflatten(structure, leaves),
            origin=np.arange(len(saved["lanes"])),
        )


@jit()
def _take(leaf: jax.Array, rows: np.ndarray | None) -> jax.Array:
    return leaf[rows]


def first_rows(work: Evaluator, lanes: int, sizes: tuple[int, int]) -> int:
    """Return the number of coalitions in the first call of a walk.

    Args:
        work: The utility.
        lanes: As for `Walk.start`.
        sizes: As for `Walk.start`.
    """
    wanted = max(sizes[1] - sizes[0] + 1, 1)
    most = max(1, work.rows // lanes)
    if work.skips_empty:
        return lanes * most  # one program for any number of permutations
    calls = -(-wanted // most)  # all of about the same number of sizes
    return lanes * -(-wanted // calls)


def _first_run(near: np.ndarray, length: int) -> np.ndarray:
    """Return the column that completes the first run of true entries, -1 if none."""
    if near.shape[1] < length:
        return np.full(len(near), -1)
    # A window of this length is all true where the running count rises by it: no loop.
    counts = np.pad(near.cumsum(1), ((0, 0), (1, 0)))
    complete = counts[:, length:] - counts[:, :-length] == length
    return np.where(complete.any(1), complete.argmax(1) + length - 1, -1)
