"""Gradients with further columns behind them: a penalty with a full matrix.

`‖Σ w_i g_i − b‖² + λ₂ ‖D w‖²` is the matching of `[g_i; √λ₂ d_i]` to `[b; 0]`, where
d_i is a column of D. So every oracle can have such a penalty, with every score.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxsel._devices.mesh import shard
from jaxsel.gradients import Dense, Gradient, Oracle, Streamed

from ._resident import Resident


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Penalised(Oracle):
    """Oracle of gradients with further columns; `penalise` makes it.

    A gradient is a pair: one in the form of the oracle beneath, and an array `[m]`.

    Attributes:
        parts: Arrays of the oracle beneath that have an entry for each candidate.
        common: Its other arrays.
        more: The further columns, `[n, m]`.
        kind: The type of the oracle beneath, and its static fields with their values.
    """

    parts: dict[str, Any]
    common: dict[str, Any]
    more: jax.Array
    kind: tuple[Any, ...] = dataclasses.field(metadata={"static": True})

    shared: ClassVar[tuple[str, ...]] = ("common",)

    @classmethod
    def of(cls, oracle: Any, more: jax.Array) -> Penalised:
        """Put columns `[n, m]` behind the gradients of an oracle in memory."""
        fixed = tuple(
            (field.name, getattr(oracle, field.name))
            for field in dataclasses.fields(oracle)
            if field.metadata.get("static")
        )
        common = {name: getattr(oracle, name) for name in oracle.shared}
        return cls(oracle.per_candidate(), common, more, (oracle.__class__, fixed))

    @property
    def beneath(self) -> Oracle:
        """The oracle without the further columns."""
        kind, fixed = self.kind
        return kind(**self.parts, **self.common, **dict(fixed))

    def diag(self) -> Float[jax.Array, " n"]:
        return self.beneath.diag() + Dense(self.more).diag()

    def corr(self, v: Gradient) -> Float[jax.Array, " n"]:
        return self.beneath.corr(v[0]) + Dense(self.more).corr(v[1])

    def gram(self, atoms: Penalised) -> Float[jax.Array, "m n"]:
        return self.beneath.gram(atoms.beneath) + Dense(self.more).gram(
            Dense(atoms.more)
        )

    def combine(self, weights: Float[jax.Array, " n"]) -> Gradient:
        return self.beneath.combine(weights), Dense(self.more).combine(weights)


def penalise(
    oracle: Any, more: np.ndarray, target: Gradient, *, several: bool
) -> tuple[Any, Gradient]:
    """Return candidates with a full penalty, and the target to match them to.

    Args:
        oracle: n candidates, in memory, in files, or on the devices of a mesh.
        more: `√λ₂ Dᵀ`, `[n, m]`.
        target: A gradient, or several along a leading axis.
        several: Whether they are several.
    """
    dtype = oracle.dtype
    more = more.astype(dtype)
    count = (jax.tree.leaves(target)[0].shape[0],) if several else ()
    both = target, jnp.zeros((*count, more.shape[1]), dtype)
    if isinstance(oracle, Streamed):

        def load(rows: np.ndarray) -> Penalised:
            return Penalised.of(oracle.load(rows), jnp.asarray(more[rows]))

        size, progress = oracle.chunk_size, oracle.progress
        return Streamed(load, oracle.n, chunk_size=size, progress=progress), both
    if isinstance(oracle, Resident):
        # Rows that only fill up a device's part are never chosen.
        rows = shard(more[np.maximum(oracle.places, 0)], oracle.mesh)
        laid = Penalised.of(oracle.oracle, rows)
        return Resident(laid, oracle.mesh, oracle.places), both
    return Penalised.of(oracle, jnp.asarray(more)), both
