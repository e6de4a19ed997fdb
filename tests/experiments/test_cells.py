"""The paper's own cells: tiny prepared sets, and tiny targets in folders."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import cells
import numpy as np
import pytest
from commands import experiment, refuse_experiment as refuse

pytest.importorskip("safetensors", reason="comes with the text extra")
pytest.importorskip("tokenizers", reason="comes with the text extra")

from experiments._kit.judge import FAILS, HOLDS, UNTESTED
from experiments._kit.reading import read_cell
from experiments.selectformer.cells import trial
from experiments.selectformer.cells.chapter import cell_chapter, cell_claims
from experiments.selectformer.cells.grid import (
    ORACLE,
    OURS,
    PUBLISHED,
    RANDOM,
    called,
    cuts,
    ways,
)
from experiments.selectformer.cells.run import CellResult
from jaxsel.models import EncoderConfig
from jaxsel.report import Report

BASE = {"heads": 12, "hidden": 768, "intermediate": 3072}
BERT = EncoderConfig(kind="text", layers=12, vocab=30_522, positions=512, **BASE)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("cells")
    cells.pairs(root / "data")
    cells.photos(root / "data")
    return SimpleNamespace(
        data=root / "data",
        bert=cells.target(root / "bert", "bert"),
        distilbert=cells.target(root / "distilbert", "distilbert"),
        vit=cells.target(root / "vit", "vit"),
    )


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(made.data))
    return made


def test_texts_of_two_parts_are_read_with_known_classes_only(here):
    cell = read_cell("pairs", str(here.bert))
    assert (cell.train, len(cell.y), cell.n_classes) == (160, 190, 2)
    assert set(cell.y) == {0, 1}  # the test split's are secret: validation stands in
    words = np.array(cells.WORDS)[cell.take(np.arange(3)).ids]
    for row, y in zip(words, cell.y, strict=False):
        assert row[:5].tolist() == ["[CLS]", "was", "it", "good", "[SEP]"]
        assert row[7] == ("bad", "good")[y]


def test_images_of_all_sizes_fit_the_target(here):
    cell = read_cell("photos", str(here.vit))
    assert (cell.train, len(cell.y), cell.n_classes) == (150, 180, 3)
    images = cell.take(np.arange(20))
    assert images.shape == (20, 6, 6, 3)
    assert images.dtype == np.float32
    bright = images.mean(axis=(1, 2, 3))
    assert bright[cell.y[:20] == 1].min() > bright[cell.y[:20] != 1].max()
    assert -1 <= images.min() < images.max() <= 1
    (here.vit / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0, 0, 0], "image_std": [1, 1, 2]})
    )
    other = read_cell("photos", str(here.vit)).take(np.arange(20))
    (here.vit / "preprocessor_config.json").unlink()
    np.testing.assert_allclose(other[..., 0], (images[..., 0] + 1) / 2, atol=1e-6)
    np.testing.assert_allclose(other[..., 2], (images[..., 2] + 1) / 4, atol=1e-6)


@pytest.mark.left_out
def test_refuses(here, capsys, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("refused")
    lone = shutil.copytree(here.bert, elsewhere / "lone")
    (lone / "tokenizer.json").unlink()
    bare = shutil.copytree(here.bert, elsewhere / "bare")
    (bare / "model.safetensors").unlink()
    text = {"text": cells.features.Text()}
    label = {"label": cells.features.ClassLabel(num_classes=2)}
    rows = [{"text": "good", "label": 0}] * 3
    for name, kinds, splits in (
        ("unlabelled", text, {"train": [{"text": "good"}]}),
        (
            "scores",
            text | {"label": np.float32},
            {"train": [{**rows[0], "label": 0.5}]},
        ),
        ("whole", text | label, {"train": rows}),
        ("secret", text | label, {"train": rows, "test": [{"text": "a", "label": -1}]}),
        ("single", text | label, {"train": rows, "test": rows}),
    ):
        cells.prepare(here.data, name, kinds, splits)
    capsys.readouterr()
    for data, target, message in (
        ("glue/sst2", here.bert, "--data 'glue/sst2' is not prepared in"),
        ("pairs", elsewhere / "none", "config.json"),
        ("pairs", bare, "weights must be one safetensors"),
        ("pairs", lone, "there is no tokenizer.json"),
        ("pairs", here.vit, "must hold one image in each sample"),
        ("photos", here.bert, "must hold one text, or two in each sample"),
        ("unlabelled", here.bert, "must have a class for each sample"),
        ("scores", here.bert, "must have a class for each sample"),
        ("whole", here.bert, "labelled samples to test on, in test or validation"),
        ("secret", here.bert, "labelled samples to test on"),
        ("single", here.bert, "must have two classes at least, got one"),
    ):
        cell = "selectformer", "--data", data, "--target", target
        assert message in refuse(capsys, *cell), (data, target)
    assert "--target is missing" in refuse(capsys, "selectformer", "--data", "pairs")
    assert "--data is missing" in refuse(capsys, "selectformer", "--paper")
    cell = "selectformer", "--data", "pairs", "--target", here.bert
    for option in (("--full",), ("--workers", "2"), ("--executor", "ray")):
        message = refuse(capsys, *cell, *option)
        assert f"{option[0]} does not go with --data" in message
    assert "no option --data" in refuse(capsys, "secure", "--data", "pairs")


def test_the_grid_is_the_papers():
    few, all_ways = ways(BERT, paper=False), ways(BERT, paper=True)
    assert [*few] == [OURS, RANDOM, ORACLE, "probe"]
    first, last = all_ways[OURS].phases
    assert (tuple(first[0]), first[1]) == ((1, 1, 2, ""), 0.3)
    assert (tuple(last[0]), last[1]) == ((3, 12, 16, ""), None)
    three = all_ways["d = 2, 8, 16"].phases
    assert [share for _, share in three] == [0.5, 0.3, None]
    assert [cut.layers for cut, _ in three] == [1, 3, 3]  # Table 4, BERT
    distilled = dataclasses.replace(BERT, layers=6)
    small = ways(distilled, paper=True)
    assert [cut.layers for cut, _ in small["d = 2, 8, 16"].phases] == [1, 1, 1]
    assert [cut.layers for cut, _ in small[OURS].phases] == [1, 3]  # Table 6
    sizes = {"side": 224, "patch": 16, "channels": 3}
    vit = EncoderConfig(kind="image", layers=12, **BASE, **sizes)
    assert [cut.layers for cut, _ in ways(vit, paper=False)[OURS].phases] == [3, 3]
    budgets = {way.budget for way in all_ways.values() if way.by == "random"}
    assert budgets == {0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
    peer = all_ways["MPCFormer"].phases[1][0]
    assert peer.goal == "logits"
    assert (peer.spec().norm, peer.spec().attention) == ("exact", "2quad")
    assert len(cuts(all_ways.values())) == len(set(cuts(all_ways.values())))
    for config in (BERT, distilled, vit):
        assert called(config) in {name for _, name in PUBLISHED}


def test_a_class_is_kept_whole_and_others_cut_to_a_ninth(here):
    cell = read_cell("photos", str(here.vit))
    offered = trial.deal(cell, 0)
    counts = np.bincount(cell.y[offered.rows], minlength=3)
    assert sorted(counts) == [6, 6, 50]
    assert offered.rows.max() < cell.train <= offered.test.min()
    parts = np.concatenate([offered.first, offered.left])
    assert sorted(parts) == [*range(62)]
    assert len(offered.first) == 3


@pytest.mark.parametrize("kind", ["bert", "vit"])
@pytest.mark.every(2)
def test_bottom_layers_are_the_targets_own(here, kind):
    cell = read_cell({"bert": "pairs", "vit": "photos"}[kind], str(getattr(here, kind)))
    inputs = cell.take(np.arange(5))
    whole = trial._bottom(cell.target, cells.LAYERS)
    np.testing.assert_array_equal(whole.logits(inputs), cell.target.logits(inputs))
    one = trial._bottom(cell.target, 1)
    assert one.config.layers == 1
    if kind == "bert":  # of a ViT a norm follows the last layer
        first = cell.target.features(inputs, layers=(1,))
        np.testing.assert_allclose(one.features(inputs), first, rtol=1e-5, atol=1e-6)


def test_phases_leave_what_the_paper_says():
    n = 1000
    left = np.arange(50, n)
    offered = trial.Offer(np.arange(n), np.arange(50), left, np.zeros(0, int))
    rng = np.random.default_rng(0)
    all_ways = ways(BERT, paper=True)
    scores = {cut: rng.normal(size=950) for cut in cuts(all_ways.values())}
    oracle = rng.normal(size=950)
    best = lambda values, k: set(np.argsort(-values)[:k].tolist())
    (first, _), (last, _) = all_ways[OURS].phases
    for name, budget in ((OURS, 200), (f"{OURS}, 40%", 400)):
        chosen = trial._chosen(all_ways[name], scores, oracle, offered, 0)
        assert len(chosen) == budget - 50  # the bootstrap set counts
        sieved = best(scores[first], 300 * budget // 200 - 50)
        assert set(chosen) <= sieved
        assert min(scores[last][chosen]) >= max(scores[last][[*(sieved - set(chosen))]])
    target = trial._chosen(all_ways[ORACLE], scores, oracle, offered, 0)
    assert set(target) == best(oracle, 150)
    draws = [
        trial._chosen(all_ways[RANDOM], scores, oracle, offered, s) for s in (0, 1)
    ]
    assert len(set(draws[0]) & set(draws[1])) < 60
    everything = trial._chosen(all_ways["random, 100%"], scores, oracle, offered, 0)
    assert sorted(everything) == [*range(950)]
    scores[first] = np.full(950, np.nan)  # refused
    assert trial._chosen(all_ways[OURS], scores, oracle, offered, 0) is None
    assert np.isnan(trial._rho(all_ways[RANDOM], scores, oracle))


def test_the_rate_is_the_highest_that_the_guard_accepts(monkeypatch):
    """Trainings at the first two rates diverge, and rank otherwise."""
    tried = []

    class Fake:
        def __init__(self, rate):
            self.rate = rate

        def logits(self, *read):
            return np.linspace(0, 1, 6)[:, None] * [1.0, -1.0]

        def scores(self, logits, *, finite):
            exact = np.asarray(trial.entropy(logits))
            return exact if self.rate <= accepts else -exact

    def tune(untrained, *read, learning_rate, min_correlation, **options):
        assert min_correlation is None
        tried.append(learning_rate)
        stopped = "not finite" if learning_rate == trial.RATES[0] else None
        return Fake(learning_rate), SimpleNamespace(stopped=stopped)

    monkeypatch.setattr(trial, "tune", tune)
    key = trial.jax.random.key(0)
    cut = cuts(ways(BERT, paper=False).values())[0]
    lessons = {"labels": np.zeros(6, int)}
    accepts = trial.RATES[2]
    _, rate, failures, rank = trial._accepted(None, cut, (0, 0), lessons, key)
    assert (rate, failures, rank) == (trial.RATES[2], 2, pytest.approx(1))
    assert tried == [*trial.RATES[:3]]
    accepts = 0
    _, rate, failures, rank = trial._accepted(None, cut, (0, 0), lessons, key)
    assert np.isnan(rate)
    assert (failures, rank) == (len(trial.RATES), pytest.approx(-1))


def planted(seeds=5, **accuracy):
    compared = ways(BERT, paper=True)
    rng = np.random.default_rng(0)
    values = 0.8 + 0.002 * rng.normal(size=(seeds, len(compared)))
    for name, shift in accuracy.items():
        values[:, [*compared].index(name)] += shift
    made = cuts(compared.values())
    return CellResult(
        data="glue/sst2",
        target="BERT",
        kind="text",
        seeds=np.arange(seeds),
        compared=compared,
        made=made,
        n=np.full(seeds, 41743),
        tested=872,
        accuracy=values,
        rho=np.full(values.shape, 0.5),
        rate=np.full((seeds, len(made)), 1e-4),
        refused=np.zeros((seeds, len(made)), int),
        emulated=np.full((seeds, len(made)), 0.95),
    )


@pytest.fixture
def short(monkeypatch):
    """One short training of each proxy, which is accepted however it ranks."""
    recipe = {"POINTS": 2048, "EPOCHS": 1, "RATES": (1e-4,), "ACCEPTED": -1}
    for name, value in recipe.items():
        monkeypatch.setattr(trial, name, value)


def page(result, folder):
    chapters = [cell_chapter(result)]
    file, _ = Report(title="t", summary="s", chapters=chapters).save(folder)
    return file.read_text()


def verdicts(result):
    return {claim.text: claim.verdict for claim in cell_claims(result)}


def test_claims_of_a_cell(tmp_path):
    result = planted(**{OURS: 0.05, ORACLE: 0.1, "MPCFormer": 0.2, "random, 70%": 0.04})
    said = verdicts(result)
    assert said["The two phases train a better model than a random choice"] == HOLDS
    near = next(v for text, v in said.items() if "target's own choice" in text)
    assert near == FAILS
    assert (
        said["They are above MPCFormer's and Bolt's softmax in the same two phases"]
        == FAILS
    )
    shown = page(result, tmp_path)
    assert "84.59 %" in shown  # the paper's own figure, beside
    assert "79.58 %" in shown


def test_a_refused_proxy_is_no_defeat(tmp_path):
    said = verdicts(planted(**{OURS: np.nan}))
    text = "The two phases train a better model than a random choice"
    assert said[text] == f"{UNTESTED}, because the guard refused two phases"
    assert "refused" in page(planted(**{OURS: np.nan}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "distilbert", "vit"])
def test_a_cell_runs_and_goes_on(here, short, monkeypatch, capsys, kind):
    data, n, bought = ("photos", 62, 12) if kind == "vit" else ("pairs", 89, 18)
    cell = "selectformer", "--data", data, "--target", getattr(here, kind)
    cell = (*cell, "--seeds", 1)
    experiment(*cell)
    out = Path(f"repro-selectformer-{data}-{kind}")
    said = capsys.readouterr().out
    assert f"{n} samples are offered, 30 tested on" in said
    assert f"purchase 4 of 4: probe, {bought} samples" in said
    numbers = json.loads((out / "report.json").read_text())["chapters"][0]["data"]
    accuracy = np.array(numbers["accuracy"], float)
    assert accuracy.shape == (1, 4)
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    # What is kept is read: nothing is trained again.
    monkeypatch.setattr(trial, "finetune", None)
    monkeypatch.setattr(trial, "tune", None)
    experiment(*cell, "--force")
    again = json.loads((out / "report.json").read_text())["chapters"][0]["data"]
    assert again == numbers
