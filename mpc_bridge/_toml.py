"""Strict reading of TOML tables: errors name the field and the allowed values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

GIB = 1 << 30
SHORTEST, LONGEST = 5, 86400 * 7  # seconds of a wait
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(MiB|GiB)")
_ADDRESS = re.compile(r"([\w.\-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")
_RENDEZVOUS = re.compile(r"tcp://([\w.\-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")


class ConfigError(ValueError):
    """An invalid run.toml; names the field, its value and the allowed values."""


REQUIRED: Any = object()


class Table:
    """A TOML table with fields to be taken one by one; leftovers are errors."""

    def __init__(self, values: dict[str, Any], place: str, folder: Path):
        self.left, self.place, self.folder = dict(values), place, folder
        self.known: list[str] = []

    def name(self, field: str) -> str:
        return f"{self.place}.{field}" if self.place else field

    def take(
        self, field: str, parse: Callable[[Any], Any], *, default: Any = REQUIRED
    ) -> Any:
        """Take a field; `parse` raises a ConfigError that names the allowed values."""
        self.known.append(field)
        if field not in self.left:
            if default is not REQUIRED:
                return default
            raise ConfigError(f"{self.name(field)} is missing")
        value = self.left.pop(field)
        try:
            return parse(value)
        except ConfigError as error:
            text = repr(value) if len(repr(value)) <= 60 else f"{value!r:.57}..."
            raise ConfigError(
                f"{self.name(field)} must be {error}, got {text}"
            ) from None

    def text(self, field: str, *, default: Any = REQUIRED) -> Any:
        return self.take(field, as_text, default=default)

    def count(self, field: str, *, minimum: int = 1, default: Any = REQUIRED) -> Any:
        def parse(value: Any) -> int:
            if type(value) is not int or not minimum <= value < 2**63:
                raise ConfigError(f"a whole number of at least {minimum}")
            return value

        return self.take(field, parse, default=default)

    def rows(self, field: str) -> tuple[int, ...] | Path:
        rows = self.take(field, as_rows, default=())
        return self.path_of(rows) if isinstance(rows, str) else rows

    def table(self, field: str, *, optional: bool = False) -> Any:
        values = self.take(field, as_table, default=None if optional else REQUIRED)
        return None if values is None else Table(values, self.name(field), self.folder)

    def tables(self, field: str, *, default: Any = REQUIRED) -> list[Table]:
        tables = self.take(field, as_tables, default=default)
        return [
            Table(values, f"{self.name(field)}[{i}]", self.folder)
            for i, values in enumerate(tables)
        ]

    def path_of(self, text: str) -> Path:
        return self.folder / Path(text).expanduser()

    def done(self) -> None:
        """Raise if fields are left that nothing has read."""
        for field in self.left:
            allowed = ", ".join(map(self.name, self.known))
            raise ConfigError(f"{self.name(field)} is unknown: there are {allowed}")


def as_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError("a text that is not empty")
    return value


def as_texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise ConfigError("a list of texts that are not empty")
    return value


def as_arrays(value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else as_texts(value)
    if not all(text.endswith((".npy", ".npz")) for text in texts):
        raise ConfigError("a file ending in .npy or .npz, or a list of such files")
    return texts


def as_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError("a finite number")
    if not math.isfinite(value):
        raise ConfigError("a finite number")
    return float(value)


def as_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("true or false")
    return value


def as_positive(value: Any) -> float:
    try:
        number = as_number(value)
    except ConfigError:
        number = 0.0
    if number <= 0:
        raise ConfigError("a finite number above zero")
    return number


def one_of(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ConfigError(f"one of {', '.join(map(repr, allowed))}")
        return value

    return parse


def as_rendezvous(value: Any) -> str:
    match = _RENDEZVOUS.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[2]) > 65535:
        raise ConfigError("'tcp://host:port' with a port of at most 65535")
    return value


def as_address(value: Any) -> str:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2]) <= 65535:
        raise ConfigError("'host:port' with a port from 1 to 65535")
    return value


def as_seconds(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not SHORTEST <= value <= LONGEST:
        raise ConfigError(f"seconds, from {SHORTEST} to {LONGEST}")
    return float(value)


def check_rendezvous(name: str, value: Any) -> str:
    """Return an address that a caller gave.

    Raises:
        ConfigError: If it is none.
    """
    try:
        return as_rendezvous(value)
    except ConfigError as error:
        raise ConfigError(f"{name} must be {error}, got {value!r}") from None


def as_size(value: Any) -> int:
    if type(value) is int and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match[1]) == 0:
        raise ConfigError("bytes, or a text such as '512 MiB' or '2 GiB'")
    return int(float(match[1]) * (GIB if match[2] == "GiB" else GIB >> 10))


def as_rows(value: Any) -> tuple[int, ...] | str:
    if isinstance(value, str) and value.endswith(".npy"):
        return value
    if not isinstance(value, list) or any(type(v) is not int or v < 0 for v in value):
        raise ConfigError("an .npy file, or a list of rows, counted from 0")
    if len(set(value)) < len(value):
        raise ConfigError("rows that are listed once each")
    return tuple(value)


def as_table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError("a table")
    return value


def as_tables(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or any(not isinstance(v, dict) for v in value):
        raise ConfigError("tables: one [[...]] each")
    return value
