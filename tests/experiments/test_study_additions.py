"""The study's additions: words of posts, KNN-LOO's curve, adaptation by size."""

import jax
import numpy as np
import pytest

import jaxsel
from experiments._kit.scenes.samples import Part, digits
from experiments.values import sizes, words
from experiments.values.nearest import (
    INSPECTED,
    MEASURES,
    SETTINGS,
    CurveSizes,
    nearest_seed,
)
from experiments.values.sizes import ADAPTED, DomainSizes, sizes_seed
from experiments.values.words import ADVERTS, WORDS, posts, word_weights
from jaxsel.data import Dataset, flip_labels
from jaxsel.tasks import RANDOM


def test_words_weigh_their_count_by_how_rare_they_are():
    other = ["sale price sale", "price price car", "my car", "car sale of mine"]
    found, theirs = word_weights(["sale sale car", "nothing known"], other, 3)
    assert theirs.shape == (4, 3)
    weight = lambda count, texts: count * (np.log(5 / (1 + texts)) + 1)
    row = np.array([weight(1, 3), 0, weight(2, 2)])  # car, price, sale
    expected = np.stack([row / np.linalg.norm(row), np.zeros(3)])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(theirs, axis=1), 1, rtol=1e-5)


def test_posts_are_adverts_and_twice_as_many_others(monkeypatch):
    names = ("alt.atheism", ADVERTS, "sci.space")
    rng = np.random.default_rng(0)

    def load(name, *, split):
        n = 60 if split == "train" else 2000
        y = np.arange(n) % 6 % 3  # a third are adverts
        y[y == 1] = np.where(np.arange((y == 1).sum()) % 2, 1, 0)
        stock = np.array(["faith god", "sale offer price", "orbit moon"])
        x = np.array([f"{stock[c]} w{i}{rng.integers(9)}" for i, c in enumerate(y)])
        return Dataset(x=x, y=y, class_names=names, split=split)

    monkeypatch.setattr(words, "load", load)
    part = posts()
    assert part.x.shape == (30, WORDS)
    assert np.bincount(part.y).tolist() == [20, 10]
    assert part.other_x.shape == (2000, WORDS)
    assert part.other_y.sum() == 333
    # Words of one class only tell the classes apart.
    sums = np.array([part.x[part.y == c].sum(0) for c in (0, 1)])
    assert np.sum((sums[1] > 1) & (sums[0] == 0)) == 3


FEW = CurveSizes(n=120, n_val=(4, 150))


@pytest.fixture(scope="module")
def eights():
    return digits()


@pytest.fixture(scope="module")
def curves(eights):
    return nearest_seed(eights, FEW, 0)


@pytest.mark.left_out
def test_the_curve_of_knn_loo(curves):
    assert curves["auc"].shape == (len(SETTINGS), 2, len(MEASURES))
    assert curves["found"].shape == (len(SETTINGS), 2, len(MEASURES), len(INSPECTED))
    shapley, loo = curves["auc"].transpose(2, 0, 1)
    assert np.all(shapley > 0.6)
    assert np.all(loo[:, 1] > loo[:, 0] + 0.1)
    # No more than K of 120 points are near one of 4 validation points.
    assert np.all(curves["zero"][:, 0] >= 1 - 20 / 120)
    assert np.all(curves["zero"][:, 1] < curves["zero"][:, 0])
    assert np.all(np.diff(curves["found"], axis=-1) >= 0)


@pytest.mark.left_out
def test_the_curve_is_that_of_the_function(eights, curves):
    """With ten classes: points and flips are the key's draws."""
    (n, (_, m)), key = FEW, jax.random.fold_in(jax.random.key(17 << 16), 0)
    deal, flips = jax.random.split(key)
    order = np.asarray(jax.random.permutation(deal, len(eights.y)))[: n + m]
    x, y = eights.x[order].reshape(n + m, -1), eights.y[order]
    given, wrong = map(np.asarray, flip_labels(flips, y[:n], 0.1, n_classes=10))
    values = np.asarray(jaxsel.knn_loo(x[:n], given, x[n:], y[n:], k=5).values)
    pairs = np.sign(np.round(values[~wrong, None] - values[wrong], 7))
    area = (pairs.mean() + 1) / 2  # ties count half
    assert curves["auc"][0, 1, 1] == pytest.approx(area, abs=1e-3)
    assert curves["zero"][0, 1] == pytest.approx(np.mean(np.abs(values) < 1e-9))


def test_adaptation_by_size(monkeypatch):
    """Points of positive value train, and all of them before, for each number."""
    few = DomainSizes(n=(40, 120), n_val=80, n_test=200)
    rng = np.random.default_rng(0)
    x, y = rng.random((500, 2, 2, 1)).astype(np.float32), rng.integers(0, 3, 500)
    trained, good = [], lambda x: np.asarray(x).reshape(len(x), -1)[:, 0] - 0.25

    def count(x, y, x_test, y_test, key):
        assert len(x_test) == len(y_test) == few.n_test
        trained.append(x)
        return len(x) / 1000

    def value(x, y, x_val, y_val, key):
        assert len(x_val) == few.n_val
        return good(x)

    names = [name for name in ADAPTED if name not in ("LOO", RANDOM)]
    monkeypatch.setattr(sizes, "EXACT", count)
    monkeypatch.setattr(sizes, "knn_methods", lambda: dict.fromkeys(names, value))
    monkeypatch.setattr(
        sizes, "retrained_methods", lambda *_, only: dict.fromkeys(only, value)
    )
    monkeypatch.setattr(sizes, "LEFT_OUT_MOST", 100)
    part = Part(x, y, x[:0], y[:0])
    found = sizes_seed(part, part, few, 0)
    np.testing.assert_allclose(found["before"], [0.04, 0.12])
    assert found["after"].shape == found["kept"].shape == (2, len(ADAPTED))
    random, loo = ADAPTED.index(RANDOM), ADAPTED.index("LOO")
    for i, n in enumerate(few.n):
        whole = next(one for one in trained if len(one) == n)
        kept, after = (np.delete(found[name][i], random) for name in ("kept", "after"))
        expected = np.full(len(kept), np.mean(good(whole) > 0))
        if n > 100:
            expected[loo] = np.nan
        np.testing.assert_allclose(kept, expected)
        np.testing.assert_allclose(after, expected * n / 1000)
