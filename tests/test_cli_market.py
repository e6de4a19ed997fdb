"""The command line: asking, answering and ranking, with files between processes."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

from jaxsel import market
from jaxsel._cli import _market_options
from jaxsel._types import Selection
from jaxsel.data import load
from jaxsel.market import Answer, Request, _network

RNG = np.random.default_rng(0)
CENTRES = 3 * RNG.normal(size=(3, 6))
QUICK = ["--seeds", "2", "--steps", "60"]
RANK = ["market", "rank", "request.npz", "held.npz"]


def draw(*counts):
    """Samples of three classes, so many of each."""
    y = np.repeat(np.arange(3), counts)
    return CENTRES[y] + RNG.normal(size=(len(y), 6)), y


def save(name, x, y):
    np.savez(f"{name}.npz", x=x.astype(np.float32), y=y)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    x, y = draw(30, 30, 50)
    save("val", x, y)
    np.save("predicted.npy", np.where(y == 2, 0, y))
    save("train", *draw(60, 60, 1))
    save("north", *draw(5, 5, 50))
    save("south", *draw(30, 30, 0))
    save("east", *draw(20, 20, 20))


def ask(*options, budget=16):
    run(
        *("market", "request", "val.npz", "--predictions", "predicted.npy"),
        *("--held-out-to", "held.npz", "--out", "request.npz", "--budget", budget),
        *options,
    )
    return Request.load("request.npz")


def reply(name, *options):
    run(
        *("market", "answer", "request.npz", f"{name}.npz", "--owner", name),
        *("--out", f"from_{name}.npz", *options),
    )
    return Answer.load(f"from_{name}.npz", Request.load("request.npz"))


@pytest.mark.slow
def test_two_processes_by_files(capsys, tmp_path):
    asked = ask()
    shown = capsys.readouterr().out
    assert "25 other hard samples are held out" in shown
    held = np.load("held.npz")
    assert (len(asked), len(held["y"])) == (25, 25)
    both = np.concatenate([asked.x, held["x"]])
    val = np.load("val.npz")
    assert set(map(bytes, both)) == set(map(bytes, val["x"][val["y"] == 2]))
    assert asked.schema.classes == (0, 1, 2)

    # The owner: another process in another folder, which has the request and its data.
    owner = tmp_path / "owner"
    owner.mkdir()
    for name in ("request.npz", "north.npz"):
        (owner / name).write_bytes(Path(name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "jaxsel", "market", "answer", "request.npz"]
        + ["north.npz", "--owner", "north", "--out", "answer.npz"],
        cwd=owner,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "16 samples for Request" in done.stdout
    Path("from_north.npz").write_bytes((owner / "answer.npz").read_bytes())
    reply("south")

    files = ["from_north.npz", "from_south.npz"]
    # The shown samples alone make up for the class that TRAIN lacks.
    options = ["--train", "train.npz", "--without-shown", *QUICK]
    run(*RANK, *files, *options, "--out", "ranking.json")
    captured = capsys.readouterr()
    assert captured.err == ""
    ranking = json.loads(Path("ranking.json").read_text())
    assert [row["owner"] for row in ranking["ranking"]] == ["north", "south"]
    north, south = ranking["ranking"]
    assert (north["samples"], north["status"]) == (16, "complete")
    assert (south["samples"], south["status"]) == (0, "short")
    assert north["gain"] > 0.3 > south["gain"]
    assert south["gain"] == 0
    assert (ranking["held_out"], ranking["refused"]) == (25, [])
    assert ranking["seeds"] == [0, 1]
    roles = [entry["role"] for entry in ranking["inputs"]]
    assert roles == ["request", "held_out", "train", "answer", "answer"]
    assert "north" in captured.out
    assert f"{north['score']:.3f}" in captured.out


def test_bad_answers_are_refused_by_name_and_others_ranked(capsys):
    ask()
    first = Path("request.npz").read_bytes()
    reply("north")
    reply("east", "--method", "random", "--seed", "3")
    data = bytearray(Path("from_north.npz").read_bytes())
    data[-200] ^= 1
    Path("damaged.npz").write_bytes(data)
    Path("twice.npz").write_bytes(Path("from_north.npz").read_bytes())
    ask("--force")
    reply("south", "--allow-all")
    Path("request.npz").write_bytes(first)
    files = ["damaged.npz", "from_south.npz", "from_north.npz", "gone.npz"]
    files += ["twice.npz", "from_east.npz", "val.npz"]
    before = {path: Path(path).read_bytes() for path in files if Path(path).exists()}
    capsys.readouterr()
    options = ["--train", "train.npz", "--out", "ranking.json", "--retrain", *QUICK]
    run(*RANK, *files, *options)
    lines = capsys.readouterr().err.splitlines()
    reasons = {
        "damaged.npz": "is refused",
        "from_south.npz": "another request",
        "gone.npz": "is not there",
        "twice.npz": "owner 'north' has answered already",
        "val.npz": "extra fields",
    }
    ranking = json.loads(Path("ranking.json").read_text())
    assert [item["file"] for item in ranking["refused"]] == [
        file for file in files if file in reasons
    ]
    unseen = [e["source"] for e in ranking["inputs"] if "sha256" not in e]
    assert unseen == ["gone.npz"]
    for line, item in zip(lines, ranking["refused"], strict=True):
        assert line == f"jaxsel: {item['reason']}"
        assert line.startswith(f"jaxsel: {item['file']} is ")
        assert reasons[item["file"]] in line
    assert {row["owner"] for row in ranking["ranking"]} == {"north", "east"}
    assert before == {path: Path(path).read_bytes() for path in before}
    only = [*RANK, "damaged.npz", "--train", "train.npz", "--out", "other.json"]
    from jaxsel.cli import main

    assert main(only) == 2
    assert "no answer is left to rank" in capsys.readouterr().err
    assert not Path("other.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", market.METHODS)
def test_owners_by_every_method(method, capsys):
    ask("--method", method, budget=8)
    found = reply("east")
    assert found.method == method
    assert 0 < len(found) <= 8
    assert set(found.y.tolist()) == {2}
    manifest = json.loads(Path("from_east.json").read_text())
    assert [entry["role"] for entry in manifest["inputs"]] == ["request", "data"]
    assert f"chosen by {method}" in capsys.readouterr().out


@pytest.mark.slow
def test_matching_sees_an_early_network(monkeypatch):
    """Its hidden layer as features, and gradients of length 1, whatever its loss."""
    given, steps = [], []
    fit = _network.fit

    def choose(candidates, target, own, hard, budget, **options):
        given.append((candidates, own, hard))
        size = {"indices": np.arange(budget), "weights": np.ones(budget)}
        return Selection(**size, n_valid=np.int32(budget))

    def recorded(*arguments, **options):
        steps.append(options["steps"])
        return fit(*arguments, **options)

    monkeypatch.setattr("jaxsel.market._owner.func_feat", choose)
    monkeypatch.setattr(_network, "fit", recorded)
    asked = ask("--method", "func_feat", budget=8)
    reply("east")
    assert steps == [_network.EARLY_STEPS] == [100]
    (oracle, own, hard), x = given[0], np.load("east.npz")["x"][40:]
    assert own.shape == (20, _network.HIDDEN)
    assert hard.shape == (25, _network.HIDDEN)
    assert own.min() == 0
    # The last layer's inputs are its features, so both come from one network.
    np.testing.assert_allclose(oracle.layers[0].inputs, own, rtol=1e-6)
    assert not np.array_equal(own[:, :6], x)
    assert 0.2 < np.mean(oracle.diag()) < 5
    np.save("val_f.npy", np.load("val.npz")["x"][:, :2])
    np.save("east_f.npy", np.load("east.npz")["x"][:, :2])
    asked = ask("--method", "func_feat", "--features", "val_f.npy", "--force", budget=8)
    reply("east", "--features", "east_f.npy", "--force")
    np.testing.assert_array_equal(given[1][1], x[:, :2])
    np.testing.assert_array_equal(given[1][2], asked.features)


def test_gradients_are_measured_by_their_length():
    x, y = draw(30, 30, 30)
    network = _network.Network.new(6, 3, jax.random.key(0))
    network = network.trained(x.astype(np.float32), y, jax.random.key(1), 300)
    short = np.mean(network.oracle(x, y).diag())
    assert short < 0.1
    for measured in (network.measured(x, y), network.measured(x, y).measured(x, y)):
        assert np.mean(measured.oracle(x, y).diag()) == pytest.approx(1, rel=1e-4)


def test_owners_rules(capsys):
    ask()
    save("few", *draw(0, 0, 8))
    found = reply("few", "--max-share", "1")
    assert (len(found), found.status) == (7, "capped")
    assert "one more would be all" in capsys.readouterr().out
    assert len(reply("few", "--allow-all", "--force")) == 8
    assert len(reply("few", "--force")) == 4
    assert "the owner sends 0.5 of its samples at most" in capsys.readouterr().out
    assert len(reply("few", "--max-samples", "3", "--force")) == 3
    assert json.loads(Path("from_few.json").read_text())["config"]["max_samples"] == 3
    run(
        *("market", "answer", "request.npz", "--refuse", "not for sale"),
        *("--owner", "west", "--out", "from_west.npz"),
    )
    found = Answer.load("from_west.npz", Request.load("request.npz"))
    assert (found.status, found.reason, len(found)) == ("refused", "not for sale", 0)


def test_data_without_labels():
    asked = ask()
    x = draw(20, 20, 20)[0].astype(np.float32)
    expected = market.answer(asked, x, owner="bare")
    assert expected.pseudo_labels
    np.savez("own.npz", x=x, y=np.zeros(60))  # not to be used
    np.save("own.npy", x)
    frame = pd.DataFrame(x, columns=list("abcdef"))
    frame.to_csv("own.csv", index=False)
    frame.to_parquet("own.parquet")
    frame.assign(kind=["up", None] * 30).to_csv("own_kinds.csv", index=False)
    column = {"own_kinds.csv": ["--label-column", "kind"]}
    for file in ("own.npz", "own.npy", "own.csv", "own.parquet", *column):
        run(
            *("market", "answer", "request.npz", file, "--unlabelled", "--force"),
            *("--owner", "bare", "--out", "from_bare.npz", *column.get(file, ())),
        )
        found = Answer.load("from_bare.npz", asked)
        assert found.pseudo_labels
        for name in ("x", "y", "weights"):
            expected_array = getattr(expected, name)
            np.testing.assert_array_equal(getattr(found, name), expected_array, file)


def test_features_only(capsys):
    """The samples stay at home, on both sides."""
    encode = RNG.normal(size=(6, 3))
    for name in ("val", "train", "north"):
        np.save(f"{name}_f.npy", np.load(f"{name}.npz")["x"] @ encode)
    asked = ask("--features", "val_f.npy", "--hide-samples")
    assert asked.x is None
    assert np.load("held.npz")["x"].shape == (25, 3)
    for name in ("train", "north"):
        save(f"{name}_f", np.load(f"{name}_f.npy"), np.load(f"{name}.npz")["y"])
    found = reply("north_f")
    assert found.x is None
    assert found.features.shape == (16, 3)
    options = ["--train", "train_f.npz", "--out", "ranking.json", *QUICK]
    run(*RANK, "from_north_f.npz", *options)
    # Samples with features beside them: features decide, samples are sent.
    ask("--features", "val_f.npy", "--force")
    found = reply("north", "--features", "north_f.npy")
    assert found.x.shape == (16, 6)


def test_tables_with_texts_as_labels(capsys):
    for name in ("val", "train", "north"):
        file = np.load(f"{name}.npz")
        frame = pd.DataFrame(file["x"], columns=list("abcdef"))
        frame["kind"] = np.array(["lo", "mid", "up"])[file["y"]]
        frame.to_csv(f"{name}.csv", index=False)
    predicted = np.array(["lo", "mid", "up"])[np.load("predicted.npy")]
    np.save("predicted.npy", predicted)
    kind = ["--label-column", "kind"]
    run(
        *("market", "request", "val.csv", "--predictions", "predicted.npy", *kind),
        *("--method", "binned", "--budget", 8),
        *("--held-out-to", "held.npz", "--out", "request.npz"),
    )
    asked = Request.load("request.npz")
    assert asked.schema.columns == tuple("abcdef")
    assert asked.schema.classes == ("lo", "mid", "up")
    run(
        *("market", "answer", "request.npz", "north.csv", "--owner", "north", *kind),
        *("--out", "from_north.npz"),
    )
    options = ["--train", "train.csv", *kind, "--out", "ranking.json", *QUICK]
    options.append("--without-shown")
    run(*RANK, "from_north.npz", *options)
    ranking = json.loads(Path("ranking.json").read_text())
    assert ranking["ranking"][0]["gain"] > 0.05
    assert ranking["ranking"][0]["score"] > 0.9


def test_columns_in_another_order(capsys):
    x, y = draw(10, 10, 20)
    names = [f"c{i}" for i in range(6)]
    table = pd.DataFrame(x.astype(np.float32), columns=names).assign(label=y)
    table.to_csv("val.csv", index=False)
    column = ("--label-column", "label")
    made = ("market", "request", "val.csv", *column, "--out", "request.npz")
    run(*made, "--budget", "8", "--method", "retrieve")
    answers = []
    for order in (names, names[::-1]):
        table[[*order, "label"]].to_csv("own.csv", index=False)
        run(
            *("market", "answer", "request.npz", "own.csv", "--owner", "north"),
            *(*column, "--out", "a.npz", "--force"),
        )
        answers.append(Answer.load("a.npz", Request.load("request.npz")).x)
    np.testing.assert_array_equal(*answers)
    table.rename(columns={"c0": "other"}).to_csv("own.csv", index=False)
    error = refuse(
        capsys,
        *("market", "answer", "request.npz", "own.csv", "--owner", "north", *column),
        *("--out", "b.npz"),
    )
    assert "DATA must have the columns of the request, c0" in error


def test_columns_of_tables_can_be_left_out(capsys):
    """As the index that pandas writes, which says so if it is not."""
    x, y = draw(10, 10, 20)
    names = [f"c{i}" for i in range(6)]
    frame = pd.DataFrame(x.astype(np.float32), columns=names).assign(label=y)
    frame["id"] = [f"row {i}" for i in range(40)]
    frame.to_csv("val.csv")
    wrong = np.where(y == 2, 0, y)
    pd.DataFrame({"guess": wrong, "note": "none"}).to_csv("predicted.csv", index=False)
    made = ("market", "request", "val.csv", "--label-column", "label", "--budget", 8)
    made += ("--predictions", "predicted.csv", "--prediction-column", "guess")
    made += ("--held-out-to", "held.npz", "--out", "request.npz", "--force")
    run(*made, "--drop", "id")
    warning = "val.csv: column 'Unnamed: 0' counts as a feature; leave it out: --drop"
    assert capsys.readouterr().err == f"jaxsel: warning: {warning}\n"
    assert Request.load("request.npz").schema.columns == ("Unnamed: 0", *names)
    for options in (
        ("--drop", "id", "--drop", "Unnamed: 0"),
        ("--columns", ",".join(names)),
    ):
        run(*made, *options)
        assert capsys.readouterr().err == ""
        asked = Request.load("request.npz")
        assert asked.schema.columns == tuple(names)
        assert set(asked.y) == {2}
        assert len(asked) == 10
    reply = ("market", "answer", "request.npz", "val.csv", "--owner", "o", "--force")
    columns = ("--columns", ",".join(names[::-1]))
    for labels in (("--label-column", "label"), ("--unlabelled",)):
        run(*reply, *labels, *columns, "--out", "a.npz")
        assert Answer.load("a.npz", asked).x.shape == (8, 6)
    assert "must name the column of --predictions" in refuse(
        capsys, *made, "--columns", "c0", "--predictions", "predicted.npy"
    )
    assert "has no column 'guess'" in refuse(
        capsys, *made, "--columns", "c0", "--predictions", "val.csv"
    )


def test_columns_of_other_scale(capsys):
    """With one in thousands, raw distances see nothing else."""
    x, y = draw(30, 30, 30)
    x[:, 5] = 1000 * RNG.normal(size=90)
    np.savez("val.npz", x=x[::2], y=y[::2])
    np.savez("own.npz", x=x[1::2], y=y[1::2])
    run("market", "request", "val.npz", "--budget", 12, "--out", "request.npz")
    right = []
    for options in ((), ("--standardize",)):
        run(
            *("market", "answer", "request.npz", "own.npz", "--unlabelled"),
            *("--method", "random", "--metric", "l2", "--owner", "o"),
            *("--out", "a.npz", "--force", *options),
        )
        found = Answer.load("a.npz", Request.load("request.npz"))
        rows = [np.flatnonzero((x == row).all(axis=1))[0] for row in found.x]
        right.append(np.mean(found.y == y[rows]))
    assert right[1] > 0.9 > right[0]
    for options in (("--method", "grad_match"), ("--method", "random")):
        error = refuse(
            capsys,
            *("market", "answer", "request.npz", "own.npz", "--standardize"),
            *("--owner", "o", "--out", "b.npz", *options),
        )
        assert "--standardize must not be given" in error


def test_features_that_are_forgotten(capsys):
    np.save("val_f.npy", np.load("val.npz")["x"][:, :2])
    ask("--features", "val_f.npy", "--method", "random")
    reply("north")
    assert capsys.readouterr().err == ""
    reply("north", "--method", "retrieve", "--force")
    assert "the request has features, but --features is not given: samples are" in (
        capsys.readouterr().err
    )


def sha256_of(name, split):
    data = load(name, split=split)
    return hashlib.sha256(data.x.tobytes() + data.y.tobytes()).hexdigest()


def test_prepared_data_sets(monkeypatch):
    run("market", "request", "digits:test", "--budget", 4, "--out", "request.npz")
    asked = Request.load("request.npz")
    assert asked.x.shape == (355, 8, 8, 1)
    run(
        *("market", "answer", "request.npz", "digits:train", "--owner", "me"),
        *("--out", "a.npz"),
    )
    assert Answer.load("a.npz", asked).x.dtype == np.uint8
    manifest = json.loads(Path("a.json").read_text())
    hashes = {split: sha256_of("digits", split) for split in ("train", "test")}
    assert manifest["inputs"][1]["sha256"] == hashes["train"]
    run(
        *("market", "answer", "request.npz", "digits:train", "--owner", "other"),
        *("--out", "b.npz", "--unlabelled"),
    )
    assert Answer.load("b.npz", asked).pseudo_labels
    monkeypatch.setattr(market.Trainer, "score", lambda self, answer: [0.5])
    run(
        *("market", "rank", "request.npz", "digits:test", "a.npz", "b.npz"),
        *("--train", "digits:train", "--out", "r.json"),
    )
    inputs = json.loads(Path("r.json").read_text())["inputs"]
    assert [entry["sha256"] for entry in inputs[1:3]] == [*hashes.values()][::-1]


def test_refuses(capsys):
    def bad(*arguments):
        return refuse(capsys, "market", *arguments)

    out = ["--out", "r.npz", "--budget", 4]
    assert "go together" in bad("request", "val.npz", "--predictions", "p.npy", *out)
    assert "needs --features" in bad("request", "val.npz", "--hide-samples", *out)
    assert "--out must end in .npz" in bad(
        "request", "val.npz", "--budget", 4, "--out", "r"
    )
    assert "budget must be at least 1" in bad(
        "request", "val.npz", "--budget", 0, "--out", "r.npz"
    )
    np.save("short.npy", np.zeros((3, 2)))
    assert "a row for each of the 110" in bad(
        "request", "val.npz", "--features", "short.npy", *out
    )
    ask()
    capsys.readouterr()
    who = ["--owner", "o", "--out", "a.npz"]
    assert "either DATA or --refuse" in bad("answer", "request.npz", *who)
    assert "val.npz is refused" in bad("answer", "val.npz", "north.npz", *who)
    assert "more than max_bytes" in bad(
        "answer", "request.npz", "north.npz", *who, "--max-bytes", 10
    )
    assert "--labels and --unlabelled must not be given together" in bad(
        *("answer", "request.npz", "north.npz", "--unlabelled"),
        *("--labels", "predicted.npy", *who),
    )
    np.save("one.npy", 3.0)
    assert "one.npy must hold samples, one a row" in bad(
        "answer", "request.npz", "one.npy", "--unlabelled", *who
    )
    assert "error: max_bytes must be at least 1" in bad(
        "answer", "request.npz", "north.npz", *who, "--max-bytes", 0
    )
    assert "without labels to train on" in bad(
        *("answer", "request.npz", "north.npz", "--unlabelled"),
        *("--method", "grad_match", *who),
    )
    assert "nor over an input" in bad(
        "answer",
        "request.npz",
        "north.npz",
        "--owner",
        "o",
        "--out",
        "request.npz",
        "--force",
    )
    reply("north")
    capsys.readouterr()
    rank = ["rank", "request.npz", "held.npz", "from_north.npz", "--train", "train.npz"]
    assert "--out must end in .json" in bad(*rank, "--out", "r.npz")
    assert "must be at least 1" in bad(*rank, "--out", "r.json", "--seeds", 0)
    Path("there.json").touch()
    assert "exists" in bad(*rank, "--out", "there.json")


def test_help_knows_the_methods(capsys):
    assert _market_options.METHODS == market.METHODS
    from jaxsel.cli import main

    assert main(["market"]) == 0
    for action in ("request", "answer", "rank"):
        with pytest.raises(SystemExit) as caught:
            main(["market", action, "--help"])
        assert caught.value.code == 0
        assert f"examples:\n  jaxsel market {action}" in capsys.readouterr().out
