"""The study's report and command, from made-up results."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from commands import experiment, refuse_experiment

from experiments._kit.judge import COUNTED, FAILS, HOLDS, UNTESTED
from experiments._kit.scenes.valuations import MAX
from experiments._kit.seeds import Workers
from experiments.values import chapter, networks, run
from experiments.values.cases import TITLES, Sizes
from experiments.values.chapter import study_chapter
from experiments.values.claims import study_claims
from experiments.values.claims_pretrained import WHERE
from experiments.values.embeddings import PRETRAINED, TEXTS
from experiments.values.methods import METHODS, OURS
from experiments.values.nearest import INSPECTED, SETTINGS
from experiments.values.ours import our_claims
from experiments.values.pretrained import COLUMNS, SETTINGS as PLANTED, SPACES
from experiments.values.ranks import BINS, TESTED, RankSizes
from experiments.values.run import CURVES, DOMAINS, run_study
from experiments.values.sizes import ADAPTED
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
    if name == "nearest":
        shape = (len(SETTINGS), len(CURVES.n_val), 2)
        auc = np.full(shape, 0.8) + rng.normal(size=shape) / 1000
        auc[1, :, 1] -= 0.3
        return {
            "auc": auc,
            "found": np.repeat(auc[..., None], len(INSPECTED), -1),
            "zero": auc[..., 1],
        }
    if name == "domain-sizes":
        after = np.tile(np.linspace(0.6, 0.4, len(ADAPTED)), (len(DOMAINS.n), 1))
        after[DOMAINS.n.index(1000), 1] += 0.2
        after += rng.normal(size=after.shape) / 1000
        after[-1, ADAPTED.index("LOO")] = np.nan
        return {"before": np.full(len(DOMAINS.n), 0.5), "after": after, "kept": after}
    if name == "order":
        counts = np.array([[[9, 2, 7, 0, 0], [9, 8, 1, 0, 0]]] * 2)
        return {"counts": counts, "near": counts[0]}
    if name == "networks":
        lds = np.tile(np.linspace(0.7, 0, len(networks.COLUMNS)), (4, 1))
        lds += rng.normal(size=lds.shape) / 1000
        return {"lds": lds, "ceiling": lds[:, 0] + 0.2, "accuracy": lds[:, 0] + 0.1}
    if name == "pretrained":
        level = 0.95 - 0.01 * np.arange(len(COLUMNS)) + rng.normal() / 1000
        level = np.tile(level, (len(PLANTED), 1))
        level[1, COLUMNS.index(("LOO", "features"))] = 0.96 + seed / 1000
        steps = np.linspace(0, 1, 11)
        return {
            "auc": level,
            "curves": level[..., None] * steps,
            "accuracy": np.full((len(PLANTED), 2, len(SPACES)), 0.7),
        }
    names = PRETRAINED if name == "embeddings-images" else TEXTS
    gallery = rng.integers(0, 256, (len(names), 20, 14, 14)).astype(np.uint8)
    auc = np.stack([np.full(len(names), 0.95), np.full(len(names), 0.85)])
    return {
        "auc": auc + rng.normal(size=auc.shape) / 1000,
        "counts": np.tile([9, 8, 7, 3, 2, 1], (len(names), 1)),
        "points": np.ones((len(names), len(names))),
    } | ({"gallery": gallery} if names == PRETRAINED else {})


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
        for name in run.OTHERS:
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
    assert 0 < first < 3 * (len(TITLES) + len(run.OTHERS))
    jobs()
    result = run_study(tmp_path, seeds=SEEDS)
    assert len(ran) == len(set(ran)) == 3 * (len(TITLES) + len(run.OTHERS))
    auc = result.applications["noisy-digits"].summary["LOO"]["auc"]
    assert auc[2] == made_up("noisy-digits", 2)["summary/LOO/auc"]
    kinds = [name.split("-")[0] for name in result.applications]
    together = [a for a, b in zip(kinds, [None, *kinds], strict=False) if a != b]
    assert len(together) == len(set(kinds))
    assert result.ranks["smoothed"].shape == (3, len(BINS), len(TESTED))
    with pytest.raises(ValueError, match="seeds must hold at least one seed"):
        run_study(tmp_path, seeds=())


@pytest.mark.left_out
def test_the_chapter_judges_and_shows(jobs, tmp_path):
    jobs()
    result = run_study(tmp_path / "runs", seeds=SEEDS)
    by = {(c.text, c.where): c.verdict for c in study_claims(result)}
    where = TITLES["noisy-digits"]
    assert by["KNN-Shapley finds more than all others", where] == HOLDS
    wrong = "KNN-Shapley finds more wrong labels than KNN-LOO"
    assert by[wrong, where] == HOLDS
    marks = by[
        f"{MAX} finds more foreign samples than all others", TITLES["instance-mnist"]
    ]
    assert marks == FAILS
    near = "KNN-LOO is near random"
    assert by[near, f"Wrong labels, Fashion-MNIST, {SETTINGS[0]}"] == FAILS
    assert by[near, f"Wrong labels, Fashion-MNIST, {SETTINGS[1]}"] == HOLDS
    domains = "MNIST to digits, n = 1,000"
    assert by["KNN-Shapley gains", domains] == HOLDS
    assert by["KNN-Shapley adapts better than KNN-LOO", domains] == FAILS
    nearest = "KNN-LOO keeps the order of the K nearest only"
    assert by[nearest, "Theorem 2, one validation point"] == FAILS
    kinds = {(c.text, c.where): c.test for c in study_claims(result)}
    assert kinds[nearest, "Theorem 2, one validation point"] == COUNTED
    tested = [kind for kind in kinds.values() if "t-test" in kind]
    assert all("3 seeds" in kind for kind in tested)
    # One claim only is tested of acquisition.
    assert sum("Holm of" not in kind for kind in tested) == 1

    chapter = study_chapter(result)
    html, numbers = Report(title="T", summary="S", chapters=[chapter]).save(tmp_path)
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    shown = data["applications"]["summary-adult"]["summary"]["LOO"]["last_accuracy"]
    expected = result.applications["summary-adult"].summary["LOO"]["last_accuracy"]
    np.testing.assert_array_equal(shown, expected)
    text = html.read_text()
    # Applications but adaptation, runtimes, embeddings, their gallery, features.
    assert text.count("<svg") == len(TITLES) - 2 + 5
    assert "31.7 → 47.0 %" in text
    assert "90,000 times" in text


def test_a_verdict_needs_the_models_of_the_study(jobs, tmp_path):
    jobs()
    result = run_study(tmp_path / "runs", seeds=SEEDS)
    by = {(c.text, c.where): c for c in study_claims(result)}
    others = "KNN-Shapley finds more than all others"
    for name, reason in (
        ("noisy-fashion_mnist", "a convolutional network again, not a logistic"),
        ("noisy-network", "a convolutional network again, not a perceptron"),
        ("noisy-texts", None),
        ("noisy-words", None),
    ):
        claim = by[others, TITLES[name]]
        if reason is None:
            assert claim.verdict == HOLDS
            continue
        assert claim.verdict.startswith(f"{UNTESTED}, because the study trains")
        assert reason in claim.verdict
        assert (claim.test, claim.p) == ("none", None)
        near = by["KNN-Shapley finds more wrong labels than KNN-LOO", TITLES[name]]
        assert near.verdict == HOLDS
    marks = "KNN-Shapley finds more marks than KNN-LOO and a random order"
    assert by[marks, TITLES["pattern-mnist"]].verdict == HOLDS
    never = [c for c in by.values() if c.where.startswith(("Adversarial", "MNIST, n"))]
    assert len(never) == 6
    assert all(c.verdict.startswith(UNTESTED) for c in never)
    faster = "KNN-Shapley is faster than TMC-Shapley by orders of magnitude"
    assert by[faster, "MNIST, n = 200"].measured == "90,000 times"


def test_pretrained_features_are_compared_with_pixels_and_with_all(jobs, tmp_path):
    jobs()
    result = run_study(tmp_path / "runs", seeds=SEEDS)
    by = {(c.text, c.where): c for c in study_claims(result)}
    gains = "KNN-Shapley of pretrained features finds more wrong labels than that of"
    claim = by[f"{gains} pixels", WHERE["noisy"]]
    assert (claim.verdict, claim.test) == (HOLDS, "t-test, 3 seeds, Holm of 6")
    assert claim.measured == "features less pixels: +1.0 ± 0.0 points"
    first = f"{MAX} of features finds more foreign samples than all others, which"
    assert by[f"{first} train on pixels", WHERE["instance"]].verdict == FAILS
    alike = f"{MAX} finds more foreign samples than all others, where all see features"
    claim = by[alike, WHERE["instance"]]
    assert claim.verdict == FAILS
    assert claim.measured.endswith("; above it: KNN-Shapley and LOO")
    mixed = "KNN-Shapley of features finds more than all others, which train on pixels"
    claim = by[mixed, WHERE["noisy"]]
    assert claim.verdict.startswith(f"{UNTESTED}, because the study trains a conv")


def test_methods_that_the_study_lacks_are_compared_apart(jobs, tmp_path):
    jobs()
    result = run_study(tmp_path / "runs", seeds=SEEDS)
    text, where = "KNN-Shapley finds more than all others", TITLES["noisy-texts"]

    def judged():
        claims = {(c.text, c.where): c for c in study_claims(result)}
        ours = {(c.text, c.where): c for c in our_claims(result)}
        return claims[text, where], ours

    found = result.applications["noisy-texts"].summary
    higher = found["KNN-Shapley"]["auc"] + [0.01, 0.011, 0.012]
    before, ours = judged()
    assert before.scale == "300 points, 12 components"
    assert len(ours) == len(OURS) * (len(TITLES) - 1)  # nobody buys by them
    assert ours["Data-OOB is above KNN-Shapley", where].verdict == FAILS
    assert (f"Data-OOB is above {MAX}", TITLES["instance-mnist"]) in ours
    kept = found["Data-OOB"]["auc"].copy()
    found["Data-OOB"]["auc"][:] = higher
    after, ours = judged()
    assert after == before
    assert ours["Data-OOB is above KNN-Shapley", where].verdict == HOLDS
    found["Data-OOB"]["auc"][:] = kept
    found["TMC-Shapley"]["auc"][:] = higher
    after, _ = judged()
    assert after.verdict == FAILS
    assert after.measured.endswith("; above it: TMC-Shapley")


def test_naive_bayes_has_no_g_shapley_to_compare(jobs, tmp_path):
    jobs()
    result = run_study(tmp_path / "runs", seeds=SEEDS)
    for name, verdict in (("noisy-words", HOLDS), ("noisy-texts", FAILS)):
        found = result.applications[name].summary
        found["G-Shapley"]["auc"][:] = found["KNN-Shapley"]["auc"] + [0.01, 0.011, 0.01]
        by = {(c.text, c.where): c.verdict for c in study_claims(result)}
        assert by["KNN-Shapley finds more than all others", TITLES[name]] == verdict


def test_one_seed_without_texts(jobs, tmp_path):
    jobs()
    some = {
        name: job
        for name, job in run.experiments(Sizes(), RankSizes(), full=False).items()
        if not name.endswith(("texts", "network", "words", "pretrained"))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "experiments", lambda *_, **__: some)
        result = run_study(tmp_path, seeds=(4,))
    chapter = study_chapter(result)
    words = " ".join(block for block in chapter.blocks if isinstance(block, str))
    assert "Reviews are left out" in words
    assert "Posts are left out" in words
    assert "Pretrained features of images are left out" in words
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
    assert "Of the study's claims 7 hold" in capsys.readouterr().out
    experiment("values", "--full", "--force", "--out", "out")
    assert called.call_args.kwargs["full"] is True
    assert called.call_args.kwargs["seeds"] == range(10)
    assert "--seeds must be at least 1" in refuse_experiment(
        capsys, "values", "--seeds", "0"
    )
