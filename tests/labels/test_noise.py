"""How many labels are wrong: flips told from classes that overlap."""

import numpy as np
import pytest
from label_cases import KINDS, draw
from scipy import optimize, special

from jaxsel import labels
from jaxsel.labels import _noise_model
from jaxsel.labels._noise_model import NoiseModel, fit_noise


def gaussians(gap, share, seed, n=2000):
    """Return P(y | x) of two Gaussians, labels, and which of these are flipped."""
    rng = np.random.default_rng([seed, int(10 * gap), int(100 * share)])
    y = rng.integers(0, 2, n)
    z = gap * (rng.normal(size=n) + gap * (y - 0.5))
    flipped = rng.random(n) < share
    p = special.expit(z)
    return np.stack([1 - p, p], axis=1), np.where(flipped, 1 - y, y), flipped


def softmax_table(share, seed, classes=4, n=600):
    """Return the probabilities that classes are drawn by, labels, and the flips."""
    rng = np.random.default_rng([seed, classes])
    probs = special.softmax(3 * rng.normal(size=(n, classes)), axis=1)
    y = (probs.cumsum(1) > rng.random((n, 1))).argmax(1)
    flipped = rng.random(n) < share
    other = (y + rng.integers(1, classes, n)) % classes
    return probs, np.where(flipped, other, y), flipped


def test_overlap_does_not_count_as_wrong():
    """The confident joint counts some .16 of these labels as wrong."""
    off, joint = [], []
    for seed in range(6):
        probs, y, _ = gaussians(1.0, 0.0, seed)
        off.append(labels.estimate_noise(probs, y).n_errors / len(y))
        joint.append(labels.confident_joint(probs, y).n_errors / len(y))
    assert np.mean(joint) > 0.12
    assert np.mean(off) < 0.04
    probs, y, _ = gaussians(2.0, 0.0, 0)
    assert labels.estimate_noise(probs, y).n_errors < 0.01 * len(y)


def test_flips_are_counted_where_classes_overlap():
    for gap, room in ((1.0, 0.045), (2.0, 0.02)):
        off = []
        for seed in range(6):
            probs, y, flipped = gaussians(gap, 0.1, seed)
            noise = labels.estimate_noise(probs, y)
            off.append((noise.n_errors - flipped.sum()) / len(y))
            assert noise.interval[0] <= noise.n_errors <= noise.interval[1]
            assert noise.wrong.sum() == pytest.approx(noise.n_errors, rel=0.05)
        assert abs(np.mean(off)) < room


@pytest.mark.slow
def test_intervals_cover_and_probabilities_are_calibrated():
    covered, said, flips = [], [], []
    for gap in (1.0, 1.5, 2.0):
        for share in (0.0, 0.05, 0.1):
            for seed in range(8):
                probs, y, flipped = gaussians(gap, share, seed)
                noise = labels.estimate_noise(probs, y)
                low, high = noise.interval
                covered.append(low <= flipped.sum() <= high)
                said.append(noise.wrong)
                flips.append(flipped)
    assert np.mean(covered) > 0.9
    said, flips = np.concatenate(said), np.concatenate(flips)
    place = np.minimum(10 * said, 9).astype(int)
    for k in range(10):
        if (place == k).sum() > 200:
            assert abs(said[place == k].mean() - flips[place == k].mean()) < 0.1


def test_probability_of_a_wrong_label_is_bayes_rule():
    flips = np.array([[0.8, 0.1, 0.1], [0.05, 0.9, 0.05], [0.15, 0.15, 0.7]])
    true = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]])
    theta = np.array([2.0, 0.0, 0.0, 0.0])
    model = NoiseModel(
        np.array([0.75]), theta[None], flips[None], 0.25, 0.0, (0.0, 0.0), np.eye(3)
    )
    for y in range(3):
        # A power of two, which the members' roots take back.
        wrong = model.wrong([np.sqrt(true)], np.full(3, y))
        right = true[:, y] * flips[y, y] / (true @ flips)[:, y]
        np.testing.assert_allclose(wrong, 0.75 * (1 - right), rtol=1e-6)


@pytest.mark.parametrize("members", [1, 2])
def test_scores_and_rates_have_the_greatest_likelihood(members):
    probs, y, _ = softmax_table(0.15, 0)
    rng = np.random.default_rng(1)
    others = [special.softmax(np.log(probs) + rng.normal(size=probs.shape), 1)]
    scores = np.log(np.stack([probs, *others][:members]))
    classes = probs.shape[1]

    def loss(theta, rates):
        z = np.tensordot(theta[:members], scores, 1) + theta[members:]
        flips = np.full((classes, classes), 0.0)
        for k in range(classes):
            flips[k] = rates[k] / (classes - 1)
            flips[k, k] = 1 - rates[k]
        given = (special.softmax(z, 1) @ flips)[np.arange(len(y)), y]
        return -np.log(given).sum() + 0.25 * (theta[members:] ** 2).sum()

    start = np.append(np.full(members, 1 / members), np.zeros(classes))
    rates = np.array([0.1, 0.2, 0.05, 0.15])
    theta, reached, _ = _noise_model._fit_scores(
        scores, y, _noise_model._flips(rates), start
    )
    best = optimize.minimize(loss, start, (rates,), method="BFGS")
    assert reached == pytest.approx(loss(theta, rates), rel=1e-9)
    assert reached < best.fun + 0.01
    likeliest = _noise_model._likeliest_rates(scores, y, theta)

    def both(parameters):
        return loss(
            parameters[: len(theta)], np.clip(parameters[len(theta) :], 0, 0.45)
        )

    best = optimize.minimize(both, np.append(theta, rates), method="BFGS")
    np.testing.assert_allclose(likeliest, best.x[len(theta) :], atol=0.01)


def test_flips_of_one_class_and_sure_predictions():
    probs, y, _ = softmax_table(0.0, 3, n=1500)
    rng = np.random.default_rng(0)
    flipped = (y == 1) & (rng.random(len(y)) < 0.3)
    to = rng.choice([0, 2, 3], len(y))
    noise = labels.estimate_noise(probs, np.where(flipped, to, y))
    assert noise.interval[0] <= flipped.sum() <= noise.interval[1]
    from_one = noise.confusion[:, 1].sum() - noise.confusion[1, 1]
    assert from_one > 0.7 * noise.n_errors


def test_flips_between_two_classes_stand_out_where_predictions_are_sure():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 200)
    probs = special.softmax(rng.uniform(3, 8, (600, 1)) * np.eye(3)[y], axis=1)
    y[:12] = 1
    noise = labels.estimate_noise(probs, y)
    assert noise.n_errors == pytest.approx(12, abs=3)
    assert set(np.flatnonzero(noise.wrong > 0.5)) <= set(range(12))
    assert noise.wrong[:12].mean() > 0.7


def test_names_and_order_of_classes_do_not_matter():
    probs, y, _ = softmax_table(0.1, 5)
    plain = labels.estimate_noise(probs, y)
    names = np.array(["c", "a", "d", "b"])
    moved = labels.estimate_noise(probs[:, np.argsort(names)], names[y])
    assert moved.n_errors == pytest.approx(plain.n_errors, rel=1e-3)
    np.testing.assert_allclose(moved.wrong, plain.wrong, atol=2e-3)
    assert moved.classes.tolist() == ["a", "b", "c", "d"]
    scaled = labels.estimate_noise(0.5 * probs, y)
    np.testing.assert_allclose(scaled.wrong, plain.wrong, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_odd_probabilities(kind):
    y, probs = draw(kind, 1)
    noise = labels.estimate_noise(probs, y)
    assert ((noise.wrong >= 0) & (noise.wrong <= 1)).all()
    assert 0 <= noise.interval[0] <= noise.n_errors <= noise.interval[1] <= len(y)
    assert noise.confusion.sum() == pytest.approx(len(y))
    counts = np.bincount(y, minlength=probs.shape[1])
    np.testing.assert_allclose(noise.confusion.sum(1), counts, atol=1e-6)
    assert f"of {len(y)}" in repr(noise)


@pytest.mark.left_out
def test_large_tables_are_fitted_to_some_rows(monkeypatch):
    probs, y, flipped = gaussians(2.0, 0.1, 1, n=6000)
    whole = labels.estimate_noise(probs, y)
    monkeypatch.setattr(_noise_model, "_ROWS", 3000)
    some = labels.estimate_noise(probs, y)
    assert some.n_errors == pytest.approx(whole.n_errors, rel=0.2)
    assert some.wrong.shape == (6000,)
    assert some.interval[0] < flipped.sum() < some.interval[1]
    model = fit_noise([probs], y)
    assert len(model.weights) < 30
