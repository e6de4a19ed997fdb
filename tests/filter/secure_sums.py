"""Clients, a server, and what goes wrong between them, for tests of secure sums."""

import dataclasses

import numpy as np

from jaxsel.filter import (
    Counted,
    SecureClient,
    open_sum,
)

NAMES = ("ada", "bo", "cy", "di", "ed")
NEEDED = 3
TASK = "0123456789abcdef" * 2


def counted(name, counts, task=TASK):
    return Counted(
        task=task, round=1, client=name, counts=np.asarray(counts, np.uint32)
    )


def start(counts, needed=NEEDED):
    """Return clients that have shared their keys, and what was sent."""
    clients = {
        name: SecureClient(counted(name, own), needed)
        for name, own in zip(NAMES, counts, strict=False)
    }
    keys = [client.keys() for client in clients.values()]
    shares = [client.share(keys) for client in clients.values()]
    return clients, keys, shares


def finish(clients, keys, shares, silent=(), late=()):
    alive = [name for name in clients if name not in silent]
    masked = [clients[name].masked(shares) for name in alive]
    revealed = [clients[name].reveal(alive) for name in alive if name not in late]
    return masked, revealed, open_sum(keys, shares, masked, revealed, NEEDED)


def spoiled(array, at):
    """Return a copy with one bit flipped."""
    array = array.copy()
    array[at] ^= 1
    return array


def revealed_by_four(silent="ed"):
    counts = np.ones((5, 1), int)
    clients, keys, shares = start(counts)
    masked, revealed, total = finish(clients, keys, shares, silent=(silent,))
    assert total == [4]
    return keys, shares, masked, revealed


def without(one, name):
    row = one.others.index(name)
    others = [other for other in one.others if other != name]
    return dataclasses.replace(one, others=others, shares=np.delete(one.shares, row, 0))
