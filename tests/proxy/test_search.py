"""Schedules against trying them one by one, and rehearsals against selections."""

import dataclasses
import itertools

import jax
import matplotlib
import numpy as np
import pytest
from test_build import TEXT, target
from test_phases import CLASSES, OTHERS, POOL, SMALL

from jaxsel.proxy import (
    PAPER_SCHEDULES,
    Network,
    Phase,
    ProbeSpec,
    Rehearsal,
    Spec,
    Training,
    choice_cost,
    cost,
    default_candidates,
    manifest,
    probe_manifest,
    rehearse,
    search_schedule,
    select,
)
from jaxsel.proxy._cost._models import MODELS

LINK = Network(bandwidth=1e8, latency=0.05)
M, RUNS, POOL_SIZE, BUDGET = 200, 4, 4000, 800
BOUGHT = 200  # a twentieth
SHARES = (0.7, 0.5, 0.3)


def layered(**options):
    sizes = {"layers": 3, "heads": 4, "head_width": 8, "hidden": 32, "length": 16}
    return manifest(Spec(**options), **sizes, n_classes=2)


MANIFESTS = {
    "three": layered(layers=3, heads=4),
    "probe": probe_manifest(width=32, n_classes=2),
    "one": layered(layers=1, heads=1),
    "hidden": probe_manifest(width=32, n_classes=2, head=16),
}
NOISE = {"three": 0.2, "probe": 1.0, "one": 0.6, "hidden": 0.8}


@pytest.fixture(scope="module")
def rehearsal():
    rng = np.random.default_rng(0)
    oracle = rng.normal(size=(RUNS, M))
    noisy = [oracle + NOISE[k] * rng.normal(size=oracle.shape) for k in MANIFESTS]
    return Rehearsal(
        candidates={k: Phase(ProbeSpec()) for k in MANIFESTS},
        manifests=MANIFESTS,
        scores=np.stack(noisy, axis=1),
        oracle=oracle,
        failures={},
    )


def search(rehearsal, **options):
    given = {"network": LINK, "engine": "spu-aby3", "shares": SHARES} | options
    return search_schedule(rehearsal, POOL_SIZE, BUDGET, **given)


def sieved(rehearsal, names, keeps):
    """Choose from each run's samples one phase after the other; return overlaps."""
    order, found = [*rehearsal.candidates], []
    for s in range(len(rehearsal.oracle)):
        rows = np.arange(M)
        for name, keep in zip(names, keeps, strict=True):
            scores = rehearsal.scores[s, order.index(name)][rows]
            kept = round(keep / (POOL_SIZE - BOUGHT) * M)
            rows = rows[np.argsort(-scores, kind="stable")[:kept]]
        best = np.argsort(-rehearsal.oracle[s], kind="stable")[: len(rows)]
        found.append(np.isin(rows, best).mean())
    return np.array(found)


def priced(names, keeps, engine="spu-aby3", leak="rank"):
    """Return GB and hours, phase by phase."""
    left, size, seconds = POOL_SIZE - BOUGHT, 0.0, 0.0
    if engine in MODELS:
        size += MODELS[engine].started.bytes
        seconds += LINK.wait(MODELS[engine].started, engine)
    for name, keep in zip(names, keeps, strict=True):
        layers = bool(MANIFESTS[name].layers)
        passes = cost(
            MANIFESTS[name],
            left,
            LINK,
            engine=engine,
            batch_size=64 if layers else min(left, 4096),
            lanes=8 if layers and engine == "spu-aby3" else 1,
        )
        choice = choice_cost(left, keep, LINK, engine=engine, leak=leak)
        size += passes.bytes + choice.bytes
        seconds += passes.seconds + choice.seconds
        left = keep
    return size, seconds / 3600


def everything(rehearsal):
    """Yield all schedules: candidates in order of cost, ever fewer rows."""
    left = POOL_SIZE - BOUGHT
    names = sorted(MANIFESTS, key=lambda k: priced((k,), (left,))[1])
    keeps = [round(share * POOL_SIZE) - BOUGHT for share in SHARES]
    for count in (1, 2, 3):
        for phases in itertools.combinations(names, count):
            for some in itertools.combinations(keeps, count - 1):
                kept = (*some, BUDGET - BOUGHT)
                yield phases, kept, sieved(rehearsal, phases, kept).mean()


@pytest.mark.parametrize("engine", ["crypten", "spu-cheetah", "spu-aby3"])
def test_the_front_is_what_nothing_beats(rehearsal, engine):
    found = search(rehearsal, engine=engine)
    tried = [(*p, *priced(*p[:2], engine)) for p in everything(rehearsal)]
    assert len(found.hours) == len(tried) == 4 + 6 * 3 + 4 * 3
    best = {
        (names, keeps): (overlap, size, hours)
        for names, keeps, overlap, size, hours in tried
        if not any(o[4] <= hours and o[2] > overlap for o in tried)
        and not any(o[4] < hours and o[2] == overlap for o in tried)
    }
    assert {(p.names, p.keeps) for p in found.points} == {*best}
    for point in found.points:
        layers = [bool(MANIFESTS[name].layers) for name in point.names]
        assert point.batch_sizes == tuple(
            64 if deep else min(4096, rows)
            for deep, rows in zip(
                layers, (POOL_SIZE - BOUGHT, *point.keeps), strict=False
            )
        )
        figures = (point.overlap, point.bytes, point.hours)
        np.testing.assert_allclose(figures, best[point.names, point.keeps], rtol=1e-9)
    hours = [point.hours for point in found.points]
    assert hours == sorted(hours)
    assert len(hours) > 2
    assert found.best() == found.points[-1]
    assert found.best(max_hours=hours[1]) == found.points[1]


def test_standard_errors_are_over_runs(rehearsal):
    for point in search(rehearsal).points:
        runs = sieved(rehearsal, point.names, point.keeps)
        assert point.stderr == pytest.approx(runs.std(ddof=1) / RUNS**0.5)


def test_what_is_held_out_is_what_others_choose(rehearsal):
    found = search(rehearsal)
    plans = [(p[0], p[1]) for p in everything(rehearsal)]
    overlaps = np.array([sieved(rehearsal, *plan) for plan in plans])
    hours = np.array([priced(*plan)[1] for plan in plans])
    for point, held in zip(found.points, found.held_out, strict=True):
        within = np.flatnonzero(hours <= point.hours * (1 + 1e-12))
        expected = 0.0
        for s in range(RUNS):
            others = np.delete(overlaps, s, axis=1).mean(axis=1)
            # Of equal ones the cheapest.
            most = within[others[within] == others[within].max()]
            expected += overlaps[most[np.argmin(hours[most])], s] / RUNS
        assert held == pytest.approx(expected)


def test_luck_is_not_held_out(rehearsal):
    """Of scores that know nothing, the best of many looks good by chance alone."""
    rng = np.random.default_rng(1)
    blind = dataclasses.replace(
        rehearsal, scores=rng.normal(size=rehearsal.scores.shape)
    )
    found = search(blind, shares=None)
    assert found.points[-1].overlap > found.random + 0.05
    assert found.held_out[-1] < found.random + 0.05


def test_one_run_has_no_error(rehearsal):
    one = dataclasses.replace(
        rehearsal, scores=rehearsal.scores[:1], oracle=rehearsal.oracle[:1]
    )
    found = search(one)
    assert np.isnan(found.held_out).all()
    assert np.isnan([point.stderr for point in found.points]).all()
    assert "nan" not in found.table()


def test_computing_counts(rehearsal):
    """An hour a sample for all but one candidate leaves that one."""
    dear = {name: 3600.0 for name in MANIFESTS if name != "hidden"}
    found = search(rehearsal, computing=dear, max_phases=1)
    assert found.points[0].names == ("hidden",)
    plain = search(rehearsal, max_phases=1).points[0]
    assert plain.names == ("probe",)
    other = search(rehearsal, computing={"probe": 1e-6}, max_phases=1)
    point = next(p for p in other.points if p.names == ("probe",))
    added = 1e-6 * (POOL_SIZE - BOUGHT) / 3600
    assert point.hours == pytest.approx(plain.hours + added)


def test_batches_change_the_price(rehearsal):
    sizes = {"three": 8}
    one, two = (
        max(search(rehearsal, batch_sizes=b, max_phases=1).hours) for b in ({}, sizes)
    )
    assert two > one


def test_what_is_compared_stands_beside_the_front(rehearsal):
    compare = {"two": (("one", 0.3), ("three", None)), "last": (("three", None),)}
    found = search(rehearsal, compare=compare)
    assert [*found.compared] == ["two", "last"]
    two = found.compared["two"]
    assert two.names == ("one", "three")
    assert two.keeps == (1000, 600)
    expected = sieved(rehearsal, two.names, two.keeps).mean()
    figures = (two.overlap, two.bytes, two.hours)
    np.testing.assert_allclose(figures, (expected, *priced(two.names, two.keeps)))
    lines = found.table().splitlines()
    assert len(lines) == 2 + len(found.points) + 2
    assert lines[-2].startswith("| two: one (30%) → three (20%) ")


def test_phases_are_a_schedule(rehearsal):
    found = search(rehearsal)
    point = next(p for p in found.points if len(p.names) > 1)
    phases = found.phases(point)
    assert phases[-1].keep is None
    rows = [round(phase.keep * POOL_SIZE) - BOUGHT for phase in phases[:-1]]
    assert (*rows, BUDGET - BOUGHT) == point.keeps


def test_a_refused_candidate_is_only_compared(rehearsal):
    refused = dataclasses.replace(rehearsal, failures={"three": "it diverged"})
    found = search(refused, compare={"x": (("three", None),), "y": (("one", None),)})
    assert len(found.hours) == 3 + 3 * 3 + 3
    assert all("three" not in point.names for point in found.points)
    lines = found.table().splitlines()
    assert lines[-2].startswith("| x (refused): three (20%) ")
    assert lines[-1].startswith("| y: one (20%) ")
    none = dataclasses.replace(rehearsal, failures=dict.fromkeys(MANIFESTS, "no"))
    with pytest.raises(ValueError, match="that no run refused, got none: three: no"):
        search(none)
    with pytest.raises(ValueError, match=r"compare\['x'\] must be one of .*'two'"):
        search(rehearsal, compare={"x": (("two", None),)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shares": (0.1,)}, "shares must leave more than the budget 800"),
        ({"shares": (1.0,)}, "shares must leave more than the budget 800"),
        ({"max_phases": 4}, "max_phases must be 1 to 3, got 4"),
        ({"engine": "gloo"}, "engine must be one of"),
        ({"leak": "all"}, "leak must be one of"),
        ({"bootstrap": 0.2}, "budget must be above the bootstrap set's 800"),
        ({"computing": {"two": 1.0}}, "computing must be one of"),
        ({"computing": {"one": -1.0}}, r"computing\['one'\] must be"),
        ({"batch_sizes": {"one": 0}}, r"batch_sizes\['one'\] must be"),
        (
            {"compare": {"x": (("one", 0.9), ("three", 0.95))}},
            r"compare\['x'\] must leave ever less",
        ),
    ],
)
def test_refused(rehearsal, change, message):
    with pytest.raises(ValueError, match=message):
        search(rehearsal, **change)


def test_a_limit_that_nothing_meets_says_what_would(rehearsal):
    found = search(rehearsal)
    with pytest.raises(ValueError, match=f"at least {found.points[0].hours:.3g}"):
        found.best(max_hours=found.points[0].hours / 2)


def test_plot_and_words(rehearsal):
    found = search(rehearsal, compare={"two": (("one", 0.3), ("three", None))})
    ax = found.plot()
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["Front", "two", "Random"]
    front = next(line for line in ax.lines if line.get_label() == "Front")
    assert front.get_xdata().tolist() == [point.hours for point in found.points]
    assert ax.get_xscale() == "log"
    matplotlib.pyplot.close(ax.figure)
    assert f"Front({len(found.points)} of 34 schedules on spu-aby3" in repr(found)
    assert repr(rehearsal) == "Rehearsal(4 candidates, 4 runs on 200 samples)"


# Rehearsals.

FEW = {
    "layer": Phase(SMALL, training=Training(2, 8, 1e-3), min_correlation=-1.0),
    "probe": Phase(ProbeSpec(), goal="logits", min_correlation=-1.0),
    "refused": Phase(ProbeSpec(), min_correlation=1.0),
}


def rehearsed(**options):
    given = {"target": target(TEXT), "tuning": Training(1, 8, 1e-3), "seeds": 2}
    given |= {"secret": jax.random.key(5), "bootstrap": 0.1, "distil": OTHERS}
    given |= {"samples": POOL, "labels": CLASSES, "candidates": FEW} | options
    return rehearse(**given)


@pytest.fixture(scope="module")
def little(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rehearsal")
    return folder, rehearsed(folder=folder, seeds=1)


@pytest.mark.slow
def test_a_rehearsal_scores_as_a_selection_does(little):
    _, found = little
    assert found.scores.shape == (1, 3, 180)
    key, secret = (jax.random.fold_in(jax.random.key(5), i) for i in range(2))
    chosen = select(
        POOL,
        [FEW["layer"]],
        60,
        labels=lambda rows: CLASSES[rows],
        key=key,
        secret=secret,
        target=target(TEXT),
        bootstrap=0.1,
        distil=OTHERS,
        tuning=Training(1, 8, 1e-3),
    )
    left = np.setdiff1d(np.arange(200), chosen.bootstrap)
    best = left[np.argsort(-found.scores[0, 0], kind="stable")[:40]]
    np.testing.assert_array_equal(best, chosen.survivors[0])
    assert found.manifests["layer"].layers == chosen.proxies[0].manifest.layers
    logits = chosen.target.logits(POOL.take(left).inputs)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    entropies = -(shares * np.log(shares)).sum(1)
    np.testing.assert_allclose(found.oracle[0], entropies, atol=1e-5)


@pytest.mark.left_out
def test_what_a_selection_would_refuse_is_told(little):
    _, found = little
    assert [*found.failures] == ["refused"]
    assert "does not rank as the exact" in found.failures["refused"]
    assert np.isfinite(found.spearman).all()
    assert "1 failed" in repr(found)


@pytest.mark.slow
def test_a_training_that_diverges_keeps_what_it_had():
    wild = Phase(SMALL, training=Training(30, 8, 1e4), min_correlation=-1.0)
    found = rehearsed(candidates={"wild": wild}, seeds=1)
    assert "is not finite" in found.failures["wild"]
    assert not np.isnan(found.scores).any()


@pytest.mark.slow
def test_a_rehearsal_resumes_and_grows(little, monkeypatch):
    folder, found = little
    from jaxsel.proxy._search import _rehearsal

    with pytest.raises(ValueError, match="checkpoint"):
        rehearsed(folder=folder, labels=(CLASSES + 1) % 3)
    calls = []
    run = _rehearsal._run
    monkeypatch.setattr(_rehearsal, "_run", lambda *a: calls.append(0) or run(*a))
    more = rehearsed(folder=folder, seeds=2)
    assert len(calls) == 1
    np.testing.assert_array_equal(more.scores[0], found.scores[0])
    assert not (more.scores[1, :2] == found.scores[0, :2]).all()
    assert [*more.failures] == [*found.failures]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": {}}, "candidates must hold at least one phase"),
        ({"seeds": 0}, "seeds must be"),
        ({"labels": CLASSES[:-1]}, "labels and samples must have the same length"),
        ({"labels": CLASSES + 1}, r"labels must lie in \[0, 3\)"),
        (
            {"samples": dataclasses.replace(POOL, features=None)},
            r"candidates\['probe'\] can't be made: pool must have features",
        ),
    ],
)
def test_rehearsals_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        rehearsed(**change)


def test_default_candidates_fit_the_target():
    made = default_candidates(target(TEXT))
    config = target(TEXT).config
    for phase in made.values():
        if isinstance(phase.proxy, Spec):
            assert phase.proxy.layers <= config.layers
            assert phase.proxy.heads <= config.heads
    asked = {name for phases in PAPER_SCHEDULES.values() for name, _ in phases}
    assert asked <= {*made}
    assert asked <= {*default_candidates(target(TEXT), features=False)}
