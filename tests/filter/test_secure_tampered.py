"""Secure sums whose shares are wrong, missing or late, and keys that are forged."""

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
from secure_sums import (
    NAMES,
    NEEDED,
    counted,
    finish,
    revealed_by_four,
    spoiled,
    start,
    without,
)

from jaxsel.filter import (
    SecureClient,
    _secure,
    _shamir,
    open_sum,
)
from jaxsel.filter._shamir import LENGTH, PRIME, join, split


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

    first, second, *_ = NAMES
    others = [row(one, first) for one in shares if one.client not in (first, second)]
    with pytest.raises(ValueError, match=f"are not for '{second}'"):
        clients[second].masked(others)
    clients, keys, shares = start(np.ones((5, 3), int))
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


@pytest.mark.parametrize("late", [(), ("di",)])
def test_no_flipped_bit_of_what_the_server_has_gives_another_sum(late):
    counts = np.arange(1, 11).reshape(5, 2)
    clients, keys, shares = start(counts)
    masked, revealed, total = finish(clients, keys, shares, silent=("ed",), late=late)
    np.testing.assert_array_equal(total, counts[:4].sum(0))
    sent = [keys, shares, masked, revealed]
    for i, kind in enumerate(sent):
        for j, message in enumerate(kind):
            for name in (*message._arrays, *message._optional):
                array = getattr(message, name)
                # What a survivor masked and did not vouch for can't be told.
                if name == "counts" and message.client in late:
                    continue
                raw = np.frombuffer(array.tobytes(), np.uint8)
                for at in range(0, len(raw), 1 + len(raw) // 6):
                    wrong = spoiled(raw, at).view(array.dtype).reshape(array.shape)
                    changed = [list(one) for one in sent]
                    changed[i][j] = dataclasses.replace(message, **{name: wrong})
                    if name in ("keys", "counts", "masked"):
                        with pytest.raises(ValueError, match="keys must|masked counts"):
                            open_sum(*changed, NEEDED)
                        continue
                    with contextlib.suppress(ValueError):
                        np.testing.assert_array_equal(open_sum(*changed, NEEDED), total)


def test_keys_that_differ_between_clients_are_noticed_before_counts_are_sent():
    clients = {name: SecureClient(counted(name, [1, 2]), NEEDED) for name in NAMES}
    keys = [client.keys() for client in clients.values()]
    strange = SecureClient(counted("ed", [1, 2]), NEEDED).keys()
    shares = [clients[name].share(keys) for name in NAMES if name not in ("bo", "ed")]
    shares.append(clients["bo"].share([*keys[:4], strange]))
    with pytest.raises(ValueError, match="shares of 'bo' must be by the keys that 'ad"):
        clients["ada"].masked(shares)
    with pytest.raises(ValueError, match="keys of 'ed' were changed on their way"):
        clients["ed"].share([*keys[:4], strange])


def test_keys_and_counts_other_than_those_of_clients_are_named():
    keys, shares, masked, revealed = revealed_by_four()
    wrong = dataclasses.replace(keys[0], keys=spoiled(keys[0].keys, (0, 0)))
    with pytest.raises(ValueError, match="keys must be those that all clients were gi"):
        open_sum([wrong, *keys[1:]], shares, masked, revealed, NEEDED)
    bare = dataclasses.replace(masked[0], keys=None)
    with pytest.raises(ValueError, match="but 'ada' has a hash of others"):
        open_sum(keys, shares, [bare, *masked[1:]], revealed, NEEDED)
    more = dataclasses.replace(masked[0], counts=masked[0].counts + np.uint32(1))
    with pytest.raises(ValueError, match="masked counts of 'ada' must be those that"):
        open_sum(keys, shares, [more, *masked[1:]], revealed, NEEDED)
