"""Secure aggregation: sums come out, and nothing else does."""

import dataclasses
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from jaxsel.filter import (
    Counted,
    Keys,
    Revealed,
    SecureClient,
    Shares,
    _secure,
    _shamir,
    open_sum,
)
from jaxsel.filter._secure import _agreed, _stream, pair_mask
from jaxsel.filter._shamir import LENGTH, PRIME, join, split

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
            mine = _stream(client._own, 200)
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
        opened[name] = _stream(join(at).to_bytes(32), 6)
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
    assert (left - _stream(clients["di"]._own, 50) == 7).all()


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
        )


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


def test_every_wrong_share_is_found_and_its_holder_named():
    keys, shares, masked, revealed = revealed_by_four()
    for i, one in enumerate(revealed):
        for row, dealer in enumerate(one.others):
            bad = dataclasses.replace(one, shares=spoiled(one.shares, (row, -1)))
            sent = [*revealed[:i], bad, *revealed[i + 1 :]]
            if dealer == one.client:  # nobody but itself ever sees it
                continue
            with pytest.raises(
                ValueError, match=f"shares of '{dealer}' do not fit"
            ) as e:
                open_sum(keys, shares, masked, sent, NEEDED)
            assert f"without what '{one.client}' revealed" in str(e.value)
    # Three are enough.
    for i in range(4):
        sent = [*revealed[:i], *revealed[i + 1 :]]
        assert open_sum(keys, shares, masked, sent, NEEDED) == [4]


def test_all_who_reveal_wrong_shares_are_named():
    keys, shares, masked, revealed = revealed_by_four()
    for i in (0, 2):
        wrong = spoiled(revealed[i].shares, (1, 7))
        revealed[i] = dataclasses.replace(revealed[i], shares=wrong)
    with pytest.raises(ValueError, match="without what 'ada', 'cy' revealed"):
        open_sum(keys, shares, masked, revealed, NEEDED)


def test_its_own_share_is_not_needed_while_others_are_enough():
    keys, shares, masked, revealed = revealed_by_four()
    one = revealed[0]
    wrong = spoiled(one.shares, (one.others.index("ada"), 3))
    bad = [dataclasses.replace(one, shares=wrong), *revealed[1:]]
    assert open_sum(keys, shares, masked, bad, NEEDED) == [4]
    with pytest.raises(ValueError, match="shares of 'ada', .* do not give its seed"):
        open_sum(keys, shares, masked, bad[:3], NEEDED)


def without(one, name):
    row = one.others.index(name)
    others = [other for other in one.others if other != name]
    return dataclasses.replace(one, others=others, shares=np.delete(one.shares, row, 0))


def test_shares_that_are_left_out():
    keys, shares, masked, revealed = revealed_by_four()
    opened = lambda sent: open_sum(keys, shares, masked, sent, NEEDED)
    assert opened([without(revealed[0], "ed"), *revealed[1:]]) == [4]
    match = r"shares of 'ed' .* must be 3, got 2: \['ada', 'bo'\] left"
    with pytest.raises(ValueError, match=match):
        opened([*(without(one, "ed") for one in revealed[:2]), *revealed[2:]])
    for name in NAMES:
        with pytest.raises(ValueError, match=f"shares of '{name}' came too late"):
            opened([without(one, name) for one in revealed])


def test_messages_that_come_late():
    counts = np.ones((5, 3), int)
    clients, keys, shares = start(counts)
    late = clients["di"].masked(shares)
    others = {name: client for name, client in clients.items() if name != "di"}
    masked, revealed, _ = finish(others, keys, shares)
    with pytest.raises(ValueError, match="counts of 'di' came too late: 'ada', 'bo'"):
        open_sum(keys, shares, [*masked, late], revealed, NEEDED)
    with pytest.raises(ValueError, match="counts of 'bo' are missing: 'cy', 'ed'"):
        open_sum(keys, shares, [masked[0], *masked[2:]], revealed[2:], 2)
    # Shares that came when the others had theirs already.
    clients, keys, shares = start(counts)
    del clients["di"]
    masked, revealed, _ = finish(clients, keys, [shares[i] for i in (0, 1, 2, 4)])
    with pytest.raises(ValueError, match="shares of 'di' came too late"):
        open_sum(keys, shares, masked, revealed, NEEDED)


def test_shares_and_keys_that_the_server_lost():
    keys, shares, masked, revealed = revealed_by_four()
    with pytest.raises(ValueError, match=r"'ada' revealed those of \['ed'\] too"):
        open_sum(keys, shares[:4], masked, revealed, NEEDED)
    with pytest.raises(ValueError, match="keys must be those that all clients were"):
        open_sum(keys[:4], shares[:4], masked, revealed, NEEDED)
    again = dataclasses.replace(revealed[0])
    with pytest.raises(ValueError, match="distinct clients, got two of 'ada'"):
        open_sum(keys, shares, masked, [*revealed, again], NEEDED)
    with pytest.raises(ValueError, match="must be of 3 clients or more, got"):
        open_sum(keys, shares, [], [], NEEDED)
    old = dataclasses.replace(shares[4], round=2)
    with pytest.raises(ValueError, match="'ed' is of another round"):
        open_sum(keys, [*shares[:4], old], masked, revealed, NEEDED)
    with pytest.raises(ValueError, match="needed must be at least 2"):
        open_sum(keys, shares, masked, revealed, 1)


@pytest.mark.parametrize("silent", ["ada", "ed"])
def test_a_client_that_deals_shares_of_another_secret_is_named(monkeypatch, silent):
    clients = {name: SecureClient(counted(name, [1]), NEEDED) for name in NAMES}
    keys = [client.keys() for client in clients.values()]
    shares = [clients[name].share(keys) for name in NAMES if name != "ada"]
    other = lambda secret, n, needed: split(secret + 1, n, needed)
    monkeypatch.setattr(_secure, "split", other)
    shares.append(clients["ada"].share(keys))
    what = "key" if silent == "ada" else "seed"
    with pytest.raises(ValueError, match=f"shares of 'ada', .* do not give its {what}"):
        finish(clients, keys, shares, silent=(silent,))


def test_a_share_that_does_not_fit_its_commitment_is_refused():
    for at in ((0, 0, 3), (0, 1, 3)):
        clients, _, shares = start(np.ones((5, 3)))
        changed = spoiled(shares[1].commitments, at)
        shares[1] = dataclasses.replace(shares[1], commitments=changed)
        clients["cy"].masked(shares)  # not its own
        with pytest.raises(ValueError, match="share of 'bo' does not fit its commit"):
            clients["ada"].masked(shares)


def test_a_client_needs_its_own_row_of_shares_only():
    clients, keys, shares = start(np.ones((5, 3), int))

    def row(one, name):
        at = [i for i, other in enumerate(one.others) if other == name]
        parts = {part: getattr(one, part)[at] for part in ("sealed", "commitments")}
        return dataclasses.replace(one, others=[one.others[i] for i in at], **parts)

    masked = [
        clients[name].masked([row(one, name) for one in shares]) for name in NAMES
    ]
    revealed = [client.reveal(NAMES) for client in clients.values()]
    assert open_sum(keys, shares, masked, revealed, NEEDED).tolist() == [5, 5, 5]


def test_both_directions_have_keys_of_their_own():
    """One key, and a nonce that never changes, would show the difference of secrets."""
    clients, _, shares = start(np.ones((5, 3)))
    for client in clients.values():
        client.masked(shares)
    sealed = {
        (one.client, other): one.sealed[i]
        for one in shares
        for i, other in enumerate(one.others)
    }
    for one, other in itertools.combinations(NAMES, 2):
        plain = clients[other]._held[one], clients[one]._held[other]
        plain = [np.frombuffer(part, np.uint8) for part in plain]
        both = sealed[one, other] ^ sealed[other, one]
        assert (both[: 2 * LENGTH] != plain[0] ^ plain[1]).sum() > LENGTH


def test_coefficients_are_as_wide_as_the_field(monkeypatch):
    """Shamir's scheme by SymPy: what it says of the polynomials that were drawn."""
    sympy = pytest.importorskip("sympy")
    from sympy.polys.galoistools import gf_eval
    from sympy.polys.matrices import DomainMatrix

    drawn, below = [], _shamir.secrets.randbelow

    def remembered(limit):
        drawn.append(below(limit))
        return drawn[-1]

    monkeypatch.setattr(_shamir.secrets, "randbelow", remembered)
    shares = split(2**256 - 41, 7, 4)
    assert len(drawn) == 3
    assert min(drawn) > 1 << 460  # seldom smaller than once in 2^59
    assert sympy.isprime(PRIME)
    coefficients = [*drawn[::-1], 2**256 - 41]
    assert shares == [gf_eval(coefficients, x, PRIME, sympy.ZZ) for x in range(1, 8)]
    field, at = sympy.GF(PRIME, symmetric=False), (2, 3, 5, 7)
    rows = [[field(x**i) for i in range(4)] for x in at]
    values = DomainMatrix([[field(shares[x - 1])] for x in at], (4, 1), field)
    found = DomainMatrix(rows, (4, 4), field).lu_solve(values).to_list_flat()
    assert [int(value) for value in found] == [2**256 - 41, *drawn]
    assert join({x: shares[x - 1] for x in at}) == int(found[0])


def test_shares_tell_the_size_of_no_coefficient():
    """Of small ones, a share would tell the secret's leading digits."""
    secret = 5 << 200
    for share in split(secret, 20, 11):
        assert abs(share - secret) > 1 << 440


def test_garbled_reveals_never_become_a_sum():
    """Forty sums of one count, each with a bit flipped somewhere."""
    rng = np.random.default_rng(0)
    keys, shares, masked, revealed = revealed_by_four()
    for _ in range(40):
        i, bit = rng.integers(4), 1 << int(rng.integers(8))
        one = revealed[i]
        at = rng.integers(len(one.others)), rng.integers(2, LENGTH)
        wrong = one.shares.copy()
        wrong[at] ^= bit
        sent = [
            *revealed[:i],
            dataclasses.replace(one, shares=wrong),
            *revealed[i + 1 :],
        ]
        if one.others[at[0]] == one.client:
            assert open_sum(keys, shares, masked, sent, NEEDED) == [4]
            continue
        with pytest.raises(ValueError, match="do not fit their commitments"):
            open_sum(keys, shares, masked, sent, NEEDED)
