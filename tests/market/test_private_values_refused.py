"""Values across owners: messages and sums that are refused."""

import dataclasses
import shutil

import numpy as np
import pytest

from jaxsel.filter import SecureClient
from jaxsel.market import (
    CountSums,
    Survivors,
    Valuation,
    ValueOwner,
)

from .value_cases import (
    DATA,
    NAMES,
    Session,
    ask,
    whole,
)


def test_owners_that_were_asked_different_things_have_no_sum():
    valuation = ask()
    reordered = dataclasses.replace(valuation, x=valuation.x[:, ::-1].copy())
    wider = dataclasses.replace(valuation, radius=valuation.radius * 2)
    louder = dataclasses.replace(valuation, variance=4)
    for other in (reordered, wider, louder):
        assert other.task != valuation.task
        session = Session(valuation)
        session.keys[1] = ValueOwner(
            other, *DATA["bo"], owner="bo", max_epsilon=None
        ).keys()
        with pytest.raises(ValueError, match="'bo' is of another round"):
            session.share()


def test_messages_of_another_valuation_are_refused():
    old, new = whole(), whole()
    with pytest.raises(ValueError, match="another valuation"):
        new.valuation.survivors(old.masked)
    with pytest.raises(ValueError, match="another valuation"):
        new.values("ada", old.sum())
    fresh = Session(new.valuation).share().mask()
    with pytest.raises(ValueError, match="another valuation"):
        fresh.owners["ada"].reveal(old.survivors)
    new.keys[0] = old.keys[0]
    with pytest.raises(ValueError, match="another round"):
        new.sum()
    wrong = [dataclasses.replace(one, round=2) for one in fresh.keys]
    with pytest.raises(ValueError, match="another round"):
        Session(new.valuation).owners["ada"].share(wrong)


def test_strangers_and_repeats_are_refused():
    session = Session(ask())
    stranger = dataclasses.replace(session.keys[1], client="zoe")
    with pytest.raises(ValueError, match="zoe"):
        session.owners["ada"].share([session.keys[0], stranger, *session.keys[2:]])
    session = Session(ask()).share().mask()
    twice = [*session.masked, session.masked[0]]
    with pytest.raises(ValueError, match="distinct"):
        session.valuation.survivors(twice)
    foreign = dataclasses.replace(session.masked[0], client="zoe")
    with pytest.raises(ValueError, match="of those asked"):
        session.valuation.survivors([foreign, *session.masked[1:]])
    short = dataclasses.replace(session.masked[0], counts=np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="another valuation"):
        session.valuation.survivors([short, *session.masked[1:]])


def test_tampered_shares_are_named():
    session = Session(ask()).share()
    sealed = session.shares[1].sealed.copy()
    sealed[0, 5] ^= 1
    session.shares[1] = dataclasses.replace(session.shares[1], sealed=sealed)
    with pytest.raises(ValueError, match="share of 'bo' was changed"):
        session.mask()
    session = whole()
    shares = session.revealed[2].shares.copy()
    shares[0, 60] ^= 1
    session.revealed[2] = dataclasses.replace(session.revealed[2], shares=shares)
    with pytest.raises(ValueError, match="where 'cy' revealed them"):
        session.sum()


def hostile(monkeypatch, change):
    """Let bo mask other counts than it has."""
    real = SecureClient.__init__

    def lie(self, counted, needed):
        if counted.client == "bo":
            counts = change(counted.counts.astype(np.int64)).astype(np.uint32)
            counted = dataclasses.replace(counted, counts=counts)
        real(self, counted, needed)

    monkeypatch.setattr(SecureClient, "__init__", lie)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c + 1_000,  # more than all owners may have
        lambda c: c - 100_000,  # negative sums
        lambda c: c + (1 << 30),
        lambda c: c + (1 << 31),
    ],
)
def test_counts_out_of_range_are_refused(monkeypatch, change):
    hostile(monkeypatch, change)
    with pytest.raises(ValueError, match="sums must lie between 0 and 350"):
        whole(ask(max_points=70)).sum()


def test_a_ball_with_more_points_than_there_are_is_refused(monkeypatch):
    hostile(monkeypatch, lambda c: 0 * c + 200)
    with pytest.raises(ValueError, match="at most 350 points in a ball"):
        whole(ask(max_points=70)).sum()


def test_sums_below_the_own_counts_are_refused():
    session = whole()
    sums = session.sum()
    own = session.owners["ada"]._counts
    fewer = dataclasses.replace(sums, sums=np.maximum(own - 1, 0))
    with pytest.raises(ValueError, match="leave to the other owners is -1"):
        session.values("ada", fewer)
    more = dataclasses.replace(sums, owners=NAMES[:4])
    with pytest.raises(ValueError, match="that it was told are left"):
        session.values("ada", more)
    for wrong in (sums.sums[:-1], sums.sums.astype(float), sums.sums[:, :1]):
        with pytest.raises(ValueError, match="int64 of shape"):
            session.values("ada", dataclasses.replace(sums, sums=wrong))


def test_other_points_than_those_counted():
    session = whole()
    sums = session.sum()
    x, y = DATA["ada"]
    for wrong in ((x[::-1], y[::-1]), (x, np.roll(y, 1)), (x[:-1], y[:-1])):
        with pytest.raises(ValueError, match="what was counted"):
            session.owners["ada"].values(sums, *wrong)


def test_files_that_were_changed(tmp_path):
    valuation = ask()
    path = valuation.save(tmp_path / "asked.npz")
    good = path.read_bytes()
    for at in (100, len(good) // 2, len(good) - 200):
        bad = bytearray(good)
        bad[at] ^= 1
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="is refused"):
            Valuation.load(path)
    path.write_bytes(good)
    assert Valuation.load(path).task == valuation.task
    sums = whole(valuation).sum().save(tmp_path / "sums.npz")
    with pytest.raises(ValueError, match="another valuation"):
        CountSums.load(sums, ask())
    with pytest.raises(ValueError, match="holds 'sums'"):
        Survivors.load(sums, valuation)
    state = Session(valuation).owners["ada"].save(tmp_path / "state.npz")
    with pytest.raises(ValueError, match="another valuation"):
        ValueOwner.load(state, ask())


def test_a_copy_of_a_state_is_not_gone_on_with_twice(tmp_path):
    """Shares of both masks would open what they hide."""
    session = Session(ask()).share().mask()
    state = session.owners["ada"].save(tmp_path / "state.npz")
    copy = tmp_path / "backup.npz"
    shutil.copy(state, copy)
    owner = ValueOwner.load(state, session.valuation)
    owner.reveal(session.survivors)
    owner.save(state)
    ValueOwner.load(state, session.valuation)  # the newest one, for its values
    shutil.copy(copy, state)
    for path in (state, copy):
        with pytest.raises(ValueError, match="after 'reveal', got a copy from before"):
            ValueOwner.load(path, session.valuation)
    hidden = tmp_path / ".jaxsel-spent"
    assert hidden.stat().st_mode & 0o777 == 0o600
    with hidden.open("a") as file:
        file.write("0123 ")  # a crash in the middle of a line
    with pytest.raises(ValueError, match="copy from before"):
        ValueOwner.load(copy, session.valuation)


def test_two_processes_do_not_go_on_from_one_state(tmp_path):
    session = Session(ask()).share().mask()
    state = session.owners["bo"].save(tmp_path / "state.npz")
    first, second = (ValueOwner.load(state, session.valuation) for _ in range(2))
    for owner in (first, second):
        owner.reveal(session.survivors)
    first.save(state)
    newest = state.read_bytes()
    with pytest.raises(ValueError, match="got a copy from before, after 'masked'"):
        second.save(state)
    assert state.read_bytes() == newest
