"""Values across owners: equal to the pooled ones, and what goes wrong on the way."""

import dataclasses
import stat
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pandas as pd
import pytest

import jaxsel
from jaxsel.market import (
    CountSums,
    PrivacyBudget,
    Survivors,
    Valuation,
    ValueOwner,
    ask_values,
    private_values,
)
from jaxsel.market._private._limits import largest_delta

from .value_cases import (
    DATA,
    NAMES,
    RADIUS,
    X_VAL,
    Y_VAL,
    Session,
    ask,
    pooled,
    whole,
)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.left_out
def test_values_are_the_pooled_ones(metric):
    found, sums = private_values(ask(metric=metric), DATA)
    expected = pooled(metric=metric)
    for name in NAMES:
        np.testing.assert_allclose(
            found[name].values, expected[name], rtol=0, atol=2e-8
        )
    assert sums.owners == NAMES
    assert max(np.abs(v).max() for v in expected.values()) > 1e-3


@pytest.mark.left_out
def test_sums_are_counted_by_hand():
    _, sums = private_values(ask(), DATA)
    near = right = 0
    for x, y in DATA.values():
        gaps = X_VAL[:, None].astype(float) - x[None].astype(float)
        inside = np.linalg.norm(gaps, axis=-1) <= RADIUS
        match = Y_VAL[:, None] == y[None]
        right = right + (inside & match).sum(1)
        near = near + inside.sum(1)
    np.testing.assert_array_equal(sums.sums, np.stack([right, near - right], axis=1))


@pytest.mark.parametrize("silent", [("bo",), ("ada",)])
@pytest.mark.every(2)
def test_owners_that_drop_out(silent):
    found, sums = private_values(ask(), DATA, silent=silent)
    left = [name for name in NAMES if name not in silent]
    assert [*sums.owners] == left
    expected = pooled(left)
    for name in left:
        np.testing.assert_allclose(
            found[name].values, expected[name], rtol=0, atol=2e-8
        )
    # One that dropped out is valued as if it had joined those who are left.
    alone = pooled([*left, *silent])[silent[0]]
    np.testing.assert_allclose(found[silent[0]].values, alone, rtol=0, atol=2e-8)


def test_too_few_are_left():
    with pytest.raises(ValueError, match="4 or more of those asked"):
        private_values(ask(), DATA, silent=("ada", "bo"))
    late = Session(ask()).share().mask().reveal(late=("ada", "bo"))
    with pytest.raises(ValueError, match="of 4 clients or more"):
        late.sum()
    late = Session(ask()).share().mask().reveal(late=("ada",))
    np.testing.assert_array_equal(late.sum().sums, whole().sum().sums)


def test_in_processes_of_their_own(tmp_path):
    """Each step begins with what the one before has saved."""
    valuation = Valuation.load(ask().save(tmp_path / "asked.npz"))

    def again(session):
        for name, owner in session.owners.items():
            path = owner.save(tmp_path / name)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            session.owners[name] = ValueOwner.load(path, valuation)

    session = Session(valuation)
    again(session)
    session.share()
    again(session)
    session.mask(silent=("cy",))
    again(session)
    path = session.survivors.save(tmp_path / "left")
    session.survivors = Survivors.load(path, valuation)
    session.reveal()
    again(session)
    sums = CountSums.load(session.sum().save(tmp_path / "sums"), valuation)
    expected = pooled([*(n for n in NAMES if n != "cy"), "cy"])
    rest = pooled([n for n in NAMES if n != "cy"])
    for name in NAMES:
        value = expected[name] if name == "cy" else rest[name]
        found = session.values(name, sums)
        np.testing.assert_allclose(found.values, value, rtol=0, atol=2e-8)
    for name in session.alive:
        with pytest.raises(ValueError, match="in this order, once each"):
            session.owners[name].reveal(session.survivors)
    assert b"secret" not in (tmp_path / "ada.npz").read_bytes()


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_in_the_sums_and_of_the_size_asked_for(seed):
    pytest.importorskip("dp_accounting")
    valuation = ask(epsilon=0.5)
    assert valuation.epsilon <= 0.5
    _, exact = private_values(ask(), DATA)
    _, sums = private_values(valuation, DATA)
    noise = (sums.sums - exact.sums).ravel().astype(float)
    variance = len(NAMES) * valuation.variance
    # 40 draws: within six standard deviations of their squares' mean.
    ratio = np.mean(noise**2) / variance
    assert abs(ratio - 1) < 6 * np.sqrt(2 / noise.size)
    assert np.unique(noise).size > 20


def test_an_owner_meets_only_the_noise_of_others():
    """What it sends is subtracted as it was sent, so that values gain by that."""
    pytest.importorskip("dp_accounting")
    valuation = ask(epsilon=20.0)
    session = whole(valuation)
    sums = session.sum()
    found = session.values("ada", sums)
    sent = {name: owner._sent for name, owner in session.owners.items()}
    np.testing.assert_array_equal(sums.sums, sum(sent.values()))
    others = np.maximum(sum(sent.values()) - sent["ada"], 0)
    x, y = DATA["ada"]
    own = jaxsel.value.threshold_counts(x, y, X_VAL, Y_VAL, radius=RADIUS)
    expected = jaxsel.threshold_knn_shapley(
        x, y, X_VAL, Y_VAL, radius=RADIUS, n_classes=3, counts=own + others
    )
    np.testing.assert_array_equal(found.values, expected.values)


def test_noise_allows_for_dropouts_and_colluders():
    pytest.importorskip("dp_accounting")
    one = ask(epsilon=1.0, needed=4, colluding=1)
    two = ask(epsilon=1.0, needed=4, colluding=2)
    assert two.variance == pytest.approx(1.5 * one.variance, rel=0.02)
    fewer = ask(epsilon=1.0, needed=3, colluding=1)
    assert fewer.variance == pytest.approx(1.5 * one.variance, rel=0.02)


# What is refused.


def test_two_owners():
    two = {"owners": NAMES[:2]}
    with pytest.raises(ValueError, match="each sees the other's counts"):
        ask(**two)
    with pytest.raises(ValueError, match="each sees the other's counts"):
        ask(needed=2, owners=NAMES[:3])
    with pytest.warns(UserWarning, match="each sees the other's counts"):
        valuation = ask(**two, allow_two=True)
    data = {name: DATA[name] for name in NAMES[:2]}
    with pytest.raises(ValueError, match="min_owners = 3"):
        private_values(valuation, data)
    found, sums = private_values(valuation, data, min_owners=2)
    expected = pooled(NAMES[:2])
    np.testing.assert_allclose(found["bo"].values, expected["bo"], rtol=0, atol=2e-8)
    # It is true: one sees the other's.
    other = jaxsel.value.threshold_counts(*data["ada"], X_VAL, Y_VAL, radius=RADIUS)
    own = jaxsel.value.threshold_counts(*data["bo"], X_VAL, Y_VAL, radius=RADIUS)
    np.testing.assert_array_equal(sums.sums - own, other)


def test_three_owners_are_all_needed():
    assert ask(owners=NAMES[:3]).needed == 3
    assert ask(owners=NAMES).needed == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(owners=NAMES[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": -1.0}, "radius"),
        ({"radius": np.nan}, "radius"),
        ({"owners": ["a", "a", "b"]}, "distinct"),
        ({"owners": ["a"]}, "needed"),
        ({"needed": 6}, "needed"),
        ({"owners": [*NAMES, "fy"], "needed": 3}, "more than half"),
        ({"colluding": 4}, "colluding"),
        ({"colluding": 0}, "colluding"),
        ({"max_points": 1 << 28}, "2\\^30"),
        ({"metric": "l1"}, "metric"),
        ({"classes": [0, 1]}, "classes"),
    ],
)
def test_what_can_not_be_asked(options, message):
    with pytest.raises(ValueError, match=message):
        ask(**options)


def test_each_owner_knows_its_own_noise():
    """So that a question which forgets that is none."""
    with pytest.raises(ValueError, match="colluding must be"):
        dataclasses.replace(ask(), colluding=0)


def test_limits_of_owners():
    pytest.importorskip("dp_accounting")
    x, y = DATA["ada"]
    with pytest.raises(ValueError, match="max_epsilon is 1"):
        ValueOwner(ask(), x, y, owner="ada", max_epsilon=1)
    with pytest.raises(ValueError, match="max_epsilon is 1"):
        ValueOwner(ask(epsilon=1.1), x, y, owner="ada", max_epsilon=1)
    ValueOwner(ask(epsilon=1.0), x, y, owner="ada", max_epsilon=1)
    with pytest.raises(ValueError, match="owner must be one of those asked"):
        ValueOwner(ask(), x, y, owner="zoe")
    with pytest.raises(ValueError, match="at most 29 points"):
        ValueOwner(ask(max_points=29), x, y, owner="ada", max_epsilon=None)
    ValueOwner(ask(max_points=30), x, y, owner="ada", max_epsilon=None)


def test_delta_and_all_else_that_an_asker_sets_has_a_limit_of_the_owner():
    pytest.importorskip("dp_accounting")
    x, y = DATA["ada"]
    make = lambda v, **limits: ValueOwner(v, x, y, owner="ada", **limits)
    # Epsilon says nothing where delta is nearly 1: the noise is of variance 2 or so.
    loose = ask(epsilon=0.01, delta=0.999999)
    assert loose.variance < 10 < 100_000 < ask(epsilon=0.01).variance
    for limits in ({"max_epsilon": 0.01}, {"max_epsilon": None}, {}):
        with pytest.raises(ValueError, match="max_delta is 1e-05, but .* = 0.999999"):
            make(loose, **limits)
    make(loose, max_delta=0.9999999)
    with pytest.raises(ValueError, match="max_delta is 1e-07, but .* delta = 1e-06"):
        make(ask(epsilon=1.0), max_delta=1e-7)
    with pytest.raises(ValueError, match="max_epsilon is 1, .* exact .* epsilon = inf"):
        make(ask())
    with pytest.raises(ValueError, match="max_epsilon is 1, .* epsilon = 1.09"):
        make(ask(epsilon=1.1))
    with pytest.raises(ValueError, match="at least min_colluding = 2, got 1"):
        make(ask(epsilon=1.0), min_colluding=2)
    make(ask(epsilon=1.0, colluding=2), min_colluding=2)
    with pytest.raises(ValueError, match="max_val is 19, .* has 20 validation points"):
        make(ask(epsilon=1.0), max_val=19)
    with pytest.raises(ValueError, match="at least min_owners = 5, got 4"):
        make(ask(epsilon=1.0), min_owners=5)
    for wrong in ({"max_delta": 1.0}, {"max_delta": 0.0}, {"max_epsilon": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make(ask(epsilon=1.0), **wrong)
    with pytest.raises(ValueError, match="max_delta is 1e-07"):
        private_values(ask(epsilon=1.0), DATA, max_delta=1e-7)


@pytest.mark.parametrize(("n", "most"), [(1, 1e-5), (10**4, 1e-5), (10**6, 10**-6.6)])
def test_a_default_delta_is_below_one_in_the_number_of_points(n, most):
    assert largest_delta(n) == pytest.approx(most)
    assert largest_delta(n) * n < 0.3


def test_questions_spend_a_budget_that_outlasts_the_process(tmp_path):
    pytest.importorskip("dp_accounting")
    x, y = DATA["ada"]
    path = tmp_path / "ada.json"

    def join(question, epsilon=1.0, delta=1e-5):
        budget = PrivacyBudget(path, epsilon=epsilon, delta=delta)
        ValueOwner(question, x, y, owner="ada", max_epsilon=None, budget=budget)
        return budget

    first = ask(epsilon=0.4)
    assert join(first).spent == pytest.approx((0.4, 1e-6), rel=1e-3)
    assert path.stat().st_mode & 0o777 == 0o600
    # Asked twice, it is answered with new noise: it counts twice.
    assert join(first).spent == pytest.approx((0.8, 2e-6), rel=1e-3)
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match="epsilon of all q.* be 1 in .* 1.2: 0.79.* 2 b"
    ):
        join(ask(epsilon=0.4))
    with pytest.raises(ValueError, match="delta of all .* 2.5e-06 in sum, .* be 3e-06"):
        join(ask(epsilon=0.1), delta=2.5e-6)
    with pytest.raises(ValueError, match="would be inf: 0.79"):
        join(ask())
    assert path.read_bytes() == before
    assert join(ask(), epsilon=None).spent[0] == np.inf
    with pytest.raises(ValueError, match="epsilon of all q.* would be inf: inf was sp"):
        join(ask(epsilon=0.1))
    for changed in (before[:-40], before.replace(b"0.", b"0.0", 1), b"[]", b"\xff"):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="is no record of answered questions"):
            join(ask(epsilon=0.1))
    assert repr(PrivacyBudget("a.json")) == "PrivacyBudget('a.json', epsilon=1)"


def test_two_that_spend_at_once_do_not_pass_the_limit(tmp_path):
    pytest.importorskip("dp_accounting")
    budget, question = PrivacyBudget(tmp_path / "b.json"), ask(epsilon=0.3)
    assert question.epsilon < 0.3

    def spend(_):
        try:
            budget.spend(question)
        except ValueError:
            return 0
        return 1

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(spend, range(6))) == 3
    assert budget.spent[0] < 1


def test_labels_and_points_of_another_kind():
    x, y = DATA["ada"]
    make = lambda x, y: ValueOwner(ask(), x, y, owner="ada", max_epsilon=None)
    with pytest.raises(ValueError, match="classes of the request"):
        make(x, y + 1)
    with pytest.raises(ValueError, match="integers"):
        make(x, y.astype(str))
    with pytest.raises(ValueError, match="shape"):
        make(x[:, :3], y)
    with pytest.raises(TypeError, match="convert x first"):
        make(x.astype(np.float64) + 1e-12, y)
    with pytest.raises(ValueError, match="finite"):
        make(np.where(x == x[0, 0], np.nan, x), y)
    with pytest.raises(ValueError, match="same length"):
        make(x, y[:-1])
    # Labels that no validation point has.
    elsewhere = ask_values(
        X_VAL, np.zeros(20, int), radius=1.0, owners=NAMES, classes=[0, 1]
    )
    with pytest.raises(ValueError, match="must share a label"):
        ValueOwner(elsewhere, x, np.ones(len(x), int), owner="ada", max_epsilon=None)
    # What float32 holds exactly may come in other types.
    np.testing.assert_array_equal(
        make(x.astype(np.float64), y.astype(float))._counts, make(x, y)._counts
    )


def test_columns_are_matched_by_name():
    names = [*"abcd"]
    x_val = pd.DataFrame(X_VAL, columns=names)
    valuation = ask_values(x_val, Y_VAL, radius=RADIUS, owners=NAMES)
    moved = {
        name: (pd.DataFrame(x, columns=names)[[*"cbda"]], y)
        for name, (x, y) in DATA.items()
    }
    found, _ = private_values(valuation, moved)
    np.testing.assert_allclose(found["cy"].values, pooled()["cy"], rtol=0, atol=2e-8)
    x, y = DATA["ada"]
    other = pd.DataFrame(x, columns=[*"abce"])
    with pytest.raises(ValueError, match="columns of the valuation"):
        ValueOwner(valuation, other, y, owner="ada")


@pytest.mark.left_out
def test_edges():
    """One validation point, one point an owner, repeated rows, texts as labels."""
    x = np.zeros((1, 2), np.float32)
    data = {name: (x, ["yes" if i else "no"]) for i, name in enumerate(NAMES)}
    x_val = np.array([[1, 0]], np.float32)
    valuation = ask_values(
        x_val, ["yes"], radius=1.0, owners=NAMES, classes=["no", "yes"]
    )
    with pytest.raises(ValueError, match="must share a label"):
        private_values(valuation, data)
    data["ada"] = np.zeros((2, 2), np.float32), ["no", "yes"]
    found, sums = private_values(valuation, data)
    assert sums.sums.tolist() == [[5, 1]]
    every = jaxsel.threshold_knn_shapley(
        np.zeros((6, 2)), ["no", *["yes"] * 5], x_val, ["yes"], radius=1.0
    )
    np.testing.assert_allclose(found["ada"].values, every.values[:2], atol=1e-7)


@pytest.mark.left_out
def test_in_float64():
    data = {name: (x.astype(np.float64), y) for name, (x, y) in DATA.items()}
    with jax.enable_x64(True):
        valuation = ask_values(
            X_VAL.astype(np.float64), Y_VAL, radius=RADIUS, owners=NAMES
        )
        found, _ = private_values(valuation, data)
    expected = pooled()
    np.testing.assert_allclose(found["ed"].values, expected["ed"], rtol=0, atol=2e-8)


@pytest.mark.left_out
def test_reductions():
    valuation = ask()
    session = whole(valuation)
    sums = session.sum()
    for reduce in ("max", None):
        x, y = (np.concatenate([DATA[name][i] for name in NAMES]) for i in (0, 1))
        every = jaxsel.threshold_knn_shapley(
            x, y, X_VAL, Y_VAL, radius=RADIUS, reduce=reduce
        )
        found = session.owners["ada"].values(sums, *DATA["ada"], reduce=reduce)
        np.testing.assert_allclose(
            found.values, every.values[..., : len(DATA["ada"][0])], rtol=0, atol=1e-7
        )
