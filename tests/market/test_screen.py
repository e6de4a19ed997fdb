"""Screening: implausible answers and copies are told from honest ones."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from jaxsel.market import Answer, answer, make_request, rank, screen
from jaxsel.market._screen import overlap

RNG = np.random.default_rng(7)
SHOWN = RNG.normal(size=(24, 8)).astype(np.float32)
SHOWN_Y = np.arange(24) % 3
OWN = RNG.normal(size=(300, 8)).astype(np.float32)
POOL = RNG.normal(size=(3000, 8)).astype(np.float32)
ASKED = make_request(SHOWN, SHOWN_Y, budget=16)


def sent(x, owner="liar", y=None, asked=ASKED):
    x = np.asarray(x, np.float32)
    return Answer(
        request_id=asked.id,
        owner=owner,
        method="retrieve",
        status="short",
        reason="mine",
        weights=np.ones(len(x), np.float32),
        x=x,
        y=np.zeros(len(x), np.int64) if y is None else y,
    )


def screened(*answers, **options):
    return screen(answers, ASKED, OWN, **options)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("times", [1, 10])
def test_honest_answers_pass_untouched(metric, times):
    """Also the nearest of many more samples than the trainer has."""
    pool = POOL[: 300 * times]
    found = answer(ASKED, pool, np.arange(len(pool)) % 3, owner="o", metric=metric)
    passed = screened(found)
    assert passed.answers == (found,)
    assert not passed.left_out
    assert not passed.refused


def test_honest_answers_pass_far_from_the_origin():
    """What counts as a copy is a share of the spread, not of the numbers."""
    far = lambda a: (a + 1e6).astype(np.float32)
    asked = make_request(far(SHOWN), SHOWN_Y, budget=16)
    found = screen([sent(far(POOL[:16]), asked=asked)], asked, far(OWN))
    assert len(found.answers) == 1
    assert not found.left_out


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.03])
def test_an_echo_is_refused(noise):
    echo = SHOWN[:16] + noise * RNG.normal(size=(16, 8))
    for labels in (SHOWN_Y[:16], (SHOWN_Y[:16] + 1) % 3):
        found = screened(sent(echo, y=labels), sent(POOL[:16], "honest"))
        assert [a.owner for a in found.answers] == ["honest"]
        assert "16 are copies" in found.refused["liar"]


def test_repeats_are_refused():
    found = screened(sent(np.repeat(POOL[:1], 16, axis=0)))
    assert "of 16 0 are copies" in found.refused["liar"]
    assert "15 repeat others" in found.refused["liar"]


def test_single_copies_are_left_out():
    held = POOL[:5]
    x = np.concatenate([POOL[10:20], SHOWN[:2], held[:2], POOL[10:11]])
    weights = np.arange(15, dtype=np.float32)
    given = dataclasses.replace(
        sent(x, y=np.arange(15) % 3), weights=weights, status="capped"
    )
    found = screened(given, held_out=held)
    assert found.left_out == {"liar": 5}
    (kept,) = found.answers
    np.testing.assert_array_equal(kept.x, POOL[10:20])
    np.testing.assert_array_equal(kept.y, np.arange(10) % 3)
    np.testing.assert_array_equal(kept.weights, weights[:10])
    assert kept.status == "short"
    assert kept.reason == "5 of 15 samples sent were copies, and left out"
    # Without the samples held out, those are no copies.
    assert screened(given).left_out == {"liar": 3}


def test_one_long_sample_makes_no_copies_of_others():
    """What rounding may move a sample by is a share of its own length."""
    x = POOL[:16].copy()
    x[0] *= 1e7
    found = screened(sent(x), reach=1e9)
    assert len(found.answers) == 1
    assert not found.left_out


def test_half_an_answer_is_the_limit():
    mixed = np.concatenate([SHOWN[:8], POOL[:8]])
    assert "8 are copies" in screened(sent(mixed)).refused["liar"]
    assert screened(sent(mixed[1:])).left_out == {"liar": 7}


def test_where_rows_repeat_by_nature_copies_are_only_left_out():
    """A table of few values, in which honest rows equal those of the trainer."""
    coarse = lambda a: (a[:, :3] > 0).astype(np.float32)
    asked = make_request(coarse(SHOWN), SHOWN_Y, budget=16)
    found = screen([sent(coarse(POOL)[:16], asked=asked)], asked, coarse(OWN))
    assert not found.refused
    assert found.left_out["liar"] >= 8


def test_a_few_repeats_of_the_trainers_own_do_not_make_copies_natural():
    """They must be a tenth: here 20 of 334 samples equal another."""
    own = np.concatenate([OWN, OWN[:10]])
    found = screen([sent(SHOWN[:16])], ASKED, own)
    assert "16 are copies" in found.refused["liar"]


@pytest.mark.parametrize("value", [1e4, -1e4, 1e38, 3e38])
def test_implausible_answers_are_refused(value):
    x = POOL[:16].copy()
    x[5, 3] = value
    found = screened(sent(x), sent(POOL[:16], "honest"))
    assert [a.owner for a in found.answers] == ["honest"]
    assert "in column 3, but row 5 has" in found.refused["liar"]
    assert "(1 of 16 rows lie outside)" in found.refused["liar"]


def test_the_plausible_range_is_the_one_documented():
    mine = np.concatenate([OWN, SHOWN]).astype(np.float64)
    low, high = np.quantile(mine, [0.01, 0.99], axis=0)
    ends = (high, high - low), (low, low - high)
    for reach, (end, out) in itertools.product((2.0, 10.0), ends):
        x = POOL[:8].copy()
        x[0] = end + 0.999 * reach * out
        assert not screened(sent(x), reach=reach).refused
        x[0, 2] = (end + 1.001 * reach * out)[2]
        assert "column 2" in screened(sent(x), reach=reach).refused["liar"]
    # What the trainer has itself is plausible.
    far = OWN.copy()
    far[0, 0] = 1e6
    x[0] = [9e5, *POOL[0, 1:]]
    assert not screen([sent(x)], ASKED, far).refused


def test_columns_are_named_and_brought_into_order():
    names = list("abcdefgh")
    asked = make_request(pd.DataFrame(SHOWN, columns=names), SHOWN_Y, budget=16)
    own = OWN * np.array([1, 1, 1, 1, 1, 1, 1, 1000], np.float32)
    frame = pd.DataFrame(own, columns=names)
    x = POOL[:16] * np.array([1, 1, 1, 1, 1, 1, 1, 1000], np.float32)
    given = sent(x, asked=asked)
    assert not screen([given], asked, frame).refused
    assert not screen([given], asked, frame[names[::-1]]).refused
    reason = screen([given], asked, OWN).refused["liar"]
    assert "column 7 (h)" in reason
    with pytest.raises(ValueError, match=r"columns of the request, a, b.*got z, b"):
        screen([given], asked, frame.rename(columns={"a": "z"}))


def test_images_are_measured_together():
    images = RNG.random((100, 4, 4, 1)).astype(np.float32)
    images[:, 0] = 0  # a border, where an owner may have something
    asked = make_request(images[:20], np.arange(20) % 2, budget=8)
    other = RNG.random((8, 4, 4, 1)).astype(np.float32)
    own = images[20:]
    assert not screen([sent(other, asked=asked)], asked, own).refused
    reason = screen([sent(other * 255, asked=asked)], asked, own).refused["liar"]
    assert "rows lie outside" in reason


def test_texts_and_features():
    asked = make_request(["a", "b", "c"], budget=4)
    sends = lambda *texts: Answer(
        request_id=asked.id,
        owner="o",
        method="random",
        status="short",
        weights=np.ones(len(texts), np.float32),
        x=np.array(texts),
    )
    own = ["p", "q", "r"]
    assert screen([sends("a", "d", "e", "f")], asked, own).left_out == {"o": 1}
    assert "2 are copies" in screen([sends("a", "b", "e")], asked, own).refused["o"]
    features = make_request(None, SHOWN_Y, features=SHOWN, budget=16)
    found = answer(features, None, np.arange(3000) % 3, features=POOL, owner="o")
    assert len(screen([found], features, OWN).answers) == 1
    echo = dataclasses.replace(found, features=SHOWN[:16])
    assert "16 are copies" in screen([echo], features, OWN).refused["o"]


def test_an_owner_of_a_thousand_times_as_much_is_seldom_taken_for_a_copier():
    """Of its samples the one nearest to what was shown is left out one time in 20."""
    taken = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        own, shown, pool = (
            rng.random((n, 2)).astype(np.float32) for n in (60, 1, 60_000)
        )
        asked = make_request(shown, [0], budget=16)
        nearest = np.argmin(np.sum((pool - shown) ** 2, axis=1))
        found = screen([sent(pool[[nearest, *range(8)]], asked=asked)], asked, own)
        taken += bool(found.left_out)
    assert taken <= 6


def test_features_of_another_length_are_refused():
    features = make_request(None, SHOWN_Y, features=SHOWN, budget=16)
    found = answer(features, None, np.arange(3000) % 3, features=POOL, owner="o")
    short = dataclasses.replace(found, features=np.asarray(found.features)[:, :3])
    with pytest.raises(ValueError, match="features"):
        short.check(features)


def test_nothing_shown_overlaps_with_nothing():
    hidden = make_request(
        None,
        SHOWN_Y,
        features=SHOWN,
        budget=16,
        sample_shape=(8,),
        sample_dtype=np.float32,
    )
    assert not overlap(hidden, SHOWN).any()
    found = overlap(ASKED, np.concatenate([SHOWN[:3], OWN[:5]]))
    assert found.tolist() == [True] * 3 + [False] * 21


def test_nothing_sent_passes():
    assert len(screened(sent(POOL[:0])).answers) == 1
    assert "1 answers" in repr(screened(sent(POOL[:0])))
    assert len(screen([sent(POOL[:4])], ASKED, OWN[:1]).answers) == 1


@pytest.mark.parametrize(
    ("answers", "x", "options", "match"),
    [
        ([sent(POOL[:4]), sent(POOL[4:8])], OWN, {}, "one from each owner: 'liar'"),
        ([sent(POOL[:17])], OWN, {}, "within the budget of 16"),
        ([], OWN[:, :3], {}, r"x must hold samples of shape \(8,\)"),
        ([], OWN, {"held_out": OWN[:, :3]}, r"held_out must hold samples of shape"),
        ([], OWN, {"reach": 0}, "reach must be finite and above zero"),
        ([], OWN * np.nan, {}, "x must be finite"),
        ([], np.full((3, 8), "a"), {}, "x must be of the request's kind"),
    ],
)
def test_refuses(answers, x, options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        screen(answers, ASKED, x, **options)


def test_ties_share_a_place():
    scores = {
        "a": [0.1, 0.2, 0.3],
        "b": [0.3, 0.1, 0.2],
        "c": [0.9] * 3,
        "d": [0.0] * 3,
    }
    found = [sent(POOL[:1], owner) for owner in "dbac"]
    ranking = rank(found, lambda answer: scores[answer.owner])
    assert ranking.owners == ("c", "a", "b", "d")
    assert ranking.places.tolist() == [1, 2, 2, 4]
