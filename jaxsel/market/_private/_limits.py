"""Limits that an owner sets to questions for its counts, each and all together."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from jaxsel._files.codec import check_format, read_json
from jaxsel._files.scratch import locked
from jaxsel._files.staged import staged
from jaxsel._files.wire import check_fields, check_id
from jaxsel._inputs.checks import check_count, check_positive

from ._valuation import Valuation

MAX_EPSILON = 1.0
MAX_DELTA = 1e-5
MAX_VAL = 10_000

_FORMAT, _VERSION = "jaxsel privacy budget", 1


def largest_delta(n: int) -> float:
    """Return the delta that an owner of n points accepts unless it says otherwise.

    The smaller of 1e-5 and n^-1.1. A mechanism that publishes one of n points at random
    has delta = 1/n and any epsilon (Dwork and Roth, The algorithmic foundations of
    differential privacy, 2014, section 2.3), so that delta must be below 1/n; n^-1.1 is
    the choice of McMahan, Ramage, Talwar and Zhang, Learning differentially private
    recurrent language models, ICLR 2018.
    """
    return min(MAX_DELTA, max(1, n) ** -1.1)


def check_limits(
    valuation: Valuation,
    n: int,
    *,
    min_owners: int,
    min_colluding: int,
    max_epsilon: float | None,
    max_delta: float | None,
    max_val: int,
) -> None:
    """Raise if a valuation is beyond the limits of an owner of n points.

    Raises:
        TypeError: If a limit is no number.
        ValueError: If a limit is out of range or passed; the message has both numbers.
    """
    if valuation.needed < check_count("min_owners", min_owners, minimum=2):
        raise ValueError(
            f"needed must be at least min_owners = {min_owners}, got "
            f"{valuation.needed}: the sums of so few owners show what each of them has"
        )
    if len(valuation) > check_count("max_val", max_val):
        raise ValueError(
            f"max_val is {max_val}, but the valuation has {len(valuation)} validation "
            "points, each of which asks for two counts"
        )
    check_count("min_colluding", min_colluding)
    limit = None if max_epsilon is None else _limit("max_epsilon", max_epsilon)
    if max_delta is not None and _limit("max_delta", max_delta) >= 1:
        raise ValueError(f"max_delta must be below 1, got {max_delta}")
    if not valuation.variance:
        if limit is not None and limit < math.inf:
            raise ValueError(
                f"max_epsilon is {limit:.4g}, but the sums of this valuation are exact "
                "and have epsilon = inf: accept that with max_epsilon=None"
            )
        return
    if valuation.colluding < min_colluding:
        raise ValueError(
            f"colluding must be at least min_colluding = {min_colluding}, got "
            f"{valuation.colluding}: with more of them the noise is too little"
        )
    delta = float(valuation.delta[0])
    most = largest_delta(n) if max_delta is None else max_delta
    if delta > most:
        raise ValueError(
            f"max_delta is {most:.4g}, but the sums of this valuation have delta = "
            f"{delta:.6g}: with that probability epsilon = {valuation.epsilon:.4g} "
            "does not hold"
        )
    if limit is not None and valuation.epsilon > limit:
        raise ValueError(
            f"max_epsilon is {limit:.4g}, but the sums of this valuation have epsilon "
            f"= {valuation.epsilon:.4g} at delta = {delta:.4g}"
        )


class PrivacyBudget:
    """A lasting record of the sums that an owner took part in, and their limit.

    Epsilons and deltas of all questions add up, whoever asked them. Each joining
    counts, also in a question that is asked twice or breaks off: the owner draws new
    noise. Keep the file as long as the data, and restore no older copy of it: counting
    would start again.

    Args:
        path: The file, one for each data set of an owner. It is made for its owner's
            account alone; a lock file beside it stays empty.
        epsilon: The largest sum of epsilons; None for no limit, which exact sums need.
        delta: The largest sum of deltas.

    Raises:
        TypeError: If a limit is no number.
        ValueError: If a limit is out of range.

    References:
        Rogers, Roth, Ullman and Vadhan, Privacy odometers and filters, NeurIPS 2016:
        sums hold also where each question depends on the answers before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float | None = MAX_EPSILON,
        delta: float = MAX_DELTA,
    ):
        self.path = Path(path)
        self._epsilon = math.inf if epsilon is None else _limit("epsilon", epsilon)
        self._delta = check_positive("delta", delta)

    def __repr__(self) -> str:
        return f"PrivacyBudget({os.fspath(self.path)!r}, epsilon={self._epsilon:.4g})"

    @property
    def spent(self) -> tuple[float, float]:
        """The sums of epsilons and of deltas so far; epsilon is inf after exact sums.

        Raises:
            OSError: If the file can't be read.
            ValueError: If the file is no record, or was changed.
        """
        return _sums(self._read())

    def spend(self, valuation: Valuation) -> None:
        """Count a valuation, before anything is sent for it.

        Raises:
            OSError: If the file can't be read or written.
            ValueError: If the sums would pass a limit, with both numbers; if the file
                is no record, or was changed. Nothing is counted then.
        """
        exact = not valuation.variance
        epsilon = None if exact else valuation.epsilon
        delta = 0.0 if exact else float(valuation.delta[0])
        with locked(self.path.with_name(f".{self.path.name}.lock"), wait=True):
            entries = self._read()
            entries.append({"task": valuation.task, "epsilon": epsilon, "delta": delta})
            for name, limit, before, after in zip(
                ("epsilon", "delta"),
                (self._epsilon, self._delta),
                _sums(entries[:-1]),
                _sums(entries),
                strict=True,
            ):
                if after > limit * (1 + 1e-12):
                    raise ValueError(
                        f"{name} of all questions may be {limit:.4g} in sum, but would "
                        f"be {after:.4g}: {before:.4g} was spent on "
                        f"{len(entries) - 1} before, says {self.path}"
                    )
            self._write(entries)

    def _read(self) -> list[dict[str, Any]]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            document = read_json(content.decode(), "it")
            check_format(document, _FORMAT, _VERSION)
            check_fields("it", document, {"answered", "sha256"})
            entries = document["answered"]
            if document["sha256"] != _digest(entries):
                raise ValueError("its sha256 differs")
            for entry in entries:
                check_fields("an entry", entry, {"task", "epsilon", "delta"})
                check_id("task", entry["task"])
                if entry["epsilon"] is not None:
                    check_positive("epsilon", entry["epsilon"], zero=True)
                check_positive("delta", entry["delta"], zero=True)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{self.path} is no record of answered questions, or was changed: "
                f"{error}"
            ) from error
        return entries

    def _write(self, entries: list[dict[str, Any]]) -> None:
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "answered": entries,
            "sha256": _digest(entries),
        }
        with staged([self.path]) as [part]:
            private = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(private, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())


def _sums(entries: list[dict[str, Any]]) -> tuple[float, float]:
    epsilons = [math.inf if e["epsilon"] is None else e["epsilon"] for e in entries]
    return math.fsum(epsilons), math.fsum(e["delta"] for e in entries)


def _digest(entries: Any) -> str:
    text = json.dumps(entries, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _limit(name: str, value: float) -> float:
    """Return a limit above zero, which may be infinite."""
    is_open = isinstance(value, float) and value == math.inf
    return value if is_open else check_positive(name, value)
