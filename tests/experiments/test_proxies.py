"""The evaluation of proxies, with a tiny model and invented texts."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from invented import CONFIG, encoded

from experiments.selectformer import sources
from experiments.selectformer.proxies import (
    finals,
    maker,
    run,
    targets,
)
from experiments.selectformer.proxies.chapter import proxies_chapter
from experiments.selectformer.proxies.finals import run_finals
from experiments.selectformer.proxies.points import (
    ATTACKED,
    Candidate,
    candidates,
    points,
)
from experiments.selectformer.proxies.run import run_proxies
from experiments.selectformer.proxies.searched import PICKS, run_searched
from experiments.selectformer.proxies.trial import sieve
from experiments.selectformer.scores.trial import BUDGETS, DRAWS, LARGER
from jaxsel.proxy import ProbeSpec, Training, fit_probe
from jaxsel.report import Report


@pytest.fixture
def small(monkeypatch):
    """Pools of invented texts, few and short trainings; how often texts were read.

    The training of one layer diverges.
    """
    texts, read = {"movie_polarity": encoded(2), "tweets": encoded(3)}, []

    def reader(name):
        return lambda progress: read.append(name) or texts[name]

    monkeypatch.setattr(sources, "SOURCES", {name: reader(name) for name in texts})
    monkeypatch.setattr(sources, "QUICK", tuple(texts))
    every = candidates("text")
    small = {
        name: dataclasses.replace(
            one,
            training=Training(1, 16),
            # Those with layers are of one kind here, so that few programs are compiled.
            spec=one.spec
            if isinstance(one.spec, ProbeSpec) or name == "1 layer"
            else every["d=2"].spec,
        )
        for name, one in every.items()
    }
    monkeypatch.setattr(run, "candidates", lambda kind, variants: small)
    monkeypatch.setattr(Candidate, "tries", few_tries)
    monkeypatch.setattr(maker, "STARTS", 1)
    return read


def few_tries(candidate):
    """Two settings of each; both diverge for the linear layer."""
    if isinstance(candidate.spec, ProbeSpec):
        specs = [dataclasses.replace(candidate.spec, l2=l2) for l2 in (0.01, 0.1)]
        return tuple(dataclasses.replace(candidate, spec=spec) for spec in specs)
    attention = candidate.spec.attention
    linear = getattr(attention, "family", attention) == "linear"
    rates = (1e30, 1e29) if linear else (1e-3, 1e-4)
    trainings = [
        dataclasses.replace(candidate.training, learning_rate=rate) for rate in rates
    ]
    return tuple(dataclasses.replace(candidate, training=each) for each in trainings)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*once they are rounded")  # of short trainings
def test_all_points_in_a_report(small, tmp_path, monkeypatch):
    found = run_proxies(tmp_path / "runs", seeds=(0, 1))
    names = points()
    assert found.points == tuple(names)
    for pool in found.pools.values():
        assert pool.spearman.shape == (2, len(names))
        assert (np.abs(pool.spearman[np.isfinite(pool.spearman)]) <= 1).all()
        # A point counts where the guard accepts all that it ranks by, and only there.
        refused = dict(zip(found.candidates, pool.refused.T, strict=True))
        for at, point in enumerate(names.values()):
            if point.exact:
                continue
            bad = np.any([refused[name] for name, _ in point.phases], axis=0)
            np.testing.assert_array_equal(np.isnan(pool.spearman[:, at]), bad)
            np.testing.assert_array_equal(np.isnan(pool.bought[:, 0, at]), bad)
            np.testing.assert_array_equal(np.isnan(pool.overlap[:, 2 + at]), bad)
        assert refused["1 layer"].all()
        one_layer = found.candidates.index("1 layer")
        assert np.isnan(pool.judged[:, one_layer]).all()
        assert (pool.place[:, one_layer] == 1).all()  # the most cautious was tried too
        np.testing.assert_array_equal(pool.overlap[:, 1], 1)
        known = pool.overlap[np.isfinite(pool.overlap)]
        assert ((known >= 0) & (known <= 1)).all()
        assert pool.bought.shape == (2, len(BUDGETS), len(names))
        assert pool.random.shape == (2, len(BUDGETS) + len(LARGER), DRAWS)
        # What is published is chosen alike.
        same = [found.points.index(name) for name in ("probe", "published probe")]
        np.testing.assert_array_equal(
            pool.bought[..., same[0]], pool.bought[..., same[1]]
        )
        stopped = dict(zip(found.candidates, pool.stopped.T.tolist(), strict=True))
        assert [name for name in stopped if any(stopped[name])] == ["1 layer"]
        assert pool.recovered.shape == (2, len(ATTACKED), 2)
        assert (np.abs(pool.recovered) <= 1).all()
        assert pool.recovered.max() > 0.5  # of few samples not always
        learns = [
            name
            for name, a in zip(found.candidates, pool.inference[0, 1:], strict=True)
            if np.isfinite(a)
        ]
        assert set(found.candidates) - set(learns) == {"hidden"}
        margins = [found.candidates.index(name) for name in ("probe", "probe, margin")]
        if pool.oracle.shape and pool is found.pools["movie_polarity"]:
            # Of two classes entropy and margin rank alike.
            orders = [np.argsort(pool.scores[0, i], kind="stable") for i in margins]
            np.testing.assert_array_equal(*orders)
    # What is there is not made again.
    small.clear()
    again = run_proxies(tmp_path / "runs", seeds=(0, 1))
    for name, pool in again.pools.items():
        np.testing.assert_array_equal(pool.spearman, found.pools[name].spearman)
    bought = run_searched(tmp_path / "runs", found)
    assert {*bought} == {*found.pools}
    for name, pool in bought.items():
        assert pool.bought.shape == (2, len(PICKS))
        assert (np.diff(pool.hours) >= 0).all()
        assert (np.diff(pool.expected) >= 0).all()
        for s in range(2):
            for j, words in enumerate(pool.schedules[s]):
                if " → " in words or words == "1 layer":
                    continue
                # A single phase is one of the points, and buys what that one buys.
                at = [
                    i
                    for i, point in enumerate(names.values())
                    if point.phases == ((words, None),)
                    and not (point.diverse or point.exact)
                ][0]
                one = found.pools[name]
                if np.isnan(one.bought[s, 0, at]):  # refused in the seed bought in
                    assert np.isnan(pool.bought[s, j])
                    continue
                assert pool.overlap[s, j] == one.overlap[s, 2 + at]
                assert pool.bought[s, j] == pytest.approx(one.bought[s, 0, at])
    read = len(small)
    again = run_searched(tmp_path / "runs", found)
    assert len(small) == read  # what is there is read
    np.testing.assert_array_equal(again["tweets"].bought, bought["tweets"].bought)
    assert run_searched(tmp_path, found.only("tweets", np.array([0]))) == {}
    monkeypatch.setattr(finals, "POOLS", ("tweets",))
    monkeypatch.setattr(targets, "TUNING", Training(1, 16, 1e-3))
    tuned = run_finals(tmp_path / "runs", found)
    assert tuned["tweets"].bought.shape == (2, len(finals.WAYS))
    for accuracy in vars(tuned["tweets"]).values():
        known = accuracy[np.isfinite(accuracy)]
        assert ((known >= 0) & (known <= 1)).all()
    assert np.isnan(tuned["tweets"].bought[:, finals.WAYS.index("1 layer")]).all()
    chapter = proxies_chapter(found, bought, tuned)
    report = Report(title="Proxies", summary="", chapters=[chapter])
    page, numbers = report.save(tmp_path)
    text = page.read_text()
    assert "The linear probe, distilled:" in text
    assert "“1 layer” in 2" in text
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    assert data["points"] == list(names)
    cost = data["prices"]["tweets"]["spu-aby3"]
    assert cost["published probe"] == {"bytes": 0, "hours": 0}
    assert cost["probe"]["hours"] < cost["hidden probe"]["hours"]
    assert cost["paper, 1 phase"]["bytes"] > cost["probe"]["bytes"]


@pytest.mark.slow
def test_the_targets_head_begins_as_a_probe(monkeypatch):
    """Of labels, on the encoder's own features: before any training they agree."""
    monkeypatch.setattr(targets, "TUNING", Training(1, 16, 1e-12))
    source, rows, key = encoded(3), np.arange(60), jax.random.key(0)
    x = source.features[:, -CONFIG.hidden :]
    options = {"loss": "labels", "n_classes": 3, "l2": targets.HEAD}
    probe = fit_probe(x[rows], source.y[rows], **options)
    target = targets.tuned(source, rows, key)
    logits = target.logits(source.take(np.arange(200)))
    np.testing.assert_allclose(logits, probe(x[:200]), atol=1e-4)
    # A head with a hidden layer is no linear function of the features.
    hidden = targets.tuned(source, rows, key, hidden=True)
    options |= {"hidden": CONFIG.hidden, "key": jax.random.fold_in(key, 1)}
    probe = fit_probe(x[rows], source.y[rows], **options)
    logits = hidden.logits(source.take(np.arange(200)))
    np.testing.assert_allclose(logits, probe(x[:200]), atol=1e-4)
    assert hidden.n_classes == 3


@pytest.mark.slow
def test_the_sub_model_is_the_bottom_of_the_target(monkeypatch):
    monkeypatch.setattr(targets, "TUNING", Training(1, 16, 1e-12))
    source, rows, key = encoded(3), np.arange(60), jax.random.key(0)
    cut = targets.sub_model(source, rows, 2, key)
    few = source.take(np.arange(50))
    below = cut.features(few)
    np.testing.assert_allclose(
        below, source.target.features(few, layers=(2,)), atol=1e-5
    )
    probe = fit_probe(
        source.target.features(source.take(rows), layers=(2,)),
        source.y[rows],
        loss="labels",
        n_classes=3,
        l2=targets.HEAD,
    )
    np.testing.assert_allclose(cut.logits(few), probe(below), atol=1e-4)


def test_phases_sieve():
    """By hand: the first phase halves, the second takes the budget."""
    scores = {"a": np.array([5.0, 4, 3, 2, 1, 0]), "b": np.arange(6.0)}
    point = points()["paper, 2 phases"]
    point = dataclasses.replace(point, phases=(("a", 0.4), ("b", None)))
    x = np.eye(6)
    take = lambda n, bought, budget: sieve(point, scores, x, n, bought, budget).tolist()
    # 10 samples, 1 bought: .4 of 10 less 1 is 3, .2 of 10 less 1 is 1.
    assert take(10, 1, 0.2) == [2]
    # Twice the budget leaves twice as much: 7 of the 6 that there are, then 3.
    assert take(10, 1, 0.4) == [5, 4, 3]


def test_no_seeds(tmp_path):
    with pytest.raises(ValueError, match="at least one seed"):
        run_proxies(tmp_path, seeds=())
