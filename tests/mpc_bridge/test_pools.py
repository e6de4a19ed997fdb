"""Pools of a data owner's sessions: digests at home, and warnings of near ones."""

import os
import stat

import numpy as np
import pytest
from sessions import config_of

from mpc_bridge import _private
from mpc_bridge._config import DataOwner
from mpc_bridge._handshake import Refused, SessionError
from mpc_bridge._pools import Pools

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3)).astype(np.float32)


def reader(x, mask=None):
    return lambda part: (x[part], None if mask is None else mask[part])


@pytest.fixture
def pools(tmp_path):
    """A folder that remembers a pool of session "first"."""
    made = Pools(tmp_path / "pools")
    made.remember(made.digests(reader(X), 50), name="first", session="sha256:one")
    return made


def warned(pools, x, *, few=10, session="sha256:two", resumed=False):
    digests = pools.digests(reader(x), len(x))
    return pools.warnings(digests, few=few, session=session, resumed=resumed)


def test_a_near_pool_is_warned_of(pools, tmp_path):
    again = Pools(tmp_path / "pools")  # another process, the same key
    (said,) = warned(again, X[1:])
    assert said.startswith("Of session 'first': this pool differs from an earlier one")
    assert "by 1 row:" in said
    assert warned(again, X[10:]) == ()
    assert "by 10 rows" in warned(again, X[10:], few=11)[0]
    assert "is an earlier one again" in warned(again, X)[0]
    assert warned(again, RNG.normal(size=X.shape).astype(np.float32)) == ()


def test_a_session_that_goes_on_is_no_other_one(pools):
    assert warned(pools, X, session="sha256:one", resumed=True) == ()
    assert len(warned(pools, X, session="sha256:one")) == 1
    assert len(warned(pools, X, session="sha256:two", resumed=True)) == 1


def test_digests_are_the_owners_alone(pools, tmp_path):
    folder = tmp_path / "pools"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = sorted(folder.iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    # Under another key the same rows have other digests.
    other = Pools(tmp_path / "other")
    assert not set(other.digests(reader(X), 50)) & set(pools.digests(reader(X), 50))
    folder.chmod(0o750)
    with pytest.raises(Refused, match="must be readable by its owner alone"):
        Pools(folder)


def test_a_folder_that_is_none(pools, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="data_owner.pools must be a folder") as raised:
        Pools(tmp_path / "file")
    assert str(tmp_path) not in raised.value.rule
    for damage in (b"text", b"PK\x03\x04 and no more", b""):
        (tmp_path / "pools" / "bad.npz").write_bytes(damage)
        with pytest.raises(Refused, match=r"must hold whole digests: .*bad.npz"):
            warned(pools, X)
    (tmp_path / "pools" / "key").write_bytes(b"short")
    with pytest.raises(Refused, match="a key of 32 bytes"):
        Pools(tmp_path / "pools")


def test_a_full_disk_leaves_earlier_digests_whole(pools, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, os.strerror(28))

    other = pools.digests(reader(X[5:]), 45)
    with monkeypatch.context() as patch:
        patch.setattr(_private.os, "fsync", full)
        with pytest.raises(SessionError, match=r"npz can't be written: No space left"):
            pools.remember(other, name="second", session="sha256:two")
    assert len(list((tmp_path / "pools").iterdir())) == 2
    assert "'first'" in warned(pools, X[1:])[0]


def test_masks_and_pieces(tmp_path, monkeypatch):
    from mpc_bridge import _pools

    made, mask = Pools(tmp_path / "pools"), RNG.random((50, 3)) < 0.5
    whole = made.digests(reader(X, mask), 50)
    monkeypatch.setattr(_pools, "_ROWS", 7)
    np.testing.assert_array_equal(made.digests(reader(X, mask), 50), whole)
    assert (made.digests(reader(X), 50) != whole).all()


@pytest.mark.mpc
def test_a_data_owner_is_told_before_anything_is_shared(files, tmp_path, capsys):
    """The party's own preparation, without a session."""
    from mpc_bridge._party import Party
    from mpc_bridge.engines import DATA_OWNER, engine_of

    made = config_of(files, "near")

    def prepared(name, excluded):
        part = DataOwner(
            inputs=made.data_owner.inputs,
            output=tmp_path / name,
            pools=tmp_path / "pools",
            few_rows=2,
        )
        import dataclasses

        session = dataclasses.replace(made.session, name=name, exclude=excluded)
        config = dataclasses.replace(made, session=session, data_owner=part)
        party = Party(
            "data-owner",
            DATA_OWNER,
            engine_of("crypten"),
            config,
            force=False,
            progress=False,
        )
        party.prepare()
        return party

    first = prepared("first", (3, 17, 50))
    assert not [said for said in first.warnings if "session" in said]
    first.pools.remember(first.digests, name="first", session=first.journal.session)
    first.close()
    capsys.readouterr()
    second = prepared("second", (3, 17))
    (said,) = (said for said in second.warnings if "session 'first'" in said)
    assert "by 1 row:" in said
    assert f"data-owner: WARNING: {said}" in capsys.readouterr().err
    second.close()
    third = prepared("third", (3,))
    assert not [said for said in third.warnings if "session" in said]
    third.close()
