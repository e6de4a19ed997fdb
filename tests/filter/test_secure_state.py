"""Clients of a secure sum that go on in another process."""

import numpy as np
import pytest
from secure_sums import NAMES, NEEDED, counted

from jaxsel.filter import SecureClient, open_sum

COUNTS = np.arange(10).reshape(5, 2)


def again(clients):
    """Every client, as another process gets it."""
    return {
        name: SecureClient.from_bytes(one.to_bytes()) for name, one in clients.items()
    }


def test_a_sum_in_five_processes():
    clients = {
        name: SecureClient(counted(name, own), NEEDED)
        for name, own in zip(NAMES, COUNTS, strict=True)
    }
    clients = again(clients)
    keys = [client.keys() for client in clients.values()]
    clients = again(clients)
    shares = [client.share(keys) for client in clients.values()]
    clients = again(clients)
    alive = [name for name in NAMES if name != "bo"]
    masked = [clients[name].masked(shares) for name in alive]
    clients = again(clients)
    revealed = [clients[name].reveal(alive) for name in alive]
    total = open_sum(keys, shares, masked, revealed, NEEDED)
    np.testing.assert_array_equal(total, COUNTS.sum(0) - COUNTS[1])
    with pytest.raises(ValueError, match="in this order, once each"):
        again(clients)["ada"].reveal(alive)


@pytest.mark.parametrize("steps", range(4))
def test_no_step_is_done_twice(steps):
    clients = {name: SecureClient(counted(name, [1, 2]), 2) for name in NAMES[:3]}
    done = [c.keys() for c in clients.values()]
    if steps > 0:
        done = [c.share(done) for c in clients.values()]
    if steps > 1:
        [c.masked(done) for c in clients.values()]
    if steps > 2:
        [c.reveal([*clients]) for c in clients.values()]
    client = again(clients)["ada"]
    calls = [
        client.keys,
        lambda: client.share(done),
        lambda: client.masked(done),
        lambda: client.reveal([*clients]),
    ]
    for call in calls[: steps + 1]:
        with pytest.raises(ValueError, match="in this order, once each"):
            call()


def test_damaged_bytes_are_refused():
    data = bytearray(SecureClient(counted("ada", [1, 2]), 2).to_bytes())
    for at in (0, len(data) // 2, len(data) - 60):
        wrong = bytearray(data)
        wrong[at] ^= 1
        with pytest.raises(ValueError, match="is refused"):
            SecureClient.from_bytes(bytes(wrong))
