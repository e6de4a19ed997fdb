"""`jaxsel proxy search`: what it writes and refuses."""

import json
import tomllib
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from commands import refuse, run

from jaxsel._cli import _proxy
from jaxsel.proxy import (
    PAPER_SCHEDULES,
    EngineName,
    Manifest,
    Phase,
    ProbeSpec,
    Rehearsal,
    Spec,
    _manifest,
    check_engine,
    manifest,
    probe_manifest,
)
from jaxsel.proxy._cost import _choice as _choice_cost

SIZES = {"layers": 3, "heads": 4, "head_width": 8, "hidden": 32, "length": 16}
MANIFESTS = {
    "paper d=2": manifest(Spec(1, 1), **SIZES, n_classes=2),
    "paper d=8": manifest(Spec(3, 4), **SIZES, n_classes=2),
    "paper d=16": manifest(Spec(3, 4), **SIZES, n_classes=2),
    "probe": probe_manifest(width=32, n_classes=2),
    "broken": probe_manifest(width=32, n_classes=2),
}
SEARCH = ("proxy", "search", "texts", "--pool", 4000, "--budget", 800)
WRITTEN = ["front.json", "front.md", "front.svg", "run.json", "run.toml"]


@pytest.fixture(autouse=True)
def asked(tmp_path, monkeypatch):
    """Stand in for the rehearsal, which needs a model that is fetched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    rng = np.random.default_rng(0)
    oracle = rng.normal(size=(3, 100))
    noise = np.array([1.0, 0.5, 0.3, 0.6, 0.1])[:, None]
    scores = oracle[:, None] + noise * rng.normal(size=(3, 5, 100))
    found = Rehearsal(
        candidates={name: Phase(ProbeSpec()) for name in MANIFESTS},
        manifests=MANIFESTS,
        scores=scores,
        oracle=oracle,
        failures={"broken": "it diverged"},
    )
    calls = []

    def rehearsed(args, folder):
        calls.append((args, folder))
        return found, {"bootstrap": 100, "input": {"role": "data", "source": "texts"}}

    monkeypatch.setattr(_proxy, "_rehearse", rehearsed)
    return calls


def files():
    return sorted(
        str(path.relative_to("search"))
        for path in Path("search").rglob("*")
        if path.is_file()
    )


def test_options_are_those_of_the_library():
    assert {*_proxy.ENGINES} == {*get_args(EngineName)}
    assert _proxy.LEAKS == _choice_cost.LEAKS
    assert {*_proxy.KINDS} == {*_manifest.KINDS}
    for engine in _proxy.ENGINES:
        check_engine(engine)


def test_a_search(capsys, asked):
    run(*SEARCH)
    out, err = capsys.readouterr()
    front = json.loads(Path("search/front.json").read_text())
    chosen = front["points"][front["chosen"]]
    assert chosen == front["points"][-1]
    assert [*front["compared"]] == list(PAPER_SCHEDULES)
    assert front["failures"] == {"broken": "it diverged"}
    assert len(front["spearman"]["broken"]) == 3
    hours = [point["hours"] for point in front["points"]]
    assert hours == sorted(hours)
    manifests = [f"phase-{i + 1}/manifest.json" for i in range(len(chosen["names"]))]
    assert files() == sorted(WRITTEN + manifests)
    for path, name in zip(manifests, chosen["names"], strict=True):
        text = Path("search", path).read_text()
        assert Manifest.from_json(text) == MANIFESTS[name]
    config = tomllib.loads(Path("search/run.toml").read_text())
    assert config["session"]["samples"] == 4000
    assert config["session"]["engine"] == "spu-cheetah"
    assert [phase["keep"] for phase in config["phases"]] == chosen["keeps"]
    sizes = [phase["batch_size"] for phase in config["phases"]]
    assert sizes == chosen["batch_sizes"]
    assert [phase["manifest"] for phase in config["phases"]] == manifests
    # 4000 less 5 %, and a fifth of all in the end.
    assert chosen["keeps"][-1] == 600
    page = Path("search/front.md").read_text()
    assert "paper, 2 phases: paper d=2 (30%) → paper d=16 (20%)" in page
    assert f"{front['random']:.2f}" == f"{600 / 3800:.2f}"
    assert "broken is not on the front: it diverged" in err
    assert "learned from 100 labelled texts, and the real bootstrap set has 200" in err
    assert "python -m mpc_bridge estimate --config search/run.toml" in out
    record = json.loads(Path("search/run.json").read_text())
    assert record["config"]["pool"] == 4000
    assert record["seeds"] == [0, 1, 2]
    assert len(record["checks"]) == 2
    assert asked[0][1] == Path("search/rehearsal")


def test_hours_are_limited(capsys):
    run(*SEARCH)
    front = json.loads(Path("search/front.json").read_text())
    first = front["points"][0]
    limit = first["hours"] * 1.001
    run(*SEARCH, "--max-hours", limit, "--out", "cheap")
    found = json.loads(Path("cheap/front.json").read_text())
    assert found["chosen"] == 0
    with pytest.raises(AssertionError):
        run(*SEARCH, "--max-hours", first["hours"] / 2, "--out", "none")
    assert "--max-hours must be at least" in capsys.readouterr().err
    assert not Path("none/run.toml").exists()


def test_engines_and_networks_change_hours():
    run(*SEARCH, "--engine", "spu-aby3", "--latency", 100)
    run(*SEARCH, "--engine", "spu-aby3", "--latency", 10, "--out", "near")
    far, near = (
        json.loads(Path(folder, "front.json").read_text())["points"][0]["hours"]
        for folder in ("search", "near")
    )
    assert far > 2 * near


@pytest.mark.left_out
def test_what_is_there_stays(capsys):
    run(*SEARCH)
    before = Path("search/front.json").read_bytes()
    capsys.readouterr()
    assert "--force replaces it" in refuse(capsys, *SEARCH, "--budget", 900)
    run(*SEARCH, "--budget", 900, "--force")
    assert Path("search/front.json").read_bytes() != before
    weights = Path("search/phase-1/weights.safetensors")
    weights.touch()
    capsys.readouterr()
    said = refuse(capsys, *SEARCH, "--force")
    assert f"{weights} is of a trained proxy" in said
    weights.unlink()
    Path("search/phase-3").mkdir(exist_ok=True)
    Path("search/phase-3/manifest.json").touch()
    run(*SEARCH, "--force", "--max-hours", 0.1)
    found = json.loads(Path("search/front.json").read_text())
    names = found["points"][found["chosen"]]["names"]
    assert len(names) == 2
    assert len([file for file in files() if file.startswith("phase")]) == len(names)
    Path("file").touch()
    capsys.readouterr()
    assert "file is a file: name a folder" in refuse(capsys, *SEARCH, "--out", "file")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", 200], "--budget must be above the bootstrap set's 200"),
        (["--budget", 4000], "below the pool's 4000 samples, got 4000"),
        (["--bootstrap", 1.5], "--bootstrap must be a share of the pool"),
        (["--latency", 0], "--latency must be above 0"),
        (["--max-hours", -1], "--max-hours must be above 0"),
        (["--seeds", 0], "--seeds must be at least 1"),
        (["--leak", "set", "--engine", "crypten"], "--leak set needs an engine of SPU"),
        (["--engine", "gloo"], "must be one of"),
    ],
)
def test_refused_before_any_work(options, message, capsys, asked):
    assert message in refuse(capsys, *SEARCH, *options)
    assert not asked


@pytest.mark.mpc
def test_the_bridge_reads_what_is_written(capsys):
    from mpc_bridge.__main__ import main

    run(*SEARCH)
    front = json.loads(Path("search/front.json").read_text())
    chosen = front["points"][-1]
    capsys.readouterr()
    assert main(["estimate", "--config", "search/run.toml", "--no-attack"]) == 0
    said = capsys.readouterr().out
    sizes = chosen["batch_sizes"]
    assert f"phase 1: score 4,000 by {sizes[0]:,}" in said
    assert f"phase 1: choose {chosen['keeps'][0]:,}" in said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* once they are rounded:UserWarning")  # so small
def test_real_texts(tmp_path, monkeypatch):
    """From texts to a configuration; needs minilm and movie_polarity."""
    from jaxsel.data import available
    from jaxsel.models import available_models

    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    models = {model.name: model.path for model in available_models()}
    sets = {data.name: data.prepared for data in available()}
    if models["minilm"] is None or not sets["movie_polarity"]:
        pytest.skip("minilm or movie_polarity is not prepared")
    small = ("--samples", 200, "--distil", 60, "--seeds", 1, "--length", 16)
    search = ("proxy", "search", "movie_polarity", "--pool", 2000, "--budget", 400)
    run(*search, *small)
    front = json.loads(Path("search/front.json").read_text())
    assert front["points"]
