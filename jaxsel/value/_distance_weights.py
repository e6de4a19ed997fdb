"""Distance weights: a caller's function as part of a compiled step.

JAX keeps what it compiled for a function under the function's identity. A weight
function may be a new lambda at each call, and one that reads from an object or a
closure may mean something else at each call. So it is traced anew each time, which
takes milliseconds, and compiled once for each computation that it turns out to be.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

# From distances (not squared), [n], to the weight of a neighbour at each of them.
DistanceWeights = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class TracedWeights:
    """A traced weight function; equal to any other with the same computation.

    Attributes:
        key: Identity of the computation, without its captured arrays.
        jaxpr: The computation.
    """

    key: tuple[Any, ...]
    jaxpr: Any = dataclasses.field(compare=False)

    def __call__(self, captured: Any, lengths: jax.Array) -> jax.Array:
        """Return the weights of distances `[n]`, given the arrays it captured."""
        closed = core.ClosedJaxpr(self.jaxpr, captured)
        run = cast(Callable[..., list[jax.Array]], core.jaxpr_as_fun(closed))
        return run(lengths.astype(jnp.float32))[0]


def trace_weights(
    weights: DistanceWeights, n: int
) -> tuple[TracedWeights, tuple[np.ndarray | jax.Array, ...]]:
    """Trace a weight function for n training points.

    Returns:
        The computation, and the arrays that the function captured.

    Raises:
        TypeError: If it does not return an array of numbers, or is not written with
            jax.numpy.
        ValueError: If it does not return one number for each distance.
    """
    if not callable(weights):
        raise TypeError(
            f"weights must be a function of distances, got {type(weights).__name__}"
        )
    lengths = jax.ShapeDtypeStruct((n,), jnp.float32)

    # A function of its own, since JAX also keeps traces under the identity.
    def anew(distances: jax.Array) -> jax.Array:
        return weights(distances)

    try:
        closed = jax.make_jaxpr(anew)(lengths)
    except (
        jax.errors.TracerArrayConversionError,
        jax.errors.ConcretizationTypeError,
    ) as error:
        raise TypeError(
            "weights must be written with jax.numpy and without Python's `if` on "
            "distances, so that it can be compiled"
        ) from error
    shapes = [aval.shape for aval in closed.out_avals]
    if shapes not in ([(n,)], [()]):
        raise ValueError(
            f"weights must return one number for each distance, shape [n] = [{n}], got "
            f"{' and '.join(map(str, shapes)) or 'nothing'}"
        )
    dtype = closed.out_avals[0].dtype
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(f"weights must return real numbers, got dtype {dtype}")
    key = (str(closed.jaxpr), *_constants(closed.jaxpr))
    return TracedWeights(key, closed.jaxpr), tuple(closed.consts)


def _constants(jaxpr: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the numbers in a computation, of which its text may show a part only."""
    for eqn in jaxpr.eqns:
        for operand in eqn.invars:
            if isinstance(operand, core.Literal):
                yield _content(operand.val)
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_closed):
            if isinstance(value, core.ClosedJaxpr):
                yield from map(_content, value.consts)
        for inner in core.jaxprs_in_params(eqn.params):
            yield from _constants(inner)


def _is_closed(value: Any) -> bool:
    return isinstance(value, core.ClosedJaxpr)


def _content(value: Any) -> tuple[str, bytes]:
    array = np.asarray(value)
    return f"{array.dtype}{array.shape}", array.tobytes()
