"""Sessions whose roles are not set up alike: all of them end, soon, and say what it is.

Each role is a process. A party waits for others for half an hour: those that end before
the patience of tests is over have noticed.
"""

import contextlib

import pytest
from parties import needs_spu
from ports import free_address
from processes import Session, running
from waits import until

from mpc_bridge._certs import make_all

pytestmark = [pytest.mark.mpc, pytest.mark.multihost, pytest.mark.slow]


def all_end(session, words, options=((), (), ())):
    """Check that all roles end, each with these words in its last line."""
    with running(session, options) as roles:
        for role in roles:
            assert role.wait()[0] == 1, role.said
            assert ": error: " in role.last
            assert words in role.last
            assert "Traceback" not in role.said
    assert not any((path / "result.json").exists() for path in session.outputs)


def wrong_certificate(session, rank, name):
    """Give a role the certificate that somebody else made under its name."""
    others = make_all(session.folder / "others", [*session.folders], days=1)
    own = str(session.folders[name].resolve())
    session.edit(rank, own, str(others[name].resolve()))


@needs_spu
def test_a_wrong_certificate_of_two(files, tmp_path):
    session = Session(files, tmp_path, "spu-cheetah")
    wrong_certificate(session, 1, "Clinic")
    all_end(session, "accept")


@needs_spu
def test_a_wrong_helper_of_three(files, tmp_path):
    session = Session(files, tmp_path, "spu-aby3")
    wrong_certificate(session, 2, "Helper")
    all_end(session, "accept")


@needs_spu
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_another_session_on_spu(files, tmp_path, engine):
    session = Session(files, tmp_path, engine)
    session.edit(1, 'name = "reviews"', 'name = "others"')
    all_end(session, "the parties do not agree: session.name differs")


@needs_spu
def test_another_engine_on_spu(files, tmp_path):
    """One waits for a helper of whom the other knows nothing."""
    session = Session(files, tmp_path, "spu-aby3")
    session.edit(0, 'engine = "spu-aby3"', 'engine = "spu-cheetah"')
    session.ranks = range(2)
    all_end(session, "session.engine: the model owner has 'spu-cheetah', the data own")


@needs_spu
def test_a_wrong_port_of_a_party_that_is_there(files, tmp_path):
    session = Session(files, tmp_path, "spu-aby3")
    session.edit(0, session.addresses[2], free_address())
    all_end(session, "though it reaches this party: its address, or where it listens")


@needs_spu
def test_a_port_of_another_party(files, tmp_path):
    session = Session(files, tmp_path, "spu-aby3")
    session.edit(0, session.addresses[2], session.addresses[1])
    all_end(session, "'Helper' at")


@needs_spu
def test_other_terms_on_spu(files, tmp_path):
    """Found by the handshake, behind the meeting: its answer must still arrive."""
    session = Session(files, tmp_path, "spu-cheetah", timeout=120.0)
    session.edit(1, "seed = 5", "seed = 6")
    all_end(session, "session.seed: the model owner has 5, the data owner 6")


def test_another_session_on_crypten(files, tmp_path):
    session = Session(files, tmp_path, "crypten")
    session.edit(2, 'name = "reviews"', 'name = "others"')
    all_end(session, "the parties do not agree: session.name differs")


def test_a_provider_that_one_leaves_out(files, tmp_path):
    session = Session(files, tmp_path, "crypten")
    options = ((), ("--test-only-first-party",), ())
    all_end(session, "--test-only-first-party: the model owner has False", options)


def test_a_role_that_is_played_twice_on_crypten(files, tmp_path):
    session = Session(files, tmp_path, "crypten")
    session.ranks = range(2)
    with running(session) as (_, first), contextlib.closing(session.start(1)) as second:
        until(
            lambda: {first.status, second.status} != {None},
            "one of them ends",
        )
        one, other = sorted((first, second), key=lambda role: role.status is None)
        assert one.wait()[0] == 1
        assert "another data owner is at tcp://127.0.0.1:" in one.last
        assert other.status is None  # and waits for the third party
