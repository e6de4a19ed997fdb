"""Networks of switches, which bring n numbers into an order that one party knows.

A switch exchanges two numbers or leaves them. Beneš's network does so with the n inputs
two by two, gives the first of each pair to one network of half the size and the second
to another, and switches what comes out of these two by two. Of an odd number the last
goes to the second network, which is larger by one, and comes from there. Which numbers
meet is public; how the switches stand, `route`, is not.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A network for n numbers, as layers of switches.

    Attributes:
        sizes: Switches of each layer.
        wires: `[len(sizes) + 1, n]` int32: what comes to each place before a layer, by
            its place behind the one before; and at last what comes out. The first
            numbers of a layer's pairs come first, then the second ones, then those that
            pass by.
    """

    sizes: tuple[int, ...]
    wires: np.ndarray


@functools.lru_cache(maxsize=4)
def network(n: int) -> Network:
    """Return the network for n numbers: n log₂ n switches, less n / 2."""
    inward = _inward(n)
    # Behind the middle all is mirrored; a network of two needs one switch only.
    sizes: list[int] = []
    wires: list[np.ndarray] = []
    place = np.arange(n)  # where what stands at a place of a layer is by now
    for bounds in inward:
        first, second, rest = _pairs(bounds)
        order = np.concatenate([first, second, rest])
        wires.append(place[order])
        sizes.append(len(first))
        behind = np.empty(n, np.int64)
        behind[order] = np.arange(n)
        place = behind[_halves(bounds)]
    for bounds in inward[-2::-1]:
        first, second, rest = _pairs(bounds, outward=True)
        back = np.empty(n, np.int64)
        back[_halves(bounds)] = np.arange(n)
        place = place[back]
        order = np.concatenate([first, second, rest])
        wires.append(place[order])
        sizes.append(len(first))
        behind = np.empty(n, np.int64)
        behind[order] = np.arange(n)
        place = behind
    wires.append(place)
    return Network(tuple(sizes), np.stack(wires).astype(np.int32))


def route(order: np.ndarray) -> np.ndarray:
    """Return how the switches of `network(n)` stand so that places get `order`.

    Args:
        order: `[n]`: which of the numbers each place gets.

    Returns:
        Whether each switch exchanges its two numbers, layer by layer, bool.
    """
    order = np.asarray(order)
    n = len(order)
    inward = _inward(n)
    before: list[np.ndarray] = []
    after: list[np.ndarray] = []
    for level, bounds in enumerate(inward):
        first, second, _ = _pairs(bounds)
        down = _sides(order, bounds)  # by place of the outputs: from the second half
        came = np.empty(n, bool)
        came[order] = down
        before.append(came[first])
        if level == len(inward) - 1:
            break
        out, _, _ = _pairs(bounds, outward=True)
        after.append(down[out])
        # What the halves are to do: their outputs, and where their inputs stand.
        halves = _halves(bounds)
        stood = np.arange(n)
        stood[first] = np.where(came[first], second, first)
        stood[second] = np.where(came[first], first, second)
        stands = np.empty(n, np.int64)
        stands[stood[halves]] = np.arange(n)
        leaves = np.arange(n)
        pair, other, _ = _pairs(bounds, outward=True)
        leaves[pair] = np.where(down[pair], other, pair)
        leaves[other] = np.where(down[pair], pair, other)
        order = stands[order[leaves[halves]]]
    return np.concatenate([*before, *after[::-1], np.zeros(0, bool)])


def draw(n: int) -> np.ndarray:
    """Return a secret order of n numbers, all orders alike: by the system's source."""
    words = np.frombuffer(secrets.token_bytes(16 * n), np.uint64).reshape(2, n)
    return np.lexsort(words)


def _inward(n: int) -> list[np.ndarray]:
    """Return the bounds of the networks, `[networks + 1]`, of levels to the middle."""
    levels = []
    bounds = np.array([0, n])
    while (np.diff(bounds) > 1).any():
        levels.append(bounds)
        start, size = bounds[:-1], np.diff(bounds)
        bounds = np.append(np.stack([start, start + size // 2], 1).ravel(), n)
    return levels


def _pairs(
    bounds: np.ndarray, *, outward: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first and the second place of each switch, and the other places.

    `outward`: of the switches behind the halves; a network of two has none.
    """
    start, size = bounds[:-1], np.diff(bounds)
    at = np.arange(bounds[-1])
    of = np.repeat(np.arange(len(size)), size)
    within = at - start[of]
    paired = within < size[of] // 2 * 2
    if outward:
        paired &= size[of] > 2
    return (
        at[paired & (within % 2 == 0)],
        at[paired & (within % 2 == 1)],
        at[~paired],
    )


def _halves(bounds: np.ndarray) -> np.ndarray:
    """Return, by place in the halves, the place of the network that leads there."""
    start, size = bounds[:-1], np.diff(bounds)
    at = np.arange(bounds[-1])
    of = np.repeat(np.arange(len(size)), size)
    within, half = at - start[of], size[of] // 2
    first = within < half
    inside = np.where(first, 2 * within, 2 * (within - half) + 1)
    return start[of] + np.minimum(inside, size[of] - 1)


def _sides(order: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return which outputs, `[n]` bool, come from the second half.

    Inputs of a pair go to different halves, and outputs of a pair come from different
    ones: outputs that are linked so take turns, along rings, and along a path between
    the input and the output that are alone, which belong to the second half. Every
    output looks along its path, twice as far in each step.
    """
    n = len(order)
    first, second, _ = _pairs(bounds)
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
