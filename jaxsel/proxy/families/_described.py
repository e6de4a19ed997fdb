"""The parts of a manifest that families read, whatever else a manifest has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Entry(Protocol):
    """A family's line in a manifest; sizes stand beside its name."""

    @property
    def family(self) -> str: ...


class Sample(Protocol):
    """One sample: its rows and columns, and whether rows are padded."""

    @property
    def length(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def masked(self) -> bool: ...


class Classes(Protocol):
    """The classifier's outputs."""

    @property
    def n_classes(self) -> int: ...


class Ranked(Protocol):
    """The kind of score that samples are ranked by."""

    @property
    def kind(self) -> str: ...


class Bounded(Protocol):
    """Bounds on the numbers at each place, such as "layers.0.scores"."""

    @property
    def bounds(self) -> Mapping[str, float]: ...


class Described(Protocol):
    """A manifest, with attributes as in `jaxsel.proxy.Manifest`."""

    @property
    def inputs(self) -> Sample: ...
    @property
    def head(self) -> Classes: ...
    @property
    def score(self) -> Ranked: ...
    @property
    def plan(self) -> str: ...
    @property
    def fixed_point(self) -> Bounded: ...
