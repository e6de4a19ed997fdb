"""Scores, choices and probes against SciPy, scikit-learn and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression, Ridge

from jaxsel.proxy import choose, entropy_of_square, fit_probe, score

M, D, C = 60, 5, 3


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


# Scores.


def test_scores_by_definition():
    logits = 3 * normal(M, C)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = scipy.stats.entropy(p, axis=1)
    np.testing.assert_allclose(score(logits), expected, rtol=1e-5, atol=1e-6)
    prior = np.array([0.7, 0.2, 0.1])
    found = score(logits, "prior_entropy", prior=3 * prior)
    np.testing.assert_allclose(
        found, scipy.stats.entropy((p / prior).T), rtol=1e-5, atol=1e-6
    )
    first, second = -np.sort(-logits, axis=1)[:, :2].T
    np.testing.assert_allclose(score(logits, "margin"), second - first, rtol=1e-6)


def test_all_scores_of_two_classes_rank_as_the_square():
    logits = 3 * normal(M, 2)
    square = -((logits[:, 1] - logits[:, 0]) ** 2)
    for kind in ("entropy", "margin"):
        found = score(logits, kind)
        np.testing.assert_array_equal(np.argsort(found), np.argsort(square))
    np.testing.assert_allclose(entropy_of_square(square), score(logits), atol=1e-6)
    assert entropy_of_square(jnp.zeros(())) == pytest.approx(np.log(2))
    assert entropy_of_square(jnp.float32(-1e8)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "doubt"}, "kind must be one of 'entropy'"),
        ({"kind": "prior_entropy"}, "prior must be given for 'prior_entropy'"),
        ({"prior": [0.5, 0.5]}, "got one for 'entropy'"),
        ({"kind": "prior_entropy", "prior": [1]}, r"prior must have shape \(3,\)"),
    ],
)
def test_scores_of_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        score(normal(M, C), **options)


# Choices.


def test_the_best_are_chosen_and_ties_go_by_index():
    scores = np.array([1.0, 3, 2, 3, 0])
    found = choose(scores, 3)
    assert found.indices.tolist() == [1, 3, 2]
    assert choose(scores, 9).indices.tolist() == [1, 3, 2, 0, 4]
    assert int(found.n_valid) == 3


@pytest.mark.parametrize("strength", [0.0, 0.5, 2.0])
def test_diversity_by_definition(strength):
    scores, x = normal(M), normal(M, D)
    found = choose(scores, 12, features=x, strength=strength).indices.tolist()
    rank = 1 - np.argsort(np.argsort(-scores)) / M
    far, expected = cdist(x, x, "cosine"), []
    for _ in range(12):
        near = far[:, expected].min(1) if expected else np.full(M, 2.0)
        worth = rank * near**strength
        worth[expected] = -1
        expected.append(int(worth.argmax()))
    assert found == expected
    if not strength:
        assert found == choose(scores, 12).indices.tolist()


def test_classes_take_turns():
    scores = np.arange(10.0)
    predicted = np.array(list("aaaaaaaabc"))
    found = choose(scores, 5, predicted=predicted).indices.tolist()
    assert found == [7, 8, 9, 6, 5]
    both = choose(scores, 5, predicted=predicted, features=normal(10, D)).indices
    assert sorted(predicted[np.asarray(both)]) == list("aaabc")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.ones((2, 2))}, r"scores must have shape \[n\]"),
        ({"scores": [1.0, np.nan]}, "scores must be finite"),
        ({"budget": 0}, "budget must be at least 1"),
        ({"features": normal(3, 2)}, "scores and features"),
        ({"predicted": [1, 2, 3]}, "scores and predicted"),
        ({"features": normal(2, 2), "strength": -1}, "strength must be"),
    ],
)
def test_choices_of_bad_input(change, message):
    arguments = {"scores": [1.0, 2.0], "budget": 1} | change
    with pytest.raises(ValueError, match=message):
        choose(**arguments)


# Probes.


@pytest.mark.left_out
def test_labels_as_scikit_learn():
    x = normal(M, D) * np.array([1, 10, 0.1, 1, 1]) + 5
    y = np.random.default_rng(0).integers(C, size=M)
    probe = fit_probe(x, y, loss="labels", n_classes=C, l2=0.1)
    standard = (x - x.mean(0)) / x.std(0)
    peer = LogisticRegression(C=1 / (0.1 * M), tol=1e-8, max_iter=1000)
    expected = peer.fit(standard, y).predict_log_proba(standard)
    found = jax.nn.log_softmax(probe(x))
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.left_out
def test_logits_as_ridge_regression():
    x, z = normal(M, D), normal(M, C, seed=1)
    probe = fit_probe(x, z, l2=0.5)
    standard, centred = (x - x.mean(0)) / x.std(0), z - z.mean(1, keepdims=True)
    peer = Ridge(alpha=0.5 * M).fit(standard, centred)
    found = np.asarray(probe(x))
    found = found - found.mean(1, keepdims=True)
    np.testing.assert_allclose(found, peer.predict(standard), atol=2e-3)


@pytest.mark.slow
def test_hidden_units_and_ranks_learn_what_a_line_cannot():
    """Doubt is where the first feature is near 0; half the samples are held out."""
    x = normal(400, D)
    target = np.stack([np.zeros(400), 3 * np.abs(x[:, 0]) - 2], axis=1)
    doubt = score(target.astype(np.float32))
    fitted, held_out = x[:200], x[200:]

    def agreement(**options):
        probe = fit_probe(fitted, key=jax.random.key(0), **options)
        found = score(probe(held_out))
        return scipy.stats.spearmanr(found, doubt[200:]).statistic

    line = agreement(targets=target[:200])
    deep = agreement(targets=target[:200], hidden=16)
    assert deep > 0.9 > 0.5 > line
    # |x0|'s doubt is highest at two places: a line in x0 has it at one.
    ranks = {"targets": -np.abs(x[:200, 0]), "loss": "ranks"}
    probe = fit_probe(fitted, key=jax.random.key(0), **ranks)
    found = scipy.stats.spearmanr(score(probe(held_out)), -np.abs(x[200:, 0]))
    assert found.statistic > 0.95


@pytest.mark.left_out
def test_features_that_do_not_vary_do_no_harm():
    x = np.c_[normal(M, 2), np.full(M, 7.0)]
    probe = fit_probe(x, normal(M, 2, seed=1))
    assert np.isfinite(probe(x)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of 'labels'"),
        ({"targets": np.ones(M)}, r"targets must be logits \[m, C\]"),
        ({"targets": normal(M - 1, 2)}, "features and targets"),
        ({"targets": np.full((M, 2), np.inf)}, "targets must be finite"),
        ({"loss": "labels", "targets": np.full(M, 2)}, r"whole numbers in \[0, 2\)"),
        ({"hidden": 4}, "key must be given"),
        ({"l2": -1.0}, "l2 must be"),
    ],
)
def test_probes_of_bad_input(change, message):
    arguments = {"features": normal(M, D), "targets": normal(M, 2)} | change
    with pytest.raises(ValueError, match=message):
        fit_probe(**arguments)
