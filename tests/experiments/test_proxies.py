"""The evaluation of proxies, with a tiny model and invented texts."""

import dataclasses
import importlib.util
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from commands import experiment
from flax import nnx
from test_purchases import purchases

from experiments.selectformer import command, sources
from experiments.selectformer.proxies import (
    finals,
    maker,
    points as points_file,
    run,
    searched,
    targets,
    tries,
)
from experiments.selectformer.proxies.chapter import proxies_chapter
from experiments.selectformer.proxies.claims import judged
from experiments.selectformer.proxies.costs import prices
from experiments.selectformer.proxies.finals import run_finals
from experiments.selectformer.proxies.points import (
    ATTACKED,
    SEARCHED,
    Candidate,
    Point,
    candidates,
    points,
)
from experiments.selectformer.proxies.run import run_proxies
from experiments.selectformer.proxies.searched import PICKS, run_searched
from experiments.selectformer.proxies.trial import _counts, sieve
from experiments.selectformer.scores import run as scores_run
from experiments.selectformer.scores.trial import BUDGETS, DRAWS, LARGER
from experiments.selectformer.scores.ways import WAYS
from experiments.selectformer.sources import Encoded
from experiments.values.judge import FAILS, HOLDS, UNTESTED
from jaxsel.demo import _reviews
from jaxsel.demo._secret import SecurePhase
from jaxsel.demo.scenes.texts import LAYERS, Sizes, Texts, deal
from jaxsel.models import Classifier, EncoderConfig, Target, Tokens
from jaxsel.proxy import ProbeSpec, Training, entropy, fit_probe, probe_manifest
from jaxsel.report import Report

needs_spu = pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)

L, H, VOCAB = 8, 16, 40
CONFIG = EncoderConfig(
    kind="text",
    layers=3,
    heads=12,
    hidden=12 * 2,
    intermediate=12,
    vocab=VOCAB,
    positions=L,
    activation="relu",
)
SIZES = Sizes(pool=80, own=40, bootstrap=0.25, budget=0.5)


def invented(n_classes, n=300):
    """Texts whose class is told by one of their words."""
    rng = np.random.default_rng(n_classes)
    labels = (np.arange(n) % n_classes).astype(np.int32)
    ids = rng.integers(n_classes, VOCAB, (n, L)).astype(np.int32)
    ids[:, 1] = labels
    mask = np.arange(L) < rng.integers(4, L + 1, (n, 1))
    model = Classifier(CONFIG, n_classes, read="mean", rngs=nnx.Rngs(0))
    target = Target(
        config=CONFIG,
        **dict(zip(("graphdef", "params"), nnx.split(model), strict=True)),
        read="mean",
    )
    tokens = Tokens(ids, mask)
    return Texts(
        name=f"of {n_classes}",
        tokens=tokens,
        features=target.features(tokens, layers=(0, 1, 2, 3)),
        labels=labels,
        n_classes=n_classes,
        target=target,
        words=np.array([f"text {i}" for i in range(n)]),
    )


def encoded(n_classes, n=900):
    texts = invented(n_classes, n)
    return Encoded(
        x=sources._scaled(texts.features[:, -CONFIG.hidden :]),
        y=texts.labels,
        n_classes=n_classes,
        inputs=texts.tokens,
        features=texts.features,
        target=texts.target,
    )


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
    every = candidates("text", full=False)
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
    monkeypatch.setattr(run, "candidates", lambda kind, full: small)
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
    names = points(full=False)
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


@pytest.mark.left_out
def test_deals_share_nothing():
    labels = np.arange(600) % 3
    for kept in (1, 9):
        sizes = Sizes(pool=110, own=55, kept=kept)
        dealt = deal(labels, sizes, jax.random.key(kept))
        assert not set(dealt.pool) & set(dealt.own)
        counts = np.sort(np.bincount(labels[dealt.pool]))
        assert counts.tolist() == ([37, 37, 37] if kept == 1 else [10, 10, 90])
    with pytest.raises(ValueError, match="labels must hold at least 111 of class 0"):
        deal(labels[:300], Sizes(pool=222, own=111), jax.random.key(0))


def test_more_of_the_papers_comes_with_the_full_run():
    for kind in ("text", "image"):
        for full in (False, True):
            made, named = candidates(kind, full=full), points(full=full).values()
            used = {name for point in named for name, _ in point.phases}
            assert used <= set(made)
            assert {*SEARCHED, *ATTACKED} <= set(made)
            for point in named:
                shares = [share for _, share in point.phases]
                assert shares[-1] is None
                assert shares[:-1] == sorted(shares[:-1], reverse=True)
    # Table 5 has one, two and three phases of these widths.
    widths = {name for name in points(full=True) if name.startswith("d = ")}
    assert len(widths) == 14 - 3
    assert len(LAYERS) == 4


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
    point = points(full=False)["paper, 2 phases"]
    point = dataclasses.replace(point, phases=(("a", 0.4), ("b", None)))
    x = np.eye(6)
    take = lambda n, bought, budget: sieve(point, scores, x, n, bought, budget).tolist()
    # 10 samples, 1 bought: .4 of 10 less 1 is 3, .2 of 10 less 1 is 1.
    assert take(10, 1, 0.2) == [2]
    # Twice the budget leaves twice as much: 7 of the 6 that there are, then 3.
    assert take(10, 1, 0.4) == [5, 4, 3]


def invented_result(seeds=6, *, lead=0.3, gain=2.0, full=False, stopped=(), refused=()):
    """Invented figures: the probe ranks and buys better than the paper's phases."""
    names, made = tuple(points(full=full)), tuple(candidates("text", full=full))
    rng = np.random.default_rng(0)
    noise = lambda *shape: 0.01 * rng.normal(size=(seeds, *shape))
    rho = np.where([name == "probe" for name in names], 0.4 + lead, 0.4)
    up = np.where([name == "probe" for name in names], gain / 100, 0.0)
    lost = np.where(
        [
            bool({n for n, _ in p.phases} & {*refused})
            for p in points(full=full).values()
        ],
        np.nan,
        0.0,
    )
    usual = np.full((1, len(BUDGETS) + len(LARGER), 1), 0.5)
    manifests = [
        probe_manifest(width=8, n_classes=2, head=64 if name == "hidden" else 0)
        for name in made
    ]
    pool = run.ProxyPool(
        n=np.full(seeds, 400),
        scores=noise(len(made), 300).astype(np.float32),
        oracle=noise(300).astype(np.float32),
        manifests=np.array([[one.to_json() for one in manifests]] * seeds),
        stopped=np.array([[name in stopped for name in made]] * seeds),
        refused=np.array([[name in refused for name in made]] * seeds),
        place=np.ones((seeds, len(made)), int),
        judged=np.full((seeds, len(made), 4), 0.5),
        emulated=np.ones((seeds, len(made))),
        outside=np.zeros((seeds, len(made))),
        inference=np.full((seeds, 1 + len(made)), 0.5),
        recovered=np.full((seeds, len(ATTACKED), 2), 0.6),
        spearman=lost + rho + noise(len(names)),
        overlap=np.append(np.zeros(2), lost) + rng.random((seeds, 2 + len(names))),
        rare=np.full((seeds, 2 + len(names)), 0.3),
        rare_offered=np.full(seeds, 0.2),
        random=usual + 0.1 * noise(len(BUDGETS) + len(LARGER), DRAWS),
        ideal=0.5 + 0.1 * noise(len(BUDGETS), 3),
        bought=lost + 0.5 + up + 0.1 * noise(len(BUDGETS), len(names)),
        bootstrap=np.full(seeds, 0.4),
        pool=np.full(seeds, 0.6),
    )
    return run.Proxies(
        seeds=np.arange(seeds),
        full=full,
        points=names,
        candidates=made,
        pools={"movie_polarity": pool},
    )


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


def test_what_the_guard_refuses_is_not_the_papers():
    """Neither in a verdict nor in a table nor in the summary; its cost is counted."""
    found = invented_result(refused=("d=2",))
    claims = {claim.text: claim for claim in judged(found)}
    two = claims["The linear probe is above the paper's two phases"]
    assert two.verdict.startswith(UNTESTED)
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


def test_every_method_gets_as_many_tries():
    """Rates of a proxy, penalties of a probe, from the boldest to the most cautious."""
    for kind in ("text", "image"):
        for one in candidates(kind, full=True).values():
            settings = one.tries()
            assert len(settings) == len(points_file.RATES) == 4
            if isinstance(one.spec, ProbeSpec):
                assert [c.spec.l2 for c in settings] == sorted(points_file.PENALTIES)
                continue
            rates = [c.training.learning_rate for c in settings]
            assert rates == sorted(points_file.RATES, reverse=True)
            same = {dataclasses.replace(c, training=one.training) for c in settings}
            assert same == {one}


class Trials:
    """A maker whose proxies the guard accepts from some try on, by candidate."""

    def __init__(self, accepted, ranks):
        self.accepted, self.ranks, self.tried = accepted, ranks, []
        self.left = np.arange(30)
        rng = np.random.default_rng(0)
        self.logits = rng.normal(size=(30, 2)).astype(np.float32)
        self.source = SimpleNamespace(take=lambda rows: self.logits)
        self.target = SimpleNamespace(logits=lambda inputs: inputs)

    def untrained(self, candidates):
        return {}

    def train(self, one, ready, i):
        place = points_file.PENALTIES.index(one.spec.l2)
        self.tried.append((i, place))
        refused = "" if place >= self.accepted[i] else "ranks otherwise"
        return SimpleNamespace(refused=refused, i=i, place=place)

    def rank(self, trained, rows):
        noise = np.random.default_rng(1).normal(size=30)
        exact = np.asarray(entropy(self.logits))
        return exact + self.ranks[trained.i][trained.place] * noise

    def made(self, trained, *, attack):
        return trained


def test_the_best_try_that_the_guard_accepts():
    """Of the first the second try is best; of the other none is accepted."""
    named = dict.fromkeys(("a", "b"), Candidate(spec=ProbeSpec()))
    named["b"] = dataclasses.replace(named["b"], goal="logits")
    held_out = Trials({0: 1, 1: 4}, {0: [0, 0.01, 3, 2], 1: [0] * 4})
    judged = tries.judge_tries(held_out, named)
    assert np.isnan(judged[0, 0])
    assert np.isnan(judged[1]).all()
    assert judged[0, 1] == np.nanmax(judged)
    first = tries.best_tries(judged)
    assert first.tolist() == [1, 0]
    # In a seed in which that is refused, more cautious ones are tried.
    seed = Trials({0: 3, 1: 4}, {})
    made = tries.make_accepted(seed, named, first)
    assert made["a"].place == 3
    assert not made["a"].made.refused
    assert made["b"].place == 3
    assert made["b"].made.refused
    assert seed.tried == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_the_guard_is_the_librarys():
    """It refuses emulated entropies that rank otherwise, and logits that overflow."""
    logits = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    exact = np.asarray(entropy(logits))

    def refusal(scores, family="mlp"):
        secure = SimpleNamespace(family=family)
        proxy = SimpleNamespace(
            logits=lambda x, mask: x,
            scores=scores,
            params={"offset": np.zeros(3, np.float32)},
            manifest=SimpleNamespace(score=SimpleNamespace(secure=secure)),
        )
        return maker._refusal(proxy, logits, None)

    def overflow(logits):
        raise ValueError("row 3 overflows")

    noise = np.random.default_rng(1).normal(size=50)
    assert refusal(lambda _: exact) == ""
    assert "Spearman -1.000, below min_correlation=0.9" in refusal(lambda _: -exact)
    assert "below min_correlation=0.9" in refusal(lambda _: exact + 0.2 * noise)
    assert refusal(lambda _: -exact, "square") == ""  # nothing is emulated
    assert refusal(overflow) == "row 3 overflows"


def test_settings_are_not_chosen_where_they_are_judged(tmp_path):
    with pytest.raises(ValueError, match="seeds must not hold 1000003"):
        run_proxies(tmp_path, seeds=(0, tries.HELD_OUT))


def test_a_point_counts_if_all_its_proxies_do():
    made = {
        "good": SimpleNamespace(refused="", stopped=False),
        "bad": SimpleNamespace(refused="ranks otherwise", stopped=False),
        "stopped": SimpleNamespace(refused="diverged", stopped=True),
    }

    def counts(*phases, exact=False):
        ends = tuple((name, None) for name in phases)
        return _counts(Point("", ends, exact=exact), made)

    assert counts("good")
    assert not counts("bad", "good")
    assert counts("bad", "good", exact=True)  # no emulated entropy is used
    assert not counts("stopped", exact=True)


def test_costs_are_those_of_the_phases():
    found = invented_result()
    one = prices(found, "movie_polarity", points(full=False))["spu-cheetah"]
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
    origins = [point.origin for point in points(full=False).values()]
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
        return invented_result(len(options["seeds"]))

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
    assert seeds[2:] == [20, 20]
    experiment("selectformer", "--seeds", "21", "--out", tmp_path / "more")
    assert seeds[4:] == [21, 21]


def test_no_seeds(tmp_path):
    with pytest.raises(ValueError, match="at least one seed"):
        run_proxies(tmp_path, seeds=())


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        None,
        pytest.param("crypten", marks=pytest.mark.mpc),
        pytest.param("spu-aby3", marks=[pytest.mark.mpc, needs_spu]),
    ],
)
def test_the_demo_shows_texts(monkeypatch, engine):
    texts = invented(2, 400)
    monkeypatch.setattr(_reviews, "read_texts", lambda *args, **kwargs: texts)
    sizes = Sizes(pool=200, own=100, bootstrap=0.1)
    monkeypatch.setattr(_reviews, "SIZES", sizes)
    missing = "" if engine == "spu-aby3" else "SPU is nowhere"
    found = _reviews.run_texts(secure=SecurePhase(engine=engine, missing=missing))
    assert (found.offered, found.bootstrap, found.chosen) == (200, 20, 20)
    assert found.left == (60, 20)
    assert found.tested == 100
    assert (found.private is not None) == (engine is not None)
    assert found.agreed >= (1 if engine is None else 0.9)
    shown = " ".join(
        block
        for block in _reviews.texts_chapter(found).blocks
        if isinstance(block, str)
    )
    if found.private is not None:
        assert found.private.engine == engine
        assert found.private.mean == pytest.approx(found.mean, abs=0.01)
        if engine == "crypten":
            # Half of the payload is counted in passes: expected ones beforehand.
            assert found.private.megabytes == pytest.approx(found.megabytes, rel=0.3)
        assert len(found.private.compared) == 2
        assert found.private.megabytes > 0
        # It says what it ran on, and what that does not protect from.
        assert ("on SPU (`spu-aby3`)" in shown) == (engine == "spu-aby3")
        assert ("measurement only" in shown) == (engine == "crypten")
    assert ("SPU is nowhere" in shown) == (engine != "spu-aby3")
    assert 0 < found.mean < np.log(2)
    assert len(set(found.texts[0]) | set(found.texts[1])) == 16
    assert found.doubts.shape == found.labels.shape == (2, 8)
    assert 0 < found.megabytes < 100
    # What ranks first is nearer to a tie than what ranks last.
    apart = np.abs(found.doubts - 0.5).mean(1)
    assert found.spearman > 0.3
    assert apart[0] < apart[1]
    chapter = _reviews.texts_chapter(found)
    tables = [block for block in chapter.blocks if hasattr(block, "rows")]
    if found.private is not None:
        sides = tables.pop(0)
        assert [row[0] for row in sides.rows][:2] == ["kept to itself", "received"]
        model, data = found.private.model_owner, found.private.data_owner
        assert min(model.received, data.received) > 0
        if engine == "crypten":  # with a helper, some goes to it and comes from it
            assert model.received == pytest.approx(data.sent, rel=1e-6)
            assert data.received == pytest.approx(model.sent, rel=1e-6)
        # The first phase has rows enough to attack with, and to judge by.
        assert -1 <= data.recovered[0] <= 1
        assert data.attacked[0] == 144
        assert found.private.seconds > model.working > 0
    assert [table.rows[0][0] for table in tables] == [found.texts[i][0] for i in (0, 1)]
