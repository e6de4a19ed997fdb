"""Verdicts, prices, searches and figures of invented results of proxies."""

import dataclasses
import importlib.util
from collections import Counter

import numpy as np
import pytest
from commands import experiment
from invented import invented_result
from scipy.stats import ttest_1samp
from test_purchases import purchases

from experiments._kit.judge import FAILS, HOLDS, UNTESTED, holm
from experiments._kit.texts import LAYERS
from experiments.selectformer import command, sources
from experiments.selectformer.proxies import (
    run,
    searched,
)
from experiments.selectformer.proxies.chapter import proxies_chapter
from experiments.selectformer.proxies.claims import judged
from experiments.selectformer.proxies.costs import prices
from experiments.selectformer.proxies.points import (
    ATTACKED,
    SEARCHED,
    candidates,
    points,
)
from experiments.selectformer.proxies.searched import PICKS, run_searched
from experiments.selectformer.scores import run as scores_run
from experiments.selectformer.scores.trial import BUDGETS, LARGER
from experiments.selectformer.scores.ways import WAYS


def test_points_are_of_candidates():
    for kind in ("text", "image"):
        assert {*SEARCHED, *ATTACKED} <= set(candidates(kind))
        for variants in (False, True):
            named = points(variants=variants).values()
            used = {name for point in named for name, _ in point.phases}
            assert used <= set(candidates(kind, variants=variants))
            for point in named:
                shares = [share for _, share in point.phases]
                assert shares[-1] is None
                assert shares[:-1] == sorted(shares[:-1], reverse=True)
    # Table 5 has one, two and three phases of these widths.
    widths = {name for name in points(variants=True) if name.startswith("d = ")}
    assert len(widths) == 14 - 3
    assert len(LAYERS) == 4


@pytest.mark.parametrize(
    ("lead", "gain", "expected"), [(0.3, 2.0, HOLDS), (0.1, -2.0, FAILS)]
)
def test_verdicts_are_of_what_was_measured(lead, gain, expected):
    claims = judged(invented_result(lead=lead, gain=gain))
    leads = [
        claim
        for claim in claims
        if claim.text.startswith("The linear probe has a rank correlation")
    ]
    assert [claim.verdict for claim in leads] == [expected] * 2  # a pool, and the mean
    assert all(claim.measured.startswith(f"+{lead:.1f}"[:3]) for claim in leads)
    above = [c for c in claims if c.text == "The linear probe is above a random choice"]
    assert [claim.verdict for claim in above] == [expected] * 2


def test_families_are_the_papers_and_ours():
    """Holm's factors: 6 claims and the mean of the paper's, 12 and their means of ours.

    How much a random choice needs is a family of its own.
    """
    found = invented_result()
    claims = judged(found)
    families = Counter(claim.test.partition(", Holm of ")[2] for claim in claims)
    assert families == {"7": 7, "24": 24, "": 1 + 5}
    pool, at = found.pools["movie_polarity"], {n: i for i, n in enumerate(found.points)}
    gain = pool.beyond(pool.bought)
    two = gain[:, 0, at["paper, 2 phases"]]
    theirs = [
        two,
        two,
        gain[:, -1, at["paper, 2 phases"]],
        two - pool.beyond(pool.ideal)[:, 0, 0] + 0.5,
        *(two - gain[:, 0, at[n]] for n in ("paper, 1 phase", "MPCFormer", "Bolt")),
    ]
    expected = holm([ttest_1samp(values, 0).pvalue for values in theirs])
    judged_together = [c.p for c in claims if c.test.endswith("Holm of 7")]
    np.testing.assert_allclose(judged_together, expected)
    more = next(
        c for c in claims if c.text.startswith("With 20 % they are above a random")
    )
    values = two - 100 * (pool.random[:, 4] - pool.random[:, 0]).mean(axis=1)
    assert more.p == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert (*BUDGETS, *LARGER)[4] == 0.7
    assert more.place.startswith("Table 7")


def test_the_chapter_opens_with_claims_and_their_picture():
    blocks = proxies_chapter(invented_result(), {}, {}).blocks
    matrix, figure = blocks[:2]
    assert "Holds in" in matrix.columns
    assert hasattr(figure, "plot")
    shown = [b for b in blocks if hasattr(b, "columns")]
    differs = next(b for b in shown if b.columns[-1] == "What differs here")
    assert {row[0] for row in differs.rows} < {row[0] for row in matrix.rows}
    untested = next(b for b in shown if "Not tested here, because" in b.columns)
    assert len(untested.rows) == 5


def test_what_the_guard_refuses_is_not_the_papers():
    """Neither in a verdict nor in a table nor in the summary; its cost is counted."""
    found = invented_result(refused=("d=2",))
    claims = {claim.text: claim for claim in judged(found)}
    two = claims["The linear probe is above the paper's two phases"]
    assert two.verdict.startswith(UNTESTED)
    assert two.place == "ours"
    assert "refused a proxy with every setting" in two.verdict
    assert claims["The linear probe is above a random choice"].verdict == HOLDS
    chapter = proxies_chapter(found, {}, {})
    texts = "\n".join(block for block in chapter.blocks if isinstance(block, str))
    assert "The paper's two phases: refused, refused in 6 of 6" in texts
    tables = [block for block in chapter.blocks if hasattr(block, "rows")]
    rows = {row[0]: row[1:] for row in tables[2].rows}
    assert rows["The paper's: d = 2 first"] == ["refused", "refused"]
    assert rows["The paper's: 3 layers, all heads, d = 16"] != ["refused", "refused"]
    # Where it is refused in some seeds the others count, and their number is said.
    pool = invented_result().pools["movie_polarity"]
    at = invented_result().points.index("paper, 2 phases")
    pool.spearman[:2, at] = pool.overlap[:2, 2 + at] = pool.bought[:2, :, at] = np.nan
    some = dataclasses.replace(found, pools={"movie_polarity": pool})
    claims = {claim.text: claim for claim in reversed(judged(some))}
    two = claims["The linear probe is above the paper's two phases"]
    assert "(refused in 2 of 6 seeds)" in two.measured
    assert ", 4 seeds" in two.test
    assert two.where == "Movie polarity, 400 samples, 20 labels first"


def test_one_seed_has_no_standard_error():
    for seeds, says in ((1, "of one seed."), (6, "± standard error over 6 paired")):
        chapter = proxies_chapter(invented_result(seeds), {}, {})
        tables = [block for block in chapter.blocks if hasattr(block, "rows")]
        gains = next(t for t in tables if "beyond one that is trained" in t.caption)
        assert says in gains.caption


def test_costs_are_those_of_the_phases():
    found = invented_result()
    one = prices(found, "movie_polarity", points())["spu-cheetah"]
    assert one["published probe"] == (0, 0)
    # Two phases of equal manifests cost more than one, three than two.
    phases = [
        one[f"paper, {count}"].hours for count in ("1 phase", "2 phases", "3 phases")
    ]
    assert phases == sorted(phases)
    assert one["probe"] == one["bootstrap probe"]


@pytest.mark.left_out
def test_a_search_does_not_see_the_seed_that_it_buys_in(tmp_path, monkeypatch):
    """ "words" ranks as the target does in seed 0 only, "probe" in the others."""
    found = invented_result(4)
    pool = found.pools["movie_polarity"]
    words, probe = (found.candidates.index(name) for name in ("words", "probe"))
    pool.scores[0, words] = pool.oracle[0]
    pool.scores[1:, probe] = pool.oracle[1:]
    monkeypatch.setattr(sources, "SOURCES", {"movie_polarity": lambda progress: None})

    def buy(source, result, name, s, front):
        best = front.points[-1]
        return {
            "schedules": tuple(" → ".join(best.names) for _ in PICKS),
            **{
                field: np.full(len(PICKS), best.overlap)
                for field in ("hours", "expected", "overlap", "bought")
            },
        }

    monkeypatch.setattr(searched, "_buy", buy)
    best = run_searched(tmp_path, found)["movie_polarity"]
    assert best.schedules[0, -1] == "probe"
    np.testing.assert_allclose(best.expected[0], 1)
    assert (best.expected[1:] < 1).all()


def test_the_figure_has_a_mark_for_each_way():
    chapter = proxies_chapter(invented_result(stopped={"d=16"}), {}, {})
    figure = next(block for block in chapter.blocks if hasattr(block, "plot"))
    axes = figure.plot.axes[0]
    drawn = {
        label: len(bars[0].get_xdata())
        for bars, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    origins = [point.origin for point in points().values()]
    assert drawn == {
        "the paper's": origins.count("paper"),
        "peers' parts in them": origins.count("peer"),
        "ours": origins.count("ours") - 1,  # what is published costs nothing
    }
    texts = [block for block in chapter.blocks if isinstance(block, str)]
    assert [
        text for text in texts if "stopped early, of 6 seeds: Movie polarity" in text
    ]


@pytest.mark.left_out
def test_the_command_sums_up(tmp_path, monkeypatch, capsys):
    seeds = []

    def proxies(folder, **options):
        seeds.append(len(options["seeds"]))
        variants = options.get("variants", False)
        return invented_result(len(options["seeds"]), variants=variants)

    def accuracy(folder, **options):
        seeds.append(len(options["seeds"]))
        return scores_run.Accuracy(
            seeds=np.arange(6), pools={"tweets": purchases(np.zeros(len(WAYS)))}
        )

    monkeypatch.setattr(run, "run_proxies", proxies)
    for made in ("searched", "finals"):
        module = importlib.import_module(f"experiments.selectformer.proxies.{made}")
        monkeypatch.setattr(module, f"run_{made}", lambda *args, **options: {})
    monkeypatch.setattr(scores_run, "run_accuracy", accuracy)
    experiment("selectformer", "--out", tmp_path / "out")
    assert seeds == [command.SEEDS, 20]
    out = capsys.readouterr().out
    assert "The linear probe, distilled: 0.69 for" in out
    assert "At a budget of 20%, above a random choice" in out
    experiment("selectformer", "--full", "--out", tmp_path / "full")
    assert seeds[2:] == [20, 20, 5]
    assert "its norms exact" in (tmp_path / "full" / "report.html").read_text()
    experiment("selectformer", "--seeds", "21", "--out", tmp_path / "more")
    assert seeds[5:] == [21, 21]
