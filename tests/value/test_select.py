"""The k smallest by digits: those of NumPy's stable sort, and of the present way."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from in_processes import run_script

from jaxsel.neighbors import _order, top_k
from jaxsel.neighbors._select import smallest

N = 300
_select = jax.jit(smallest, static_argnums=1)


def check(row, k):
    """Compare with a stable sort in which -0 is 0 and NaN comes last."""
    near, index = _select(jnp.asarray(row), k)
    order = np.argsort(np.where(row == 0, np.float32(0), row), kind="stable")[:k]
    assert index.dtype == np.int32
    np.testing.assert_array_equal(index, order)
    assert np.asarray(near).tobytes() == row[order].tobytes()
    return near, index


def rows():
    rng = np.random.default_rng(0)
    random = rng.normal(size=N).astype(np.float32)
    special = rng.choice(
        np.float32([np.nan, -np.nan, np.inf, -np.inf, 0, -0.0, 1e-45, -1e-45, 1]), N
    )
    return {
        "random": random,
        "lengths": np.abs(random),
        "ties": rng.integers(0, 9, N).astype(np.float32),
        "all equal": np.zeros(N, np.float32),
        "special": special,
        "NaN": np.where(random > 0, np.float32(np.nan), random),
        "extremes": (random * 10.0 ** rng.integers(-44, 38, N)).astype(np.float32),
        "ascending": np.sort(random),
        "descending": np.sort(random)[::-1].copy(),
    }


@pytest.mark.parametrize("k", [1, 2, 37, N - 1, N])
@pytest.mark.parametrize("kind", rows())
def test_a_stable_sort_finds_the_same(kind, k):
    check(rows()[kind], k)


@pytest.mark.parametrize("k", [1, 37, N])
@pytest.mark.parametrize("kind", ["random", "lengths", "ties", "all equal"])
def test_the_present_way_finds_the_same(kind, k):
    """With the compiled operation and without it."""
    row = rows()[kind]
    near, index = check(row, k)
    for way in (partial(top_k, k=k), partial(_order._top_k, k=k)):
        present, whose = jax.jit(way)(jnp.asarray(row))
        np.testing.assert_array_equal(whose, index)
        assert np.asarray(present).tobytes() == np.asarray(near).tobytes()


def test_none():
    near, index = _select(jnp.ones(3), 0)
    assert near.shape == index.shape == (0,)


def test_rows_at_once():
    many = np.stack([*rows().values()])
    near, index = jax.jit(jax.vmap(partial(smallest, k=37)))(many)
    for row, *found in zip(many, near, index, strict=True):
        for mine, wanted in zip(found, check(row, 37), strict=True):
            assert np.asarray(mine).tobytes() == np.asarray(wanted).tobytes()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_subnormal=False), min_size=7, max_size=7),
    st.integers(1, 7),
)
def test_any_floats(row, k):
    check(np.array(row, np.float32), k)


@pytest.mark.left_out
def test_the_derivative_is_that_of_the_entries():
    row = jnp.asarray(rows()["random"])
    weights = jnp.arange(5.0)
    found = jax.grad(lambda row: smallest(row, 5)[0] @ weights)(row)
    wanted = np.zeros(N)
    wanted[np.argsort(row)[:5]] = weights
    np.testing.assert_array_equal(found, wanted)


def test_no_row_is_sorted():
    text = jax.jit(smallest, static_argnums=1).lower(jnp.ones(N), 7).as_text()
    assert text.count("stablehlo.sort") == 1
    assert "tensor<7xui32>, tensor<7xi32>" in text


def test_it_is_off():
    assert not _order._DIGITS_FROM


SWITCHED = """
import sys

import jax, numpy as np
import jaxsel
from jaxsel.neighbors import top_k
rng = np.random.default_rng(0)
x, x_val = (rng.normal(size=(n, 4)).astype("f4") for n in (400, 5))
y, y_val = (rng.integers(0, 3, n) for n in (400, 5))
values = jaxsel.knn_shapley(x, y, x_val, y_val, method="hybrid").values
near = jaxsel.retrieve_nearest(x, x_val, 300).indices
text = jax.jit(lambda row: top_k(row, 50)).lower(x[:, 0]).as_text()
few = jax.jit(lambda row: top_k(row, 9)).lower(x[:, 0]).as_text()
print("while" in text, "while" in few)
np.savez(f"{sys.argv[1]}/found.npz", values=values, near=near)
"""


@pytest.mark.slow
def test_the_switch_changes_no_result(tmp_path):
    """Where the compiled operations do not serve, as on a GPU."""
    found = {}
    for switch in ("0", "10"):
        given = {"JAXSEL_NATIVE": "0", "JAXSEL_DIGITS_FROM": switch}
        said = run_script(SWITCHED, tmp_path, **given)
        assert said.split() == [str(switch == "10"), "False"]
        found[switch] = dict(np.load(tmp_path / "found.npz"))
    for name, array in found["0"].items():
        assert found["10"][name].tobytes() == array.tobytes()
