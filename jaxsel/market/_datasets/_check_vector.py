"""A test of whether an owner's vector is the mean of the rows that it has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float

from jaxsel._devices.typed import jit, lax_map
from jaxsel._inputs.checks import as_array, check_count, check_finite, check_numeric

_FEWEST = 20  # rows: sums of fewer are too skewed
_TOGETHER = 64  # patterns of signs
_ROUNDING = 1e-5  # relative difference within which float32 statistics count as equal
_STATISTICS = 3


def check_vector(
    vector: npt.ArrayLike | jax.Array,
    rows: npt.ArrayLike | jax.Array,
    *,
    key: jax.Array,
    samples: int = 1999,
) -> float:
    """Test whether a claimed mean is consistent with a random sample of rows.

    Before paying for a vector, the buyer asks for some rows that the buyer itself draws
    at random (by their numbers) from those that the owner committed to, and computes
    their gradients or features. If the vector is the mean of all rows, differences
    from it are as likely to be large in one direction as in the other: the test flips
    their signs at random.

    Of the differences' sum over rows it takes three statistics: its squared length,
    which tells a foreign vector; its largest absolute entry, which tells a few wrong
    entries; and its inner product with the claim, which tells a scaled vector. Each
    gets its p-value among the flips, and the smallest is corrected for three tests.
    Columns count by their size, as they do in a match: bring columns of unlike units to
    one scale first, the same on both sides.

    Args:
        vector: The claimed mean, `[d]` or of any shape.
        rows: The rows revealed, `[m, ...]` of that shape; 20 or more.
        key: Draws the signs.
        samples: Number of random patterns of signs. A p-value is at least
            `3 / (samples + 1)`: for o owners at level a, take well over `3 o / a`.

    Returns:
        The p-value. An honest vector gets one of at most a with a probability of at
        most a if rows are drawn independently and lie symmetrically around their mean.
        With skewed rows this holds nearly: at a = .05, 4 to 9 % of honest vectors
        alarm with 50 exponential rows or more, and up to 20 % where a few rows are far
        longer than all others: reveal hundreds then. Rows drawn without replacement
        from few raise fewer alarms. It is 1 if all rows equal the vector. Compare it
        with `.05 / o` for o owners. Costs `samples * m * d` multiply-adds.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, there are fewer than 20 rows, a number is not
            finite, or `samples` is not positive.

    References:
        Fisher, The design of experiments, 1935, section 21 (flipped signs). Westfall
        and Young, Resampling-based multiple testing, 1993 (the largest entry). We
        deviate from Hotelling's T², which needs more rows than columns.

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> from jaxsel import market
        >>> data = np.random.default_rng(0).normal(1, 1, size=(1000, 50))
        >>> honest, revealed = data.mean(axis=0), data[:100]
        >>> key = jax.random.key(0)
        >>> market.check_vector(honest, revealed, key=key) > 0.05
        True
        >>> market.check_vector(2 * honest, revealed, key=key)
        0.0015
    """
    claim = np.asarray(as_array("vector", vector))
    sample = np.asarray(as_array("rows", rows))
    check_numeric("vector", claim)
    check_numeric("rows", sample)
    if sample.ndim != claim.ndim + 1 or sample.shape[1:] != claim.shape:
        shape = ", ".join(map(str, ("m", *claim.shape)))
        raise ValueError(
            f"rows must have shape ({shape}), each as vector, got {sample.shape}"
        )
    if not claim.size:
        raise ValueError(f"vector must not be empty, got shape {claim.shape}")
    if len(sample) < _FEWEST:
        raise ValueError(f"rows must be {_FEWEST} or more, got {len(sample)}")
    check_finite("vector", claim.reshape(1, -1))
    check_finite("rows", sample)
    samples = check_count("samples", samples)
    apart = sample.reshape(len(sample), -1).astype(np.float64) - claim.reshape(-1)
    peak = np.abs(apart).max()
    apart /= peak if peak > 0 else 1
    direction = claim.reshape(-1).astype(np.float64)
    direction /= np.abs(direction).max(initial=np.finfo(np.float64).tiny)
    # Whole groups of patterns, of which the first flips nothing: the sample itself.
    shape = (-(-(samples + 1) // _TOGETHER) * _TOGETHER, len(sample))
    flips = np.array(jax.random.bernoulli(key, shape=shape))
    flips[0] = False
    with jax.enable_x64(False):
        statistics = np.asarray(
            _flipped(
                jnp.asarray(apart, jnp.float32),
                jnp.asarray(direction, jnp.float32),
                jnp.asarray(flips),
            )
        )[: samples + 1]
    # The sample counts among its own patterns: no p-value is 0.
    as_large = statistics >= statistics[0] * (1 - _ROUNDING)
    return float(min(1.0, _STATISTICS * as_large.mean(axis=0).min()))


@jit()
def _flipped(
    apart: Float[jax.Array, "m d"],
    claim: Float[jax.Array, " d"],
    flips: Bool[jax.Array, "s m"],
) -> Float[jax.Array, "s 3"]:
    """Return the statistics of rows under patterns of signs.

    Args:
        apart: Differences from the claim.
        claim: The claim, or a multiple of it.
        flips: Whether a pattern changes the sign of each row.

    Returns:
        Of the sum of the rows: squared length, largest absolute entry, and absolute
        inner product with the claim.
    """

    def statistics(flips: jax.Array) -> jax.Array:
        signs = jnp.where(flips, -1, 1).astype(apart.dtype)
        sums = jnp.matmul(signs, apart, precision="highest")
        along = jnp.matmul(sums, claim, precision="highest")
        three = jnp.sum(sums**2, axis=1), jnp.abs(sums).max(axis=1), jnp.abs(along)
        return jnp.stack(three, axis=1)

    parts = flips.reshape(-1, _TOGETHER, flips.shape[1])
    return lax_map(statistics, parts).reshape(-1, _STATISTICS)
