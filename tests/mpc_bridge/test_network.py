"""Networks of switches: every order is reached, and the switches tell of none."""

import itertools

import numpy as np
import pytest
from scipy import stats

from jaxsel.proxy._choosing import switches
from mpc_bridge._network import draw, network, route


def switched(x, stand):
    """Send numbers through their network, in the clear."""
    net, at = network(len(x)), 0
    for size, wires in zip(net.sizes, net.wires, strict=False):
        x, here = x[wires], stand[at : at + size]
        first, second = x[:size].copy(), x[size : 2 * size].copy()
        x[:size] = np.where(here, second, first)
        x[size : 2 * size] = np.where(here, first, second)
        at += size
    assert at == len(stand)
    return x[net.wires[-1]]


@pytest.mark.parametrize("n", range(1, 7))
def test_every_order_is_reached(n):
    for order in itertools.permutations(range(n)):
        stand = route(np.array(order))
        assert switched(np.arange(n), stand).tolist() == list(order)


@pytest.mark.parametrize("n", [7, 8, 9, 31, 32, 33, 100, 257, 1000, 4097])
def test_long_orders_are_reached(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=n)
    for order in (rng.permutation(n), np.arange(n), np.arange(n)[::-1]):
        np.testing.assert_array_equal(switched(x, route(order)), x[order])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 100, 1001])
def test_layers_are_those_that_are_counted(n):
    net = network(n)
    assert list(net.sizes) == switches(n)
    assert net.wires.shape == (len(net.sizes) + 1, n)
    assert sum(net.sizes) <= n * max(1, np.log2(n))
    for wires in net.wires:
        assert sorted(wires) == list(range(n))


def test_orders_are_drawn_alike():
    seen = {}
    for _ in range(2400):
        order = tuple(draw(4).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6
