"""The study's report and command, from made-up results."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from commands import experiment, refuse_experiment

from experiments.seeds import Workers
from experiments.values import chapter, run
from experiments.values.cases import TITLES, Sizes
from experiments.values.chapter import study_chapter
from experiments.values.claims import study_claims
from experiments.values.embeddings import IMAGES, TEXTS
from experiments.values.judge import FAILS, HOLDS
from experiments.values.methods import METHODS
from experiments.values.ranks import BINS, TESTED, RankSizes
from experiments.values.run import run_study
from jaxsel.demo.scenes.valuations import MAX
from jaxsel.report import Chapter, Report
from jaxsel.tasks._application import RANDOM

SEEDS = (0, 1, 2)
BUYERS = ("KNN-Shapley", "KNN-LOO", "TMC-Shapley", "LOO", RANDOM)
MEASURES = {
    "noisy": ("auc", "found_at_bad"),
    "pattern": ("auc", "found_at_bad", "success_after", "accuracy_after"),
    "summary": ("mean_accuracy", "last_accuracy"),
    "acquisition": ("mean_accuracy", "last_accuracy", "clean_share"),
    "mnist": ("before", "after", "gain", "kept"),
}
MEASURES |= {"instance": MEASURES["pattern"], "digits": MEASURES["mnist"]}


def made_up(name, seed):
    """One seed of an application in which methods are the better the earlier."""
    rng = np.random.default_rng([seed, *name.encode()])
    kind = name.split("-")[0]
    methods = BUYERS if kind == "acquisition" else METHODS
    points = 2 if kind in ("mnist", "digits") else 5
    found = {
        "name": name,
        "x": np.linspace(0, 1, points),
        "labels": ("Share", "Part found"),
        "percent_x": 1,
        "ticks": np.array(["all", "positive"][:points], "U")
        if points == 2
        else np.array([], "U"),
    }
    for method in methods:
        level = 0.95 - 0.05 * METHODS.index(method)
        found[f"curve/{method}"] = np.linspace(0, level, points)
        for measure in MEASURES[kind]:
            found[f"summary/{method}/{measure}"] = level + rng.normal() / 1000
    for word in ("before", "unmarked"):
        found |= {f"reference/{m}_{word}": 0.9 for m in ("success", "accuracy")}
    return found | {"reference/all": 0.9, "reference/before": 0.3}


def other(name, seed):
    rng = np.random.default_rng([seed, *name.encode()])
    if name == "ranks":
        level = np.linspace(0.9, 0.1, len(TESTED)) + rng.normal() / 100
        return {
            "spearman": level,
            "p_value": level / 100,
            "smoothed": np.stack([level + 0.05] * len(BINS)),
            "perturbed_more": np.append(level, 0.9),
            "reliability": np.array(0.9),
            "halves": np.array(0.85),
            "few": np.array(0.5),
        }
    if name == "order":
        counts = np.array([[[9, 2, 7, 0, 0], [9, 8, 1, 0, 0]]] * 2)
        return {"counts": counts, "near": counts[0]}
    names = IMAGES if name == "embeddings-images" else TEXTS
    auc = np.stack([np.full(len(names), 0.95), np.full(len(names), 0.85)])
    return {
        "auc": auc + rng.normal(size=auc.shape) / 1000,
        "counts": np.tile([9, 8, 7, 3, 2, 1], (len(names), 1)),
        "points": np.ones((len(names), len(names))),
    }


def runtime(*_):
    seconds = np.tile([[0.001], [1.0], [2.0], [90.0]], (1, 2))
    return {"n": np.array([100, 200]), "seconds": np.stack([seconds] * 3)}


@pytest.fixture
def jobs(monkeypatch):
    """Made-up experiments; the list of those that ran."""
    ran = []

    def job(make, name, dies):
        def one(seed):
            if dies and (name, seed) == ("order", 1):
                raise KeyboardInterrupt
            ran.append((name, seed))
            return make(name, seed)

        return one

    def prepare(dies=False):
        some = {name: job(made_up, name, dies) for name in TITLES}
        for name in run._OTHERS:
            some[name] = job(other, name, dies)
        monkeypatch.setattr(run, "experiments", lambda *_, **__: some)
        monkeypatch.setattr(run, "measure_runtime", runtime)
        monkeypatch.setattr(run, "pictures", lambda _: None)
        return ran

    return prepare


def test_a_killed_run_goes_on(jobs, tmp_path):
    ran = jobs(dies=True)
    with pytest.raises(KeyboardInterrupt):
        run_study(tmp_path, seeds=SEEDS)
    first = len(ran)
    assert 0 < first < 3 * (len(TITLES) + 4)
    jobs()
    result = run_study(tmp_path, seeds=SEEDS)
    assert len(ran) == len(set(ran)) == 3 * (len(TITLES) + 4)
    auc = result.applications["noisy-digits"].summary["LOO"]["auc"]
    assert auc[2] == made_up("noisy-digits", 2)["summary/LOO/auc"]
    assert result.ranks["smoothed"].shape == (3, len(BINS), len(TESTED))
    with pytest.raises(ValueError, match="seeds must hold at least one seed"):
        run_study(tmp_path, seeds=())


def test_the_chapter_judges_and_shows(jobs, tmp_path):
    jobs()
    result = run_study(tmp_path / "runs", seeds=SEEDS)
    by = {(c.text, c.where): c.verdict for c in study_claims(result)}
    where = TITLES["noisy-digits"]
    assert by["KNN-Shapley finds more than all others", where] == HOLDS
    assert by["KNN-LOO is near random", where] == FAILS
    wrong = "KNN-Shapley finds more wrong labels than leave-one-out"
    assert by[wrong, where] == HOLDS
    marks = by[
        f"{MAX} finds more foreign samples than all others", TITLES["instance-mnist"]
    ]
    assert marks == FAILS
    marks = "KNN-Shapley finds more marks than all others"
    assert by[marks, TITLES["pattern-mnist"]] == HOLDS
    nearest = "KNN-LOO keeps the order of the K nearest only"
    assert by[nearest, "Theorem 2, one validation point"] == FAILS
    kinds = {(c.text, c.where): c.test for c in study_claims(result)}
    assert kinds[nearest, "Theorem 2, one validation point"] == "none, counted"
    faster = "KNN-Shapley is faster than LOO by orders of magnitude (100 times)"
    assert kinds[faster, "MNIST, n = 200"] == "over runs"
    low = "KNN-Shapley's rank correlation with Shapley values is low"
    assert by[low, "Adversarial and other 3s and 8s"] == FAILS

    chapter = study_chapter(result)
    html, numbers = Report(title="T", summary="S", chapters=[chapter]).save(tmp_path)
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    shown = data["applications"]["summary-adult"]["summary"]["LOO"]["last_accuracy"]
    expected = result.applications["summary-adult"].summary["LOO"]["last_accuracy"]
    np.testing.assert_array_equal(shown, expected)
    text = html.read_text()
    # Applications but adaptation, runtimes and embeddings.
    assert text.count("<svg") == len(TITLES) - 2 + 2
    assert "31.7 → 47.0 %" in text
    assert "90,000 times" in text


def test_methods_that_the_study_lacks_refute_nothing(jobs, tmp_path):
    jobs()
    result = run_study(tmp_path / "runs", seeds=SEEDS)
    found = result.applications["noisy-digits"].summary
    where, text = TITLES["noisy-digits"], "KNN-Shapley finds more than all others"
    for name, verdict, words in (
        ("Data-OOB", HOLDS, "; above it, not tested in the study: Data-OOB"),
        ("TMC-Shapley", FAILS, "; above it: TMC-Shapley"),
    ):
        kept = found[name]["auc"].copy()
        found[name]["auc"][:] = found["KNN-Shapley"]["auc"] + [0.01, 0.011, 0.012]
        (claim,) = (
            c for c in study_claims(result) if (c.text, c.where) == (text, where)
        )
        assert claim.verdict == verdict
        assert claim.measured.endswith(words)
        assert claim.scale == "300 points of 8×8 pixels"
        found[name]["auc"][:] = kept


def test_one_seed_without_texts(jobs, tmp_path):
    jobs()
    some = {
        name: job
        for name, job in run.experiments(Sizes(), RankSizes(), full=False).items()
        if "texts" not in name and "network" not in name
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "experiments", lambda *_, **__: some)
        result = run_study(tmp_path, seeds=(4,))
    chapter = study_chapter(result)
    words = " ".join(block for block in chapter.blocks if isinstance(block, str))
    assert "Reviews are left out" in words
    assert {c.verdict for c in study_claims(result)} >= {"can't be told"}


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    called = mock.create_autospec(run.run_study)
    monkeypatch.setattr(run, "run_study", called)
    monkeypatch.setattr(
        chapter, "study_chapter", lambda _: Chapter(title="C", blocks=[])
    )
    monkeypatch.setattr(chapter, "study_tally", lambda _: "7 hold")
    experiment("values", "--seeds", 2, "--out", "out")
    called.assert_called_once_with(
        Path("out/runs"),
        seeds=range(2),
        full=False,
        progress=False,
        workers=Workers(),
    )
    assert "Claims on single data sets: 7 hold" in capsys.readouterr().out
    experiment("values", "--full", "--force", "--out", "out")
    assert called.call_args.kwargs["full"] is True
    assert called.call_args.kwargs["seeds"] == range(10)
    assert "--seeds must be at least 1" in refuse_experiment(
        capsys, "values", "--seeds", "0"
    )
