"""The same labels, scores and counts as cleanlab 2.9, where that is installed."""

import numpy as np
import pytest
import references_labels as reference
from label_cases import KINDS, draw

from jaxsel import labels
from jaxsel.labels._kernels import label_quality
from jaxsel.labels._quality import QUALITIES

cleanlab = pytest.importorskip("cleanlab", reason="pip install cleanlab==2.9.0")
pytestmark = pytest.mark.filterwarnings("ignore")

each_kind = pytest.mark.parametrize("kind", KINDS)
SEEDS = range(10)


@each_kind
def test_counts(kind):
    from cleanlab import count

    for seed in SEEDS:
        y, probs = draw(kind, seed)
        raw = count.compute_confident_joint(y, probs, calibrate=False)
        joint = count.compute_confident_joint(y, probs)
        latent = count.estimate_latent(joint, y)
        found = labels.confident_joint(probs, y)
        np.testing.assert_array_equal(found.confident, raw)
        np.testing.assert_array_equal(found.counts, joint)
        ours = found.prior, found.noise_matrix, found.inverse_noise_matrix
        for mine, theirs in zip(ours, latent, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        np.testing.assert_array_equal(reference.confident_counts(y, probs), raw)
        np.testing.assert_array_equal(reference.calibrated(y, raw), joint)
        for mine, theirs in zip(reference.latent(y, joint), latent, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("filter_by", labels.FILTERS)
@each_kind
@pytest.mark.every(9)
def test_issues(kind, filter_by):
    from cleanlab.filter import find_label_issues

    for seed in SEEDS:
        y, probs = draw(kind, seed)
        cases = [(1, 1.0)]
        if filter_by in labels.FILTERS[:3]:
            cases += [(3, 1.0), (0, 1.0), (1, 0.5)]
        for least, share in cases:
            wanted = find_label_issues(
                y,
                probs,
                filter_by=filter_by,
                n_jobs=1,
                min_examples_per_class=least,
                frac_noise=share,
            )
            given = {"min_per_class": least, "noise_share": share}
            found = labels.label_issues(probs, y, filter_by=filter_by, **given)
            np.testing.assert_array_equal(found, wanted)
            slow = reference.issues(y, probs, filter_by, **given)
            np.testing.assert_array_equal(slow, wanted)


@pytest.mark.parametrize("rank_by", QUALITIES)
@each_kind
@pytest.mark.every(10)
def test_order(kind, rank_by):
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    for seed in SEEDS:
        y, probs = draw(kind, seed)
        theirs = get_label_quality_scores(y, probs, method=rank_by)
        found = labels.label_scores(probs, y, rank_by=rank_by)
        np.testing.assert_array_equal(found, theirs)
        if seed == SEEDS[0]:  # each shape is compiled
            kernel = label_quality(probs.astype(np.float32), y, method=rank_by)
            np.testing.assert_allclose(kernel, theirs, rtol=1e-3, atol=1e-6)  # float32
        slow = reference.scores(y, probs, rank_by)
        np.testing.assert_allclose(slow, theirs, rtol=1e-4, atol=1e-6)
        wanted = find_label_issues(y, probs, n_jobs=1, return_indices_ranked_by=rank_by)
        errors = labels.find_label_errors(None, y, pred_probs=probs, rank_by=rank_by)
        np.testing.assert_array_equal(errors.indices, wanted)
