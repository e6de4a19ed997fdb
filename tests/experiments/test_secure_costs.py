"""The costs of a secure choice: counts, the choice's report, and a small real run."""

import dataclasses
import importlib.util
import json

import numpy as np
import pytest
from commands import experiment

from experiments._kit.judge import FAILS, HOLDS, UNTESTED
from experiments.secure import choice, run
from experiments.secure.chapter import secure_chapter, summed_up
from experiments.secure.choice import Pool, in_the_clear, pool_of, probe_of
from experiments.secure.claims import CLAIMS, FIGURES, judged, near
from experiments.secure.measured import claimed
from experiments.secure.paper import BERT, LENGTHS
from experiments.secure.purchase import purchase
from experiments.secure.run import Choices, Purchases, count_all, run_secure
from experiments.secure.ways import (
    ENGINES,
    NETWORK,
    counted,
    manifests,
    selections,
)
from experiments.selectformer.sources import Source
from jaxsel import proxy
from jaxsel.proxy import choice_cost, cost, probe_manifest
from jaxsel.report import Heading, Report

needs_spu = pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)


def test_claims_are_counted_as_the_guide_has_them():
    """docs/secure-cost.md, beside the paper's figures."""
    short, long = (claimed(length) for length in LENGTHS)
    assert set(short) == {*FIGURES, "scheduling"}
    for found in (short, long):
        assert (found["comparison rounds"], found["comparison bytes"]) == (8, 432)
    assert (short["softmax rounds"], long["softmax rounds"]) == (116, 136)
    assert round(short["softmax share"], 3) == 0.433
    assert round(long["softmax share"], 3) == 0.736
    assert round(short["softmax by MLP"]) == 20
    assert round(long["softmax by MLP"]) == 43
    assert (round(short["scheduling"], 2), round(long["scheduling"], 2)) == (1.32, 1.05)
    # An MLP for the norm takes more, not less.
    assert short["norm by MLP"] < 1
    near_ones = [name for name in FIGURES if near(long[name], FIGURES[name].value)]
    assert {"BERT GB", "BERT rounds", "softmax by MLP"} <= set(near_ones)
    assert "norm by MLP" not in near_ones


def test_near_is_symmetric():
    assert near(1.2, 1.0)
    assert near(1.0, 1.2)
    assert not near(1.3, 1.0)
    assert not near(1.0, 1.3)


def test_a_selection_counts_its_phases():
    """Of 1,000 rows 50 are bought before; 300 and 200 are left, these counted."""
    first = probe_manifest(width=8, n_classes=2)
    second = proxy.manifest(proxy.paper_spec(1, 12, 16), **BERT, length=8)
    for engine in ENGINES:
        found = counted((first, second), engine, rows=1000)
        options = {"engine": engine}
        parts = [
            cost(first, 950, NETWORK, batch_size=64, **options),
            choice_cost(950, 250, NETWORK, **options),
            cost(second, 250, NETWORK, batch_size=64, **options),
            choice_cost(250, 150, NETWORK, **options),
        ]
        assert found.bytes == sum(part.bytes for part in parts)
        assert found.rounds == pytest.approx(sum(part.rounds for part in parts))
        seconds = sum(part.seconds for part in parts)
        assert found.hours * 3600 == pytest.approx(seconds)
        if engine == "crypten":
            alone = found.rounds * 0.1 + found.bytes / 2 / 100e6
            assert seconds == pytest.approx(alone)
    assert NETWORK.latency == 0.1


def test_ways_are_in_the_order_that_the_paper_says():
    (sizes, known) = selections(512)["DistilBERT"]
    hours = {
        name: counted(manifests(way, sizes), "crypten").hours
        for name, way in known.items()
        if name != "exact target"
    }
    assert hours["paper"] < hours["MPCFormer"] < hours["Bolt"]
    assert hours["Bolt"] < hours["exact proxies"] / 5
    assert hours["paper"] < hours["paper, 1 phase"]
    assert hours["probe"] < hours["probe, 1 layer"] < hours["paper"]
    # Peers replace the softmax alone.
    assert known["MPCFormer"].phases[0].norm == "exact"
    assert known["MPCFormer"].phases[0].attention == "2quad"
    assert {manifest.plan for manifest in manifests(known["paper"], sizes)} == {"plain"}


@pytest.fixture
def without_texts(monkeypatch):
    monkeypatch.setattr(choice, "_encoded", lambda n, progress: np.zeros((0, 384)))


def test_features_say_where_they_come_from(without_texts, monkeypatch):
    pool = pool_of(50, full=False, seed=0)
    assert pool.source == "50 standard normal draws, no texts are prepared"
    np.testing.assert_array_equal(pool.x, pool_of(50, full=False, seed=0).x)
    assert not np.array_equal(pool.x, pool_of(50, full=False, seed=1).x)
    rng = np.random.default_rng(0)
    real = (3 + rng.normal(size=(2000, 384)) * np.arange(1, 385)).astype(np.float32)
    asked = []

    def encoded(n, progress):
        asked.append(n)
        return real[:n]

    monkeypatch.setattr(choice, "_encoded", encoded)
    pool = pool_of(6000, full=False, seed=0)
    assert pool.source.startswith("MiniLM's of 2,000 texts, and 4,000 normal draws")
    assert pool.x.shape == (6000, 384)
    np.testing.assert_allclose(pool.x.std(0), np.arange(1, 385), rtol=0.15)
    # Real rows are among them, not in front.
    assert not np.array_equal(pool.x[:2000], real)
    assert {row.tobytes() for row in real} < {row.tobytes() for row in pool.x}
    assert pool_of(1500, full=True, seed=0).source == "MiniLM's of 1,500 texts"
    assert asked == [2000, 1500]


@pytest.mark.slow
def test_the_probe_ranks_by_a_direction():
    x = np.random.default_rng(0).normal(size=(3000, 16)).astype(np.float32)
    probe = probe_of(Pool(x=x, source=""), seed=0)
    rows = in_the_clear(probe, x, 300)
    scores = np.asarray(probe.scores(probe.logits(x)))
    assert len(rows) == 300
    assert scores[rows].min() >= np.delete(scores, rows).max()
    assert np.abs(x).max() <= probe.manifest.fixed_point.bounds["inputs"]


FOUND = {
    "source": "nothing",
    "megabytes": np.array([300.0, 200.0]),
    "choice_megabytes": 90.0,
    "rounds": 700,
    "passes": 19,
    "wall": 61.0,
    "working": 45.0,
    "choosing": 30.0,
    "same": 0.99988,
}


@pytest.fixture
def fake(monkeypatch):
    """Runs that are not made; which ones were asked for."""
    asked = []

    def made(engine, n, keep, **options):
        asked.append((engine, n, keep, options["full"], options["seed"]))
        return dict(FOUND)

    counts, claims = count_all(8), {name: one.value for name, one in FIGURES.items()}

    def bought(engine, source, seed):
        assert source == "read"
        accuracy = np.array([0.71, 0.7, 0.65], np.float32)
        counts = {"n": 900, "refused": 0, "tested": 1000}
        return {**counts, "same": 0.99, "accuracy": accuracy}

    monkeypatch.setattr(run, "prepared", lambda: {"tweets": lambda: "read"})
    monkeypatch.setattr(run, "purchase", bought)
    monkeypatch.setattr(run, "choose", made)
    monkeypatch.setattr(run, "installed", lambda engine: engine != "spu-aby3")
    monkeypatch.setattr(run, "count_all", lambda length: counts)
    claims |= {"norm by MLP": 0.05, "scheduling": 1.32}
    monkeypatch.setattr(run, "claimed", lambda length: claims)
    return asked


def test_the_report_has_counts_and_runs(fake, tmp_path, capsys):
    experiment("secure", "--out", tmp_path / "out", "--seeds", 2)
    engine = "spu-cheetah"
    assert fake == [(engine, 42_000, 8400, False, seed) for seed in (0, 1)]
    told = capsys.readouterr().out
    line = "spu-cheetah: 8,400 of 42,000 rows in 61 s (45 s without set-up), 500 MB"
    assert line in told
    page = (tmp_path / "out" / "report.html").read_text()
    assert "because SPU is not installed here: spu-aby3" in page
    assert "99.988%" in page
    assert "Not reproduced: “The norm sends 8.25 times the bytes of its MLP”." in page
    # .01 of a standard error of (2 x .7 x .3 / 1000)^.5 = .0205
    assert "the models that are trained on both differ by 0.5 standard errors" in page
    assert "99.00% of what was bought in secret" in page
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    data = document["chapters"][0]["data"]
    assert data["runs"][engine]["passes"] == [19, 19]
    assert set(data["claims"]) == {str(length) for length in LENGTHS}
    first = data["selections"]["128"]["DistilBERT"]["paper"]
    assert set(first) == set(ENGINES)
    # What is there is not run again.
    experiment("secure", "--out", tmp_path / "out", "--seeds", 2, "--force")
    assert len(fake) == 2
    experiment("secure", "--out", tmp_path / "out", "--full", "--force")
    assert fake[2:] == [(engine, 42_000, 8400, True, 0)]


def test_figures_are_judged_at_each_length(fake, tmp_path):
    """Near at one length of two holds in one setting of two, and no t-test is said."""
    result = run_secure(tmp_path / "runs", seeds=(0, 1))
    counts = {128: dict(result.claims[128]), 512: dict(result.claims[512])}
    counts[128]["BERT GB"] = 33.0
    result = dataclasses.replace(result, claims=counts)
    rows = {}
    for claim in judged(result):
        rows.setdefault(claim.text, []).append(claim)
    verdicts = {text: [c.verdict for c in some] for text, some in rows.items()}
    gigabytes = rows["BERT sends 245 GB for a batch of 4"]
    assert [(c.where, c.measured, c.verdict, c.test) for c in gigabytes] == [
        ("128 tokens", "33 counted", FAILS, "none, counted"),
        ("512 tokens", "245 counted", HOLDS, "none, counted"),
    ]
    assert verdicts["The norm sends 8.25 times the bytes of its MLP"] == [FAILS] * 2
    (secret,) = rows["A choice in secret costs at most 0.5 points of accuracy"]
    assert (secret.where, secret.verdict) == ("Tweets, spu-cheetah", HOLDS)
    assert "+1.0 ± 0.0 points" in secret.measured
    # Delays have no verdict, and their figures are shown.
    delays = [c for c in judged(result) if c.verdict.startswith(UNTESTED)]
    assert len(delays) == len(CLAIMS) - len(FIGURES) - 1 == 4
    assert {c.where for c in delays} == {"128 tokens and 512 tokens"}
    assert next(c for c in delays if "1.3 to 1.4" in c.text).measured == "1.32 and 1.32"
    chapter = secure_chapter(result)
    matrix, figure = chapter.blocks[:2]
    assert "Holds in" in matrix.columns
    assert hasattr(figure, "plot")
    headings = [b.text for b in chapter.blocks if isinstance(b, Heading)]
    assert headings[0] == (
        "Of the paper's claims 7 hold in each setting, 1 holds in some settings, "
        "1 holds in none and 4 are not tested here"
    )


def test_nothing_to_run(fake, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "installed", lambda engine: False)
    result = run_secure(tmp_path / "runs")
    assert summed_up(result) == "No real run: SPU is not installed here"
    chapter = secure_chapter(result)
    html, _ = Report(title="T", summary="", chapters=[chapter]).save(tmp_path)
    assert "not installed here: spu-cheetah and spu-aby3" in html.read_text()
    counted = next(b for b in chapter.blocks if "CrypTen." in getattr(b, "caption", ""))
    assert "Nothing was tested" in counted.caption
    assert "t-test" not in counted.caption
    untested = {c.text: c for c in judged(result) if c.verdict.startswith(UNTESTED)}
    assert "A choice in secret costs at most 0.5 points of accuracy" in untested
    with pytest.raises(ValueError, match="seeds must hold at least one seed"):
        run_secure(tmp_path, seeds=())


@needs_spu
@pytest.mark.mpc
@pytest.mark.slow
def test_a_small_choice_is_made_in_secret(without_texts):
    found = choice.choose("spu-cheetah", 400, 80, full=False, seed=3)
    assert set(found) == {field.name for field in dataclasses.fields(Choices)}
    assert found["same"] >= 79 / 80
    sent = found["megabytes"]
    assert sent.min() > 0
    assert 0 < found["choice_megabytes"] < sent.sum()
    assert found["wall"] > found["working"] > found["choosing"] > 0
    assert found["rounds"] > found["passes"] > 0
    assert "standard normal" in found["source"]


@needs_spu
@pytest.mark.mpc
@pytest.mark.slow
def test_a_small_purchase_is_made_in_secret(monkeypatch):
    """Both choices of two classes are the same, and so are the models."""
    rng = np.random.default_rng(0)
    y = (np.arange(900) % 2).astype(np.int32)
    x = rng.normal(size=(900, 8)) + 0.7 * y[:, None]
    source = Source(x=x.astype(np.float32), y=y, n_classes=2)
    found = purchase("spu-cheetah", source, 0)
    assert set(found) == {field.name for field in dataclasses.fields(Purchases)}
    assert found["same"] >= 0.95
    secret, clear, random = found["accuracy"]
    assert abs(secret - clear) < 0.02
    assert random > 0.5
