"""With 64-bit types enabled every value is what it is without them."""

import dataclasses

import jax
import numpy as np
import pytest

from . import cases

K = 3
SLOW = pytest.mark.slow


def weigh(distances):
    return 1 / (1 + distances)


@pytest.mark.parametrize(
    ("how", "ties"),
    [
        ("exact", "stable"),
        pytest.param("exact", "average", marks=SLOW),
        pytest.param("hybrid", "stable", marks=SLOW),
    ],
)
@pytest.mark.parametrize(
    ("reduce", "weights"),
    [
        ("max", weigh),
        pytest.param("max", None, marks=SLOW),
        pytest.param("mean", None, marks=SLOW),
        pytest.param("mean", weigh, marks=SLOW),
        pytest.param(None, weigh, marks=SLOW),
    ],
)
@cases.each_method
@pytest.mark.every(60)
def test_values_in_x64_mode(method, how, ties, reduce, weights):
    if ties not in method.value.ties or how not in method.value.methods:
        pytest.skip("not offered")
    # Whole numbers, whose distances are the same in either type.
    data = cases.grid(600 if how == "hybrid" else 7, 3, size=20)
    data = dataclasses.replace(data, x=data.x.astype(float))
    options = {"method": how, "ties": ties, "reduce": reduce}
    if not method.value.targets:
        options["weights"] = weights
    narrow = method.call(data, K, **options)
    with jax.enable_x64(True):
        wide = method.call(data, K, **options)
    for name in ("values", "stderr", "error_bound"):
        expected, found = getattr(narrow, name), getattr(wide, name)
        assert (found is None) == (expected is None)
        if expected is not None:
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
