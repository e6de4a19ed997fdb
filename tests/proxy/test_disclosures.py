"""Warnings of what a choice opens by itself; pools that change; rows beyond bounds."""

import dataclasses

import numpy as np
import pytest

from jaxsel import proxy
from jaxsel.proxy import (
    Spec,
    choice_warnings,
    compare_pools,
    out_of_bounds,
    probe_manifest,
    row_digests,
)
from jaxsel.proxy._leakage import _disclosures
from jaxsel.proxy._manifest import FixedPoint

PROBE = probe_manifest(width=10, n_classes=2)
HIDDEN = probe_manifest(width=10, n_classes=2, head=4)


def bounded(bound, manifest=HIDDEN):
    fixed = FixedPoint(bounds={"inputs": bound})
    return dataclasses.replace(manifest, fixed_point=fixed)


def test_nothing_to_warn_of():
    assert choice_warnings(HIDDEN, 1000, 200) == ()
    assert choice_warnings(PROBE, 1000, 1000) == ()  # all rows: nothing is compared


def test_one_row_is_the_best():
    (said,) = choice_warnings(HIDDEN, 1000, 1)
    assert "opens exactly which sample is the best:" in said
    (said,) = choice_warnings(HIDDEN, 1000, 1, appraisal="mean")
    assert "and as their mean its exact score" in said
    (said,) = choice_warnings(HIDDEN, 1000, 999)
    assert said.startswith(
        "keep = 999 of 1,000 opens exactly which sample is the worst"
    )
    assert choice_warnings(HIDDEN, 1000, 2, appraisal="mean") == ()


@pytest.mark.parametrize(
    ("classes", "n", "recovered"), [(2, 79, 0), (2, 80, 1), (3, 159, 0), (3, 160, 1)]
)
def test_a_linear_probe_is_no_secret(classes, n, recovered):
    manifest = probe_manifest(width=10, n_classes=classes)
    (said,) = choice_warnings(manifest, n, n // 5)
    assert ("is recovered" if recovered else "may be recovered") in said
    assert f"{n} samples of 10 features" in said
    assert 'engine = "published"' in said


def test_bad_sizes():
    with pytest.raises(ValueError, match="keep must be at most the 10 rows, got 11"):
        choice_warnings(PROBE, 10, 11)
    with pytest.raises(ValueError, match="appraisal must be one of"):
        choice_warnings(PROBE, 10, 5, appraisal="sum")


def test_pools_are_compared_by_what_rows_hold():
    rng = np.random.default_rng(0)
    old = rng.normal(size=(200, 4)).astype(np.float32)
    new = np.concatenate([old[:0:-1], rng.normal(size=(2, 4)).astype(np.float32)])
    change = compare_pools(row_digests(old), row_digests(new))
    assert (change.added, change.removed, change.common) == (2, 1, 199)
    assert "differs from an earlier one by 3 rows" in change.warning()
    assert change.warning(few=3) is None
    one = compare_pools(row_digests(old), row_digests(old[1:]))
    assert "by 1 row:" in one.warning()
    again = compare_pools(row_digests(old), row_digests(old[::-1]))
    assert "is an earlier one again" in again.warning()
    other = compare_pools(row_digests(old[:5]), row_digests(old[5:10]))
    assert other.warning() is None


def test_digests_tell_rows_apart():
    x = np.zeros((3, 2, 2), np.float32)
    mask = np.array([[1, 0], [1, 1], [1, 0]])
    a, b, c = row_digests(x, mask)
    assert a == c != b
    np.testing.assert_array_equal(row_digests(x, mask.astype(bool)), [a, b, c])
    keyed = row_digests(x, mask, secret=b"key")
    assert keyed[0] not in (a, row_digests(x)[0])
    assert len(a) == 32
    assert row_digests(x.astype(np.int32))[0] != row_digests(x)[0]
    with pytest.raises(ValueError, match="secret must be of at most 64 bytes, got 65"):
        row_digests(x, secret=bytes(65))
    with pytest.raises(ValueError, match="x and mask must have"):
        row_digests(x, mask[:2])


@pytest.mark.parametrize("piece", [1 << 26, 100])
def test_rows_beyond_the_bound(monkeypatch, tmp_path, piece):
    monkeypatch.setattr(_disclosures, "_CHUNK", piece)
    x = np.random.default_rng(0).uniform(-4, 4, (50, 10)).astype(np.float32)
    x[0, 0] = 4
    x[[3, 7, 44], [1, 9, 2]] = [4.5, -9, np.nan]
    np.save(tmp_path / "x.npy", x)
    found = out_of_bounds(bounded(4.0), np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert found.rows.tolist() == [3, 7, 44]
    assert (found.n, found.bound, found.largest, found.share) == (50, 4.0, 9.0, 0.06)
    assert found.remedy.startswith("3 of 50 rows (6.00%) have values beyond the")
    assert out_of_bounds(bounded(16.0), np.nan_to_num(x)).remedy is None
    # Of some rows only, in their order.
    some = out_of_bounds(bounded(4.0), x, np.array([44, 0, 3]))
    assert (some.rows.tolist(), some.n, some.largest) == ([44, 3], 3, 4.5)
    assert out_of_bounds(bounded(4.0), x, np.array([0, 1])).remedy is None
    with pytest.raises(ValueError, match=r"rows must be whole numbers of shape \[m\]"):
        out_of_bounds(HIDDEN, x, np.array([0.5]))
    # Where there is no bound, the ring's.
    assert out_of_bounds(HIDDEN, np.full((1, 10), 1e5)).rows.tolist() == [0]


def test_tokens_beyond_the_vocabulary():
    sizes = {"layers": 1, "heads": 1, "head_width": 3, "hidden": 3, "length": 2}
    spec = Spec(1, 1, attention="uniform", norm="linear", embed="onehot")
    manifest = proxy.manifest(spec, **sizes, n_classes=2, intermediate=3, vocab=7)
    ids = np.array([[0, 6], [7, 1], [-1, 2]])
    assert out_of_bounds(manifest, ids).rows.tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"x must have shape \[n, ...\], got \(3,\)"):
        out_of_bounds(manifest, ids[:, 0])
