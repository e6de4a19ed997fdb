"""The confident joint, filters and scores beside slow references in NumPy."""

import numpy as np
import pytest
import references_labels as reference
from label_cases import KINDS, draw

from jaxsel import labels
from jaxsel.labels._quality import QUALITIES, fuse_ranks

SEEDS = range(4)
each_kind = pytest.mark.parametrize("kind", KINDS)


def close(probs):
    """Return the tolerance of scores, by the type of the probabilities."""
    single = probs.dtype == np.float32
    return {"rtol": 1e-4, "atol": 1e-6} if single else {"rtol": 1e-10, "atol": 1e-12}


@each_kind
def test_joint(kind):
    for seed in SEEDS:
        y, probs = draw(kind, seed)
        found = labels.confident_joint(probs, y)
        counts = reference.confident_counts(y, probs)
        np.testing.assert_array_equal(found.thresholds, reference.thresholds(y, probs))
        np.testing.assert_array_equal(found.confident, counts)
        np.testing.assert_array_equal(found.counts, reference.calibrated(y, counts))
        own = np.bincount(y, minlength=probs.shape[1])
        np.testing.assert_array_equal(found.counts.sum(1), own)
        assert found.n_errors == len(y) - np.trace(found.counts)
        assert found.joint.sum() == pytest.approx(1)


@each_kind
def test_noise(kind):
    for seed in SEEDS:
        y, probs = draw(kind, seed)
        found = labels.confident_joint(probs, y)
        prior, noise, inverse = reference.latent(y, found.counts)
        np.testing.assert_allclose(found.prior, prior, rtol=1e-12)
        np.testing.assert_allclose(found.noise_matrix, noise, rtol=1e-12)
        np.testing.assert_allclose(found.inverse_noise_matrix, inverse, rtol=1e-12)


@pytest.mark.parametrize("filter_by", labels.FILTERS)
@each_kind
@pytest.mark.every(3)
def test_filters(kind, filter_by):
    for seed in SEEDS:
        y, probs = draw(kind, seed)
        for options in (
            {},
            {"min_per_class": 3},
            {"min_per_class": 0},
            {"noise_share": 0.5},
        ):
            found = labels.label_issues(probs, y, filter_by=filter_by, **options)
            wanted = reference.issues(y, probs, filter_by, **options)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rank_by", QUALITIES)
@each_kind
def test_scores(kind, rank_by):
    for seed in SEEDS:
        y, probs = draw(kind, seed)
        found = labels.label_scores(probs, y, rank_by=rank_by)
        wanted = reference.scores(y, probs, rank_by)
        np.testing.assert_allclose(found, wanted, **close(probs))


def test_blocks_change_nothing(monkeypatch):
    """Also of arrays in the order of columns, and of files that are mapped."""
    y, probs = draw("many classes", 0)
    whole = labels.label_issues(probs, y)
    scores = labels.label_scores(probs, y)
    monkeypatch.setattr("jaxsel.labels._inputs._ENTRIES", 70)
    for array in (probs, np.asfortranarray(probs)):
        np.testing.assert_array_equal(labels.label_issues(array, y), whole)
        np.testing.assert_array_equal(labels.label_scores(array, y), scores)


def test_a_mapped_file_will_do(tmp_path):
    y, probs = draw("random", 0)
    np.save(tmp_path / "p.npy", probs)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    wanted = labels.label_issues(probs, y)
    np.testing.assert_array_equal(labels.label_issues(mapped, y), wanted)


def test_a_cut_through_equal_margins_goes_by_argsort():
    """Many equal margins, some of them of labels that are predicted."""
    rng = np.random.default_rng(0)
    probs = np.array([[0.25, 0.75], [0.75, 0.25], [0.5, 0.5]])[rng.integers(0, 3, 300)]
    y = rng.integers(0, 2, 300)
    for filter_by in labels.FILTERS:
        found = labels.label_issues(probs, y, filter_by=filter_by, noise_share=0.6)
        wanted = reference.issues(y, probs, filter_by, noise_share=0.6)
        np.testing.assert_array_equal(found, wanted)
        assert filter_by == "predicted_neq_given" or found.sum() > 0


@pytest.mark.parametrize("gap", [0, 5e-7, 9.9e-7, 1e-6, 1.01e-6, 2e-6, 3e-6])
def test_labels_all_but_predicted_are_not_suspected(gap):
    """Around the tolerance of 1e-6, with the label before and after the prediction."""
    base = np.array([[0.5, 0.5 - gap], [0.5 - gap, 0.5]])
    probs = np.concatenate([np.tile(base, (20, 1)), np.eye(2), np.eye(2)])
    y = np.concatenate([np.tile([1, 0], 20), [0, 1], [1, 0]])
    for filter_by in labels.FILTERS:
        found = labels.label_issues(probs, y, filter_by=filter_by)
        wanted = reference.issues(y, probs, filter_by)
        np.testing.assert_array_equal(found, wanted)


def test_ranks_are_averaged():
    first, second = [0.1, 0.2, 0.2, 0.9], [5.0, -1.0, 7.0, 6.0]
    # Ranks 1, 2.5, 2.5, 4 and 2, 1, 4, 3, less a half, over 4.
    wanted = [(0.5 + 1.5) / 8, (2 + 0.5) / 8, (2 + 3.5) / 8, (3.5 + 2.5) / 8]
    np.testing.assert_allclose(fuse_ranks(first, second), wanted)


@pytest.mark.parametrize(
    ("pred_probs", "y", "options", "message"),
    [
        ([[0.2, 0.8], [1.2, 0.1]], [0, 1], {}, "pred_probs must be between 0 and 1"),
        ([[0.2, 0.8], [np.nan, 1]], [0, 1], {}, "pred_probs must be finite, but row 1"),
        ([0.2, 0.8], [0, 1], {}, r"pred_probs must have shape \[n, n_classes\]"),
        ([[1.0], [1.0]], [0, 0], {}, "two classes or more"),
        ([["a", "b"]], [0], {}, "pred_probs must be numeric"),
        ([[0.2, 0.8]], [0, 1], {}, "must have the same length"),
        ([[0.2, 0.8]], [[0]], {}, r"y must be labels of shape \[n\]"),
        ([[0.2, 0.8], [0.5, 0.5]], ["a", "a"], {}, "classes must be given"),
        ([[0.2, 0.8]], ["c"], {"classes": ["a", "b"]}, "lacks 'c'"),
        ([[0.2, 0.8]], ["a"], {"classes": ["a", "a"]}, "each class once"),
        ([[0.2, 0.8]], ["a"], {"classes": ["a"]}, "must name the 2 columns"),
        ([[0.2, 0.8]], [0], {"classes": ["a", "b"]}, "labels of one kind"),
        ([[0.2, 0.8]], [0.5], {"classes": [0, 1]}, "must hold class labels"),
        ([[0.2, 0.8]], [0], {"filter_by": "all"}, "filter_by must be one of"),
        ([[0.2, 0.8]], [0], {"noise_share": 1.5}, "noise_share must be from 0 to 1"),
        ([[0.2, 0.8]], [0], {"min_per_class": -1}, "min_per_class must be at least 0"),
    ],
)
def test_what_is_refused(pred_probs, y, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        labels.label_issues(pred_probs, y, **options)


@pytest.mark.parametrize("ours", [np.nan, np.inf])
def test_scores_to_fuse_must_be_finite(ours):
    with pytest.raises(ValueError, match="scores must be finite"):
        fuse_ranks([0.1, 0.2], [0.1, ours])
    with pytest.raises(ValueError, match="one array or more"):
        fuse_ranks()
    with pytest.raises(ValueError, match="same length"):
        fuse_ranks([0.1, 0.2], [0.1])


def test_classes_by_name():
    y, probs = draw("random", 1)
    names = np.array(["cat", "ant", "bee", "dog", "eel", "fox"])[: probs.shape[1]]
    wanted = labels.label_issues(probs, y)
    found = labels.label_issues(probs, names[y], classes=names)
    np.testing.assert_array_equal(found, wanted)
    joint = labels.confident_joint(probs, names[y], classes=names)
    assert joint.classes.tolist() == names.tolist()
    # In sorted order, if none is given.
    order = np.argsort(names)
    found = labels.label_issues(probs[:, order], names[y].astype(object))
    np.testing.assert_array_equal(found, wanted)


def test_one_sample_of_each_class_is_never_pruned():
    y, probs = np.array([0, 1, 2]), np.eye(3)[[1, 2, 0]]
    for filter_by in labels.FILTERS[:3]:
        for least in (0, 1):
            found = labels.label_issues(
                probs, y, filter_by=filter_by, min_per_class=least
            )
            assert not found.any()
