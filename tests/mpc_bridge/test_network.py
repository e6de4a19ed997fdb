"""Networks of switches: every order is reached, and the switches tell of none."""

import itertools

import numpy as np
import pytest
from scipy import stats

from jaxsel.proxy._cost._choosing import switches
from mpc_bridge._network import draw, network, route
from mpc_bridge._programs import Switched
from mpc_bridge.engines._operand import Operand


class Plain(Operand):
    """Numbers in the clear, of NumPy."""


def cat(parts):
    return Plain(np.concatenate([part.array for part in parts], axis=-1))


def switched(x, stand):
    """Send numbers through their network, in the clear."""
    run = Switched(network(len(x))).steps(cat, Plain(x), Plain(stand))
    try:
        call = next(run)
        while True:
            bits, change = (operand.array for operand in call.operands)
            call = run.send(Plain(np.where(bits, change, 0)))
    except StopIteration as end:
        return np.asarray(end.value.array)


@pytest.mark.parametrize("n", range(1, 7))
def test_every_order_is_reached(n):
    for order in itertools.permutations(range(n)):
        stand = route(np.array(order))
        assert switched(np.arange(n), stand).tolist() == list(order)


@pytest.mark.parametrize("n", [7, 8, 9, 31, 32, 33, 100, 257, 1000, 4097])
def test_long_orders_are_reached(n):
    rng = np.random.default_rng(n)
    x = rng.integers(-(2**40), 2**40, n)  # sums in the ring are exact
    for order in (rng.permutation(n), np.arange(n), np.arange(n)[::-1]):
        np.testing.assert_array_equal(switched(x, route(order)), x[order])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 100, 1001])
def test_layers_are_those_that_are_counted(n):
    net = network(n)
    assert [layer.size for layer in net.layers] == switches(n)
    assert net.switches == len(route(np.arange(n)))
    assert net.switches <= 17 / 16 * n * max(1, np.log2(n))


def test_orders_are_drawn_alike():
    seen = {}
    for _ in range(2400):
        order = tuple(draw(4).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6
