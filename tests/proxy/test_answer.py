"""A data owner's attack with the answer alone, beside what the proxy would say."""

import dataclasses

import numpy as np
import pytest
from proxy.random_proxies import random_proxy, random_samples
from proxy.test_leakage import normal, planted

from jaxsel import proxy
from jaxsel.proxy import Spec, declare, leakage_of_answer, monotonicity

N = 600


def answered(target, x, keep, mask=None, seed=0):
    """Return the scores, and what a choice by them declares."""
    scores = np.asarray(target.scores(target.logits(x, mask)), np.float64)
    return scores, declare(scores, keep, seed=seed)


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.left_out
def test_the_owner_of_the_samples_recovers_a_probe(bias):
    target, x = planted(bias=bias), normal(N)
    scores, declared = answered(target, x, 120)
    found = leakage_of_answer(
        target.manifest, x, declared.chosen, levels=declared.levels, steps=40
    )
    assert (found.n, found.fresh, found.keep) == (480, 120, 96)
    assert (found.passes, found.judged_by) == (declared.passes, "answer")
    assert found.outcomes.rank_correlation > 0.97
    assert found.chosen.rank_correlation > 0.9
    assert found.outcomes.overlap > 0.85
    assert found.outcomes.cosine is None
    assert "120 held-out samples" in found.verdict
    by_set = leakage_of_answer(target.manifest, x, declared.chosen, steps=40)
    assert by_set.outcomes is None
    # Of a set it is twice the area under the curve less 1.
    assert by_set.chosen.rank_correlation > 0.95
    assert by_set.passes == 0


@pytest.mark.slow
def test_what_it_says_is_what_is_lost():
    """Without the proxy it says about what is found with the proxy."""
    target, x = planted(3), normal(N)
    _, declared = answered(target, x, 200)
    found = leakage_of_answer(
        target.manifest, x, declared.chosen, levels=declared.levels, steps=40
    )
    told = proxy.leakage(target, x, 1 / 3, steps=40)
    near = pytest.approx(told.outcomes.rank_correlation, abs=0.05)
    assert found.outcomes.rank_correlation == near


def test_an_answer_at_random_tells_nothing():
    target, x = planted(), normal(N)
    rng = np.random.default_rng(3)
    declared = declare(rng.normal(size=N), 120, seed=0)
    found = leakage_of_answer(
        target.manifest, x, declared.chosen, levels=declared.levels, steps=20
    )
    assert found.rank_correlation < 0.35
    assert found.verdict.startswith("not recovered")


@pytest.mark.slow
def test_samples_that_are_judged_by_are_not_learnt_from():
    """Features that name the row tell everything of it, and nothing of another one."""
    target = planted(width=N)
    declared = declare(np.random.default_rng(0).normal(size=N), 300, seed=0)
    found = leakage_of_answer(
        target.manifest, np.eye(N, dtype=np.float32), declared.chosen, steps=20
    )
    assert abs(found.chosen.rank_correlation) < 0.3


@pytest.mark.slow
def test_ties_take_nothing_off():
    """A ranking that is right wherever the answer has an order has all of it."""
    target, x = planted(bias=9.0), normal(N)  # the score rises in one direction
    scores, declared = answered(target, x, 200)
    # The answer knows a few places only, so that its ties are many.
    assert monotonicity(scores, declared.levels) < 0.99
    found = leakage_of_answer(
        target.manifest, x, declared.chosen, levels=declared.levels, steps=60
    )
    assert found.outcomes.rank_correlation > 0.995


@pytest.mark.slow
def test_a_transformer_is_imitated_from_its_answer():
    sizes = {"layers": 3, "heads": 2, "head_width": 3, "hidden": 6, "length": 4}
    spec = Spec(1, 1, attention="uniform", norm="none", read="mean")
    manifest = proxy.manifest(spec, **sizes, n_classes=2)
    target = random_proxy(manifest, bound=64.0)[0]
    x, mask = random_samples(manifest, np.random.default_rng(5), N)
    _, declared = answered(target, x, 120, mask)
    found = leakage_of_answer(
        manifest, x, declared.chosen, mask, levels=declared.levels, steps=40
    )
    assert found.outcomes.rank_correlation > 0.75
    blind = leakage_of_answer(
        manifest, x, declared.chosen, mask, features=normal(N), steps=5
    )
    assert abs(blind.rank_correlation) < 0.45


X, FLAGS = normal(40), np.arange(40) < 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"chosen": np.arange(40)},
            r"chosen must be booleans of shape \[n\], got int64",
        ),
        ({"chosen": FLAGS[:39]}, "chosen and x must have"),
        ({"levels": FLAGS * 1.0}, "levels must be whole numbers of shape"),
        ({"levels": ~FLAGS * 1}, "levels must be highest of the chosen rows"),
        (
            {"chosen": np.arange(40) < 3},
            "2 chosen rows to attack with and 2 to judge by",
        ),
        (
            {"chosen": np.arange(40) < 39},
            "2 other rows to attack with and 2 to judge by",
        ),
        ({"held_out": 0}, "held_out must lie between 0 and 1, got 0"),
        ({"x": np.where(X > 2, np.nan, X)}, "x must be finite"),
        ({"features": X[:3]}, "features and chosen must have"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_bad_input(options, message):
    given = {"x": X, "chosen": FLAGS} | options
    manifest = dataclasses.replace(planted().manifest)
    with pytest.raises(ValueError, match=message):
        leakage_of_answer(manifest, given.pop("x"), given.pop("chosen"), **given)
