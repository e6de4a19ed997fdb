"""Proxies by the number of labels bought first: a tiny model and invented texts."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from commands import experiment
from invented import encoded
from test_proxies import few_tries

from experiments._kit.judge import HOLDS, OPEN, UNTESTED
from experiments.selectformer import sources
from experiments.selectformer.curve import command, run
from experiments.selectformer.curve.chapter import curve_chapter, summary
from experiments.selectformer.curve.claims import judged
from experiments.selectformer.proxies import targets, tries
from experiments.selectformer.proxies.points import Candidate, candidates
from experiments.selectformer.sources import Source
from jaxsel.proxy import ProbeSpec, Training
from jaxsel.report import Report


def invented(n_classes=3, n=9000):
    y = (np.arange(n) % n_classes).astype(np.int32)
    return Source(x=np.zeros((n, 1), np.float32), y=y, n_classes=n_classes)


def curve(seeds=3, refused=(), rho=0.4):
    """Invented figures, the same for each size; some ways refused in first seeds."""
    names = tuple(run.ways(published=False))
    values = np.full((seeds, len(names)), rho) + 0.01 * np.arange(seeds)[:, None]
    for name, count in dict(refused).items():
        values[:count, names.index(name)] = np.nan
    cell = run.Cell(
        n=np.full(seeds, 500),
        spearman=values,
        overlap=values,
        place=np.zeros(values.shape, int),
        accuracy=np.full(seeds, 0.5),
        judged=np.zeros((seeds, len(names), 4)),
    )
    cells = {(head, size): cell for head in run.HEADS for size in run.QUICK}
    return run.Curve(seeds=np.arange(seeds), sizes=run.QUICK, ways=names, cells=cells)


@pytest.mark.parametrize("largest", [600, 1500])
def test_bootstrap_sets_lie_beside_the_pool(largest):
    """As imbalanced as it, none in two places, and half as many to distil on."""
    source = invented()
    pool = run.deal_beside(source, jax.random.key(3), largest)
    n = len(pool.rows)
    assert len(pool.own) == largest + round(0.5 * n)
    everything = np.concatenate([pool.rows, pool.own, pool.test])
    assert len(set(everything.tolist())) == len(everything)
    for rows in (pool.rows, pool.own[:largest], pool.own[largest:]):
        shares = np.bincount(source.y[rows], minlength=3) / len(rows)
        assert shares[pool.kept] == pytest.approx(9 / 11, abs=0.06)
    with pytest.raises(
        ValueError, match="largest must leave a pool of 100 .*9000 of 22"
    ):
        run.deal_beside(source, jax.random.key(3), 9000)


def test_ways_are_those_of_the_experiment():
    few, all_ways = run.ways(published=False), run.ways(published=True)
    assert {*few} < {*all_ways} == {*run.WAYS}
    known = candidates("text", variants=True)
    published = all_ways["as published"]
    assert published == known["as published, d=16"]
    assert (published.backbone, published.source) == (True, "gaussian")
    assert published.n_points == 5_120_000
    assert all_ways["refitted"].refit


def test_the_chapter_says_what_is_refused():
    found = curve(refused={"paper": 3, "refitted": 1})
    lines = summary(found)
    assert (
        "with 38 labels the paper's is refused, a probe of the labels 0.41" in lines[0]
    )
    assert "3,521" in lines[-1]
    assert "by construction" in lines[-1]
    tables = [b for b in curve_chapter(found).blocks if hasattr(b, "rows")]
    shown = [table for table in tables if "would choose" in table.caption]
    rows = {row[0]: row[1:] for row in shown[0].rows}
    assert rows[run.WAYS["paper"].says] == ["refused"] * 3
    assert rows[run.WAYS["refitted"].says][0].endswith("1 refused")
    assert len(shown) == len(run.HEADS)


def test_claims_are_of_each_head_and_size():
    """The labels probe leads by .1, and by .3 where the head is a probe itself."""
    plain = curve(6)
    at = plain.ways.index("labels probe")
    cells = {}
    for (head, size), cell in plain.cells.items():
        values = cell.spearman.copy()
        lead = 0.3 if head == "linear" else 0.1
        values[:, at] += lead + 0.001 * np.arange(6) * (size != 600)
        cells[head, size] = dataclasses.replace(cell, spearman=values)
    claims = judged(dataclasses.replace(plain, cells=cells))
    rows = {}
    for claim in claims:
        rows.setdefault(claim.text, []).append(claim)
    by = {text.split(":")[-1].strip(): some for text, some in rows.items()}
    leads = by[run.WAYS["labels probe"].says]
    assert [c.verdict for c in leads] == [HOLDS] * 6
    assert {c.where for c in leads} == {
        f"{size} labels, {head} head" for size in run.QUICK for head in run.HEADS
    }
    assert [c.verdict for c in by[run.WAYS["refitted"].says]] == [OPEN] * 6
    sub_model = by[run.WAYS["sub-model"].says]
    verdict = f"{UNTESTED}, because it takes --published"
    assert [c.verdict for c in sub_model] == [verdict]
    assert ", Holm of 35" in leads[0].test  # 5 ways, 2 heads, 3 sizes; 2 and 3 more
    (built,) = [some for text, some in rows.items() if "began as one" in text]
    assert [(c.verdict, c.measured[:5]) for c in built] == [(HOLDS, "+0.20")] * 3
    (labels,) = [some for text, some in rows.items() if "more labels" in text]
    assert [c.verdict for c in labels] == [OPEN] * 2


def test_the_chapter_opens_with_claims_and_their_picture():
    blocks = curve_chapter(curve(refused={"paper": 3})).blocks
    matrix, figure = blocks[:2]
    assert "Holds in" in matrix.columns
    assert hasattr(figure, "plot")
    refused = [row for row in matrix.rows if row[0].startswith("Above")]
    assert {row[-1] for row in refused} == {UNTESTED}
    untested = next(b for b in blocks if "does not bear" in getattr(b, "caption", ""))
    why = {row[2] for row in untested.rows}
    assert "the guard refused a proxy with every setting in all seeds" in why


def test_the_command_writes_a_report(tmp_path, monkeypatch, capsys):
    asked = {}
    monkeypatch.setattr(
        run, "run_curve", lambda folder, **options: asked.update(options) or curve(2)
    )
    experiment("selectformer-curve", "--published", "--out", tmp_path / "out")
    assert (asked["full"], asked["published"]) == (False, True)
    assert (
        "Rank correlation with the target, Tweets, 2 seeds" in capsys.readouterr().out
    )
    facts = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert facts["config"] == {
        "paper": "selectformer-curve",
        "full": False,
        "published": True,
    }
    assert command.SEEDS == 1


@pytest.mark.parametrize("seeds", [(), (0, tries.HELD_OUT)])
def test_bad_seeds(tmp_path, seeds):
    with pytest.raises(
        ValueError, match="seeds must hold one at least, and not 1000003"
    ):
        run.run_curve(tmp_path, seeds=seeds)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*once they are rounded")  # of short trainings
def test_a_curve_of_invented_texts(tmp_path, monkeypatch):
    """Each cell is kept; the target of a hidden head is another; proxies follow."""
    source, read = encoded(3, 1800), []
    reader = lambda progress: read.append(1) or source
    monkeypatch.setattr(sources, "SOURCES", {"tweets": reader})
    monkeypatch.setattr(run, "QUICK", (40,))
    monkeypatch.setattr(run, "SIZES", (40,))
    monkeypatch.setattr(targets, "TUNING", Training(1, 16, 1e-3))
    monkeypatch.setattr(Candidate, "tries", few_tries)
    known = run.ways(published=False)
    shape = dataclasses.replace(known["paper"].spec, layers=1, heads=1, hidden=2)
    small = {
        name: dataclasses.replace(
            one, training=Training(1, 16), spec=shape, n_points=2048
        )
        if not isinstance(one.spec, ProbeSpec)
        else dataclasses.replace(one, n_points=2048)
        for name, one in known.items()
    }
    sub_model = dataclasses.replace(small["paper"], backbone=True, source="gaussian")
    small = {**small, "as published": sub_model}
    monkeypatch.setattr(run, "ways", lambda published: small)
    found = run.run_curve(tmp_path / "runs", seeds=(0,))
    assert {*found.cells} == {(h, s) for h in run.HEADS for s in (40,)}
    for cell in found.cells.values():
        assert cell.spearman.shape == cell.overlap.shape == (1, len(small))
        known = cell.spearman[np.isfinite(cell.spearman)]
        assert (np.abs(known) <= 1).all()
        # A margin has no emulator that could be refused.
        assert np.isfinite(cell.spearman[0, found.ways.index("margin probe")])
    linear, hidden = (found.cells[head, 40] for head in run.HEADS)
    assert not np.array_equal(linear.spearman, hidden.spearman)
    read.clear()
    again = run.run_curve(tmp_path / "runs", seeds=(0,))
    np.testing.assert_array_equal(
        again.cells["linear", 40].spearman, found.cells["linear", 40].spearman
    )
    page, _ = Report(title="", summary="", chapters=[curve_chapter(again)]).save(
        tmp_path
    )
    assert "40 labels" in page.read_text()
