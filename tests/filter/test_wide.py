"""Products of several limbs, against Python's whole numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel.filter import _wide


def number(limbs, at):
    return sum(int(limb[at]) << (16 * i) for i, limb in enumerate(limbs))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.every(3)
def test_products_and_comparisons(seed):
    rng = np.random.default_rng(seed)
    a, b, c = (rng.integers(2**32, size=50, dtype=np.uint32) for _ in range(3))
    a[:3], b[:3] = [0, 1, 2**32 - 1], [0, 2**32 - 1, 2**32 - 1]
    pair = _wide.times(_wide.wide(jnp.asarray(a)), _wide.wide(jnp.asarray(b)))
    three = _wide.times(pair, _wide.wide(jnp.asarray(c)))
    other = _wide.times(_wide.wide(jnp.asarray(b)), _wide.wide(jnp.asarray(c)))
    smaller = np.asarray(_wide.less(pair, other))
    for i in range(50):
        x, y, z = int(a[i]), int(b[i]), int(c[i])
        assert number(pair, i) == x * y
        assert number(three, i) == x * y * z
        assert smaller[i] == (x * y < y * z)
