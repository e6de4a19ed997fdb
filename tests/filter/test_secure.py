"""Secure aggregation: sums come out, and nothing else does."""

import dataclasses
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats
from secure_sums import (
    NAMES,
    NEEDED,
    TASK,
    counted,
    finish,
    start,
)

from jaxsel.filter import (
    Keys,
    Revealed,
    SecureClient,
    Shares,
    open_sum,
)
from jaxsel.filter._secure import _agreed, mask_stream, pair_mask
from jaxsel.filter._shamir import PRIME, join, split


@pytest.mark.parametrize("silent", [(), ("ada",), ("cy",), ("ed",), ("ada", "di")])
@pytest.mark.parametrize("late", [(), ("bo",)])
def test_sum_whoever_drops_out(silent, late):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 1000, (5, 21))
    if len(silent) + len(late) > 2:
        with pytest.raises(ValueError, match="3 clients or more"):
            finish(*start(counts), silent, late)
        return
    *_, total = finish(*start(counts), silent, late)
    there = [i for i, name in enumerate(NAMES) if name not in silent]
    np.testing.assert_array_equal(total, counts[there].sum(0))


def test_client_that_never_shared():
    counts = np.arange(10).reshape(5, 2)
    clients = {
        name: SecureClient(counted(name, own), NEEDED)
        for name, own in zip(NAMES, counts, strict=True)
    }
    keys = [client.keys() for client in clients.values()]
    del clients["bo"]
    shares = [client.share(keys) for client in clients.values()]
    *_, total = finish(clients, keys, shares)
    np.testing.assert_array_equal(total, counts[[0, 2, 3, 4]].sum(0))


def test_messages_pass_through_files(tmp_path):
    clients, keys, shares = start(np.ones((5, 3)))
    keys = [Keys.load(one.save(tmp_path / f"k{one.client}")) for one in keys]
    shares = [Shares.load(one.save(tmp_path / f"s{one.client}")) for one in shares]
    masked = [client.masked(shares) for client in clients.values()]
    revealed = [client.reveal(NAMES) for client in clients.values()]
    revealed = [
        Revealed.load(one.save(tmp_path / f"r{one.client}")) for one in revealed
    ]
    assert open_sum(keys, shares, masked, revealed, NEEDED).tolist() == [5, 5, 5]


def test_messages_pass_through_bytes():
    """As config records hold them, by name."""
    clients, keys, shares = start(np.ones((5, 3)))
    there = lambda sent: [type(one).from_bytes(one.to_bytes()) for one in sent]
    masked = there(client.masked(there(shares)) for client in clients.values())
    revealed = there(client.reveal(NAMES) for client in clients.values())
    found = open_sum(there(keys), there(shares), masked, revealed, NEEDED)
    assert found.tolist() == [5, 5, 5]


def test_masked_counts_look_random():
    # The same counts of every client, again and again: uniform bytes all the same.
    seen = []
    for _ in range(4):
        clients, _, shares = start(np.zeros((5, 200)))
        seen += [client.masked(shares).counts for client in clients.values()]
    data = np.concatenate(seen).view(np.uint8)
    assert stats.chisquare(np.bincount(data, minlength=256)).pvalue > 1e-4
    rows = np.array(seen, float)
    pairs = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(pairs).max() < 5 / np.sqrt(200)


def test_each_mask_alone_looks_random():
    # Either of them hides the counts: the server can take the own masks off.
    own, pairs = [], []
    for _ in range(4):
        clients, _, shares = start(np.zeros((5, 200)))
        for client in [*clients.values()][:-1]:  # the last one's follow from theirs
            mine = mask_stream(client._own, 200)
            own.append(mine)
            pairs.append(client.masked(shares).counts - mine)
    for masks in (own, pairs):
        data = np.concatenate(masks).view(np.uint8)
        assert stats.chisquare(np.bincount(data, minlength=256)).pvalue > 1e-4


def test_keys_are_for_one_use():
    clients, keys, _ = start(np.zeros((5, 2)))
    ada, public = clients["ada"], keys[1].keys[0].tobytes()
    secret, one = ada._secret[0], ada._counted
    other_round = dataclasses.replace(one, round=2)
    other_task = dataclasses.replace(one, task="f" * 32)
    found = {
        _agreed(secret, public, about, where)
        for about in ("share 'ada' 'bo'", "share 'bo' 'ada'", "mask 'ada' 'bo'")
        for where in (one, other_round, other_task)
    }
    assert len(found) == 9


def test_messages_that_do_not_fit_each_other():
    counts = np.ones((5, 3))
    clients, keys, shares = start(counts)
    masked, revealed, _ = finish(clients, keys, shares)
    opened = lambda masked=masked, revealed=revealed, shares=shares: open_sum(
        keys, shares, masked, revealed, NEEDED
    )
    with pytest.raises(ValueError, match="distinct clients that sent shares"):
        opened(masked=[*masked, masked[0]])
    with pytest.raises(ValueError, match="distinct clients that sent shares"):
        opened(shares=shares[1:])
    short = dataclasses.replace(masked[2], counts=masked[2].counts[:1])
    with pytest.raises(ValueError, match="one length, got 3 and 1 from 'cy'"):
        opened(masked=[*masked[:2], short, *masked[3:]])
    late = dataclasses.replace(masked[2], round=2)
    with pytest.raises(ValueError, match="'cy' is of another round"):
        opened(masked=[*masked[:2], late, *masked[3:]])
    eve = dataclasses.replace(revealed[0], client="eve")
    with pytest.raises(ValueError, match=r"of survivors, got \['eve'\]"):
        opened(revealed=[*revealed, eve])
    wide = [dataclasses.replace(m, counts=m.counts.astype(np.int64)) for m in masked]
    assert opened(masked=wide).tolist() == [5, 5, 5]


def test_a_key_of_low_order_is_named():
    clients = {n: SecureClient(counted(n, [1]), 2) for n in NAMES[:3]}
    keys = [client.keys() for client in clients.values()]
    keys[1] = dataclasses.replace(keys[1], keys=np.zeros((2, 32), np.uint8))
    with pytest.raises(ValueError, match="can't be used for the share 'ada' 'bo'"):
        clients["ada"].share(keys)


def test_what_the_server_gets_fits_any_counts_of_that_sum():
    """Other counts with the same sum explain all that the server has.

    It can take the own masks off, but the masks of pairs remain. Were the counts others
    with the same sum, other pair masks, as likely as these, would give what it has.
    """
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, (4, 6))
    clients, keys, shares = start(counts)
    masked, revealed, _ = finish(clients, keys, shares)
    opened = {}
    for name in clients:
        at = {
            i + 1: int.from_bytes(one.shares[one.others.index(name)].tobytes())
            for i, one in enumerate(revealed)
        }
        opened[name] = mask_stream(join(at).to_bytes(32), 6)
    left = np.array([one.counts - opened[one.client] for one in masked])
    others = counts[:, ::-1].copy()
    others[0] += (counts - others).sum(0)
    assert (others.sum(0) == counts.sum(0)).all()
    for guess in (counts, others.astype(np.uint32)):
        pair = (left - guess.astype(np.uint32)).astype(np.uint32)
        assert (pair.sum(0, dtype=np.uint32) == 0).all()
    assert not (left == counts).any(1).any()


def test_fewer_shares_than_needed_tell_nothing():
    # Of any two shares of three needed, every secret is possible.
    shares = dict(enumerate(split(41, 5, 3), 1))
    for pair in itertools.combinations(shares, 2):
        for secret in (41, 42):
            third = next(x for x in shares if x not in pair)
            points = {0: secret, **{x: shares[x] for x in pair}}
            value = _through(points, third)
            assert join({**{x: shares[x] for x in pair}, third: value}) == secret


def _through(points, at):
    """Evaluate the parabola through three points."""
    total = 0
    for x, y in points.items():
        top, bottom = y, 1
        for other in points:
            if other != x:
                top = top * (at - other) % PRIME
                bottom = bottom * (x - other) % PRIME
        total += top * pow(bottom, -1, PRIME)
    return total % PRIME


@pytest.mark.parametrize("secret", [0, 1, 2**256 - 1])
def test_shares(secret):
    shares = dict(enumerate(split(secret, 6, 4), 1))
    for chosen in itertools.combinations(shares, 4):
        assert join({x: shares[x] for x in chosen}) == secret
    assert join({x: shares[x] for x in (1, 2, 3)}) != secret


def test_no_client_opens_both_masks_of_another():
    clients, _, shares = start(np.ones((5, 3)))
    for client in clients.values():
        client.masked(shares)
    clients["ada"].reveal(NAMES)
    with pytest.raises(ValueError, match="once each"):
        clients["ada"].reveal(NAMES[:3])
    with pytest.raises(ValueError, match="survivors must be 3 clients or more"):
        clients["bo"].reveal(NAMES[:2])
    with pytest.raises(ValueError, match="survivors must be"):
        clients["cy"].reveal([*NAMES, "eve"])


def test_own_mask_is_needed_too():
    """A client that answers too late stays masked, although its pairs are open."""
    counts = np.full((5, 50), 7)
    clients, keys, shares = start(counts)
    late = clients["di"].masked(shares)
    masked, revealed, total = finish(
        {n: c for n, c in clients.items() if n != "di"}, keys, shares
    )
    assert (total == 28).all()
    key = join(
        {
            number: int.from_bytes(one.shares[one.others.index("di")].tobytes())
            for number, one in zip((1, 2, 3, 5), revealed, strict=True)
        }
    )
    key = X25519PrivateKey.from_private_bytes(key.to_bytes(32))
    left = late.counts
    for other, one in zip(NAMES, keys, strict=True):
        if other != "di":
            mask = pair_mask(key, one.keys[1].tobytes(), "di", other, late)
            left = left - mask if other > "di" else left + mask
    assert not (left == 7).any()
    assert (left - mask_stream(clients["di"]._own, 50) == 7).all()


def test_order_of_calls():
    client = SecureClient(counted("ada", [1]), 2)
    with pytest.raises(ValueError, match="in this order"):
        client.masked([])


def test_changed_shares_are_refused():
    clients, keys, shares = start(np.ones((5, 3)))
    sealed = shares[1].sealed.copy()
    sealed[0, 5] ^= 1
    shares[1] = dataclasses.replace(shares[1], sealed=sealed)
    with pytest.raises(ValueError, match="share of 'bo' was changed"):
        clients["ada"].masked(shares)


def test_wrong_revealed_shares_are_found():
    clients, keys, shares = start(np.ones((5, 3)))
    alive = ["ada", "bo", "cy", "di"]
    masked = [clients[name].masked(shares) for name in alive]
    revealed = [clients[name].reveal(alive) for name in alive]
    wrong = revealed[0].shares.copy()
    wrong[-1] ^= 1
    revealed[0] = dataclasses.replace(revealed[0], shares=wrong)
    with pytest.raises(ValueError, match="shares of 'ed' do not fit"):
        open_sum(keys, shares, masked, revealed, NEEDED)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda keys: keys[:2], "keys must be of 3 clients or more"),
        (lambda keys: keys[1:], "'ada' among them"),
        (lambda keys: [*keys, keys[1]], "no_error"),
        (lambda keys: [*keys, dataclasses.replace(keys[1])], "distinct clients"),
        (lambda keys: [dataclasses.replace(k, round=2) for k in keys], "another round"),
    ],
)
def test_keys_must_be_right(change, match):
    clients = [SecureClient(counted(name, [1]), NEEDED) for name in NAMES]
    keys = [client.keys() for client in clients]
    if match == "no_error":
        assert len(clients[0].share(change(keys)).others) == 4
        return
    with pytest.raises(ValueError, match=match):
        clients[0].share(change(keys))


def test_more_than_half_must_stay():
    clients = [SecureClient(counted(name, [1]), 2) for name in NAMES]
    keys = [client.keys() for client in clients]
    with pytest.raises(ValueError, match="more than half of the 5 clients"):
        clients[0].share(keys)


def test_forms():
    with pytest.raises(ValueError, match="keys must be uint8"):
        Keys(task=TASK, round=1, client="a", keys=np.zeros((2, 31), np.uint8))
    with pytest.raises(ValueError, match="distinct names"):
        Shares(
            task=TASK,
            round=1,
            client="a",
            others=["b", "b"],
            sealed=np.zeros((2, 148), np.uint8),
            commitments=np.zeros((2, 2, 32), np.uint8),
            seed=np.zeros(32, np.uint8),
            keys=np.zeros(32, np.uint8),
        )
    with pytest.raises(ValueError, match=r"commitments must be uint8 of shape \[1, 2,"):
        Shares(
            task=TASK,
            round=1,
            client="a",
            others=["b"],
            sealed=np.zeros((1, 148), np.uint8),
            commitments=np.zeros((2, 2, 32), np.uint8),
            seed=np.zeros(32, np.uint8),
            keys=np.zeros(32, np.uint8),
        )
