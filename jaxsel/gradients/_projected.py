"""Per-sample gradients projected to a few dimensions as soon as they are computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from jaxsel._devices.typed import fori_loop, jit
from jaxsel._inputs.checks import check_choice, check_count, widen
from jaxsel._inputs.parameters import (
    Form,
    Loss,
    Parameters,
    Wrt,
    check_examples,
    check_loss,
    split,
)

from ._oracle import Gradient, Oracle, grouped_rows, products
from ._per_sample import flatten, gradients
from ._rows import check_chunk_size, map_rows, rows_of, vary
from ._shards import Shards, by_shards, everywhere, split_rows

Kind = Literal["count_sketch", "rademacher"]

# Signs drawn at once: another number changes the projection of a key.
_SIGNS = 1 << 20
# All examples of a chunk share the drawn signs: larger chunks draw less often.
_RADEMACHER_FACTOR = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Projected(Oracle):
    """Gradients after a random projection P; `projected` makes it.

    Inner products of projections estimate those of the gradients, without bias. A
    gradient has the form of an array `[dim]`; `corr` also takes one in the form of the
    parameters, and projects it.

    Attributes:
        rows: The candidates' projected gradients, `[n, dim]`.
        key: Key of the projection.
        kind: "count_sketch" or "rademacher".
        form: How the parameters are put together.
    """

    rows: jax.Array
    key: jax.Array
    kind: Kind = dataclasses.field(metadata={"static": True})
    form: Form = dataclasses.field(metadata={"static": True})

    shared: ClassVar[tuple[str, ...]] = ("key",)

    def project(self, v: Gradient) -> jax.Array:
        """Project a gradient in the form of the parameters to `[dim]`."""
        dim = self.rows.shape[1]
        return _project(self.form.pick(v), self.form, self.key, self.kind, dim)

    def check_alike(self, other: Projected) -> None:
        """Raise if another oracle has a different projection: products mean nothing.

        Raises:
            ValueError: If the other's key, `dim`, kind or parameters differ.
        """
        ours, theirs = (
            {
                "key": (str(p.key.dtype), jax.random.key_data(p.key).tolist()),
                "dim": p.rows.shape[1],
                "kind": p.kind,
                "parameters": p.form.paths,
            }
            for p in (self, other)
        )
        differ = [what for what in ours if ours[what] != theirs[what]]
        if differ:
            raise ValueError(
                "target must be projected as the candidates are, with the same key, "
                f"dim, kind and parameters, but these differ in {', '.join(differ)}"
            )

    def rows_held(self) -> Float[jax.Array, "n p"]:
        return self.rows

    def diag(self) -> Float[jax.Array, " n"]:
        return jnp.sum(widen(self.rows) ** 2, axis=-1)

    def corr(self, v: Gradient) -> Float[jax.Array, " n"]:
        if not (hasattr(v, "shape") and v.shape == self.rows.shape[1:]):
            v = self.project(v)
        return jnp.matmul(widen(self.rows), v, precision="highest")

    def gram(self, atoms: Projected) -> Float[jax.Array, "m n"]:
        return products(atoms.rows, self.rows)

    def combine(self, weights: Float[jax.Array, " n"]) -> Gradient:
        return jnp.matmul(weights, widen(self.rows), precision="highest")

    def group(self, rows: jax.Array, shares: jax.Array) -> Projected:
        return dataclasses.replace(self, rows=grouped_rows(self.rows, rows, shares))


def projected(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    dim: int,
    key: jax.Array,
    kind: Kind = "count_sketch",
    wrt: Wrt = None,
    chunk_size: int | None = None,
) -> Projected:
    """Project every example's gradient to `dim` numbers, a chunk at a time.

    With both kinds the expected inner product of two projections is that of the
    gradients; its standard deviation is about `sqrt(2 / dim)` of the product of their
    lengths, or less. Oracles understand each other's gradients if they were made with
    the same key, `dim`, kind and parameters.

    - "count_sketch" cuts the p coordinates into blocks of `dim`, gives each coordinate
      a random sign, turns each block by a random number of places, and adds the blocks
      up. A pair of coordinates of different blocks falls together with probability
      1 / dim, as under independent hashing, and one of the same block never. It costs p
      additions an example.
    - "rademacher" multiplies by a matrix of ±1 / sqrt(dim) that is drawn again for
      each chunk, block by block, and never held as a whole. It costs p · dim
      multiply-adds an example.

    Beside that, both cost a forward and a backward pass an example, and memory for
    n · dim numbers and the gradients of one chunk.

    Args:
        loss: `loss(params, example) -> scalar`. Pass the same function each time: it
            is compiled once for each.
        params: Any pytree: nested dicts, a Flax NNX module or state, Linen variables,
            an Equinox module. Layers must be in evaluation mode, as for `jvp`.
        examples: A pytree of arrays `[n, ...]`, one entry a candidate. Where one is
            split over the devices of a mesh, each computes its own rows and keeps them.
        dim: Numbers kept of each gradient.
        key: A `jax.random.key`, from which the projection is drawn.
        kind: "count_sketch" or "rademacher".
        wrt: The parameters that count: None for all, globs on their paths such as
            `"*/kernel"`, or a predicate of path and leaf.
        chunk_size: Examples computed at once; it changes speed and memory only.

    Returns:
        A `Projected` oracle, which holds `[n, dim]` numbers.

    Raises:
        TypeError: If `loss` is no hashable function, or `key` no typed key.
        ValueError: If `dim` or `kind` is not allowed, `wrt` selects nothing, the
            examples' lengths differ, the loss is not a scalar, or layers are in
            training mode.

    References:
        M. Charikar, K. Chen, M. Farach-Colton, "Finding frequent items in data
        streams", ICALP 2002; K. Weinberger et al., "Feature hashing for large scale
        multitask learning", ICML 2009 (count-sketch; we turn blocks instead of hashing
        each coordinate, so that memory is read in order). D. Achlioptas,
        "Database-friendly random projections", JCSS 66 (2003) (Rademacher). S. M. Park
        et al., "TRAK: attributing model behavior at scale", ICML 2023, section 3.2
        (both, for gradients).
    """
    check_loss(loss)
    dim = check_count("dim", dim)
    check_choice("kind", kind, ("count_sketch", "rademacher"))
    typed = isinstance(key, jax.Array) and jnp.issubdtype(
        key.dtype, jax.dtypes.prng_key
    )
    if not typed:
        raise TypeError(f"key must be a key as of jax.random.key(0), got {key!r}")
    parameters = split(params, wrt)
    examples, shards = split_rows(check_examples(examples))
    rows = _projected(
        loss,
        everywhere(parameters, shards),
        everywhere(key, shards),
        examples,
        kind,
        dim,
        check_chunk_size(chunk_size),
        shards,
    )
    return Projected(rows, key, kind, parameters.form)


@jit(static_argnums=(0, 4, 5, 6, 7))
def _projected(
    loss: Loss,
    parameters: Parameters,
    key: jax.Array,
    examples: Any,
    kind: Kind,
    dim: int,
    chunk_size: int | None,
    shards: Shards | None,
) -> jax.Array:
    factor = _RADEMACHER_FACTOR if kind == "rademacher" else 1

    def of(parameters: Parameters, key: jax.Array, examples: Any) -> jax.Array:
        rows = rows_of(examples, parameters.size, chunk_size, factor=factor)
        project = _projection(key, kind, parameters.size, dim, parameters.dtype)
        return map_rows(
            lambda part: project(
                flatten(parameters.form, gradients(loss, parameters, part), 1)
            ),
            examples,
            rows,
        )

    return by_shards(of, shards, rows=1)(parameters, key, examples)


@jit(static_argnums=(1, 3, 4))
def _project(
    selected: dict[str, Any], form: Form, key: jax.Array, kind: Kind, dim: int
) -> jax.Array:
    arrays = {path: jnp.asarray(leaf) for path, leaf in selected.items()}
    flat = flatten(form, arrays, 0)[None]
    return _projection(key, kind, flat.shape[1], dim, flat.dtype)(flat)[0]


def _projection(
    key: jax.Array, kind: Kind, p: int, dim: int, dtype: Any
) -> Callable[[jax.Array], jax.Array]:
    """Return the projection `[rows, p] -> [rows, dim]`."""
    make = _count_sketch if kind == "count_sketch" else _rademacher
    return make(key, p, dim, dtype)


def _count_sketch(
    key: jax.Array, p: int, dim: int, dtype: Any
) -> Callable[[jax.Array], jax.Array]:
    blocks = -(-p // dim)
    signs = jax.random.rademacher(jax.random.fold_in(key, 0), (blocks, dim), dtype)
    turns = jax.random.randint(jax.random.fold_in(key, 1), (blocks,), 0, dim)

    def project(rows: jax.Array) -> jax.Array:
        rows = _in_blocks(rows, blocks, dim)

        def add(block: Any, total: jax.Array) -> jax.Array:
            part = lax.dynamic_slice_in_dim(rows, block * dim, dim, 1) * signs[block]
            # A roll by turns[block]: a slice of the block laid out twice, no gather.
            twice = jnp.concatenate([part, part], axis=1)
            return total + lax.dynamic_slice_in_dim(twice, dim - turns[block], dim, 1)

        return fori_loop(0, blocks, add, _zeros(rows, dim))

    return project


def _rademacher(
    key: jax.Array, p: int, dim: int, dtype: Any
) -> Callable[[jax.Array], jax.Array]:
    words = -(-dim // 32)  # one random bit a sign
    length = max(1, min(p, _SIGNS // dim))
    blocks = -(-p // length)

    def project(rows: jax.Array) -> jax.Array:
        rows = _in_blocks(rows, blocks, length)

        def add(block: Any, total: jax.Array) -> jax.Array:
            # Drawn anew in every chunk, by block: the same signs for all examples.
            bits = jax.random.bits(
                jax.random.fold_in(key, block), (length, words), jnp.uint32
            )
            bits = (bits[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
            signs = 2 * bits.reshape(length, -1)[:, :dim].astype(dtype) - 1
            part = lax.dynamic_slice_in_dim(rows, block * length, length, 1)
            return total + jnp.matmul(part, signs, precision="highest")

        total = fori_loop(0, blocks, add, _zeros(rows, dim))
        # Scaled last: products with signs of 1 are exact.
        return total / jnp.sqrt(dim).astype(dtype)

    return project


def _in_blocks(rows: jax.Array, blocks: int, length: int) -> jax.Array:
    return jnp.pad(rows, ((0, 0), (0, blocks * length - rows.shape[1])))


def _zeros(rows: jax.Array, dim: int) -> jax.Array:
    return vary(jnp.zeros((len(rows), dim), rows.dtype), rows)
