"""Messages of a valuation across owners: the question, who is left, the sums."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from jaxsel._files.wire import (
    MAX_BYTES,
    check_arrays,
    check_fields,
    check_id,
    check_text,
    pack,
    reading,
    write,
)
from jaxsel._inputs.checks import check_choice, check_count, check_same_length
from jaxsel._inputs.show import brief
from jaxsel.filter import Counted
from jaxsel.market._names import check_owner
from jaxsel.market._request import FORMAT
from jaxsel.market._schema import Schema
from jaxsel.neighbors import METRICS

from ._privacy import privacy_epsilon

FEWEST = 3
"""Owners that must be left for sums to hide what each of them has."""

_MOST = 1 << 30  # points in all, so that sums and noise stay below 2^31
_SIGMAS = 12  # standard deviations: noise goes beyond with probability < 1e-30
_T = TypeVar("_T", bound="_Reply")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Valuation:
    """Question to owners, by which they value their points; `ask_values` makes one.

    Attributes:
        id: 32 hexadecimal digits, drawn at random.
        owners: Names of the owners that take part.
        needed: Minimum number of owners left in the end.
        colluding: How many owners may pool their knowledge, their own noise included,
            with enough noise of the others left.
        max_points: Maximum number of points of an owner.
        metric: Distance.
        variance: Variance of the noise that each owner adds to each of its counts, a
            whole number; 0 for exact sums.
        schema: The form of points and labels.
        x: Validation points, `[m, d]`.
        y: Their labels, `[m]`.
        radius: `[1]`, float64: radius of the balls around them, a distance (not
            squared).
        delta: `[1]`, float64: delta of differential privacy, above 0 and below 1.
    """

    id: str
    owners: tuple[str, ...]
    needed: int
    colluding: int
    max_points: int
    metric: str
    variance: int
    schema: Schema
    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    delta: np.ndarray

    _numbers = ("needed", "colluding", "max_points", "variance")
    _texts = ("id", "metric")
    _arrays = ("x", "y", "radius", "delta")

    def __post_init__(self) -> None:
        check_id("id", self.id)
        for name in self.owners:
            check_owner("owners", name)
        n = len(self.owners)
        if n < 2 or len(set(self.owners)) < n:
            raise ValueError(f"owners must be two or more distinct names, got {n}")
        for name in ("needed", "max_points", "colluding"):
            check_count(name, getattr(self, name))
        check_count("variance", self.variance, minimum=0)
        if not n < 2 * self.needed <= 2 * n:
            raise ValueError(
                f"needed must be more than half of the {n} owners, and no more than "
                f"all, got {self.needed}"
            )
        if self.colluding >= self.needed:
            raise ValueError(
                f"colluding must be below needed = {self.needed}, got {self.colluding}"
            )
        if n * self.max_points + 2 * self.slack >= _MOST:
            raise ValueError(
                f"max_points and variance must be smaller, so that sums of {n} owners "
                f"stay below 2^30, got {self.max_points} and {self.variance}"
            )
        check_choice("metric", self.metric, METRICS)
        for name, low in (("radius", True), ("delta", False)):
            value = getattr(self, name)
            if not (
                isinstance(value, np.ndarray)
                and value.shape == (1,)
                and value.dtype == np.float64
                and np.isfinite(value[0])
                and (value[0] >= 0 if low else 0 < value[0] < 1)
            ):
                raise ValueError(f"{name} must be one float64 in its range")
        if len(self.schema.sample_shape or ()) != 1 or self.schema.classes is None:
            raise ValueError("schema must have samples of shape [d], and classes")
        self.schema.check_samples("x", self.x)
        if self.x.dtype.kind not in "iuf":
            raise ValueError(f"x must hold numbers, got dtype {self.x.dtype}")
        self.schema.check_labels("y", self.y)
        check_same_length("x", self.x, "y", self.y)
        if not len(self.x):
            raise ValueError("x must hold a validation point or more")

    def __len__(self) -> int:
        """Return the number of validation points."""
        return len(self.x)

    def __repr__(self) -> str:
        noise = f"variance {self.variance}" if self.variance else "exact sums"
        return (
            f"Valuation({self.id[:8]}, {len(self)} validation points, "
            f"{len(self.owners)} owners, {noise})"
        )

    @functools.cached_property
    def task(self) -> str:
        """The digest of all that is asked, which all messages carry.

        Owners that were asked different things are in no common sum.
        """
        return hashlib.sha256(pack(*self._parts())).hexdigest()[:32]

    @property
    def slack(self) -> int:
        """Largest number by which noise may change a sum of all owners' counts."""
        return math.ceil(_SIGMAS * math.sqrt(len(self.owners) * self.variance))

    @property
    def epsilon(self) -> float:
        """The epsilon of the sums at `delta`, as `privacy_epsilon`; inf if exact."""
        if not self.variance:
            return math.inf
        return privacy_epsilon(
            self.variance,
            len(self),
            delta=float(self.delta[0]),
            honest=self.needed - self.colluding,
        )

    def survivors(self, masked: Iterable[Counted]) -> Survivors:
        """Return the message that lists the owners of the masked counts received.

        Args:
            masked: Masked counts received.

        Raises:
            ValueError: If they answer something else, are of strangers, two are of one
                owner, or they are fewer than needed.
        """
        messages = [*masked]
        for message in messages:
            if message.task != self.task or len(message.counts) != 2 * len(self):
                raise ValueError(
                    f"masked counts of {message.client!r} are of another valuation"
                )
        reply = Survivors(task=self.task, owners=tuple(m.client for m in messages))
        reply.check(self)
        return reply

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file in one step, and return its path."""
        form, kind, fields, arrays = self._parts()
        return write(form, path, kind, fields, arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES
    ) -> Valuation:
        """Read a valuation from a file that `save` wrote.

        Args:
            path: The file.
            max_bytes: Largest file to read.

        Raises:
            FileNotFoundError: If there is no such file.
            TypeError: If `max_bytes` is no whole number.
            ValueError: If it holds anything else, is damaged or too large; the message
                names the file and the field.
        """
        with reading(FORMAT, path, "valuation", cls._arrays, max_bytes) as contents:
            fields, arrays = contents
            names = {*cls._numbers, *cls._texts, "owners", "schema"}
            check_fields("fields", fields, names)
            check_arrays(arrays, cls._arrays)
            values: dict[str, Any] = {**fields, **arrays}
            values["owners"] = names_in(fields["owners"])
            values["schema"] = Schema.from_fields(fields["schema"])
            return cls(**values)

    def _parts(self) -> tuple[Any, str, dict[str, Any], dict[str, np.ndarray]]:
        fields = {name: getattr(self, name) for name in self._numbers + self._texts}
        fields |= {"owners": [*self.owners], "schema": self.schema.to_fields()}
        arrays = {name: getattr(self, name) for name in self._arrays}
        return FORMAT, "valuation", fields, arrays


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Reply:
    """A message of the one who asks, to all owners that are left."""

    task: str
    owners: tuple[str, ...]

    _kind: ClassVar[str]
    _arrays: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_id("task", self.task)
        if len(set(self.owners)) < len(self.owners):
            raise ValueError(f"owners must be distinct, got {sorted(self.owners)}")

    def check(self, valuation: Valuation) -> None:
        """Raise if the message is of another valuation or of too few owners."""
        if self.task != valuation.task:
            raise ValueError(
                f"task must be {valuation.task}, got {self.task}: this is of another "
                "valuation, or the valuation was changed"
            )
        strangers = sorted(set(self.owners) - set(valuation.owners))
        if strangers or len(self.owners) < valuation.needed:
            raise ValueError(
                f"owners must be {valuation.needed} or more of those asked, got "
                f"{sorted(self.owners)}"
            )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file in one step, and return its path."""
        fields = {"task": self.task, "owners": [*self.owners]}
        arrays: dict[str, Any] = {name: getattr(self, name) for name in self._arrays}
        return write(FORMAT, path, self._kind, fields, arrays)

    @classmethod
    def load(
        cls: type[_T],
        path: str | os.PathLike[str],
        valuation: Valuation,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> _T:
        """Read a message of this valuation from a file that `save` wrote.

        Args:
            path: The file.
            valuation: The valuation that it must belong to.
            max_bytes: Largest file to read.

        Raises:
            FileNotFoundError: If there is no such file.
            TypeError: If `max_bytes` is no whole number.
            ValueError: If it holds anything else, is damaged or too large, or does not
                pass `check`; the message names the file and the field.
        """
        with reading(FORMAT, path, cls._kind, cls._arrays, max_bytes) as contents:
            fields, arrays = contents
            check_fields("fields", fields, {"task", "owners"})
            check_arrays(arrays, cls._arrays)
            values: dict[str, Any] = {**fields, **arrays}
            values["owners"] = names_in(fields["owners"])
            reply = cls(**values)
            reply.check(valuation)
            return reply


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Survivors(_Reply):
    """Message that lists the owners of the masked counts received.

    Attributes:
        task: The valuation's id.
        owners: Their names.
    """

    _kind = "survivors"


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CountSums(_Reply):
    """Sums of the owners' counts, with noise if that was asked for.

    Attributes:
        task: The valuation's id.
        owners: Names of the owners counted in the sums.
        sums: `[m, 2]`, int64: points in the ball around each validation point that
            have its label, and that have another one.
    """

    sums: np.ndarray

    _kind = "sums"
    _arrays = ("sums",)

    def check(self, valuation: Valuation) -> None:
        """Raise if sums are impossible, of another valuation or of too few owners."""
        super().check(valuation)
        sums = self.sums
        if (
            not isinstance(sums, np.ndarray)
            or sums.shape != (len(valuation), 2)
            or sums.dtype != np.int64
        ):
            raise ValueError(f"sums must be int64 of shape [{len(valuation)}, 2]")
        most = len(self.owners) * valuation.max_points
        low, high = int(sums.min()), int(sums.max())
        if low < -valuation.slack or high > most + valuation.slack:
            raise ValueError(
                f"sums must lie between 0 and {most}, the most points that "
                f"{len(self.owners)} owners may have, give or take {valuation.slack} "
                f"of noise; got {low} to {high}. Nobody can tell whose counts are wrong"
            )
        most = most + 2 * valuation.slack
        if int(sums.sum(axis=1).max()) > most:
            raise ValueError(f"sums must have at most {most} points in a ball")


def names_in(value: Any, field: str = "owners") -> tuple[str, ...]:
    """Return the names that a field of a file lists."""
    if not isinstance(value, list):
        raise ValueError(f"{field} must be a list of names")
    listed = cast("list[Any]", value)
    return tuple(check_text(field, owner, longest=100) for owner in listed)
