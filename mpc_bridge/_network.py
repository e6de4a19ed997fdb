"""Networks of switches, which bring n numbers into an order that one party knows.

A switch exchanges two numbers or leaves them. Beneš's network does so with each number
of the first half and its like of the second, sends both halves through networks of half
the size, and switches their outputs likewise. Of an odd number the last goes to the
second half, which is larger by one, and comes from there. Which numbers meet is public;
how the switches stand, `route`, is not.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets

import numpy as np

_WIDEST = 32  # numbers of a row


@dataclasses.dataclass(frozen=True)
class Layer:
    """Switches that stand side by side.

    Numbers are laid out in rows, and each row has the same pairs of columns: of each
    part that starts at a column, those of its first half and of its second.

    Attributes:
        rows: How many there are.
        width: Numbers of a row.
        parts: First column, and half the width, of each part that is switched.
    """

    rows: int
    width: int
    parts: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """How many switches it has."""
        return self.rows * sum(half for _, half in self.parts)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network for n numbers, which are filled up to rows of equal width.

    Attributes:
        n: Numbers.
        total: Numbers with those that fill up, which stay behind the others.
        layers: Its layers, from the first to the last.
    """

    n: int
    total: int
    layers: tuple[Layer, ...]

    @property
    def switches(self) -> int:
        """How many switches there are in all."""
        return sum(layer.size for layer in self.layers)


@functools.lru_cache(maxsize=4)
def network(n: int) -> Network:
    """Return the network for n numbers: about n log₂ n switches."""
    rows = 1
    while -(-n // rows) > _WIDEST:
        rows *= 2
    width = -(-n // rows)
    total = rows * width
    inward, outward = [], []
    for level in range(rows.bit_length() - 1):
        layer = Layer(2**level, total >> level, ((0, total >> (level + 1)),))
        inward.append(layer)
        outward.append(layer)
    parts = [(0, width)]
    while max(size for _, size in parts) > 1:
        # A network of two is one switch: none follows.
        for layers, least in ((inward, 2), (outward, 3)):
            halves = tuple((start, size // 2) for start, size in parts if size >= least)
            layers.append(Layer(rows, width, halves))
        parts = [
            half
            for start, size in parts
            for half in ((start, size // 2), (start + size // 2, size - size // 2))
            if half[1]
        ]
    return Network(n, total, (*inward, *outward[-2::-1]))


def route(order: np.ndarray) -> np.ndarray:
    """Return how the switches of `network(n)` stand so that places get `order`.

    Args:
        order: `[n]`: which of the numbers each place gets.

    Returns:
        Whether each switch exchanges its two numbers, layer by layer, bool.
    """
    net = network(len(order))
    order = np.concatenate([order, np.arange(net.n, net.total)]).astype(np.int64)
    middle = len(net.layers) // 2
    before: list[np.ndarray] = []
    after: list[np.ndarray] = []
    for level, layer in enumerate(net.layers[: middle + 1]):
        first, second = _pairs(layer)
        down = _sides(order, first, second)
        came = np.empty(net.total, bool)
        came[order] = down
        before.append(came[first])
        if level == middle:
            break
        # What the halves are to do: where numbers stand by then, and where they go.
        stood = np.arange(net.total)
        stood[first] = np.where(came[first], second, first)
        stood[second] = np.where(came[first], first, second)
        stands = np.empty(net.total, np.int64)
        stands[stood] = np.arange(net.total)
        out, other = _pairs(net.layers[-1 - level])
        after.append(down[out])
        leaves = np.arange(net.total)
        leaves[out] = np.where(down[out], other, out)
        leaves[other] = np.where(down[out], out, other)
        order = stands[order[leaves]]
    return np.concatenate([*before, *after[::-1], np.zeros(0, bool)])


def draw(n: int) -> np.ndarray:
    """Return a secret order of n numbers, all orders alike: by the system's source."""
    words = np.frombuffer(secrets.token_bytes(16 * n), np.uint64).reshape(2, n)
    return np.lexsort(words)


def _pairs(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second place of each switch."""
    positions = np.arange(layer.rows * layer.width).reshape(layer.rows, layer.width)
    none = positions[:, :0]
    first = [positions[:, start : start + half] for start, half in layer.parts]
    second = [
        positions[:, start + half : start + 2 * half] for start, half in layer.parts
    ]
    return (
        np.concatenate([none, *first], axis=1).ravel(),
        np.concatenate([none, *second], axis=1).ravel(),
    )


def _sides(order: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return which outputs, `[n]` bool, come from the second half.

    Inputs of a pair go to different halves, and outputs of a pair come from different
    ones: outputs that are linked so take turns, along rings, and along a path between
    the input and the output that are alone, which belong to the second half. Every
    output looks along its path, twice as far in each step.
    """
    n = len(order)
    mate = np.arange(n)  # of a place in its pair; itself if alone
    mate[first], mate[second] = second, first
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    # Two steps along a path, from an output: to the other of its pair, which comes from
    # the other half, and to the output whose input is paired with that one's.
    other = order[mate]
    alone = mate == np.arange(n)
    ends = alone | (mate[other] == other)
    step = np.where(ends, np.arange(n), place[mate[other]])
    least = np.arange(n)
    for _ in range(max(1, n.bit_length())):
        least = np.minimum(least, least[step])
        step = step[step]
    # A ring has two ways around; a path ends at the output that is alone, or beside the
    # one whose input is.
    return np.where(ends[step], alone[step], least > least[mate])
