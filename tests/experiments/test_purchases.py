"""Purchases and what is trained on them, with invented samples."""

import dataclasses
import time

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from experiments.selectformer import sources
from experiments.selectformer.scores import run, trial as trials
from experiments.selectformer.scores.chapter import accuracy_chapter, verdicts
from experiments.selectformer.scores.claims import judged
from experiments.selectformer.scores.run import Accuracy, Purchases, run_accuracy
from experiments.selectformer.scores.trial import BUDGETS, DRAWS, LARGER, trial
from experiments.selectformer.scores.ways import WAYS, Way, chosen
from experiments.selectformer.sources import Source, deal
from jaxsel.proxy import draw_bootstrap
from jaxsel.report import Report


def source(n=900, n_classes=3, d=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    x = rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(n_classes, d))[y]
    return Source(x=sources._scaled(x), y=y.astype(np.int32), n_classes=n_classes)


@pytest.fixture(scope="module")
def found():
    return trial(source(), 0)


def test_a_source_is_read_once(monkeypatch):
    read = []

    def slow(progress):
        time.sleep(0.05)
        read.append(progress)
        return source()

    once = sources._once(slow)
    monkeypatch.setattr(sources, "SOURCES", {"one": once, "two": once})
    found = sources.read_all(True)
    assert found["one"] is found["two"] is once(False)
    assert read == [True]


@pytest.mark.parametrize("seed", range(3))
def test_pools_are_of_the_papers_rule(seed):
    whole = source()
    pool = deal(whole, jax.random.key(seed))
    assert not set(pool.rows) & set(pool.test)
    assert len(set(pool.rows)) == len(pool.rows)
    counts = np.bincount(whole.y[pool.rows], minlength=3)
    rare = np.delete(counts, pool.kept)
    assert counts[pool.kept] > 150
    assert (rare == round(counts[pool.kept] / 9)).all()
    assert np.bincount(whole.y[pool.test]).tolist() == [75, 75, 75]
    again = deal(whole, jax.random.key(seed))
    np.testing.assert_array_equal(again.rows, pool.rows)
    assert not len(pool.own)


def test_the_model_owners_samples_are_dealt_likewise():
    whole = source()
    pool = deal(whole, jax.random.key(0), own=0.5)
    parts = [set(rows) for rows in (pool.rows, pool.own, pool.test)]
    assert len(set.union(*parts)) == sum(map(len, parts))
    offered, own = (
        np.bincount(whole.y[rows], minlength=3) for rows in (pool.rows, pool.own)
    )
    assert offered[pool.kept] == 150  # of the 225 that are left beside the test samples
    assert (own == np.round(offered / 2)).all()


def test_a_small_class_is_never_kept():
    """Of a third of the size: a ninth of it would be too few of the others."""
    whole = source()
    rows = np.flatnonzero((whole.y > 0) | (np.arange(900) % 9 == 0))
    uneven = dataclasses.replace(whole, x=whole.x[rows], y=whole.y[rows])
    kept = {deal(uneven, jax.random.key(seed)).kept for seed in range(20)}
    assert kept == {1, 2}
    pool = deal(uneven, jax.random.key(0), most=90)
    assert np.bincount(uneven.y[pool.rows])[pool.kept] == 90


@pytest.mark.left_out
def test_accuracies_are_scikit_learns(found):
    whole, key = source(), jax.random.key(0)
    pool = deal(whole, jax.random.fold_in(key, 0))
    x, y = whole.x[pool.rows], whole.y[pool.rows]
    first = draw_bootstrap(jax.random.fold_in(key, 1), len(y), 0.05)
    model = LogisticRegression(C=1 / trials.LEARNER.l2, tol=1e-8, max_iter=10_000)
    test = whole.x[pool.test], whole.y[pool.test]
    close = 1.5 / len(test[1])  # a sample on the border
    assert abs(model.fit(x, y).score(*test) - found["pool"]) < close
    model.fit(x[first], y[first])
    assert abs(model.score(*test) - found["bootstrap"]) < close
    left = np.setdiff1d(np.arange(len(y)), first)
    shares = model.predict_proba(x[left])
    entropies = -(shares * np.log(shares)).sum(axis=1)
    for b, budget in enumerate(BUDGETS):
        best = left[np.argsort(-entropies)[: round(budget * len(y)) - len(first)]]
        bought = np.concatenate([first, best])
        score = model.fit(x[bought], y[bought]).score(*test)
        i = [*WAYS].index("entropy")
        assert abs(score - found["ways"][b, i]) < close
        rare = (y[bought] != pool.kept).mean()
        assert found["rare"][b, i] == pytest.approx(rare)
        model.fit(x[first], y[first])


@pytest.mark.left_out
def test_shapes(found):
    assert found["random"].shape == (len(BUDGETS) + len(LARGER), DRAWS)
    assert found["ways"].shape == found["rare"].shape == (len(BUDGETS), len(WAYS))
    # Random choices differ, and more of them is better.
    assert len(set(found["random"][0])) > 1
    means = found["random"].mean(axis=1)
    assert means[0] < means[-1] <= found["pool"] + 0.02


def test_ways():
    rng = np.random.default_rng(0)
    logits, x = rng.normal(size=(40, 3)), rng.normal(size=(40, 4))
    prior = np.array([0.4, 0.3, 0.3])

    def take(**options):
        return chosen(Way(says="", **options), logits, x, prior, 12).tolist()

    def entropies(z):
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        return -(p * np.log(p)).sum(axis=1)

    top = lambda scores: np.argsort(-scores, kind="stable")[:12].tolist()
    ordered = np.sort(logits, axis=1)
    assert take(kind="entropy") == top(entropies(logits))
    assert take(kind="margin") == top(ordered[:, -2] - ordered[:, -1])
    corrected = logits - np.log(prior)
    assert take(kind="prior_entropy") == top(entropies(corrected))
    balanced = take(kind="prior_entropy", balanced=True)
    assert np.bincount(corrected[balanced].argmax(axis=1)).tolist() == [4, 4, 4]
    # Alone, distance decides: each is the furthest from those before it.
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    far = take(diverse=True)
    for i in range(1, 12):
        assert far[i] == np.argmin((units @ units[far[:i]].T).max(axis=1))


@pytest.mark.left_out
def test_a_class_that_the_bootstrap_set_lacks():
    """It has the logit of the least likely class, and does not fail."""
    whole = source()
    first = np.flatnonzero(whole.y < 2)[:40]
    left = np.setdiff1d(np.arange(len(whole.y)), first)
    logits, prior = trials._target(whole, whole.x, whole.y, first, left)
    assert logits.shape == (len(left), 3)
    np.testing.assert_array_equal(logits[:, 2], logits[:, :2].min(axis=1))
    np.testing.assert_allclose(prior, [21 / 43, 21 / 43, 1 / 43])


def purchases(lift, seeds=6):
    """Ways that gain `lift` points each on random choices of .5, and more with more."""
    rng = np.random.default_rng(0)
    several, ways = len(BUDGETS) + len(LARGER), len(WAYS)
    usual = np.linspace(0.5, 0.6, several)[None, :, None]
    random = usual + 1e-3 * rng.normal(size=(seeds, several, DRAWS))
    gains = np.asarray(lift)[None, None] / 100
    noise = 1e-3 * rng.normal(size=(seeds, len(BUDGETS), ways))
    return Purchases(
        random=random,
        ways=usual[:, : len(BUDGETS)] + gains + noise,
        pool=np.full(seeds, 0.62),
        bootstrap=np.full(seeds, 0.4),
        rare=np.full((seeds, len(BUDGETS), ways), 0.3),
        rare_offered=np.full(seeds, 0.2),
        n=np.full(seeds, 1000),
    )


def test_verdicts_are_of_what_was_measured():
    lift = np.zeros(len(WAYS))
    lift[:3] = 3.0, -2.0, 1.0
    result = Accuracy(
        seeds=np.arange(6),
        pools={name: purchases(lift) for name in ("tweets", "newsgroups")},
    )
    claims = judged(result)
    assert len(claims) == 2 * len(WAYS)
    names = [*WAYS]
    assert [claim.verdict for claim in claims[:6]] == [
        *["holds"] * 2,
        *["does not hold"] * 2,
        *["holds"] * 2,
    ]
    assert {claim.test for claim in claims} == {"t-test, 6 seeds, Holm of 14"}
    first, second, below = verdicts(result)
    assert f"“{names[0]}” in 2, by +3.0 points on average" in first
    assert first.index(names[0]) < first.index(f"“{names[2]}” in 2, by +1.0")
    most = f"“{names[0]}” is above in most pools, and “{names[1]}” in fewest: 2 and 0."
    assert second.endswith(most)
    assert f"Below a random choice: “{names[1]}” on Tweets (-2.0" in below


def test_chapter(tmp_path):
    result = Accuracy(
        seeds=np.arange(6), pools={"movie_polarity": purchases(np.full(len(WAYS), 2.0))}
    )
    chapter = accuracy_chapter(result)
    needs = next(
        block
        for block in chapter.blocks
        if getattr(block, "columns", [""])[1:] == ("Movie polarity",)
    )
    # 52 % is what a random 30 % reaches: .5 and .1 / 5 more a budget.
    assert {row[1] for row in needs.rows} <= {"30%", "40%"}
    Report(title="t", summary="s", chapters=[chapter]).save(tmp_path)
    assert "All of the pool" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_killed_run_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SOURCES", {"tweets": lambda progress: source()})
    calls = []
    one = run.trials.trial
    monkeypatch.setattr(run.trials, "trial", lambda *a: calls.append(a[1]) or one(*a))
    run_accuracy(tmp_path, seeds=range(2))
    assert sorted(calls) == [0, 1]
    found = run_accuracy(tmp_path, seeds=range(3))
    assert sorted(calls) == [0, 1, 2]
    assert len(found.pools["tweets"].pool) == 3
    with pytest.raises(ValueError, match="seeds"):
        run_accuracy(tmp_path, seeds=())
