"""What is delivered is what was committed to, whatever the data owner sends."""

import dataclasses
import functools
import os
import secrets

import numpy as np
import pytest
from parties import needs_spu
from sessions import N, command, config_of, in_the_clear
from test_party import Run, config
from test_selection import pool, probe
from threads import ClearEngine

from mpc_bridge import Result, _delivery, _goods, run_selection
from mpc_bridge._goods import Goods, Offer, receive
from mpc_bridge._handshake import SessionError
from mpc_bridge._read_config import read_config
from mpc_bridge._toml import ConfigError

pytestmark = pytest.mark.mpc
__all__ = ["config", "pool", "probe"]
ROWS = np.array([2, 3, 11])
SALT, HASH = 32, 32


def arrays(n=12):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    return {"x": x, "y": np.arange(n), "text": np.array([f"row {i}" for i in range(n)])}


@functools.cache
def goods(session="sha256:a"):
    return Goods(arrays(), 12, b"k" * 32, session)


def sent(rows=ROWS, of=None):
    """Return all that a data owner sends, in one piece."""
    messages = []
    (of or goods()).send(rows, messages.append)
    return b"".join(messages)


def received(content, rows=ROWS, offer=None, piece=1 << 20):
    parts = iter([content[i : i + piece] for i in range(0, len(content), piece)])
    return receive(offer or goods().offer, rows, lambda: next(parts, b""))


def test_rows_arrive_as_they_were():
    found = received(sent())
    assert found.pop("pool_rows").tolist() == ROWS.tolist()
    assert {name: a.dtype for name, a in found.items()} == {
        name: a.dtype for name, a in arrays().items()
    }
    for name, array in arrays().items():
        np.testing.assert_array_equal(found[name], array[ROWS])


def test_large_deliveries_travel_in_pieces(monkeypatch):
    monkeypatch.setattr(_goods, "PIECE", 100)
    messages = []
    goods().send(ROWS, messages.append)
    assert {len(each) for each in messages[:-1]} == {100}
    assert received(b"".join(messages), piece=100)["y"].tolist() == ROWS.tolist()
    with pytest.raises(SessionError, match="a piece of 99"):
        received(b"".join(messages), piece=99)


@pytest.mark.every(4)
@pytest.mark.parametrize("at", range(0, 609, 23))
def test_no_bit_can_be_changed(at):
    content = bytearray(sent())
    content[at % len(content)] ^= 1 << at % 8
    with pytest.raises(SessionError, match="committed to before the choice"):
        received(bytes(content))


def row(content, i):
    size = goods().offer.row.itemsize
    start = 12 * HASH + i * size
    return content[start : start + size]


def swapped(content):
    first, second, third = (row(content, i) for i in range(3))
    return content[: 12 * HASH] + second + first + third


def repeated(content):
    return content[: 12 * HASH] + 3 * row(content, 0)


def unsalted(content):
    size = goods().offer.row.itemsize
    bare = bytes(SALT) + row(content, 0)[SALT:]
    return content[: 12 * HASH] + bare + content[12 * HASH + size :]


CHEATS = {
    "rows in another order": swapped,
    "one row again and again": repeated,
    "another salt": unsalted,
    "other rows": lambda _: sent(np.array([2, 3, 4])),
    "another pool": lambda _: sent(of=Goods(arrays(), 12, b"o" * 32, "sha256:a")),
    "those of another session": lambda _: sent(of=goods("sha256:b")),
    "one row fewer": lambda content: content[: -goods().offer.row.itemsize],
    "one row more": lambda content: content + row(content, 0),
    "nothing": lambda _: b"",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_other_delivery_is_taken(cheat):
    with pytest.raises(SessionError, match="committed to before|in pieces of"):
        received(CHEATS[cheat](sent()))


def test_rows_that_are_not_delivered_stay_secret():
    """Their hashes are salted: equal rows have different ones, in each session."""
    same = {"x": np.zeros((50, 2))}
    made = Goods(same, 50, secrets.token_bytes(32), "sha256:a")
    content = sent(np.array([7]), made)
    hashes = {content[i * HASH : (i + 1) * HASH] for i in range(50)}
    assert len(hashes) == 50
    assert len(content) == made.offer.size(1) == 50 * HASH + SALT + 16
    again = sent(np.array([7]), Goods(same, 50, made._key, "sha256:b"))
    assert not hashes & {again[i * HASH : (i + 1) * HASH] for i in range(50)}


def test_salts_of_delivered_rows_open_no_other():
    """The model owner guesses a row that it has not bought: it can't confirm that."""
    content = sent()
    salts = {row(content, i)[:SALT] for i in range(3)}
    assert len(salts) == 3
    guess = goods()._rows(np.array([5]))  # the right one
    for salt in salts:
        guess[":salt"] = np.frombuffer(salt, np.uint8)
        (made,) = _goods._row_hashes([5], guess)
        assert made != content[5 * HASH : 6 * HASH]


@pytest.mark.parametrize(
    "other", [{"x": np.zeros(4, np.int32)}, {"z": np.zeros(4, np.float32)}]
)
def test_names_and_types_are_committed_to(other):
    """The same bytes under another name or type are something else."""
    first, second = (
        Goods(each, 4, b"k" * 32, "a") for each in ({"x": np.zeros(4, "f4")}, other)
    )
    assert first._hashes == second._hashes
    assert first.offer.commitment != second.offer.commitment


def changed(**parts):
    return goods().offer.to_json() | parts


COLUMN = ["x", "<f4", [3]]
OFFERS = {
    "nothing": None,
    "a list": [],
    "no columns": {"commitment": "sha256:" + 64 * "0"},
    "no hash": changed(commitment="sha256:0"),
    "a number": changed(columns=3),
    "no array": changed(columns=[]),
    "65 arrays": changed(columns=[[f"x{i}", "<f4", []] for i in range(65)]),
    "one name twice": changed(columns=[COLUMN, COLUMN]),
    "a name that is a path": changed(columns=[["../x", "<f4", [3]]]),
    "the salt's name": changed(columns=[[":salt", "<f4", [3]]]),
    "the rows' name": changed(columns=[["pool_rows", "<f4", [3]]]),
    "objects": changed(columns=[["x", "|O", [3]]]),
    "a struct": changed(columns=[["x", "<f4,<f4", [3]]]),
    "2^62 numbers a row": changed(columns=[["x", "<f4", [2**31 - 1, 2**31 - 1]]]),
    "a negative size": changed(columns=[["x", "<f4", [-3]]]),
    "a size of 1.5": changed(columns=[["x", "<f4", [1.5]]]),
    "nine axes": changed(columns=[["x", "<f4", [1] * 9]]),
    "texts of 10^9 characters": changed(columns=[["x", "<U999999999", []]]),
    "many wide rows": changed(columns=[[f"x{i}", "<f4", [2**27]] for i in range(8)]),
}


@pytest.mark.parametrize("what", OFFERS)
def test_offers_are_checked_before_memory_is_taken(what):
    with pytest.raises(SessionError, match="offer to deliver can't be read"):
        Offer.from_json(OFFERS[what], 12)


def delivering(made, **changes):
    part = dataclasses.replace(made.data_owner, **changes)
    session = dataclasses.replace(made.session, deliver=True, engine="spu-cheetah")
    session = dataclasses.replace(session, rendezvous=None)
    return dataclasses.replace(made, session=session, data_owner=part)


@pytest.fixture
def files_of_rows(tmp_path):
    """What a data owner delivers beside what was scored: photographs and labels."""
    rng = np.random.default_rng(1)
    photos = rng.integers(0, 255, (N, 4, 4, 3)).astype(np.uint8)
    np.save(tmp_path / "photos.npy", photos)
    np.savez(tmp_path / "labels.npz", label=np.arange(N), text=["abc"] * N)
    return tmp_path / "photos.npy", tmp_path / "labels.npz"


def delivered(made):
    path = made.model_owner.output / "delivered.npz"
    assert path.stat().st_mode & 0o777 == 0o600
    with np.load(path) as file:
        return dict(file)


def test_a_run_delivers_what_it_has_chosen(files, config, files_of_rows):
    made = delivering(config(), deliver=files_of_rows)
    first, second = Run(made, made).results
    rows, _ = in_the_clear(files)
    found = delivered(made)
    assert set(found) == {"pool_rows", "photos", "label", "text"}
    assert found["pool_rows"].tolist() == list(first.rows) == rows.tolist()
    assert found["label"].tolist() == rows.tolist()
    np.testing.assert_array_equal(found["photos"], np.load(files_of_rows[0])[rows])
    assert first.terms == second.terms
    assert first.terms["delivery"].startswith("sha256:")
    step = next(step for step in first.steps if step.phase == "delivery")
    assert (step.place, step.name) == ("delivery", "rows")


def test_what_the_last_phase_reads_is_delivered_by_default(files, config):
    made = delivering(config())
    Run(made, made)
    rows, _ = in_the_clear(files)
    found = delivered(made)
    assert set(found) == {"pool_rows", "x"}
    np.testing.assert_array_equal(found["x"], np.load(files / "x1.npy")[rows])


def test_both_must_agree_to_deliver(config):
    made = delivering(config())
    other = dataclasses.replace(
        made, session=dataclasses.replace(made.session, deliver=False)
    )
    for result in Run(made, other).results:
        assert isinstance(result, SessionError)
        assert "delivery: the model owner has 'the chosen rows', the data" in str(
            result
        )


def test_a_delivery_must_fit_the_memory_of_both(config):
    made = delivering(config())
    few = dataclasses.replace(made.model_owner, memory=1000)
    for result in Run(dataclasses.replace(made, model_owner=few), made).results:
        assert isinstance(result, SessionError)
        text = str(result)
        assert (
            "takes 2284 bytes: the memory of the model owner must be as large" in text
        )


def cheating(monkeypatch, cheat):
    """Let the data owner send something else than its rows."""
    send = Goods.send

    def other(self, rows, put):
        messages = []
        send(self, rows, messages.append)
        put(cheat(b"".join(messages)))

    monkeypatch.setattr(Goods, "send", other)


def test_a_cheat_ends_the_run_of_both_and_leaves_no_file(config, monkeypatch):
    def cheat(content):
        return content[:-1] + bytes([content[-1] ^ 1])

    cheating(monkeypatch, cheat)
    made = delivering(config())
    one, other = Run(made, made).results
    assert "is not what it committed to before the choice" in str(one)
    assert str(other).startswith("the model owner stopped: what the data owner deliver")
    for part in (made.model_owner, made.data_owner):
        names = sorted(path.name for path in part.output.iterdir())
        assert names == ["openings.jsonl", "unfinished"]


def test_a_file_that_changes_during_a_run_is_not_delivered(
    config, files_of_rows, monkeypatch
):
    made = delivering(config(), deliver=files_of_rows[:1])
    send = Goods.send

    def later(self, rows, put):
        photos = np.load(files_of_rows[0])
        photos[rows[1]] += 1
        with files_of_rows[0].open("r+b") as file:
            file.seek(-photos.nbytes, os.SEEK_END)
            file.write(photos.tobytes())
        send(self, rows, put)

    monkeypatch.setattr(Goods, "send", later)
    one, other = Run(made, made).results
    assert "of data_owner.deliver has changed since the session began" in str(other)
    assert "the data owner delivers nothing" in str(one)


def test_a_full_disk_is_named_to_both(config, monkeypatch):
    def full(path, fill):
        raise OSError(28, "No space left on device", str(path))

    made = delivering(config())
    monkeypatch.setattr(_delivery, "_key", lambda path: b"k" * 32)
    monkeypatch.setattr(_delivery, "write_private", full)
    one, other = Run(made, made).results
    assert "delivered.npz: No space left on device" in str(one)
    words = "the model owner stopped: it can't write the rows that were delivered"
    assert str(other) == words


def test_a_run_that_is_cut_in_the_delivery_resumes(files, config, monkeypatch):
    made = delivering(config())

    def cut(self, rows, put):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Goods, "send", cut)
        patch.setattr(ClearEngine, "receive", cut_off)
        Run(made, made)
    run = Run(made, made)
    rows, _ = in_the_clear(files)
    assert delivered(made)["pool_rows"].tolist() == rows.tolist()
    kinds = [kind for kind, _ in run.engines[0].log]
    assert "reveal" not in kinds  # nothing was chosen again


def test_other_rows_after_a_cut_are_another_run(config, files_of_rows, monkeypatch):
    """A data owner that has seen the choice commits to other rows: refused."""
    made = delivering(config(), deliver=files_of_rows[:1])
    with monkeypatch.context() as patch:
        patch.setattr(Goods, "send", lambda *_: cut_off(None, 0))
        patch.setattr(ClearEngine, "receive", cut_off)
        Run(made, made)
    np.save(files_of_rows[0], np.load(files_of_rows[0]) + 1)
    for error in Run(made, made).results:
        assert "limits.sessions must be at least 2 for another answer" in str(error)
    assert not (made.model_owner.output / "delivered.npz").exists()


def cut_off(self, rank):
    raise RuntimeError("the other one is gone")


def test_a_helper_gets_nothing(files, config, tmp_path):
    from mpc_bridge._config import ThirdParty

    class Three(ClearEngine):
        roles, parties = (0, 1, 2), 3

    made = delivering(config(leak="set"))
    third = ThirdParty(output=tmp_path / "third")
    made = dataclasses.replace(made, third_party=third)
    run = Run(made, made, made, engine=Three)
    assert delivered(made)["x"].shape == (7, 5)
    marks = np.load(files / "x1.npy")[list(run.results[0].rows)].tobytes()[:16]
    heard = [m for kind, m in run.engines[2].log if kind == "exchange"]
    assert not any(marks in message for message in heard)
    names = sorted(path.name for path in third.output.iterdir())
    assert names == ["openings.jsonl", "result.json"]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((N - 1, 2))}, f"a row for each of the {N} samples, got 'x'"),
        ({"x": np.zeros(())}, "a row for each"),
        ({"pool_rows": np.zeros(N)}, "must hold named arrays .* name 'pool_rows'"),
        ({"a b": np.zeros(N)}, "must hold named arrays .* name 'a b'"),
        ({"x": np.zeros((N, 0))}, "must hold named arrays .* shape"),
        ({"x": np.zeros(N, "datetime64[s]")}, "must hold named arrays .* dtype '<M8"),
    ],
)
def test_files_that_do_not_fit_are_refused(config, tmp_path, arrays, words):
    np.savez(tmp_path / "rows.npz", **arrays)
    made = delivering(config(), deliver=(tmp_path / "rows.npz",))
    _, refused = Run(made, made).results
    assert str(refused).startswith("data_owner.deliver must")
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(str(refused))


def test_an_array_that_two_files_have_is_refused(config, tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.zeros(N))
    np.save(tmp_path / "x.npy", np.zeros(N))
    made = delivering(config(), deliver=(tmp_path / "rows.npz", tmp_path / "x.npy"))
    _, refused = Run(made, made).results
    assert "must name each array once, got 'x' twice" in str(refused)


def test_the_option_is_read_written_and_checked(files, tmp_path):
    made = delivering(config_of(files, ""), deliver=(tmp_path / "a.npy",))
    made.write(tmp_path / "run.toml")
    assert read_config(tmp_path / "run.toml") == made
    text = (tmp_path / "run.toml").read_text()
    (tmp_path / "run.toml").write_text(text.replace("a.npy", "a.csv"))
    with pytest.raises(ConfigError, match="deliver must be a file ending in .npy or"):
        read_config(tmp_path / "run.toml")
    text = text.replace("spu-cheetah", "published")
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(ConfigError, match="only SPU's parties have a wire with TLS"):
        read_config(tmp_path / "run.toml")


def test_an_estimate_has_the_size(files, capsys, tmp_path):
    made = delivering(config_of(files, "estimate"))
    made.write(tmp_path / "run.toml")
    assert command("estimate", "--config", tmp_path / "run.toml", "--no-attack") == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("delivery of 7 rows"))
    size = N * HASH + 7 * (SALT + 5 * 4)
    assert float(line.split()[-1]) == pytest.approx(size / 1e6, rel=0.01)


@needs_spu
@pytest.mark.slow
@pytest.mark.multihost
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_a_selection_is_delivered_over_tls(pool, probe, tmp_path, engine):
    labels = np.arange(len(pool))
    chosen = run_selection(
        probe,
        pool,
        engine=engine,
        output=tmp_path,
        deliver={"label": labels, "photo": np.zeros((len(pool), 500, 500), np.uint8)},
        measure=False,
        notice=False,
    )
    with np.load(tmp_path / "model-owner" / "delivered.npz") as file:
        rows = file["pool_rows"].tolist()
        assert [*probe.published.bootstrap, *rows] == chosen.indices.tolist()
        assert file["label"].tolist() == rows
        assert file["photo"].shape == (len(rows), 500, 500)  # in several messages
    results = [Result.read(tmp_path / f"{owner}-owner") for owner in ("model", "data")]
    first, second = (result.total("delivery") for result in results)
    assert second.sent > 250_000 * len(rows) > 100 * first.sent


def test_a_selection_needs_a_folder_for_what_is_delivered(probe, pool):
    with pytest.raises(ValueError, match="output must be given with deliver"):
        run_selection(probe, pool, deliver=True)
