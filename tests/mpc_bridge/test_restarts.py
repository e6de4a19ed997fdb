"""One question has one answer, however often a party is cut and begins again."""

import dataclasses
import json
import threading

import numpy as np
import pytest
from sessions import config_of
from test_party import Run
from threads import ClearEngine

from mpc_bridge import _private
from mpc_bridge._handshake import Refused, SessionError
from mpc_bridge._journal import FOLDER
from mpc_bridge._limits import Limits
from mpc_bridge._record import FILE, Record, Start
from mpc_bridge._result import Result

pytestmark = pytest.mark.mpc


class KilledError(BaseException):
    """Stands for the end of a process: nothing of the product catches it."""


def cut_engine(rank, kind, number):
    """Return an engine that ends one party before its n-th action of a kind."""

    class Cut(ClearEngine):
        def reveal(self, secret):
            self._end("reveal")
            return super().reveal(secret)

        def exchange(self, message):
            self._end("exchange")
            return super().exchange(message)

        def share(self, *args):
            self._end("share")
            return super().share(*args)

        def run(self, *args):
            self._end("run")
            return super().run(*args)

        def _end(self, done):
            before = [name for name, _ in self.log if name == done]
            if self.rank == rank and done == kind and len(before) == number:
                raise KilledError

    return Cut


@pytest.fixture
def parties(files, tmp_path):
    """Configurations of both parties, with outputs in folders of this test."""

    def make(pool=None, limits=None, **changes):
        limits, made = limits or Limits(), config_of(files, "", **changes)
        owner = made.data_owner
        if pool is not None:
            inputs = (dataclasses.replace(owner.inputs[0], x=pool), owner.inputs[1])
            owner = dataclasses.replace(owner, inputs=inputs)
        model = dataclasses.replace(
            made.model_owner, output=tmp_path / "model", limits=limits
        )
        owner = dataclasses.replace(owner, output=tmp_path / "data", limits=limits)
        return dataclasses.replace(made, model_owner=model, data_owner=owner)

    return make


@pytest.fixture
def other_pool(files, tmp_path):
    """Samples of the first phase in another order."""
    x = np.load(files / "x0.npy")
    np.save(tmp_path / "other.npy", x[::-1])
    return tmp_path / "other.npy"


def cut(config, rank=1, kind="exchange", number=1, other=None):
    """Run until a party is ended; by default after the last opening."""
    run = Run(config, other or config, engine=cut_engine(rank, kind, number))
    assert isinstance(run.results[rank], KilledError), run.results
    return run


def opened(result):
    return {(each.phase, each.kind): each.values for each in result.openings}


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """A run that nobody cuts."""
    made, folder = config_of(files, ""), tmp_path_factory.mktemp("whole")
    parts = {
        name: dataclasses.replace(getattr(made, name), output=folder / name)
        for name in ("model_owner", "data_owner")
    }
    config = dataclasses.replace(made, **parts)
    return Run(config, config)


def resumes(parties, tmp_path, whole):
    """Check that a plain run after a cut leaves what an uncut one does."""
    results = [Result.read(tmp_path / name) for name in ("model", "data")]
    for result in results:
        assert result.rows == whole.results[0].rows
        assert result.openings == whole.results[0].openings
    for name in ("model", "data"):
        left = sorted(path.name for path in (tmp_path / name).iterdir())
        assert left == [FILE, "result.json"]
    return results


KINDS = {"run": (0, 2, 4, 5, 6, 7), "reveal": range(6), "exchange": (1, 2)}
POINTS = [
    (rank, kind, number)
    for rank in (0, 1)
    for kind, numbers in (
        ("run", (0, 2, 4, 5, 6, 7)),
        ("reveal", range(6)),
        ("exchange", (1, 2)),
    )
    for number in numbers
]


@pytest.mark.every(6)
@pytest.mark.parametrize(("rank", "kind", "number"), POINTS)
def test_a_party_that_is_cut_anywhere_goes_on(
    parties, tmp_path, whole, rank, kind, number
):
    cut(parties(), rank, kind, number)
    again = Run(parties(), parties())
    assert not any(isinstance(each, BaseException) for each in again.results)
    found = resumes(parties, tmp_path, whole)
    repeated = sum(each.values for each in found[rank].discarded)
    assert repeated == 0 if kind != "reveal" else repeated > 0


@pytest.mark.every(5)
@pytest.mark.parametrize("number", range(40))
@pytest.mark.parametrize("rank", [0, 1])
def test_a_crash_before_any_write_to_disk_goes_on(
    parties, tmp_path, whole, rank, number, monkeypatch
):
    """The n-th time that one party has something on disk is its end."""
    count, fsync = [0], _private.os.fsync

    def crash(handle):
        if threading.current_thread().name == f"party {rank}":
            count[0] += 1
            if count[0] == number + 1:
                raise KilledError
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(_private.os, "fsync", crash)
        Run(parties(), parties())
    again = Run(parties(), parties())
    assert not any(isinstance(each, BaseException) for each in again.results), (
        again.results
    )
    resumes(parties, tmp_path, whole)


def test_another_pool_after_the_last_opening_is_no_second_answer(
    parties, tmp_path, other_pool
):
    cut(parties())
    before = Record(tmp_path / "model").opened
    assert before > 60
    again = Run(parties(), parties(other_pool))
    model, data = again.results
    assert (
        "limits.sessions must be at least 2 for another answer, got 1: the data "
        in (str(model))
    )
    assert "commits to other samples than before" in str(model)
    assert "--limit sessions=2 goes on" in str(model)
    assert isinstance(model, Refused)
    # The one with the other pool has opened as much, and refuses as well.
    assert "limits.sessions must be at least 2" in str(data)
    assert [kind for kind, _ in again.engines[0].log].count("reveal") == 0
    # Nothing of the first run is lost: with its pool it goes on.
    same = Run(parties(), parties())
    assert same.results[0].rows == same.results[1].rows
    assert same.results[0].discarded == ()


def test_a_second_answer_that_is_allowed_is_told(parties, tmp_path, other_pool, capsys):
    first = cut(parties())
    before = Record(tmp_path / "model").opened
    two = parties(limits=Limits(sessions=2))
    owner = dataclasses.replace(
        two.data_owner, inputs=parties(other_pool).data_owner.inputs
    )
    again = Run(two, dataclasses.replace(two, data_owner=owner))
    model, data = again.results
    for result in (model, data):
        assert sum(each.values for each in result.discarded) == before
        assert f"{before} values were opened before, and count" in result.warnings[-1]
        assert "Another answer" in result.warnings[-1]
    assert "model-owner: WARNING: Another answer: the data owner commits" in (
        capsys.readouterr().err
    )
    assert model.openings == data.openings
    assert first.results[0] is not model


def test_a_party_that_lost_what_it_had_is_noticed(parties, tmp_path):
    import shutil

    cut(parties())
    shutil.rmtree(tmp_path / "data" / FOLDER)
    model, data = Run(parties(), parties()).results
    for result in (model, data):
        assert "limits.sessions must be at least 2" in str(result)
        assert "a party has kept 0 steps" in str(result)
    shutil.rmtree(tmp_path / "data")  # and its own record of it
    model, data = Run(parties(), parties()).results
    assert "has lost its output folder" in str(model)
    assert "the model owner stopped: limits.sessions" in str(data)


def test_before_anything_is_opened_a_party_may_begin_anew(
    parties, tmp_path, whole, other_pool, capsys
):
    cut(parties(), kind="share", number=4)
    assert Record(tmp_path / "model").opened == 0
    cut(parties(), kind="share", number=4, other=parties(other_pool))
    assert "data-owner: starting anew, because the run that was cut had another " in (
        capsys.readouterr().err
    )
    again = Run(parties(), parties())
    assert again.results[0].rows == whole.results[0].rows
    assert again.results[0].discarded == ()


def test_a_step_is_opened_again_so_often_only(parties, tmp_path):
    for _ in range(4):
        cut(parties(), kind="reveal", number=0)
    model, data = Run(parties(), parties()).results
    for result in (model, data):
        assert "limits.reopenings must be at least 4 to open a step again" in str(
            result
        )
        assert "got 3" in str(result)
    more = parties(limits=Limits(reopenings=4))
    model, _ = Run(more, more).results
    first = model.openings[0].values
    assert first > sum(each.values for each in model.discarded) > 4


def test_a_step_that_opens_as_something_else_is_refused(parties, tmp_path):
    """One party has seen the outcome, the other claims that it was cut before."""
    cut(parties(), kind="reveal", number=1)
    kept = sorted((tmp_path / "data" / FOLDER).glob("*.entry"))
    kept[-1].unlink()  # the first opening, as if it had not been written

    class Other(ClearEngine):
        def reveal(self, secret):
            return ~super().reveal(secret)

    model, data = Run(parties(), parties(), engine=Other).results
    assert "is not what was opened now" in str(model)
    assert "gone" in str(data)
    # The honest end of the same story: the outcome is the same, and all go on.
    kept[-1].unlink()
    model, data = Run(parties(), parties()).results
    assert model.rows == data.rows


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(openings=30), "limits.openings must be at least 56 values, got 30"),
        (
            Limits(rows=31),
            "limits.rows must be at least the 32 rows that the phases leave, got 31",
        ),
    ],
)
def test_a_limit_names_both_numbers(parties, tmp_path, limits, message):
    found = Run(parties(), parties(limits=limits))
    assert message in str(found.results[1])
    # Nothing was opened: the other party waits for what does not come.
    assert str(found.results[0]) == "party 1 is gone"
    assert Record(tmp_path / "data").opened == 0


def test_a_finished_session_is_one(parties, tmp_path):
    whole = Run(parties(), parties())
    for name in ("model", "data"):
        (tmp_path / name / "result.json").unlink()
    model, _ = Run(parties(), parties()).results
    assert "got 1: all parties have the last session's result" in str(model)
    two = parties(limits=Limits(sessions=2, rows=64))
    again = Run(two, two)
    assert again.results[0].rows == whole.results[0].rows
    assert opened(again.results[0]) == {
        (each.phase, each.kind): each.values for each in again.results[0].discarded
    }


START = Start(work="w", common=0, kept=0, commitments=("a", "b"), rows=3)


def test_a_commitment_hides_and_binds(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = Record(tmp_path / "one"), Record(tmp_path / "two")
    made = one.commitment("session", "content")
    assert made == Record(tmp_path / "one").commitment("session", "content")
    others = [
        one.commitment("session", "content2"),
        one.commitment("session2", "content"),
        one.commitment("sessionc", "ontent"),
        two.commitment("session", "content"),
    ]
    assert len({made, *others}) == 5
    assert (tmp_path / "one" / FILE).stat().st_mode & 0o777 == 0o600


def test_a_record_that_a_crash_cut_is_whole_again(tmp_path):
    record = Record(tmp_path)
    record.start(None, START, Limits(), asked=False)
    record.note(4, ("pivot", "phase 1", 9), 100)
    path = tmp_path / FILE
    content = path.read_bytes()
    path.write_bytes(content + b'{"open": [5, "piv')
    assert Record(tmp_path).opened == 9
    assert path.read_bytes() == content
    path.write_bytes(content.replace(b'"open"', b'"oqen"'))
    with pytest.raises(Refused, match="record of openings in output must be whole"):
        Record(tmp_path)
    path.write_bytes(content)
    path.chmod(0o640)
    with pytest.raises(Refused, match="readable by their owner alone"):
        Record(tmp_path)


def test_what_is_about_to_be_opened_is_on_disk_before(parties, tmp_path):
    seen = []

    class Watched(ClearEngine):
        def reveal(self, secret):
            if self.rank == 1:
                lines = (tmp_path / "data" / FILE).read_text().splitlines()
                seen.append((json.loads(lines[-1]), secret.numel()))
            return super().reveal(secret)

    Run(parties(), parties(), engine=Watched)
    assert seen
    assert all(0 < line["open"][3] <= size for line, size in seen)


def test_an_entry_of_a_party_that_commits_to_others_is_no_common_one(tmp_path):
    record = Record(tmp_path)
    record.start(None, START, Limits(), asked=False)
    record.note(4, ("pivot", "phase 1", 9), 100)
    other = dataclasses.replace(START, commitments=("a", "c"), common=5)
    with pytest.raises(
        SessionError, match="other samples than before, and goes on aft"
    ):
        record.decide(other, Limits(sessions=9))
