"""What a choice leaks of a proxy: attacks on planted ones, and peers' attacks."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from proxy.random_proxies import random_proxy, random_samples

from jaxsel import proxy
from jaxsel.proxy import (
    Phase,
    Prepared,
    ProbeSpec,
    Proxy,
    Published,
    Samples,
    Spec,
    declare,
    expected_leakage,
    fit_probe,
    leakage,
    leakage_by_phase,
    probe_manifest,
)
from jaxsel.proxy._leakage import _attacked, _leakage
from jaxsel.proxy._leakage._attacks import _Moments, attack, fit_levels
from jaxsel.proxy._probe import Probe

N, D = 500, 6


def planted(n_classes=2, bias=0.0, *, hidden=0, width=D, kind="entropy"):
    """Return a probe of random weights."""
    manifest = probe_manifest(
        width=width, n_classes=n_classes, head=hidden, score=kind, secure="exact"
    )
    rng = np.random.default_rng(n_classes)
    sizes = (width, hidden, n_classes) if hidden else (width, n_classes)
    weights = [
        2 * rng.normal(size=size).astype(np.float32) / size[0] ** 0.5
        for size in zip(sizes[:-1], sizes[1:], strict=True)
    ]
    biases = [np.zeros(size, np.float32) for size in sizes[1:]]
    biases[-1][0] = bias
    return Proxy.of_probe(manifest, Probe(tuple(weights), tuple(biases)))


def normal(n=N, width=D, seed=1):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def attacked(target, n=N, keep=100, **options):
    """Attack a probe by its choice among normal features, with a light hand."""
    x = normal(n, target.manifest.inputs.width)
    return leakage(target, x, keep, **({"steps": 30} | options))


@pytest.mark.parametrize("bias", [0.0, 1.0, 9.0], ids=["both", "aside", "one side"])
@pytest.mark.left_out
def test_a_linear_probe_is_recovered(bias):
    """Whether high scores lie between low ones, or beyond them."""
    found = attacked(planted(bias=bias))
    assert (found.n, found.keep, found.width, found.fresh) == (400, 100, D, 100)
    for recovery in (found.outcomes, found.chosen):
        assert recovery.cosine > 0.98
        assert recovery.rank_correlation > 0.97
        assert recovery.overlap >= 0.8
    assert found.outcomes.rank_correlation >= found.chosen.rank_correlation
    assert found.verdict.startswith("recovered (rank correlation ")


@pytest.mark.left_out
@pytest.mark.parametrize("kind", ["entropy", "margin"])
def test_a_probe_of_more_classes_is_recovered(kind):
    found = attacked(planted(3, kind=kind), leak="rank")
    assert found.outcomes.cosine > 0.95
    assert found.outcomes.rank_correlation > 0.95
    assert found.outcomes.attack.startswith(kind)


@pytest.mark.left_out
def test_scales_and_constant_features_do_not_matter():
    x = normal()
    scale = np.array([1e-3, 1e3, 1, 1, 10, 0.1], np.float32)
    plain = planted()
    weights = np.concatenate(
        [np.asarray(plain.params["head"].weights[0]) / scale[:, None], [[1, 0]]]
    )
    head = Probe((weights.astype(np.float32),), plain.params["head"].biases)
    wide = Proxy.of_probe(dataclasses.replace(planted(width=D + 1).manifest), head)
    constant = np.zeros((N, 1), np.float32)
    found = leakage(wide, np.concatenate([x * scale, constant], 1), 0.25, steps=30)
    assert (found.width, found.keep) == (D, 100)
    assert found.chosen.cosine > 0.98
    assert found.outcomes.attack == attacked(plain).outcomes.attack


@pytest.mark.left_out
def test_a_peer_recovers_what_the_attack_does():
    """scikit-learn's classifiers of the chosen set, on squares of the features."""
    pytest.importorskip("sklearn")
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    target, x = planted(bias=0.3), normal()
    found = leakage(target, x, 100, steps=30)
    order = np.random.default_rng(0).permutation(N)  # as `leakage` holds out
    pool, fresh = x[order[:400]], x[order[400:]]
    truth = target.scores(target.logits(x[order]))
    chosen = declare(truth[:400], 100, seed=0).chosen
    spearman = {}
    for name, model in (
        ("squares", make_pipeline(PolynomialFeatures(2), LogisticRegression(C=100))),
        ("linear", LogisticRegression()),
        ("discriminant", LinearDiscriminantAnalysis()),
    ):
        scores = model.fit(pool, chosen).decision_function(fresh)
        spearman[name] = proxy.monotonicity(scores, truth[400:])
    assert spearman["squares"] > 0.95
    assert max(spearman["linear"], spearman["discriminant"]) < 0.5
    assert found.chosen.rank_correlation > spearman["squares"] - 0.01


@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_starts_lie_near_what_is_sought(bias):
    """The direction, and the zero: spectral where high scores lie in the middle."""
    x, direction = normal(3000, 12), np.linspace(-1, 1, 12)
    along = x @ direction / np.linalg.norm(direction) + bias
    levels = np.searchsorted([-2.0, -0.8, -0.2], -(along**2))
    moments = _Moments(x, levels)
    found = dict(moments.directions(1))
    for name in ("mean",) if bias else ("spectral", "plain spectral"):
        start = moments.probe(found[name], 1)
        (weights,) = np.asarray(start.weights[0]).T
        size = np.linalg.norm(weights)
        assert abs(weights @ direction) / size / np.linalg.norm(direction) > 0.95
        zero = -np.asarray(start.biases[0]) * np.sign(weights @ direction) / size
        assert abs(zero + bias) < 0.15


def test_the_linear_attack_is_logistic_regression():
    """The same convex problem as scikit-learn's, solved as well."""
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    x, chosen = normal(), normal(seed=2)[:, 0] + normal()[:, 1] > 0.7
    start = Probe((np.zeros((D, 1), np.float32),), (np.zeros(1, np.float32),))
    y = chosen.astype(np.int32)
    found = fit_levels(jnp.asarray(x), y, start, "linear", l2=1e-2, steps=50)
    peer = LogisticRegression(C=1 / (1e-2 * N), tol=1e-8).fit(x, chosen)
    np.testing.assert_allclose(
        np.asarray(found.weights[0])[:, 0], peer.coef_[0], rtol=5e-3, atol=5e-4
    )


@pytest.mark.slow
def test_few_samples_of_many_features_tell_little():
    found = expected_leakage(probe_manifest(width=60, n_classes=2), 30, 6, steps=10)
    assert found.fresh == 2000
    assert abs(found.rank_correlation) < 0.2
    assert found.outcomes.cosine < 0.4
    assert found.chance == 0.2
    assert found.outcomes.overlap < 0.35
    assert found.verdict.startswith("not recovered by these attacks (rank correlation")
    found = expected_leakage(planted().manifest, 400, 100, steps=30)
    assert found.chosen.cosine > 0.98


@pytest.mark.left_out
def test_a_set_shows_no_outcomes():
    found, more = attacked(planted(), leak="set"), attacked(planted())
    assert found.outcomes is None
    assert found.chosen == more.chosen
    assert found == attacked(planted(), leak="set")
    assert more.outcomes.rank_correlation >= more.chosen.rank_correlation
    assert "outcomes" not in found.table()
    assert "chosen set alone" in str(found)
    assert found.rank_correlation == found.chosen.rank_correlation


@pytest.mark.left_out
def test_attacks_end_where_enough_is_recovered(monkeypatch):
    tried = []

    def counted(*args, **options):
        for surrogate in attack(*args, **options):
            tried.append(surrogate.name)
            yield surrogate

    monkeypatch.setattr(_attacked, "attack", counted)
    whole = attacked(planted(), leak="set")
    assert len(tried) > 4
    best = tried.index(whole.chosen.attack)
    tried.clear()
    found = attacked(planted(), leak="set", enough=0.9)
    assert 0.9 <= found.rank_correlation <= whole.rank_correlation
    assert len(tried) <= best + 2


@pytest.mark.slow
def test_hidden_units_are_imitated():
    found = attacked(planted(hidden=3), steps=60)
    assert found.chosen.cosine is None
    assert found.outcomes.rank_correlation > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("embed", ["public", "onehot"])
def test_a_transformer_is_imitated(embed):
    sizes = {"layers": 3, "heads": 2, "head_width": 3, "hidden": 6, "length": 4}
    spec = Spec(1, 1, attention="uniform", norm="none", read="mean", embed=embed)
    if embed == "onehot":
        spec = dataclasses.replace(spec, norm="linear")
    manifest = proxy.manifest(spec, **sizes, n_classes=2, intermediate=6, vocab=9)
    target = random_proxy(manifest, bound=64.0)[0]
    x, mask = random_samples(manifest, np.random.default_rng(5), 500)
    found = leakage(target, x, 0.2, mask, steps=40)
    assert found.chosen.cosine is None
    assert found.outcomes.rank_correlation > 0.8
    # What the attacker reads can be given: noise tells nothing.
    blind = leakage(target, x, 0.2, mask, features=normal(), steps=5)
    assert abs(blind.rank_correlation) < 0.45


def test_phases_are_attacked_one_after_the_other(monkeypatch):
    calls = []
    monkeypatch.setattr(_leakage, "leakage", lambda *a, **b: calls.append((a, b)))
    first, second = planted(bias=0.5), planted(3)
    published = Published(
        n=1000,
        bootstrap=tuple(range(200)),
        keeps=(400, 100),
        manifests=(first.manifest, second.manifest),
    )
    prepared, x = Prepared(published=published, proxies=(first, second)), normal()
    options = {"seed": 3, "steps": 4, "held_out": 0.1, "leak": "set", "enough": 0.9}
    assert leakage_by_phase(prepared, Samples(features=x), **options) == (None, None)
    scores = first.scores(first.logits(x))
    left = np.sort(np.argsort(-scores, kind="stable")[: N // 2])
    for call, target, rows, keep in (
        (calls[0], first, x, 0.5),
        (calls[1], second, x[left], 0.25),
    ):
        assert call[0][0] is target
        np.testing.assert_array_equal(call[0][1], rows)
        assert call[0][2:] == (keep, None)
        assert call[1] == options


@pytest.mark.left_out
def test_a_probe_of_sold_labels_needs_no_attack():
    """The data owner can fit it too: nothing but l2 and steps is the model owner's."""
    from proxy.test_phases import run

    bought = {}

    def labels(rows):
        bought["rows"] = rows
        bought["labels"] = (rows % 2).astype(int)
        return bought["labels"]

    pool = Samples(features=normal(200, 5))  # the shape that test_phases compiles
    options = {"schedule": (Phase(ProbeSpec()),), "target": None, "n_classes": 2}
    found = run(**options, pool=pool, labels=labels)
    theirs = found.proxies[0].params["head"].weights[0]
    ours = fit_probe(pool.features[bought["rows"]], bought["labels"], loss="labels")
    np.testing.assert_allclose(ours.weights[0], theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_figures_of_the_guide():
    """docs/leakage.md: 10,000 samples of 384 features; and as many as features."""
    manifest = probe_manifest(width=384, n_classes=2)
    found = expected_leakage(manifest, 10_000, 2000, seed=1)
    assert found.outcomes.cosine > 0.999
    assert found.chosen.cosine > 0.996
    assert found.chosen.rank_correlation > 0.998
    manifest = probe_manifest(width=1536, n_classes=2)
    found = expected_leakage(manifest, 1600, 320, seed=1)
    assert found.outcomes.cosine < 0.3
    assert found.rank_correlation < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0}, "keep must be at least 1"),
        ({"keep": 400}, "keep must be below the 400 samples to choose from, got 400"),
        ({"keep": 1.0}, "keep must be a count, or a share between 0 and 1"),
        ({"leak": "order"}, "leak must be one of"),
        ({"held_out": 1}, "held_out must lie between 0 and 1, got 1"),
        ({"held_out": 0.001}, "x must hold two samples to choose from"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"enough": 0}, "enough must be above 0 and at most 1, got 0"),
        ({"features": np.zeros((3, 2))}, "features and x must have"),
        ({"features": np.full((N, 2), np.nan)}, "features must be finite"),
        ({"features": np.ones((N, 2))}, "samples that differ"),
        ({"x": normal(width=5)}, "x must have shape"),
    ],
)
def test_bad_input(options, message):
    given = {"x": normal(), "keep": 100} | options
    with pytest.raises(ValueError, match=message):
        leakage(planted(), given.pop("x"), given.pop("keep"), **given)


def test_only_linear_probes_can_be_drawn():
    with pytest.raises(ValueError, match="manifest must be of a linear probe"):
        expected_leakage(planted(hidden=3).manifest, 100, 20)
    with pytest.raises(ValueError, match="keep must be below the 100 samples"):
        expected_leakage(planted().manifest, 100, 100)
