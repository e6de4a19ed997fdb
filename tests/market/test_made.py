"""Answers made of the samples shown, and features that no encoder makes."""

import numpy as np
import pandas as pd
import pytest

from jaxsel.data import Dataset
from jaxsel.market import Answer, Trainer, answer, make_request, screen
from jaxsel.market._made import Making
from jaxsel.tables import TableEncoder

BUDGET = 40


def people(n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 12, n).round().clip(17, 90),
            "work": rng.choice(["private", "state", "self"], n, p=[0.6, 0.3, 0.1]),
            "pay": rng.lognormal(3, 1, n).round(2),
            "hours": rng.integers(10, 60, n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "pay"] = np.nan
    y = (frame.age + frame.hours + rng.normal(0, 10, n) > 75).astype(int).to_numpy()
    return frame, y


TRAIN, HARD, POOL = people(400, 0), people(60, 1), people(1500, 2)
ENCODER = TableEncoder().fit(TRAIN[0])
ENCODED = make_request(*HARD, budget=BUDGET, encoder=ENCODER)


def dummies(table):
    frame = pd.get_dummies(table[0].fillna({"pay": 20.0})).astype(float)
    return frame.reindex(columns=COLUMNS, fill_value=0.0).to_numpy()


COLUMNS = list(pd.get_dummies(TRAIN[0]).columns)
BARE = make_request(dummies(HARD), HARD[1], budget=BUDGET, columns=COLUMNS)
MIXED = np.random.default_rng(3).normal(size=(8, 8))
CLOUD = [np.random.default_rng(s).normal(size=(n, 8)) @ MIXED + 3
         for s, n in ((4, 400), (5, 60), (6, 1500))]  # fmt: skip
NUMBERS = make_request(CLOUD[1], HARD[1], budget=BUDGET)
CASES = {
    "encoded": (ENCODED, ENCODER.transform(TRAIN[0]), ENCODER.transform(POOL[0])),
    "bare": (BARE, dummies(TRAIN), dummies(POOL)),
    "numbers": (NUMBERS, CLOUD[0], CLOUD[2]),
}


def sends(asked, x, owner="liar"):
    return Answer(
        request_id=asked.id,
        owner=owner,
        method="retrieve",
        status="short",
        reason="mine",
        weights=np.ones(len(x), np.float32),
        x=np.asarray(x, asked.x.dtype),
        y=np.resize(asked.y, len(x)),
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.every(6)
def test_honest_answers_pass(case, metric):
    asked, train, pool = CASES[case]
    found = answer(asked, pool, POOL[1], owner="o", metric=metric)
    passed = screen([found], asked, train)
    assert not passed.refused
    assert not passed.near
    assert passed.left_out.get("o", 0) <= 2  # repeats, in tables of whole numbers


def noisy(shown, train, size):
    noise = np.random.default_rng(7).normal(size=(30, shown.shape[1]))
    return shown[:30] + size * train.std(axis=0) * noise


@pytest.mark.parametrize("size", [1e-6, 1e-4, 1e-2, 0.03, 0.1])
@pytest.mark.parametrize("case", CASES)
def test_an_echo_with_noise_is_refused_or_told(case, size):
    """Thirty shown rows with noise, and ten honest ones."""
    asked, train, pool = CASES[case]
    x = np.concatenate([noisy(asked.x, train, size), pool[:10]])
    passed = screen([sends(asked, x)], asked, train)
    if case == "numbers" and size == 0.1:
        assert passed.near["liar"] + passed.left_out["liar"] >= 20
    else:
        assert "liar" in passed.refused


def scaled(shown, rng):
    return 1.05 * shown[:BUDGET]


def shrunk(shown, rng):
    return rng.uniform(0.5, 0.9, (BUDGET, 1)) * shown[:BUDGET]


def mixed(shown, rng):
    a, b = (shown[rng.permutation(len(shown))[:BUDGET]] for _ in range(2))
    share = rng.uniform(0.2, 0.8, (BUDGET, 1))
    return share * a + (1 - share) * b


def beyond(shown, rng):
    a, b = (shown[rng.permutation(len(shown))[:BUDGET]] for _ in range(2))
    return 1.2 * a - 0.2 * b


def pieced(shown, rng):
    rows = rng.integers(0, len(shown), (BUDGET, shown.shape[1]))
    return np.take_along_axis(shown, rows, axis=0)


def repeated(shown, rng):
    return np.repeat(shown[:1], BUDGET, axis=0)


MADE = [scaled, shrunk, mixed, beyond, repeated]


@pytest.mark.parametrize("attack", MADE)
@pytest.mark.parametrize("case", CASES)
def test_samples_made_of_shown_ones_are_refused(case, attack):
    asked, train, _ = CASES[case]
    x = attack(np.asarray(asked.x), np.random.default_rng(8))
    for labels in (asked.y[:BUDGET], 1 - asked.y[:BUDGET]):
        lie = sends(asked, x)
        lie.y[:] = labels
        assert "liar" in screen([lie], asked, train, reach=100).refused


@pytest.mark.parametrize("case", ["encoded", "numbers"])
def test_samples_pieced_together_are_refused(case):
    asked, train, _ = CASES[case]
    x = pieced(np.asarray(asked.x), np.random.default_rng(8))
    assert "liar" in screen([sends(asked, x)], asked, train).refused


def test_single_ones_are_left_out():
    asked, train, pool = CASES["numbers"]
    x = pool[:BUDGET].copy()
    x[3] = (asked.x[1] + asked.x[2]) / 2
    x[5, :5] = asked.x[4, :5]
    passed = screen([sends(asked, x)], asked, train)
    assert passed.left_out == {"liar": 2}
    np.testing.assert_array_equal(
        passed.answers[0].x, np.delete(x, [3, 5], axis=0).astype(asked.x.dtype)
    )


def test_a_fraction_among_whole_numbers_is_named():
    asked, train, pool = CASES["bare"]
    x = pool[:BUDGET].copy()
    place = COLUMNS.index("work_state")
    x[4:30, place] = 0.99
    reason = screen([sends(asked, x)], asked, train).refused["liar"]
    assert f"row 4 has 0.99 in column {place} (work_state), where all of" in reason
    assert "26 are made of shown ones" in reason


def test_few_whole_numbers_prove_nothing():
    """Twenty must differ from the most frequent one: a border of an image has none."""
    column = np.zeros((100, 1))
    column[:19] = 1
    assert not len(Making(column, column[:0], True, np.arange(100)).whole)
    column[19] = 1
    assert Making(column, column[:0], True, np.arange(100)).whole.tolist() == [0]
    column[50] = 0.5
    assert not len(Making(column, column[:0], True, np.arange(100)).whole)


IMPOSSIBLE = {
    "work=state": (0.99, "has 0.99 in 'work=state', which must be 0 or 1"),
    "pay missing": (0.5, "has 0.5 in 'pay missing', which must be 0 or 1"),
    "work=self": (1.0, "has 2 of the categories of 'work' at once"),
    "pay": (1.5, "has 1.5 in 'pay' where 'pay missing' is 1: a gap has the median"),
}


@pytest.mark.parametrize("feature", IMPOSSIBLE)
def test_features_that_no_encoder_makes_are_refused(feature):
    asked, train, pool = CASES["encoded"]
    value, words = IMPOSSIBLE[feature]
    x = pool[:BUDGET].copy()
    gap = x[:, ENCODER.feature_names.index("pay missing")] == 1
    private = x[:, ENCODER.feature_names.index("work=private")] == 1
    row = int(np.argmax(gap if feature == "pay" else private & ~gap))
    x[row, ENCODER.feature_names.index(feature)] = value
    passed = screen([sends(asked, x), sends(asked, pool[:BUDGET], "o")], asked, train)
    assert [a.owner for a in passed.answers] == ["o"]
    assert f"row {row} {words}" in passed.refused["liar"]
    assert "x must hold what the request's encoder makes" in passed.refused["liar"]


@pytest.mark.filterwarnings("ignore:column 'work' has categories in 100%")
def test_categories_that_an_encoder_never_met_pass():
    asked, train, _ = CASES["encoded"]
    frame = POOL[0][:BUDGET].assign(work="abroad")
    passed = screen([sends(asked, ENCODER.transform(frame))], asked, train)
    assert not passed.refused


def test_near_copies_are_warned_of():
    asked, train, pool = CASES["numbers"]
    data = Dataset(x=train, y=TRAIN[1])
    trainer = Trainer(asked, data, Dataset(x=pool[:50], y=POOL[1][:50]), steps=1)
    x = np.concatenate([noisy(asked.x, train, 0.1), pool[100:110]])
    admitted, _ = trainer.admit({"me.npz": sends(asked, x)})
    assert [*admitted] == ["me.npz"]
    (warning,) = [w for w in trainer.warnings if "noise" in w]
    assert warning.startswith("me.npz: ")
    assert "of 40 samples are nearer to shown ones" in warning
