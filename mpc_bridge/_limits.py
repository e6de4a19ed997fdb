"""An owner's limits on its answers, which no request can widen."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ._toml import ConfigError, Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """A party's limits on openings, over all sessions of one output folder.

    A session that was cut and resumes is one session. It is another one where something
    was opened before, and a party comes back with another pool, other weights or other
    terms, or without what it had kept.

    Attributes:
        sessions: Sessions in which something may be opened.
        reopenings: How often a session may open a step again that was cut while it was
            opened; it must open as the same.
        openings: Values that may be opened: outcomes of comparisons, rows, means. None
            takes what `sessions` and `reopenings` need, but for one session in 10^9.
        rows: Rows that the phases may leave, all together. None takes what the phases
            of `sessions` leave.
    """

    sessions: int = 1
    reopenings: int = 3
    openings: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            least = 1 if name == "sessions" else 0
            if value is None and name in ("openings", "rows"):
                continue
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"limits.{name} must be a whole number of at least {least}, got "
                    f"{value!r}"
                )

    def changed(self, changes: Sequence[str]) -> Limits:
        """Return limits with changes of a command line, such as "sessions=2".

        Raises:
            ConfigError: If one is no limit, or no whole number.
        """
        values: dict[str, int] = {}
        names = [field.name for field in dataclasses.fields(self)]
        for change in changes:
            name, _, text = change.partition("=")
            if name not in names or not text.isdecimal():
                raise ConfigError(
                    f"--limit must be one of {', '.join(names)}, with '=' and a whole "
                    f"number, got {change!r}"
                )
            values[name] = int(text)
        return dataclasses.replace(self, **values)


UNLIMITED = Limits(sessions=2**62, reopenings=2**62, openings=2**62, rows=2**62)
"""Where one user plays all roles, nobody's answers need a limit."""


def read_limits(at: Table | None) -> Limits:
    """Return the limits of a party's table, strict ones where it has none."""
    if at is None:
        return Limits()
    values: dict[str, Any] = {
        "sessions": at.count("sessions", default=1),
        "reopenings": at.count("reopenings", minimum=0, default=3),
        "openings": at.count("openings", minimum=0, default=None),
        "rows": at.count("rows", minimum=0, default=None),
    }
    at.done()
    return Limits(**values)
