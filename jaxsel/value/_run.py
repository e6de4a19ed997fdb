"""The loop that all sampling estimators share, and how they call utilities.

A run takes rounds of samples until its stopping rule is content. Rounds are of a fixed
length, whatever the batches in which utilities are called, so that neither the samples
nor the decision to stop depends on these; time alone may stop a run, and save its
state, after each batch. Running means are float64 on the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from jaxsel._types import Provenance, Values

from ._evaluator import KEY
from ._stopping import RunInfo, StoppingRule

State: TypeAlias = dict[str, np.ndarray]
Moments: TypeAlias = tuple[Any, np.ndarray, np.ndarray]  # count, mean, m2

SAVE_EVERY = 30.0  # seconds
ENDS = "ends"  # in a state: the utility of no points and of all
PART = "part_"  # how names of what samples that have begun know start, in a state

_clock = time.monotonic


class Part(NamedTuple):
    """Results of one batch of utilities.

    Attributes:
        samples: How many samples are complete since the last part.
        state: With these.
        ahead: How many samples the work on those that have begun amounts to.
        begun: Returns arrays to go on from with these, whose names start with `PART`.
    """

    samples: int
    state: State
    ahead: float = 0.0
    begun: Callable[[], State] = dict

    @classmethod
    def of(cls, samples: int, sums: Moments, **options: Any) -> Part:
        """Return a part whose state is running moments."""
        count, mean, m2 = map(np.asarray, sums)
        return cls(samples, {"count": count, "mean": mean, "m2": m2}, **options)


class Work(Protocol):
    """Inputs that an estimator is bound to.

    Attributes:
        n: Number of training points.
        key: Of the samples.
        mesh: Devices, or None.
        about: What tells this work from other, by name, n and the key among it.
    """

    n: int
    key: jax.Array
    mesh: jax.sharding.Mesh | None

    @property
    def about(self) -> Mapping[str, str]: ...

    def report(self) -> None:
        """Warn of what went wrong within the run."""
        ...


class Estimator(Protocol):
    """A way to estimate values from samples; immutable.

    Attributes:
        method: Its name, with every parameter that matters.
        round: Samples between two questions to the stopping rule.
    """

    @property
    def method(self) -> str: ...

    @property
    def round(self) -> int: ...

    def init(self, work: Any) -> State:
        """Return the state before the first sample: a dict of arrays."""
        ...

    def step(self, work: Any, state: State, first: int, count: int) -> Iterator[Part]:
        """Yield the state after each batch, until it has `count` samples from `first`.

        The state may hold what a part has `begun`.
        """
        ...

    def finalize(self, state: State) -> Moments:
        """Return count (`[n]` or a number), values and m2, as `Values` has them."""
        ...


def run(
    estimator: Estimator,
    work: Work,
    *,
    stop: StoppingRule,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Values:
    """Sample until the stopping rule is content.

    Args:
        estimator: What to compute of the samples.
        work: What it works on.
        stop: Asked after each round.
        progress: Whether to show a bar.
        checkpoint: Folder in which to keep the state, every 30 seconds and at the end.
            A run that finds its own state there goes on, and returns at once where the
            rule is content with what there is; a rule that asks for more gets more.

    Raises:
        TypeError: If `stop` is no rule.
        ValueError: If the folder holds another run.
    """
    if not isinstance(stop, StoppingRule):
        raise TypeError(
            "stop must be a rule such as MaxSamples(1000) or StandardError(0.01), got "
            f"{stop!r}"
        )
    state = {
        **estimator.init(work),
        "run_samples": np.array(0),
        "run_seconds": np.array(0.0),
        "run_before": np.full(work.n, np.nan),
        "run_agreement": np.array([np.nan]),
    }
    about = {"estimator": estimator.method, **work.about}
    saved = None
    if checkpoint is not None:
        saved = _Saved(checkpoint, about)
        state = saved.load(state)
    info = _look(estimator, state)
    begun = _clock() - info.seconds
    part, written = None, info.seconds
    with _bar(estimator.method, stop.limit, info, shown=progress) as show:
        while not _content(stop, info, estimator.round):
            # Rounds end at multiples of their length, also after a shorter one.
            more = estimator.round - info.samples % estimator.round
            if stop.limit is not None:
                more = max(1, min(more, stop.limit - info.samples))
            for part in estimator.step(work, state, info.samples, more):
                state = {k: v for k, v in state.items() if not k.startswith(PART)}
                state |= part.state
                state["run_samples"] = np.array(info.samples + part.samples)
                state["run_seconds"] = _agreed(_clock() - begun, work.mesh)
                info = _look(estimator, state)
                if part.samples and info.samples % estimator.round == 0:
                    agreed = _correlation(state["run_before"], info.values)
                    history = np.append(info.agreement, agreed)
                    state.update(run_before=info.values, run_agreement=history)
                    info = dataclasses.replace(info, agreement=history)
                show(info, part.ahead)
                if saved is not None and info.seconds - written >= SAVE_EVERY:
                    saved.save({**state, **part.begun()})
                    part, written = None, info.seconds
                if stop.overdue(info.seconds):
                    break
    if saved is not None and part is not None:
        saved.save({**state, **part.begun()})
    work.report()
    count, values, m2 = estimator.finalize(state)
    if not info.samples:
        values = np.full(work.n, np.nan)
        warnings.warn(
            f"{estimator.method} was out of time before its first samples were "
            "complete, so that all values are NaN: allow more time, or set a smaller "
            "batch_size, for which fewer samples are taken at once",
            stacklevel=3,
        )
    key = about.pop(KEY)
    return Values(
        values=jnp.asarray(np.asarray(values, np.float32)),
        count=jnp.asarray(np.asarray(count, np.int32)),
        m2=jnp.asarray(np.asarray(m2, np.float32)),
        method=estimator.method,
        provenance=Provenance(source=about, parts=(f"samples of key {key}",)),
    )


def _content(stop: StoppingRule, info: RunInfo, length: int) -> bool:
    """Return whether to stop: rules are asked at the ends of rounds, and at a limit."""
    if stop.overdue(info.seconds):
        return True
    limited = stop.limit is not None and info.samples >= stop.limit
    whole = info.samples % length == 0
    return info.samples > 0 and (whole or limited) and stop.done(info)


def moments(samples: np.ndarray) -> Moments:
    """Return count, mean and m2 over the first axis."""
    mean = samples.mean(0)
    return len(samples), mean, ((samples - mean) ** 2).sum(0)


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Combine two disjoint sets of samples, by the update of Chan et al.; 0 is none."""
    total = np.maximum(a[0] + b[0], 1)
    delta = b[1] - a[1]
    mean = a[1] + delta * (b[0] / total)
    return a[0] + b[0], mean, a[2] + b[2] + delta**2 * (a[0] * b[0] / total)


def standard_error(count: Any, m2: np.ndarray) -> np.ndarray:
    """Return the standard error of means, NaN of fewer than two samples."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            np.greater(count, 1), np.sqrt(m2 / ((count - 1.0) * count)), np.nan
        )


class _Saved:
    """The state of a run in a folder."""

    def __init__(self, folder: str | os.PathLike[str], about: dict[str, str]):
        from jaxsel._checkpoints import Checkpoints

        self._about = about
        self._checkpoints = Checkpoints(folder, "jaxsel.value")
        self._saves = 0

    def load(self, fresh: State) -> State:
        """Return the state that was saved; the fresh one if there is none."""
        found = self._checkpoints.load_arrays()
        if found is None:
            return fresh
        where = f"checkpoint {self._checkpoints.folder} holds"
        try:
            about = json.loads(bytes(found.pop("run_about")))
            self._saves = int(found.pop("run_saves"))
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{where} a run of an earlier version: choose another folder"
            ) from error
        names = dict.fromkeys([*about, *self._about])
        facts = ((name, about.get(name), self._about.get(name)) for name in names)
        differ = [f"{n}={was}, not {n}={now}" for n, was, now in facts if was != now]
        if differ:
            raise ValueError(
                f"{where} another run, with {'; '.join(differ)}: choose another folder"
            )
        was, now = (state.get(ENDS, np.zeros(2)) for state in (found, fresh))
        if not np.allclose(was, now, rtol=1e-3, atol=1e-4):
            raise ValueError(
                f"{where} a run whose utility of no points and of all was "
                f"{was.tolist()}, not {now.tolist()}: choose another folder"
            )
        return found

    def save(self, state: State) -> None:
        self._saves += 1
        about = np.frombuffer(json.dumps(self._about).encode(), np.uint8)
        kept = {"run_about": about, "run_saves": np.array(self._saves)}
        self._checkpoints.save(self._saves, state | kept)


def _look(estimator: Estimator, state: State) -> RunInfo:
    count, values, m2 = estimator.finalize(state)
    return RunInfo(
        samples=int(state["run_samples"]),
        seconds=float(state["run_seconds"]),
        values=values,
        stderr=standard_error(count, m2),
        agreement=state["run_agreement"],
    )


def _correlation(before: np.ndarray, now: np.ndarray) -> float:
    """Return Spearman's correlation, ties at their mean rank; 1 if ranks are equal."""
    if np.isnan(before).any() or np.isnan(now).any():
        return np.nan
    a, b = stats.rankdata(before), stats.rankdata(now)
    if (a == b).all():
        return 1.0
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / max(np.sqrt((a @ a) * (b @ b)), 1.0))


def _agreed(seconds: float, mesh: jax.sharding.Mesh | None) -> np.ndarray:
    """Return the time of process 0, where several must stop together."""
    if mesh is None or not mesh.is_multi_process:
        return np.array(seconds)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(seconds), np.float64)


@contextlib.contextmanager
def _bar(
    method: str, total: int | None, start: RunInfo, *, shown: bool
) -> Iterator[Callable[[RunInfo, float], None]]:
    """Yield what is told of each batch, and shows it."""
    if not shown:
        yield lambda info, ahead: None
        return
    from tqdm.auto import tqdm

    label = method.partition("(")[0]
    with tqdm(desc=label, total=total, initial=start.samples, leave=False) as bar:

        def show(info: RunInfo, ahead: float) -> None:
            bar.update(info.samples + int(ahead) - bar.n)
            if not ahead:
                bar.set_postfix(stderr=f"{info.stderr.max():.2g}")

        yield show
