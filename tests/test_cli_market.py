"""The command line: asking, answering and ranking, with files between processes."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import refuse, run
from market_cases import QUICK, RANK, ask, draw, files as files, reply, save
from waits import PATIENCE

from jaxsel import market
from jaxsel._results.types import Selection
from jaxsel.market import Answer, Request, _network


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
        timeout=PATIENCE,
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
    nothing = "nothing is sent: there are no more samples of the classes asked, 2"
    assert captured.err == f"Check: {nothing}; DATA has 0, 1\n"  # of south
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

    monkeypatch.setattr("jaxsel.market._methods.func_feat", choose)
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


@pytest.mark.left_out
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
    assert "more than --max-bytes" in bad(
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
    assert "error: --max-bytes must be at least 1" in bad(
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
    from jaxsel.cli import main

    assert main(["market"]) == 0
    for action in ("request", "answer", "rank"):
        with pytest.raises(SystemExit) as caught:
            main(["market", action, "--help"])
        assert caught.value.code == 0
        assert f"examples:\n  jaxsel market {action}" in capsys.readouterr().out
