"""Candidates split over the devices of a mesh, for nearest-neighbour search.

Nothing but the lists of neighbours leaves a device: a process need not be able to hold
the candidates, or to address those of others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import gather, n_shards, shard, spread
from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import float_type

from ._chunks import Part, refuse
from ._stream import Stream


@dataclasses.dataclass(frozen=True)
class Resident:
    """Candidates on the devices of a mesh.

    Attributes:
        part: Features and classes, split over the devices, which have `share` each: the
            last ones are zeros from the n-th on.
        share: Candidates of a device.
        rows: Candidates of a device at a time.
    """

    stream: Stream
    part: Part
    share: int
    rows: int

    @classmethod
    def of(cls, stream: Stream, rows: int, mesh: jax.sharding.Mesh) -> Resident:
        """Lay out candidates spread over a mesh, to be read `rows` at a time.

        They are copied only where they are not split over "data" already, or have
        another type than `float_type`.
        """
        source: Any = stream.features
        devices = n_shards(mesh)
        share = -(-stream.n // devices)
        features = spread(source, mesh, share * devices)
        if features.dtype != float_type(source):
            features = _as_type(features, float_type(source))
        codes: Any = stream.codes
        if codes is not None:
            codes = shard(np.pad(codes, (0, share * devices - stream.n)), mesh)
        return cls(stream, Part(features, codes), share, min(rows // devices, share))

    def __len__(self) -> int:
        return -(-self.share // self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(range(0, self.share, self.rows))

    def refuse(self) -> None:
        """Raise the error for non-finite or too large features, naming the row."""
        features = self.part.features
        fine, large = jax.tree.map(int, gather(_wrong_rows(features)))
        refuse(self.stream.metric, fine if fine < self.stream.n else None, large)


@jit(static_argnames=("dtype",))
def _as_type(features: jax.Array, dtype: Any) -> jax.Array:
    return features.astype(dtype)


@jax.jit
def _wrong_rows(features: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the first non-finite row, or n, and the row of the largest number."""
    wrong = ~jnp.isfinite(features).all(axis=1)
    first = jnp.where(wrong.any(), jnp.argmax(wrong), len(features))
    return first, jnp.argmax(jnp.abs(features).max(axis=1))
