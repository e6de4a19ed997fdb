"""The loop that all sampling estimators share, and how they call utilities.

A run takes rounds of samples until its stopping rule is content. Rounds are of a fixed
length, whatever the batches in which utilities are called, so that neither the samples
nor the decision to stop depends on these; time alone may stop a run, and save its
state, after each batch. What a batch adds is merged here, in order, wherever it was
computed. Values are worked out at the ends of rounds only, as a batch may be a single
fit. Running means are float64 on the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.checks import caller_level
from jaxsel._results.types import Provenance, Values
from jaxsel._runs.progress import bar_class, first_step

from ._estimator import (
    ENDS,
    PART,
    SUMS,
    TAKEN,
    Estimator,
    Part,
    State,
    Work,
    added,
    all_batches,
    batches,
    round_length,
)
from ._evaluator import KEY
from ._executor import Executor, SentRun, Spread, check_executor
from ._failures import tell
from ._stopping import RunInfo, StoppingRule

_LOG = logging.getLogger(__name__)
SAVE_EVERY = 30.0  # seconds
_SHOW = 0.5  # seconds between two texts behind a bar

_clock = time.monotonic


def run(
    estimator: Estimator,
    work: Work,
    stop: StoppingRule,
    options: Mapping[str, Any],
) -> Values:
    """Sample until the stopping rule is content.

    Args:
        estimator: Method to estimate by.
        work: Inputs it is bound to.
        stop: Asked after each round. A resumed run returns at once where the rule is
            content with its samples; a rule that asks for more gets more.
        options: `RunOptions`; it uses progress, checkpoint and executor.

    Raises:
        TypeError: If `stop` is no rule, or `executor` is none.
        ValueError: If the folder holds another run.
    """
    if not isinstance(stop, StoppingRule):
        raise TypeError(
            "stop must be a rule such as MaxSamples(1000) or StandardError(0.01), got "
            f"{stop!r}"
        )
    checkpoint, executor = options["checkpoint"], options["executor"]
    if executor is not None:
        check_executor(executor, work.mesh)
    about = {"estimator": estimator.method, **work.about}
    with _bar(estimator.method, stop.limit, shown=options["progress"]) as bar:
        state, info = _sampled(estimator, work, stop, about, checkpoint, executor, bar)
    _LOG.info("%s: %d samples, %.1f s", estimator.method, info.samples, info.seconds)
    tell(work.failures)
    count, values, m2 = estimator.finalize(state)
    if not info.samples:
        values = np.full(work.n, np.nan)
    missing = int(np.isnan(values).sum())
    if missing and stop.overdue(info.seconds):
        warnings.warn(
            _reason(estimator.method, work, info.samples, missing),
            stacklevel=caller_level(),
        )
    key = about.pop(KEY)
    with jax.debug_nans(False):  # unknown values and errors are NaN by design
        return Values(
            values=jnp.asarray(np.asarray(values, np.float32)),
            count=jnp.asarray(np.asarray(count, np.int32)),
            m2=jnp.asarray(np.asarray(m2, np.float32)),
            method=estimator.method,
            provenance=Provenance(source=about, parts=(f"samples of key {key}",)),
            index=getattr(work, "index", None),
        )


def _sampled(
    estimator: Estimator,
    work: Work,
    stop: StoppingRule,
    about: dict[str, str],
    checkpoint: str | os.PathLike[str] | None,
    executor: Executor | None,
    bar: _Bar,
) -> tuple[State, RunInfo]:
    """Sample until the rule is met; return the state, and the run's progress."""
    state: State = {
        "run_samples": np.array(0),
        "run_seconds": np.array(0.0),
        "run_before": np.full(work.n, np.nan),
        "run_agreement": np.array([np.nan]),
        **estimator.init(work),
    }
    saved = None
    if checkpoint is not None:
        saved = _Saved(checkpoint, about)
        state = saved.load(state)
    info = _look(estimator, state)
    begun = _clock() - info.seconds
    part, written, kept = None, info.seconds, info.samples
    source = _source(executor, estimator, work, state, stop.limit)
    bar.begin(info)
    try:
        with source as parts:
            while not _content(stop, info, estimator.round):
                more = round_length(estimator.round, info.samples, stop.limit)
                for part in parts(state, info.samples, more):
                    state, info = _merged(
                        estimator, work, state, info, part, begun, stop.limit
                    )
                    bar.show(info, part.ahead)
                    if saved is not None and info.seconds - written >= SAVE_EVERY:
                        saved.save({**state, **part.begun()})
                        part, written, kept = None, info.seconds, info.samples
                    if stop.overdue(info.seconds):
                        break
    except KeyboardInterrupt:
        # Without the batch that was interrupted, which may be half done.
        if saved is not None and int(state["run_samples"]) > kept:
            saved.save(state)
        raise
    if saved is not None and part is not None:
        saved.save({**state, **part.begun()})
    return state, info


def _merged(
    estimator: Estimator,
    work: Work,
    state: State,
    info: RunInfo,
    part: Part,
    begun: float,
    limit: int | None,
) -> tuple[State, RunInfo]:
    """Add a part to a copy of the state, and update the progress.

    Within a round the progress keeps the values and errors of the round before.
    """
    state = {k: v for k, v in state.items() if not k.startswith(PART)}
    if part.sums is not None:
        state |= added(estimator, state, part.sums)
    samples = info.samples + part.samples
    state["run_samples"] = np.array(samples)
    state["run_seconds"] = _agreed(_clock() - begun, work.mesh)
    round_complete = samples % estimator.round == 0
    if not part.samples or not (round_complete or samples == limit):
        seconds = float(state["run_seconds"])
        return state, dataclasses.replace(info, samples=samples, seconds=seconds)
    info = _look(estimator, state)
    if not round_complete:
        return state, info
    agreed = _correlation(state["run_before"], info.values)
    history = np.append(info.agreement, agreed)
    state.update(run_before=info.values, run_agreement=history)
    return state, dataclasses.replace(info, agreement=history)


def _content(stop: StoppingRule, info: RunInfo, length: int) -> bool:
    """Return whether to stop: rules are asked at the ends of rounds, and at a limit."""
    if stop.overdue(info.seconds):
        return True
    limited = stop.limit is not None and info.samples >= stop.limit
    round_complete = info.samples % length == 0
    return info.samples > 0 and (round_complete or limited) and stop.done(info)


def _reason(method: str, work: Work, samples: int, missing: int) -> str:
    """Return the warning's text: why values are NaN, and the remedy."""
    if samples:
        return (
            f"{missing} of {work.n} values are NaN, since the {samples} samples that "
            f"{method} took say nothing of them: allow more samples, or more time, by "
            "stop="
        )
    fewer = ", or set a smaller batch_size, for which fewer samples are taken at once"
    return (
        f"{method} was out of time before its first samples were complete, so that all "
        f"values are NaN: allow more time{'' if work.rows == 1 else fewer}"
    )


@contextlib.contextmanager
def _source(
    executor: Executor | None,
    estimator: Estimator,
    work: Work,
    state: State,
    limit: int | None,
) -> Generator[Callable[[State, int, int], Iterator[Part]], None, None]:
    """Yield a function of a state, a first sample and a count: its parts."""
    if executor is None:
        yield partial(_parts, estimator, work)
        return
    changing = PART, TAKEN, "run_"
    fixed = (k for k in state if k not in SUMS and not k.startswith(changing))
    spread = Spread(
        executor,
        SentRun(estimator, work, {name: state[name] for name in fixed}),
        work,
        all_batches(estimator, work, int(state["run_samples"]), limit),
        limit,
    )
    try:
        yield spread.parts
    finally:
        spread.close()


def _parts(
    estimator: Estimator, work: Work, state: State, first: int, count: int
) -> Iterator[Part]:
    """Yield the parts of a round; `state` may hold part of its first batch."""
    for batch in batches(estimator, work, first, count):
        yield from estimator.sample(work, state, batch)
        state = {k: v for k, v in state.items() if not k.startswith(PART)}


def standard_error(count: Any, m2: np.ndarray) -> np.ndarray:
    """Return the standard error of means, NaN of fewer than two samples."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            np.greater(count, 1), np.sqrt(m2 / ((count - 1.0) * count)), np.nan
        )


class _Saved:
    """The state of a run in a folder."""

    def __init__(self, folder: str | os.PathLike[str], about: dict[str, str]):
        from jaxsel._runs.checkpoints import Checkpoints

        self._about = about
        self._checkpoints = Checkpoints(folder, "jaxsel.value")
        self._saves = 0

    def load(self, fresh: State) -> State:
        """Return the state that was saved; the fresh one if there is none."""
        saved = self._checkpoints.load_arrays()
        if saved is None:
            return fresh
        where = f"checkpoint {self._checkpoints.folder} holds"
        try:
            about = json.loads(bytes(saved.pop("run_about")))
            self._saves = int(saved.pop("run_saves"))
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{where} a run of an earlier version: choose another folder"
            ) from error
        if not fresh.keys() <= saved.keys():
            raise ValueError(
                f"{where} a run of an earlier version: choose another folder"
            )
        names = dict.fromkeys([*about, *self._about])
        facts = ((name, about.get(name), self._about.get(name)) for name in names)
        differ = [f"{n}={was}, not {n}={now}" for n, was, now in facts if was != now]
        if differ:
            raise ValueError(
                f"{where} another run, with {'; '.join(differ)}: choose another folder"
            )
        was, now = (state.get(ENDS, np.zeros(2)) for state in (saved, fresh))
        if not np.allclose(was, now, rtol=1e-3, atol=1e-4):
            raise ValueError(
                f"{where} a run whose utility of no points and of all was "
                f"{was.tolist()}, not {now.tolist()}: choose another folder"
            )
        return saved

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
    from scipy import stats

    if np.isnan(before).any() or np.isnan(now).any():
        return np.nan
    a, b = (np.asarray(stats.rankdata(x), np.float64) for x in (before, now))
    if (a == b).all():
        return 1.0
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 0 else 0.0


def _agreed(seconds: float, mesh: jax.sharding.Mesh | None) -> np.ndarray:
    """Return the time of process 0, where several must stop together."""
    if mesh is None or not mesh.is_multi_process:
        return np.array(seconds)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(seconds), np.float64)


class _Bar:
    """A listener to the batches of a run, which shows nothing."""

    def begin(self, info: RunInfo) -> None:
        """Start from the samples of a run that goes on."""

    def show(self, info: RunInfo, ahead: float) -> None:
        """Move on to the samples that there are now."""


class _Shown(_Bar):
    def __init__(self, bar: Any, done: Callable[[], None]):
        self._bar, self._done = bar, done
        self._shown, self._stderr = -_SHOW, None

    def begin(self, info: RunInfo) -> None:
        self._bar.initial = self._bar.n = info.samples

    def show(self, info: RunInfo, ahead: float) -> None:
        self._done()
        self._bar.update(info.samples + int(ahead) - self._bar.n)
        now, fresh = time.monotonic(), info.stderr is not self._stderr
        if not fresh and now - self._shown < _SHOW:
            return
        self._shown, self._stderr = now, info.stderr
        known = "" if np.isnan(info.stderr).all() else f"stderr={info.stderr.max():.2g}"
        within = f"{ahead:.0%} of the next" if 0 < ahead < 1 else ""
        self._bar.set_postfix_str(", ".join(filter(None, (known, within))))


@contextlib.contextmanager
def _bar(method: str, total: int | None, *, shown: bool) -> Generator[_Bar, None, None]:
    """Yield a bar; it is there before anything compiles."""
    if not shown:
        yield _Bar()
        return
    label = method.partition("(")[0]
    with (
        bar_class()(desc=label, total=total, leave=False) as bar,
        first_step(bar) as done,
    ):
        yield _Shown(bar, done)
