"""Call utilities for estimators: one key, whole batches, on the devices of a mesh."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import along, gather, n_shards, shard
from jaxsel._devices.typed import clone_key, jit, tree_map
from jaxsel._inputs.checks import INT32, check_count
from jaxsel._runs.fingerprint import fingerprint, plain_repr

from ._failures import Failures
from ._owner_utility import by_owner

KEY = "key"  # the name under which it is described
_ROWS, _ENTRIES = 1024, 1 << 24  # coalitions of a call, and booleans in their masks
_CALL, _MOST = 0.05, 16  # seconds of a call on the host, and coalitions of a worker
_TOGETHER = 0.1  # seconds of permutations that advance together there
_DEAR = 5.0  # seconds of a call that is not made twice to leave out compilation
_SLOW = 1e-3  # seconds of a plain function that may gain nothing from batches


class Evaluator:
    """A utility with the key of a run, called in batches on the devices of a mesh.

    Args:
        utility: Has `n`, and returns the utilities `[B]` of masks `[B, n]` and a key.
        key: Split in one for the samples and one for all calls of the utility. None
            only where `draws` is false: calls get None as well.
        options: `RunOptions`; it uses the owners, batch size, mesh and axis. On the
            host a batch size of None is chosen by the time that the coalition of all
            points takes when it is first evaluated, alone or with the empty one.
        draws: Whether coalitions are drawn, which takes a key.

    Attributes:
        n: Number of players: of training points, or of their owners.
        index: The players' labels, or None.
        key: Of the samples, if there is one.
        rows: Coalitions of a call.
        together: How many permutations advance together at most.
        mesh: Devices, or None.
        structure: Of the parameters that the utility returned last, as a pytree.
    """

    def __init__(
        self,
        utility: Any,
        key: jax.Array | None,
        options: Mapping[str, Any],
        *,
        draws: bool = True,
    ):
        mesh = along(options["mesh"], options["axis"])
        owners, batch_size = options["owners"], options["batch_size"]
        if owners is not None:
            utility = by_owner(utility, owners)
        if not callable(utility) or not hasattr(utility, "n"):
            raise TypeError(
                "utility must be a ModelUtility, or a function wrapped by "
                f"as_utility(function, n), got {utility!r}"
            )
        self.n = check_count("utility.n", utility.n)  # pyright: ignore
        self.index: tuple[Any, ...] | None = getattr(utility, "index", None)
        self.rows = batch_rows(batch_size, getattr(utility, "width", self.n))
        self.together = self.rows
        workers = getattr(utility, "workers", None)
        plain = getattr(utility, "evaluate", None) is None
        self._workers = workers or 1
        self._untimed = batch_size is mesh is None and (plain or workers is not None)
        self._own, self._given = None, {"n": str(self.n)}
        if draws or key is not None:
            self.key, self._own = _split(check_key(key))
            self._given = describe(self.n, check_key(key))
        self.mesh, self._utility = mesh, utility
        self.structure = jax.tree.structure(None)

    @property
    def about(self) -> dict[str, str]:
        """Fields that identify this work, by name: the utility, n and the key."""
        about: Mapping[Any, Any] | None = getattr(self._utility, "about", None)
        if not isinstance(about, Mapping):
            about = {"utility": plain_repr(self._utility)}
        return {**{str(name): str(fact) for name, fact in about.items()}, **self._given}

    def __call__(self, masks: jax.Array) -> np.ndarray:
        """Return the utility of coalitions, `[B]` float64."""
        return self.evaluate(masks, cold=False)[0]

    def evaluate(
        self,
        masks: jax.Array,
        like: tuple[Any, np.ndarray] | None = None,
        *,
        cold: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """Return the utility of coalitions, and parameters of their models if any.

        Args:
            masks: `[B, n]` bool.
            like: Parameters that an earlier call returned, and `[B]`: in which row
                of these the training for each coalition starts.
            cold: Whether other calls have `like`: without it this one then starts from
                parameters that are as good as none, in the same program.

        Returns:
            Utilities `[B]` float64, and parameters or None.

        Raises:
            ValueError: If they have another shape, or are not finite.
        """
        count = len(masks)
        masks = _padded(masks, self.mesh)
        key = None if self._own is None else clone_key(self._own)
        evaluate = getattr(self._utility, "evaluate", None)
        call: Callable[[], Any]
        result: Any
        if evaluate is None:
            call = partial(self._utility, masks, key)
        elif like is None or like[0] is None:
            start = self._cold(len(masks)) if cold else None
            call = partial(evaluate, masks, key, *([] if start is None else [start]))
        else:
            rows = np.pad(like[1], (0, len(masks) - count))
            call = partial(evaluate, masks, key, _take(like[0], rows))
        if self._untimed and count <= 2 and bool(masks[-1].all()):
            result = self._timed(call, slow=_SLOW if evaluate is None else 0.0)
        else:
            result = call()
        utilities, params = (result, None) if evaluate is None else result
        self.structure = jax.tree.structure(params)
        utilities = gather(utilities) if isinstance(utilities, jax.Array) else utilities
        utilities = np.asarray(utilities, np.float64)
        if self.failures is not None:
            self.failures.add_models(params)
        if utilities.shape != (len(masks),):
            raise ValueError(
                f"utility must return shape [B] = [{len(masks)}], one number for each "
                f"coalition, got {utilities.shape}"
            )
        utilities = utilities[:count]
        bad = np.flatnonzero(~np.isfinite(utilities))
        if bad.size:
            size = int(gather(masks)[bad[0]].sum())
            raise ValueError(
                f"utility must return finite numbers, got {utilities[bad[0]]} for a "
                f"coalition of {size} of {self.n} points"
            )
        return utilities, params

    def _timed(self, call: Callable[[], Any], slow: float) -> Any:
        """Call the utility of all points; set the length of later calls by its time.

        Args:
            call: Calls the utility; an empty coalition beside that of all is free.
            slow: Seconds below which nothing is set.
        """
        self._untimed, seconds = False, np.inf
        result, rows = None, self.rows
        for _ in range(2):  # again, as the first call may have compiled or waited
            result, once = timed(call)
            seconds = min(seconds, once)
            if isinstance(result, jax.Array) or seconds < slow:
                return result
            rows = paced_rows(self.rows, seconds, self._workers)
            if rows == self.rows or seconds > _DEAR:
                break
        if rows < self.rows:
            passes = max(1, int(_TOGETHER / (self.n * seconds)))
            self.rows, self.together = rows, min(rows, passes * self._workers)
        return result

    @property
    def failures(self) -> Failures | None:
        """Coalitions on which the learner failed, where the utility counts them."""
        failures = getattr(self._utility, "failures", None)
        return failures if isinstance(failures, Failures) else None

    @property
    def skips_empty(self) -> bool:
        """True if models start warm, and empty coalitions cost next to nothing."""
        return self._cold(0) is not None

    def __getstate__(self) -> dict[str, Any]:
        # Structures of a user's own classes can't be pickled, and are found anew.
        return vars(self) | {"structure": None}

    def ends(self, rows: int | None = None, *, cold: bool = False) -> np.ndarray:
        """Return the utility of no points and of all, `[2]`.

        Where empty coalitions cost next to nothing this call is filled up with them, to
        go through the program of those to come.

        Args:
            rows: Coalitions of a call to come; `self.rows` if None.
            cold: As for `evaluate`.
        """
        count = max(2, rows or self.rows) if self.skips_empty else 2
        masks = np.zeros((count, self.n), bool)
        masks[1] = True
        return self.evaluate(jnp.asarray(masks), cold=cold)[0][:2]

    def _cold(self, count: int) -> Any:
        cold = getattr(self._utility, "cold", None)
        return None if cold is None else cold(count)


def describe(n: int, key: jax.Array) -> dict[str, str]:
    """Return the fields that identify the samples of a run."""
    return {"n": str(n), KEY: str(np.asarray(jax.random.key_data(key)).tolist())}


def describe_data(learner: Any, **arrays: Any) -> dict[str, str]:
    """Return the fields that identify a learner, and digests of data by name."""
    digests = {name: fingerprint(np.asarray(array)) for name, array in arrays.items()}
    # Its digest as well, since a repr may omit options, such as optax's.
    return {
        "learner": plain_repr(learner),
        "learner's digest": fingerprint(learner),
        **digests,
    }


def batch_rows(batch_size: int | None, row_length: int, most: int = _ROWS) -> int:
    """Return the number of coalitions per call, by the entries of each."""
    if batch_size is not None:
        return check_count("batch_size", batch_size, maximum=INT32)
    return max(1, min(most, _ENTRIES // row_length))


def paced_rows(rows: int, seconds: float, workers: int) -> int:
    """Return the number of coalitions per call on the host.

    Args:
        rows: At most as many.
        seconds: Of one coalition.
        workers: How many are trained at once.
    """
    per_worker = max(1, min(_MOST, int(_CALL / max(seconds, 1e-9))))
    return min(rows, per_worker * workers)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and how many seconds it takes on a quiet machine."""
    begun, spent = time.perf_counter(), time.thread_time()
    result = call()
    wall, spent = time.perf_counter() - begun, time.thread_time() - spent
    # If little of it is this thread's, it waits for others, which is part of the call.
    return result, spent if spent > wall / 8 else wall


def check_key(key: Any) -> jax.Array:
    if not isinstance(key, jax.Array) or not jnp.issubdtype(
        key.dtype, jax.dtypes.prng_key
    ):
        raise TypeError(f"key must be a key as of jax.random.key(0), got {key!r}")
    return key


def _padded(masks: jax.Array, mesh: jax.sharding.Mesh | None) -> jax.Array:
    """Pad with empty coalitions to a multiple of the devices, and shard."""
    if mesh is None:
        return masks
    return shard(jnp.pad(masks, ((0, -len(masks) % n_shards(mesh)), (0, 0))), mesh)


@jit()
def _split(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    of_samples, of_utility = jax.random.split(key)
    return of_samples, of_utility


@jit()
def _take(params: Any, rows: np.ndarray) -> Any:
    return tree_map(lambda leaf: leaf[rows], params)
