"""`jaxsel market rank` among liars: nobody gains a place by what it does not have."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

from jaxsel.market import Answer, Request, _network, answer, make_request
from jaxsel.market._scale import Scale

BUDGET = 12
RANK = ["market", "rank", "request.npz", "held.npz"]
QUICK = ["--seeds", "2", "--steps", "60", "--train", "train.npz", "--force"]


class Scene:
    """A trainer that lacks class 0, two honest owners, and one with little to offer."""

    def __init__(self, seed=0, dtype=np.float32):
        self.rng = np.random.default_rng(seed)
        self.centres = 1.5 * self.rng.normal(size=(3, 6))
        self.dtype = dtype
        self.train = self.draw(1, 60, 60)
        held, shown = self.draw(40, 0, 0), self.draw(20, 0, 0)
        self.request = make_request(*shown, budget=BUDGET, classes=[0, 1, 2])
        self.request.save("request.npz")
        np.savez("held.npz", x=held[0], y=held[1])
        np.savez("train.npz", x=self.train[0], y=self.train[1])
        self.mine = self.draw(4, 40, 40)
        for name, counts in (("north", (80, 40, 40)), ("east", (20, 60, 60))):
            answer(self.request, *self.draw(*counts), owner=name).save(name)
        self.honest = answer(self.request, *self.mine, owner="me")

    def draw(self, *counts):
        y = np.repeat(np.arange(3), counts)
        x = self.centres[y] + self.rng.normal(size=(len(y), 6))
        return x.astype(self.dtype), y

    def lie(self, x, y):
        return Answer(
            request_id=self.request.id,
            owner="me",
            method="retrieve",
            status="complete" if len(y) == BUDGET else "short",
            weights=np.ones(len(y), np.float32),
            x=np.asarray(x, self.dtype),
            y=np.asarray(y),
        )

    def rank(self, mine, *options):
        """Rank it with the two honest owners, and return what was written."""
        mine.save("me.npz")
        files = ["north.npz", "east.npz", "me.npz"]
        run(*RANK, *files, *QUICK, "--out", "r.json", *options)
        return json.loads(Path("r.json").read_text())

    def place(self, mine, *options):
        """Its place; the one after the last if it is refused."""
        rows = self.rank(mine, *options)["ranking"]
        return next((row["place"] for row in rows if row["owner"] == "me"), 4)


def echo(scene):
    return scene.request.x[:BUDGET], scene.request.y[:BUDGET]


def noisy_echo(scene):
    x, y = echo(scene)
    return x + 0.01 * scene.rng.normal(size=x.shape), y


def flipped_echo(scene):
    x, y = echo(scene)
    return x, (y + 1) % 3


def half_echo(scene):
    x, y = echo(scene)
    half = BUDGET // 2
    honest = scene.mine[0][half:BUDGET], scene.mine[1][half:BUDGET]
    return np.concatenate([x[:half], honest[0]]), np.concatenate([y[:half], honest[1]])


def repeated(scene):
    return np.repeat(scene.mine[0][:1], BUDGET, axis=0), np.zeros(BUDGET, int)


def repeated_echo(scene):
    return np.repeat(scene.request.x[:1], BUDGET, axis=0), np.zeros(BUDGET, int)


def poison(scene):
    rows = scene.mine[0][:BUDGET].astype(np.float64)
    return np.where(rows > 0, 1e38, -1e38), np.zeros(BUDGET, int)


def far_poison(scene):
    return scene.mine[0][:BUDGET] + 200, np.zeros(BUDGET, int)


def one_poisoned(scene):
    x = scene.mine[0][:BUDGET].copy()
    x[3, 2] = 3e38
    return x, scene.mine[1][:BUDGET]


ATTACKS = [echo, noisy_echo, flipped_echo, half_echo, repeated, repeated_echo]
ATTACKS += [poison, far_poison, one_poisoned]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.left_out
@pytest.mark.parametrize("seed", range(4))
def test_a_liar_never_gains_a_place_over_its_honest_self(seed):
    """Whether or not the trainer learns from what it has shown."""
    options = ["--seeds", "1", *(["--without-shown"] if seed % 2 else [])]
    scene = Scene(seed)
    honest = scene.place(scene.honest, *options)
    for attack in ATTACKS:
        lie = scene.lie(*attack(scene))
        assert scene.place(lie, *options) >= honest, attack.__name__


@pytest.mark.left_out
def test_liars_are_refused_by_name_and_others_ranked(capsys):
    scene = Scene()
    found = scene.rank(scene.lie(*echo(scene)))
    assert [item["file"] for item in found["refused"]] == ["me.npz"]
    assert "12 are copies of what the trainer showed" in found["refused"][0]["reason"]
    assert "jaxsel: me.npz is refused: x must hold samples of the owner's own" in (
        capsys.readouterr().err
    )
    assert {row["owner"] for row in found["ranking"]} == {"north", "east"}
    # Far beyond float32, where the scaled numbers are infinite.
    scene = Scene(dtype=np.float64)
    x, y = scene.mine[0][:BUDGET].copy(), scene.mine[1][:BUDGET]
    x[7] = 1e300
    found = scene.rank(scene.lie(x, y))
    assert "row 7 has 1e+300" in found["refused"][0]["reason"]
    assert "in column 0" in found["refused"][0]["reason"]
    assert {row["owner"] for row in found["ranking"]} == {"north", "east"}
    found = scene.rank(scene.lie(x, y), "--reach", "1e305")
    assert "in standard deviations of TRAIN, must be" in found["refused"][0]["reason"]
    assert len(found["ranking"]) == 2


@pytest.mark.left_out
def test_single_copies_are_left_out_and_said(capsys):
    scene = Scene()
    x, y = scene.mine[0][:BUDGET].copy(), scene.mine[1][:BUDGET]
    x[2] = scene.request.x[5]
    found = scene.rank(scene.lie(x, y))
    (row,) = [row for row in found["ranking"] if row["owner"] == "me"]
    assert row["samples"] == BUDGET - 1
    said = "me.npz: 1 of 12 samples sent were copies, and left out"
    assert found["warnings"] == [said]
    assert f"jaxsel: warning: {said}\n" in capsys.readouterr().err


@pytest.mark.left_out
def test_the_shown_samples_are_in_the_baseline(monkeypatch):
    rows = []
    fit = _network.fit
    monkeypatch.setattr(
        _network,
        "fit",
        lambda graphdef, params, x, y, **options: (
            rows.append((np.asarray(x), np.asarray(y)))
            or fit(graphdef, params, x, y, **options)
        ),
    )
    scene = Scene()
    found = scene.rank(scene.honest)
    assert found["shown"] == 20
    scale = Scale.of(scene.train[0])
    both = np.concatenate([scene.train[0], scene.request.x])
    for x, y in rows:
        np.testing.assert_array_equal(x[:141], scale(both))
        np.testing.assert_array_equal(y[:141], [*scene.train[1], *scene.request.y])
    assert {len(x) for x, _ in rows[:4]} == {141}
    rows.clear()
    assert scene.rank(scene.honest, "--without-shown")["shown"] == 0
    assert {len(x) for x, _ in rows[:4]} == {121}


def test_samples_held_out_that_were_shown(capsys):
    """They are scored, so the trainer does not learn from them."""
    scene = Scene()
    held = np.load("held.npz")
    x = np.concatenate([held["x"][:30], scene.request.x[:5]])
    np.savez("held.npz", x=x, y=np.zeros(35, int))
    found = scene.rank(scene.honest)
    assert found["shown"] == 15
    assert found["warnings"] == [
        "5 of 20 samples shown to owners are in HELD_OUT: scores favour what "
        "resembles them, and they are not trained on"
    ]
    assert "jaxsel: warning: 5 of 20" in capsys.readouterr().err


def test_outputs_that_are_not_finite_score_nothing(monkeypatch, capsys):
    """The argmax of NaN is 0, which all hard samples are."""
    scene = Scene()
    logits = _network.logits
    calls = []

    def broken(*arguments):
        calls.append(1)
        scores = np.array(logits(*arguments))
        if len(calls) > 2:
            scores[:10] = np.nan
        return scores

    monkeypatch.setattr(_network, "logits", broken)
    found = scene.rank(scene.honest, "--retrain")
    assert all(row["score"] <= 0.75 for row in found["ranking"])
    assert any(
        said == "with 'me', the network's outputs are not finite for 20 of 80 samples, "
        "which count as wrong"
        for said in found["warnings"]
    )
    assert "not finite for 20 of 80" in capsys.readouterr().err


@pytest.mark.left_out
def test_columns_are_aligned_by_name(capsys):
    """TRAIN's and HELD_OUT's as DATA's; the baseline is the same in every order."""
    rng = np.random.default_rng(1)
    names = ["age", "dose", "height", "pulse", "steps", "weight"]
    centres = rng.normal(size=(3, 6)) * [1, 5, 10, 10, 1000, 20]
    label = ["--label-column", "kind"]

    def table(name, *counts):
        y = np.repeat(np.arange(3), counts)
        x = centres[y] + rng.normal(size=(len(y), 6)) + [40, 0, 170, 70, 8000, 70]
        frame = pd.DataFrame(x, columns=names).assign(kind=y)
        frame.to_csv(f"{name}.csv", index=False)
        return frame

    table("val", 0, 0, 20)
    frames = {name: table(name, 40, 40, 5) for name in ("train", "held")}
    table("own", 20, 20, 20)
    request = ["market", "request", "val.csv", *label, "--budget", 8]
    run(*request, "--out", "request.npz")
    reply = ["market", "answer", "request.npz", "own.csv", *label, "--owner", "north"]
    run(*reply, "--out", "north.npz")
    rank = ["market", "rank", "request.npz", "held.csv", "north.npz", *label]
    rank += ["--train", "train.csv", "--seeds", 1, "--steps", 60, "--force"]
    results = []
    for shuffled in ("", "train", "held"):
        for name, frame in frames.items():
            order = names[::-1] if name == shuffled else names
            frame[[*order, "kind"]].to_csv(f"{name}.csv", index=False)
        run(*rank, "--out", "r.json")
        found = json.loads(Path("r.json").read_text())
        results.append((found["without"], found["ranking"][0]["score"]))
    assert results[0] == results[1] == results[2]
    assert min(results[0][0]) > 0.8
    for name, frame in frames.items():
        other = frame.rename(columns={"dose": "dosis"})
        other.to_csv(f"{name}.csv", index=False)
        error = refuse(capsys, *rank, "--out", "none.json")
        assert (
            f"{name.upper().replace('HELD', 'HELD_OUT')} must have the columns of "
            in (error)
        )
        assert "age, dose, height, pulse, steps, weight" in error
        assert "got age, dosis, height, pulse, steps, weight" in error
        frame.to_csv(f"{name}.csv", index=False)
    # A request without names: HELD_OUT follows TRAIN.
    np.savez("val.npz", x=pd.read_csv("val.csv")[names], y=np.full(20, 2))
    run("market", "request", "val.npz", "--budget", 8, "--out", "bare.npz")
    bare = Request.load("bare.npz")
    answer(bare, pd.read_csv("own.csv")[names], owner="o").save("bare_answer.npz")
    frames["held"][[*names[::-1], "kind"]].to_csv("held.csv", index=False)
    rank[2], rank[4] = "bare.npz", "bare_answer.npz"
    run(*rank, "--out", "r.json")
    assert json.loads(Path("r.json").read_text())["without"] == results[0][0]


def test_ties_are_marked(capsys):
    scene = Scene()
    other = Answer.load("north.npz", scene.request)
    dataclasses.replace(other, owner="abel").save("me.npz")
    capsys.readouterr()
    run(*RANK, "north.npz", "me.npz", *QUICK, "--out", "r.json")
    found = json.loads(Path("r.json").read_text())["ranking"]
    assert [(row["owner"], row["place"], row["tied"]) for row in found] == [
        ("abel", 1, True),
        ("north", 1, True),
    ]
    shown = capsys.readouterr().out
    assert "1=  abel" in shown
    assert "= tied: in the order of names" in shown


def record_fits(monkeypatch):
    """Record where each training starts from, and its key."""
    calls = []
    fit = _network.fit

    def recorded(graphdef, params, x, y, *, key, **options):
        start = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
        end = fit(graphdef, params, x, y, key=key, **options)
        calls.append((start.tobytes(), jax.random.key_data(key).tobytes(), options))
        return end

    monkeypatch.setattr(_network, "fit", recorded)
    return calls


def test_retrain_starts_from_new_weights(monkeypatch):
    calls = record_fits(monkeypatch)
    scene = Scene()
    trained_on = scene.rank(scene.honest)["without"]
    # One training of each seed's base, then one of each seed with 0 + 3 answers.
    assert len(calls) == 2 + 2 * 4
    starts = [start for start, *_ in calls]
    assert len(set(starts)) == 4
    new = {starts[0], starts[2]}
    calls.clear()
    retrained = scene.rank(scene.honest, "--retrain")["without"]
    assert len(calls) == 2 * 4
    assert {start for start, *_ in calls} == new
    assert trained_on != retrained


def test_seeds_differ_in_weights_and_batches(monkeypatch):
    calls = record_fits(monkeypatch)
    scene = Scene()
    scene.rank(scene.honest, "--retrain", "--seeds", "3", "--steps", "5")
    by_answer = [calls[i : i + 3] for i in range(0, 12, 3)]
    for trainings in by_answer:
        assert len({start for start, *_ in trainings}) == 3
        assert len({key for _, key, _ in trainings}) == 3
        # The same seeds serve every answer.
        assert [t[:2] for t in trainings] == [t[:2] for t in by_answer[0]]
    assert {options["steps"] for *_, options in calls} == {5}


def test_missing_numbers(capsys):
    """Through all three commands, where the request's method knows them."""
    scene = Scene()
    names = list("abcdef")

    def table(name, x, y):
        x = x.copy()
        x[::4, 2] = np.nan
        pd.DataFrame(x, columns=names).assign(kind=y).to_csv(f"{name}.csv", index=False)

    table("val", scene.request.x, scene.request.y)
    table("held", *scene.draw(40, 0, 0))
    table("train", *scene.train)
    table("own", *scene.draw(40, 30, 30))
    label = ["--label-column", "kind"]
    made = ["market", "request", "val.csv", *label, "--budget", 8]
    run(*made, "--method", "binned", "--out", "binned.npz")
    reply = ["market", "answer", "binned.npz", "own.csv", *label, "--owner", "north"]
    run(*reply, "--out", "north.npz", "--force")
    rank = ["market", "rank", "binned.npz", "held.csv", "north.npz", *label, *QUICK]
    rank[rank.index("train.npz")] = "train.csv"
    run(*rank, "--out", "r.json")
    (row,) = json.loads(Path("r.json").read_text())["ranking"]
    assert row["samples"] == 8
    assert row["score"] > 0.6
    capsys.readouterr()
    assert Request.load("binned.npz").encoder is None
    error = refuse(capsys, *made, "--encode", "none", "--out", "other.npz")
    assert "val.csv has a gap in column 'c', row 0" in error
    run(*made, "--out", "other.npz")
    assert Request.load("other.npz").encoder is not None
