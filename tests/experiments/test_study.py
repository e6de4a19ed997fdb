"""The study in miniature: its parts against definitions, scipy and scikit-learn."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
import scipy.stats
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

import jaxsel
from experiments._kit.judge import (
    COUNTED,
    FAILS,
    HOLDS,
    OPEN,
    TESTED,
    Evidence,
    Finding,
    above,
    beaten_by,
    best,
    every,
    groups,
    holm,
    settle,
    untested,
    verdict,
    within,
)
from experiments._kit.scenes.samples import Part
from experiments._kit.scenes.valuations import (
    KNN,
    MAX,
    Samples,
    knn_methods,
    retrained_methods,
)
from experiments.values.curves import packed, unpacked
from experiments.values.data import project, shrink
from experiments.values.embeddings import top_overlap
from experiments.values.methods import Exact, PaddedUtility
from experiments.values.order import COUNTS, Population, gains, order_counts, order_seed
from experiments.values.ranks import RankSizes, reliability, scene
from jaxsel import value
from jaxsel.data import load
from jaxsel.tasks import noisy_labels

K = 3


def knn_utility(x, y, x_val, y_val):
    """The definition: matches among the K nearest, over K."""
    total = 0.0
    for point, label in zip(x_val, y_val, strict=True):
        order = np.argsort(((x - point) ** 2).sum(1))[:K]
        total += np.sum(y[order] == label) / K
    return total / len(y_val)


@pytest.mark.parametrize("m", [1, 4])
def test_gains_are_differences_of_utilities(m):
    rng = np.random.default_rng(m)
    draw = lambda n: Population(rng.normal(size=(n, 2)), rng.integers(0, 2, n))
    data, val, others = draw(6), draw(m), draw(20 * 5)
    found = gains(data, val, others, K, 20)
    for t in range(20):
        x, y = others.x[5 * t : 5 * t + 5], others.y[5 * t : 5 * t + 5]
        without = knn_utility(x, y, *val)
        for i in range(6):
            joined = np.append(x, data.x[i : i + 1], 0), np.append(y, data.y[i])
            assert np.isclose(found[t, i], knn_utility(*joined, *val) - without)


def test_expected_gains_where_labels_are_fair_coins():
    """Then E = P(fewer than K of T are nearer) (match - 1/2) / K, by the binomial."""
    rng = np.random.default_rng(0)
    draws, size = 20_000, 12
    line = lambda n: np.stack([rng.random(n), np.zeros(n)], 1)
    data = Population(line(8), np.arange(8) % 2)
    val = Population(np.zeros((1, 2)), np.array([1]))
    others = Population(line(draws * size), rng.integers(0, 2, draws * size))
    found = gains(data, val, others, K, draws)
    nearer = scipy.stats.binom.cdf(K - 1, size, data.x[:, 0])
    exact = nearer * ((data.y == 1) - 0.5) / K
    error = found.std(0, ddof=1) / draws**0.5
    assert np.all(np.abs(found.mean(0) - exact) < 4 * error + 1e-4)
    assert np.abs(exact).max() > 40 * error.max()


def test_order_counts():
    gained = np.random.default_rng(0).normal([3.0, 2.0, 1.0, 1.0], 0.1, (400, 4))
    count = lambda *values: tuple(order_counts(np.array(values), gained).values())
    assert COUNTS == ("pairs", "tied", "agree", "disagree", "open")
    assert count(4.0, 3.0, 2.0, 1.0) == (6, 0, 5, 0, 1)
    assert count(1.0, 2.0, 3.0, 4.0) == (6, 0, 0, 5, 1)
    assert count(1.0, 1.0, 1.0, 0.0) == (6, 3, 2, 0, 1)
    # One pair is wrong: the second above the first.
    assert count(2.0, 3.0, 1.0, 1.0) == (6, 1, 4, 1, 0)


@pytest.mark.left_out
def test_theorem_2_with_one_validation_point():
    counts, near = (order_seed(3)[name] for name in ("counts", "near"))
    assert counts.shape == (2, 2, 5)
    assert near.shape == (2, 5)
    np.testing.assert_array_equal(counts[..., 1:].sum(-1), counts[..., 0])
    disagree, tied = counts[0, :, 3], counts[0, :, 1]
    np.testing.assert_array_equal(disagree, 0)
    assert counts[0, 0, 2] > 3 * counts[0, 1, 2]
    # All but K points have a KNN-LOO of zero.
    assert tied[1] >= 35 * 34 // 2


def test_verdicts_are_paired_t_tests():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=10)
    noise -= noise.mean()
    exact = scipy.stats.ttest_1samp(noise + 1, 0.3)
    np.testing.assert_allclose(above(noise + 1, 0.3)[:2], [exact.pvalue, 1])
    np.testing.assert_allclose(above(noise - 1, -0.3)[:2], [1, exact.pvalue])
    interval = scipy.stats.ttest_1samp(noise + 1, 0).confidence_interval(0.95)
    edge = (interval.high - interval.low) / 2
    assert verdict(above(noise + 1.01 * edge)) == HOLDS
    assert verdict(above(noise + 0.99 * edge)) == OPEN
    assert verdict(above(noise - 1.01 * edge)) == FAILS
    assert verdict(above(np.zeros(5))) == OPEN
    assert verdict(above(np.ones(1))) == OPEN
    assert verdict(above(np.ones(3))) == HOLDS
    assert verdict(within(noise, 1.01 * edge)) == HOLDS
    assert verdict(within(noise, 0.99 * edge)) == OPEN
    assert verdict(within(noise + 3 * edge, edge)) == FAILS
    yes, no, unknown = Evidence(0.04, 1), Evidence(1, 0.02), Evidence(0.1, 1)
    assert verdict(every([yes, yes])) == HOLDS
    assert verdict(every([yes, unknown])) == OPEN
    assert verdict(every([unknown, no])) == FAILS
    assert verdict(every([unknown, unknown, no])) == OPEN  # one of three, at 5 % of all
    figures = {"a": noise + 9, "b": 2 * noise + 5, "c": noise[::-1] + 5}
    assert verdict(best(figures, "a")) == HOLDS
    assert verdict(best(figures, "b")) == FAILS
    assert beaten_by(figures, "c") == ["a"]
    assert verdict(best({"b": figures["b"], "c": figures["c"]}, "b")) == OPEN
    assert verdict(groups(figures, ["a"], ["b", "c"])) == HOLDS
    assert verdict(groups(figures, ["a", "b"], ["c"])) == OPEN
    assert verdict(groups(figures, ["b"], ["a", "c"])) == FAILS


def closed(ps, i):
    """The p-value of a closed test: the largest of the sets with i, by Bonferroni."""
    others = [p for j, p in enumerate(ps) if j != i]
    return max(
        min(1.0, (size + 1) * min(ps[i], *some, 1.0))
        for size in range(len(ps))
        for some in itertools.combinations(others, size)
    )


def test_claims_of_a_family_are_corrected_together():
    rng = np.random.default_rng(0)
    for ps in [*rng.random((20, 5)) ** 3, [0.01, 0.01, 0.04], [0.2], []]:
        expected = [closed(list(ps), i) for i in range(len(ps))]
        np.testing.assert_allclose(holm(ps), expected)

    def of(family, evidence, test=TESTED):
        return Finding(family, "text", "where", "scale", "measured", evidence, test)

    claims = settle(
        [
            of("a", Evidence(0.02, 1)),
            of("b", Evidence(0.03, 1)),
            of("a", FAILS, COUNTED),
            of("a", Evidence(1, 0.03)),
            of("c", Evidence(1, 0.01)),
            of("a", Evidence(0.5, 1)),
            of("c", Evidence(0.04, 1)),
            of("c", untested("its model is another")),
        ]
    )
    *found, last = [claim.verdict for claim in claims]
    assert found == [OPEN, HOLDS, FAILS, OPEN, FAILS, OPEN, HOLDS]
    assert last == "not tested here, because its model is another"
    *ps, last = [claim.p for claim in claims]
    assert ps[2] is last is None
    np.testing.assert_allclose(ps[:2] + ps[3:], [0.06, 0.03, 0.06, 0.02, 0.5, 0.04])
    tests = [claim.test for claim in claims]
    assert tests[1:3] == ["t-test", COUNTED]
    # What is not tested does not count among the claims of its family.
    assert tests[4] == tests[6] == "t-test, Holm of 2"
    assert tests[7] == "none"


def test_what_is_above_is_named_where_a_claim_fails():
    finding = Finding(
        "f", "", "", "", "1 point", Evidence(1, 0.03), if_fails="; above it: b"
    )
    other = dataclasses.replace(finding, evidence=Evidence(0.2, 1))
    (claim,) = settle([finding])
    assert (claim.verdict, claim.measured) == (FAILS, "1 point; above it: b")
    # Corrected with another claim it fails no more.
    claim, _ = settle([finding, other])
    assert (claim.verdict, claim.measured) == (OPEN, "1 point")


def test_each_claim_says_its_tests():
    figures = {name: np.arange(10.0) ** i for i, name in enumerate("abc")}
    for evidence, words in (
        (above(figures["a"]), "t-test, 10 seeds"),
        (above(figures["a"][:1]), "t-test, 1 seed"),
        (within(figures["a"], 1), "2 t-tests, 10 seeds"),
        (best(figures, "b"), "2 t-tests, 10 seeds"),
        (groups(figures, ["a", "b"], ["b", "c"]), "4 t-tests, 10 seeds"),
    ):
        (claim,) = settle([Finding("f", "", "", "", "", evidence)])
        assert claim.test == words


@pytest.mark.slow
def test_curves_survive_a_file(tmp_path):
    data = load("digits", split="all")
    runs = [
        noisy_labels(
            data.x,
            data.y,
            knn_methods(),
            n=60,
            n_val=30,
            seeds=1,
            key=jax.random.key(s),
        )
        for s in (0, 1)
    ]
    for i, run in enumerate(runs):
        np.savez(tmp_path / f"{i}.npz", **packed(run))
    from experiments._kit.store import remembered

    fresh = [
        remembered(tmp_path / f"new-{i}.npz", {}, lambda r=r: packed(r))
        for i, r in enumerate(runs)
    ]
    both = unpacked(fresh)
    assert both.seeds == 2
    assert both.name == runs[0].name
    assert (both.xlabel, both.ylabel) == (runs[0].xlabel, runs[0].ylabel)
    assert both.percent_x
    for s, run in enumerate(runs):
        for name in run.curves:
            np.testing.assert_array_equal(both.curves[name][s], run.curves[name][0])
            assert both.summary[name]["auc"][s] == run.summary[name]["auc"][0]


def points(n=40, m=30, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n + m)
    x = (rng.normal(size=(n + m, d)) + 2 * y[:, None]).astype(np.float32)
    return x[:n], y[:n], x[n:], y[n:]


def test_a_padded_utility_is_the_same_utility():
    arrays = points()
    learner = value.NearestCentroid()
    masks = np.random.default_rng(1).random((50, 40)) < 0.3
    masks[0] = False
    plain = value.ModelUtility(learner, *arrays)
    padded = PaddedUtility(learner, *arrays, capacity=64)
    assert padded.n == 40
    key = jax.random.key(0)
    np.testing.assert_array_equal(padded(masks, key), plain(masks, key))


def test_the_exact_learner_is_scikit_learns():
    learner = Exact(value.LogisticRegression(l2=3.0))
    for n in (33, 40):
        x, y, x_test, y_test = points(m=200)
        x, y = x[:n], y[:n]
        peer = LogisticRegression(C=1 / 3, tol=1e-8, max_iter=1000).fit(x, y)
        # Coefficients differ by the solver's tolerance: one answer in 200 may.
        found = learner(x, y, x_test, y_test, jax.random.key(0))
        assert abs(found - peer.score(x_test, y_test)) <= 0.005 + 1e-6


@pytest.mark.slow
def test_methods_are_the_functions_of_their_names():
    arrays = points()
    key = jax.random.key(2)
    by = knn_methods(k=K, foreign=True)
    assert set(by) == {*KNN, MAX}
    for name, function in (
        ("KNN-Shapley", jaxsel.knn_shapley),
        ("KNN-Banzhaf", jaxsel.knn_banzhaf),
        ("KNN-LOO", jaxsel.knn_loo),
    ):
        expected = function(*arrays, k=K).values
        np.testing.assert_array_equal(by[name](*arrays, key).values, expected)
    most = jaxsel.knn_shapley(*arrays, k=K, reduce=None).values.max(0)
    np.testing.assert_allclose(by[MAX](*arrays, key).values, most, atol=1e-7)
    learner, few = value.NearestCentroid(), Samples(permutations=8, bags=16)
    found = retrained_methods(learner, few, only=("TMC-Shapley", "LOO", "Data-OOB"))
    utility = value.ModelUtility(learner, *arrays)
    whole = float(utility(np.ones((1, 40)))[0])
    left = float(utility((np.arange(40) != 7)[None])[0])
    assert np.isclose(found["LOO"](*arrays, key).values[7], whole - left, atol=1e-6)
    assert int(found["TMC-Shapley"](*arrays, key).count) == 8
    bags = np.asarray(found["Data-OOB"](*arrays, key).count)
    assert bags.shape == (40,)
    assert bags.max() <= 16


def test_images_are_shrunk_by_averaging():
    x = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1)).astype(np.uint8)
    wide = np.pad(x[..., 0] / 255, ((0, 0), (2, 2), (2, 2)))
    found = shrink(x, 8)
    assert found.shape == (3, 8, 8, 1)
    for i, j in itertools.product((0, 3, 7), repeat=2):
        mean = wide[:, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4].mean((1, 2))
        np.testing.assert_allclose(found[:, i, j, 0], mean, rtol=1e-5)
    assert shrink(x, 14).shape == (3, 14, 14, 1)


def test_projections_are_principal_components():
    rng = np.random.default_rng(0)
    other = rng.normal(size=(50, 6)) * [5, 4, 3, 2, 1, 0.5]
    fresh = rng.normal(size=(4, 6))
    found = project(other, 3)(fresh)
    expected = PCA(3, svd_solver="full").fit(other).transform(fresh)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-4, atol=1e-4)


def test_adversarial_images_fool_another_model():
    data = load("digits", split="all")
    x = np.asarray(data.x, np.float32).reshape(-1, 8, 8, 1)
    part = Part(x[:900] / x.max(), data.y[:900], x[900:] / x.max(), data.y[900:])
    sizes = RankSizes(n=80, n_val=40)
    seen, y, seen_val, y_val, perturbed = scene(part, sizes, jax.random.key(0))
    assert seen.shape == (80, 12)
    assert perturbed.sum() == 40
    clean = LogisticRegression().fit(seen[~perturbed], y[~perturbed])
    assert clean.score(seen[~perturbed], y[~perturbed]) > 0.95
    assert clean.score(seen_val, y_val) < 0.8
    spoilt = LogisticRegression().fit(seen[perturbed], y[perturbed])
    assert spoilt.score(seen_val, y_val) > clean.score(seen_val, y_val) + 0.15


def test_reliability_and_overlap():
    rng = np.random.default_rng(0)
    noisy = 2 * rng.normal(size=100_000) + rng.normal(size=100_000)
    assert abs(reliability(noisy, np.ones(100_000)) - 0.8) < 0.01
    counts = np.array([[9, 8, 7, 1, 1, 1], [9, 8, 1, 7, 1, 1], [0, 0, 0, 3, 3, 3]])
    third = 1 / 3
    np.testing.assert_allclose(
        top_overlap(counts), [[1, 2 * third, 0], [2 * third, 1, third], [0, third, 1]]
    )
