"""Pretrained features beside pixels: settings, draws, and what each method sees."""

import jax
import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from experiments.values import pretrained
from experiments.values.images import FIRST, Encoded
from experiments.values.pretrained import (
    AGAIN,
    COLUMNS,
    KNN,
    METRICS,
    PretrainedSizes,
    knn_space,
    planted,
    pretrained_seed,
    trained_space,
    with_foreign,
)
from jaxsel.tasks import RANDOM

SIZES = PretrainedSizes(n=40, n_val=20)


def encoded(seed, n=130, other=30):
    """Images without a trace of their class, and features that show it."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    features = rng.normal(size=(n, 20)) + 4 * np.eye(3, 20)[y]
    x = rng.random((n, 4, 4)).astype(np.float32)
    return Encoded(x, y, {FIRST: features.astype(np.float32)}, other)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_metric_is_the_better_one_on_other_rows(scaled):
    data = encoded(0)
    rows = data.features[FIRST]
    if scaled:  # then directions alone tell classes
        rows = rows * np.random.default_rng(1).uniform(0.1, 9, (len(rows), 1))
    found = knn_space(rows, data.y, data.other)
    peers = {}
    for metric in METRICS:
        model = KNeighborsClassifier(
            5, metric="euclidean" if metric == "l2" else metric, algorithm="brute"
        )
        first = rows[:30], data.y[:30]
        peers[metric] = cross_val_score(model, *first, cv=LeaveOneOut()).mean()
    assert found.accuracy == pytest.approx(max(peers.values()))
    assert peers[found.setting] == max(peers.values())
    assert not scaled or found.setting == "cosine"
    # Rows that may be valued choose nothing.
    shuffled = np.where(np.arange(130) < 30, data.y, 0)
    assert knn_space(rows, shuffled, 30).accuracy == found.accuracy
    assert trained_space(rows, shuffled, 30).setting in pretrained.PENALTIES


@pytest.mark.left_out
def test_other_and_foreign_rows_are_not_dealt():
    data, foreign = encoded(0), encoded(1)
    both, rows = with_foreign(data, foreign)
    np.testing.assert_array_equal(both.x[rows], foreign.x[:30])
    np.testing.assert_array_equal(
        both.features[FIRST][rows], foreign.features[FIRST][:30]
    )
    for seed in range(5):
        key = jax.random.key(seed)
        scene = planted(both, SIZES, key, rows)
        assert scene.bad.sum() == 4
        assert set(scene.train[scene.bad]) <= set(rows.tolist())
        dealt = np.concatenate([scene.train[~scene.bad], scene.val])
        assert len(set(dealt.tolist())) == 36 + 20
        assert dealt.min() >= 30
        assert dealt.max() < 130
        good = ~scene.bad
        np.testing.assert_array_equal(scene.labels[good], both.y[scene.train[good]])
        scene = planted(data, SIZES, key, None)
        wrong = scene.labels != data.y[scene.train]
        np.testing.assert_array_equal(wrong, scene.bad)
        assert scene.bad.sum() == 4
        assert min(scene.train.min(), scene.val.min()) >= 30


@pytest.mark.left_out
def test_methods_see_what_they_are_said_to_see(monkeypatch):
    """Features show the classes and pixels do not; retrained values get components."""
    widths = []

    def again(learner, samples, *, only):
        def call(x, y, x_val, y_val, key):
            widths.append((only[0], x.shape[1], learner.l2))
            return pretrained.random_values(key, len(y))

        return {only[0]: call}

    monkeypatch.setattr(pretrained, "retrained_methods", again)
    result = pretrained_seed(encoded(0), encoded(1), SIZES, 0)
    assert result["auc"].shape == (2, len(COLUMNS))
    assert result["curves"].shape == (2, len(COLUMNS), 41)
    noisy = dict(zip(COLUMNS, result["auc"][0], strict=True))
    assert noisy["KNN-Shapley", "features"] > 0.95
    assert noisy["KNN-Shapley", "pixels"] < 0.9
    assert COLUMNS[-1][0] == RANDOM
    assert [name for name, _, _ in widths] == [m for m in AGAIN for _ in range(2)] * 2
    assert {width for _, width, _ in widths} == {16}
    assert {penalty for _, _, penalty in widths} <= set(pretrained.PENALTIES)
    accuracy = result["accuracy"]
    assert accuracy.shape == (2, 2, 2)
    assert np.all(accuracy[..., 0] > accuracy[..., 1] + 0.2)
    assert set(pretrained._FUNCTIONS) == set(KNN)
