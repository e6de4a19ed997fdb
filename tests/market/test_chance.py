"""Differences of rankings that are more than chance, and those that are not."""

import itertools

import numpy as np
import pytest
from scipy import stats

from jaxsel.market import rank
from jaxsel.market._chance import holm, paired_stderr, sign_flip, steady

from .cases import sent


def hits(seed, share, seeds=3, n=15):
    return np.random.default_rng(seed).random((seeds, n)) < share


@pytest.mark.parametrize("seed", range(8))
def test_with_one_seed_the_test_is_mcnemars(seed):
    a, b = hits(seed, 0.6, seeds=1), hits(seed + 100, 0.8, seeds=1)
    only_a, only_b = int((a & ~b).sum()), int((~a & b).sum())
    expected = stats.binomtest(only_a, only_a + only_b, 0.5).pvalue
    assert sign_flip(a, b) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_with_several_seeds_it_enumerates_signs(seed):
    a, b = hits(seed, 0.6, n=9), hits(seed + 100, 0.8, n=9)
    sums = a.sum(0).astype(int) - b.sum(0)
    flipped = [abs(np.dot(s, sums)) for s in itertools.product([-1, 1], repeat=9)]
    expected = np.mean(np.array(flipped) >= abs(sums.sum()))
    assert sign_flip(a, b) == pytest.approx(expected, rel=1e-12)


def test_equal_hits_differ_by_nothing():
    assert sign_flip(hits(0, 0.5), hits(0, 0.5)) == 1
    assert paired_stderr(hits(0, 0.5), hits(0, 0.5)) == 0


def test_holms_correction():
    np.testing.assert_allclose(
        holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]
    )
    assert holm([]).shape == (0,)


def test_standard_errors_are_over_samples_and_seeds():
    a, b = hits(0, 0.6), hits(1, 0.8)
    d = a.astype(float) - b
    expected = d.mean(0).var(ddof=1) / 15 + d.mean(1).var(ddof=1) / 3
    assert paired_stderr(a, b) == pytest.approx(expected**0.5)


def test_seeds_that_disagree_are_no_gain():
    a = np.zeros((2, 40), bool)
    a[0] = True
    nothing = np.zeros((2, 40), bool)
    assert sign_flip(a, nothing) < 1e-9
    assert not steady(a, nothing)
    assert steady(a[:1], nothing[:1])


def ranked(owners, before):
    answers = [sent(owner=name) for name in owners]
    return rank(answers, lambda a: owners[a.owner], baseline=before)


def test_a_perfect_score_on_15_samples_may_be_chance():
    """The baseline misses one of 45, an owner none."""
    before = np.ones((3, 15), bool)
    before[0, 3] = False
    perfect = np.ones((3, 15), bool)
    ranking = ranked({"shuffled": perfect, "honest": perfect}, before)
    assert ranking.mean.tolist() == [1, 1]
    np.testing.assert_allclose(ranking.gain, 1 / 45)
    np.testing.assert_array_equal(ranking.p_values, [1, 1])
    assert not ranking.beyond_chance.any()
    assert not ranking.apart.any()
    assert ranking.conclusions() == (
        "no owner is better than without any answer by more than chance on 15 samples: "
        "do not buy by this order",
        "'shuffled' cannot be told apart from 'honest', the first",
    )
    table = ranking.to_pandas()
    assert table.level_with_first.all()
    assert table.p_value.tolist() == [1, 1]


def test_gains_and_losses_beyond_chance():
    before = np.zeros((2, 40), bool)
    before[:, :20] = True
    best, worst = before.copy(), before.copy()
    best[:, 20:35] = True
    worst[:, :15] = False
    same = before.copy()
    same[:, 20] = True
    ranking = ranked({"worst": worst, "best": best, "same": same}, before)
    assert ranking.owners == ("best", "same", "worst")
    assert ranking.beyond_chance.tolist() == [True, False, True]
    # Fifteen samples of one sign, twice 2^-15, three owners; and the middle one alone.
    np.testing.assert_allclose(ranking.p_values, [3 * 2**-14, 1, 3 * 2**-14])
    assert ranking.apart[0].tolist() == [False, True, True]
    np.testing.assert_allclose(ranking.gain, [15 / 40, 1 / 40, -15 / 40])
    assert ranking.conclusions() == (
        "'best' is better than without any answer by more than chance on 40 samples",
    )


@pytest.mark.parametrize("draw", [0, 1])
@pytest.mark.every(2)
def test_owners_alike_are_seldom_told_apart(draw):
    """Of 5 owners with equal skill, in at most 1 draw of 10 some are."""
    rng = np.random.default_rng(draw)
    wrong = 0
    for _ in range(40):
        skill = rng.random(20)  # of a sample: owners share what is difficult
        owners = {f"o{i}": rng.random((1, 20)) < skill for i in range(5)}
        ranking = ranked(owners, rng.random((1, 20)) < skill)
        wrong += bool(ranking.apart.any() or ranking.beyond_chance.any())
    assert wrong <= 4


def test_without_hits_nothing_is_concluded():
    ranking = ranked({"a": [0.5], "b": [0.4]}, [0.1])
    assert ranking.p_values is None
    assert ranking.apart is None
    assert ranking.beyond_chance is None
    assert ranking.gain_stderr is None
    assert ranking.conclusions() == ()


def test_refuses_hits_of_other_kinds():
    with pytest.raises(ValueError, match=r"score of 'a' must be bool where its shape"):
        ranked({"a": np.ones((2, 3))}, None)
    with pytest.raises(ValueError, match="as many numbers each"):
        ranked({"a": np.ones((2, 3), bool)}, np.ones((2, 4), bool))
    with pytest.raises(ValueError, match="as many numbers each"):
        ranked({"a": np.ones((2, 3), bool)}, [0.5, 0.5])
