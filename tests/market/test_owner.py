"""What an owner sends: within the budget, never all, by each method."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

from jaxsel import gradients, match, retrieve
from jaxsel.market import (
    METHODS,
    Answer,
    OwnerModel,
    Request,
    answer,
    make_request,
    refuse,
)

from .cases import HARD, HARD_F, HARD_Y, RNG, F, X, Y, request, sent

KEY = jax.random.key(5)
W = RNG.normal(size=(4, 3)).astype(np.float32)


def oracle(x, y):
    """The gradients of a linear model, whatever the label beyond its classes."""
    x = np.asarray(x, np.float32)
    scores = np.exp(x @ W)
    errors = scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[y]
    flat = (errors[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    return gradients.dense(flat.astype(np.float32))


MODEL = OwnerModel(oracle=oracle, features=lambda x: np.asarray(x)[:, :2])


def rows_of(found):
    """Which of the owner's samples were sent."""
    x = X.astype(np.float32)
    return [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in found.x]


@pytest.mark.every(3)
@pytest.mark.parametrize("method", METHODS)
def test_methods_keep_the_rules(method):
    asked = request(budget=6, method=method)
    found = sent(asked, model=MODEL, key=KEY)
    found.check(asked)
    assert found.method == method
    assert 0 < len(found) <= 6
    assert len(set(rows_of(found))) == len(found)
    np.testing.assert_array_equal(found.y, Y[rows_of(found)])
    assert not np.any(found.y == 3)
    assert not found.pseudo_labels
    assert found.x.dtype == np.float32
    assert found.status == ("complete" if len(found) == 6 else "short")
    if method not in ("grad_match", "func_feat"):
        assert len(found) == 6
        assert np.all(found.weights == 1)


def test_retrieval_is_that_of_the_room():
    mine = np.flatnonzero(Y < 3)
    chosen = retrieve.retrieve_nearest(
        F[mine], HARD_F, 6, labels=Y[mine], hard_labels=HARD_Y
    )
    assert rows_of(sent()) == mine[np.asarray(chosen.indices)].tolist()
    near = retrieve.retrieve_nearest(
        X[mine], HARD, 6, labels=Y[mine], hard_labels=HARD_Y, metric="l2"
    )
    found = sent(request(features=None), features=None, metric="l2")
    assert rows_of(found) == mine[np.asarray(near.indices)].tolist()
    # The owner's own features take the place of raw samples, on both sides.
    own = retrieve.retrieve_nearest(
        X[mine][:, :2], HARD[:, :2], 6, labels=Y[mine], hard_labels=HARD_Y
    )
    found = sent(request(features=None), features=None, model=MODEL)
    assert rows_of(found) == mine[np.asarray(own.indices)].tolist()


def test_binned_is_that_of_the_room():
    mine = np.flatnonzero(Y < 3)
    x = X.astype(np.float32)
    chosen = retrieve.retrieve_binned(x[mine], HARD, 6)
    found = answer(request(), x, Y, owner="north", method="binned")
    assert rows_of(found) == mine[np.asarray(chosen.indices)].tolist()


@pytest.mark.parametrize("method", ["grad_match", "func_feat"])
@pytest.mark.every(2)
def test_matching_is_that_of_the_room(method):
    mine = np.flatnonzero(Y < 3)
    candidates, target = oracle(X[mine], Y[mine]), oracle(HARD, HARD_Y)
    spaces = [F[mine].astype(np.float32), HARD_F] if method == "func_feat" else []
    chosen = getattr(match, method)(
        candidates, target, *spaces, 6, labels=Y[mine], hard_labels=HARD_Y
    )
    size = int(chosen.n_valid)
    found = sent(method=method, model=MODEL)
    assert rows_of(found) == mine[np.asarray(chosen.indices)[:size]].tolist()
    np.testing.assert_allclose(found.weights, chosen.weights[:size], rtol=1e-6)


def test_random_covers_the_classes_asked_for():
    counts = np.zeros(40)
    for i in range(60):
        found = sent(method="random", key=jax.random.key(i))
        counts[rows_of(found)] += 1
    assert np.all(counts[Y == 3] == 0)
    assert np.all(counts[Y != 3] > 0)


@pytest.mark.every(3)
@pytest.mark.parametrize("method", METHODS)
def test_never_all_of_the_data(method):
    """C.2: neither more than the budget, nor all, unless told so."""
    x, y = HARD[:6] + 0.1, HARD_Y[:6]
    asked = make_request(HARD, HARD_Y, budget=50, method=method)
    kept = answer(asked, x, y, owner="o", model=MODEL, key=KEY, max_share=1)
    assert len(kept) <= 5
    if method in ("grad_match", "func_feat"):
        return
    assert (len(kept), kept.status) == (5, "capped")
    assert "all of the owner's data" in kept.reason
    given = answer(asked, x, y, owner="o", key=KEY, allow_all=True)
    assert (len(given), given.status) == (6, "short")
    exact = make_request(HARD, HARD_Y, budget=6, method=method)
    assert answer(exact, x, y, owner="o", key=KEY).status == "capped"
    full = answer(exact, x, y, owner="o", key=KEY, allow_all=True)
    assert full.status == "complete"
    assert len(answer(exact, x[:1], y[:1], owner="o", key=KEY)) == 0


def test_the_owner_has_limits_of_its_own():
    """Whatever the budget: half of its samples, unless it says otherwise."""
    asked = make_request(HARD, budget=1_000_000, method="random")

    def size(x=X, **options):
        found = answer(asked, x, owner="o", key=KEY, **options)
        return len(found), found.status, found.reason

    half = "the owner sends 0.5 of its samples at most"
    assert size() == (20, "capped", half)
    assert size(X[:5]) == (2, "capped", half)
    assert [size(X[:n])[0] for n in (1, 3)] == [0, 1]
    assert size(max_share=0.1)[0] == 4
    assert size(max_share=1) == (
        39,
        "capped",
        "one more would be all of the owner's data",
    )
    assert size(max_samples=7) == (7, "capped", "the owner sends 7 samples at most")
    assert size(max_samples=30) == (20, "capped", half)
    assert size(max_samples=30, allow_all=True)[0] == 30
    assert size(allow_all=True)[0] == 40
    # Within the budget the limits do not show.
    assert sent(max_samples=6, max_share=0.2).status == "complete"
    for options in ({"max_samples": 0}, {"max_share": 0}, {"max_share": 1.5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            size(**options)
    with pytest.raises(TypeError, match="max_samples must be a whole number"):
        size(max_samples=2.5)


@pytest.mark.parametrize("method", ["grad_match", "func_feat"])
def test_a_short_match_says_why_it_stopped(method):
    """And nothing that was not found out."""
    asked = request(budget=30, method=method)
    found = sent(asked, model=MODEL, max_share=1)
    mine = np.flatnonzero(Y < 3)
    candidates, target = oracle(X[mine], Y[mine]), oracle(HARD, HARD_Y)
    spaces = [F[mine].astype(np.float32), HARD_F] if method == "func_feat" else []
    chosen = getattr(match, method)(
        candidates, target, *spaces, 30, labels=Y[mine], hard_labels=HARD_Y
    )
    size = int(chosen.n_valid)
    assert size < 30
    assert (len(found), found.status) == (size, "short")
    assert found.reason == f"{size} of 30 samples have a weight: {chosen.reasons}"


def test_columns_are_brought_into_the_order_of_the_request():
    names = ["age", "height", "weight", "dose"]
    frame = pd.DataFrame(X, columns=names)
    asked = make_request(pd.DataFrame(HARD, columns=names), HARD_Y, budget=6)
    assert asked.schema.columns == tuple(names)
    found = answer(asked, X, Y, owner="o")
    for order in (names, names[::-1]):
        again = answer(asked, frame[order], Y, owner="o")
        np.testing.assert_array_equal(again.x, found.x)
    with pytest.raises(
        ValueError,
        match="x must have the columns of the request, age, height, weight, dose, "
        "each once; got Age, height, weight, dose",
    ):
        answer(asked, frame.rename(columns={"age": "Age"}), Y, owner="o")
    twice = frame[["age", "height", "weight", "weight"]]
    with pytest.raises(ValueError, match="each once; got"):
        answer(asked, twice, Y, owner="o")


def test_missing_numbers_are_for_the_method_that_knows_them(tmp_path):
    """Binning has a bin for them; distances and gradients have no use for NaN."""
    hard, x = HARD.copy(), X.copy()
    hard[::3, 1] = np.nan
    x[::2, 1] = np.nan
    asked = make_request(hard, HARD_Y, budget=6, method="binned")
    asked = Request.load(asked.save(tmp_path / "r.npz"))
    mine = np.flatnonzero(Y < 3)
    chosen = retrieve.retrieve_binned(x[mine].astype(np.float32), hard, 6)
    found = answer(asked, x, Y, owner="o")
    found = Answer.load(found.save(tmp_path / "a.npz"), asked)
    expected = x[mine].astype(np.float32)[np.asarray(chosen.indices)]
    np.testing.assert_array_equal(found.x, expected)
    assert np.isnan(found.x).any()
    assert len(answer(asked, x, Y, owner="o", method="random", key=KEY)) == 6
    for method in ("retrieve", "grad_match", "func_feat"):
        with pytest.raises(ValueError, match="must be finite"):
            answer(asked, x, Y, owner="o", method=method, model=MODEL)
    with pytest.raises(ValueError, match="x must be finite"):
        answer(asked, x, Y, owner="o", method="retrieve")
    with pytest.raises(ValueError, match="x must be finite"):
        make_request(hard, HARD_Y, budget=6)
    with pytest.raises(ValueError, match="x must be finite"):
        make_request(np.where(hard > 1, np.inf, hard), budget=6, method="binned")
    plain = make_request(HARD, HARD_Y, budget=6)
    with pytest.raises(ValueError, match="x must be finite"):
        answer(plain, x, Y, owner="o", method="binned")
    bad = dataclasses.replace(found, request_id=plain.id)
    with pytest.raises(ValueError, match="x must be finite"):
        bad.check(plain)


def mixed(x):
    """A table with a category, a number that may be missing, and two others."""
    frame = pd.DataFrame(x.astype(np.float32), columns=list("abcd"))
    frame["b"] = np.where(x[:, 1] > 0, "up", "down").astype(object)
    frame.loc[::5, "b"] = None
    frame.loc[::4, "c"] = np.nan
    return frame


def test_tables_of_numbers_and_texts(tmp_path):
    frame, hard = mixed(X), mixed(HARD)
    asked = make_request(hard, HARD_Y, budget=6, method="binned")
    assert asked.schema.categories == (1,)
    asked = Request.load(asked.save(tmp_path / "r.npz"))
    mine = np.flatnonzero(Y < 3)
    chosen = retrieve.retrieve_binned(frame.iloc[mine], hard, 6)
    found = answer(asked, frame[list("dcba")], Y, owner="o")
    found = Answer.load(found.save(tmp_path / "a.npz"), asked)
    expected = frame.iloc[mine].iloc[np.asarray(chosen.indices)]
    np.testing.assert_array_equal(found.x[:, 1], expected["b"].fillna(""))
    for j in (0, 2, 3):
        column = np.where(found.x[:, j] == "", "nan", found.x[:, j]).astype(np.float32)
        np.testing.assert_array_equal(column, expected.iloc[:, j])
    with pytest.raises(ValueError, match="numbers, written as texts, in column 2"):
        answer(asked, frame.assign(c="much"), Y, owner="o")
    forged = dataclasses.replace(found, x=np.where(found.x == "up", "up", "much"))
    with pytest.raises(ValueError, match="numbers, written as texts, in column 0"):
        forged.check(asked)
    with pytest.raises(ValueError, match="model must have features: texts as such"):
        answer(asked, frame, Y, owner="o", method="retrieve")
    with pytest.raises(TypeError, match="must hold real numbers or texts"):
        make_request(hard, HARD_Y, budget=6)
    with pytest.raises(TypeError, match="columns of numbers or of texts, got objects"):
        make_request(hard.assign(b=[object()] * 12), budget=6, method="binned")
    for places in ((4,), (1, 0), (0, 0)):
        with pytest.raises(ValueError, match="categories must be places of columns"):
            dataclasses.replace(asked.schema, categories=places)
    with pytest.raises(ValueError, match="categories are for tables of texts"):
        dataclasses.replace(request().schema, categories=(1,))


def test_nothing_of_the_classes_asked_for():
    asked = request(features=None)
    found = answer(asked, X, np.full(40, 7), owner="east")
    assert (len(found), found.status) == (0, "short")
    assert "no more samples of the classes" in found.reason
    found.check(asked)


def test_without_labels():
    near = retrieve.pseudo_labels(F, HARD_F, HARD_Y)
    found = answer(request(), X, owner="north", features=F)
    assert found.pseudo_labels
    np.testing.assert_array_equal(found.y, np.asarray(near)[rows_of(found)])
    # The trainer has none: the owner's are sent along, and classes don't matter.
    asked = make_request(HARD, budget=6)
    found = answer(asked, X, Y, owner="north")
    np.testing.assert_array_equal(found.y, Y[rows_of(found)])
    assert not found.pseudo_labels
    found = answer(asked, X, owner="north")
    assert found.y is None
    found.check(asked)


def test_features_only():
    asked = make_request(None, HARD_Y, features=HARD_F, budget=6)
    found = answer(asked, None, Y, owner="north", features=F)
    assert found.x is None
    chosen = rows_of(sent(request()))
    np.testing.assert_array_equal(found.features, F[chosen].astype(np.float32))
    # An encoder in place of features; samples are asked for, and stay as they are.
    encode = OwnerModel(features=lambda x: np.asarray(x) @ np.ones((4, 5)))
    asked = make_request(
        None,
        HARD_Y,
        features=HARD_F,
        budget=6,
        sample_shape=(4,),
        sample_dtype=np.float32,
    )
    found = answer(asked, X, Y, owner="north", model=encode)
    assert found.features is None
    assert found.x.shape == (6, 4)
    found = answer(asked, X, owner="north", method="random", key=KEY, model=encode)
    assert found.pseudo_labels


def test_matching_on_features():
    asked = make_request(None, HARD_Y, features=HARD, budget=4)
    found = answer(
        asked,
        None,
        Y,
        features=X,
        owner="o",
        method="grad_match",
        model=OwnerModel(oracle=oracle),
    )
    assert found.features.shape[1:] == (4,)
    assert 0 < len(found) <= 4


@pytest.mark.left_out
def test_texts():
    asked = make_request(
        ["a b", "c"], ["x", "y"], budget=2, features=[[0.0, 1.0], [1.0, 0.0]]
    )
    texts = ["long " * 9, "d", "e", "f"]
    features = [[0.1, 1.0], [1.0, 0.1], [1.0, 1.0], [0.0, 2.0]]
    found = answer(
        asked,
        texts,
        np.array(["x", "y", "x", "z"], object),
        features=features,
        owner="o",
    )
    assert sorted(found.x) == ["d", "long " * 9]
    found.check(asked)


def test_owners_may_refuse():
    asked = request()
    found = refuse(asked, owner="west", reason="not for sale")
    found.check(asked)
    assert (len(found), found.status, found.reason) == (0, "refused", "not for sale")
    with pytest.raises(ValueError, match="reason must be printable"):
        refuse(asked, owner="west", reason="no\nno")


@pytest.mark.left_out
def test_types_are_those_of_the_request():
    asked = make_request((HARD > 0).astype(np.uint8), HARD_Y, budget=3)
    found = answer(asked, (X > 0).astype(np.uint16), Y, owner="o")
    assert found.x.dtype == np.uint8
    with pytest.raises(ValueError, match="x must fit into uint8 as in the request"):
        answer(asked, np.full((40, 4), 256, np.uint16), Y, owner="o")
    with pytest.raises(TypeError, match="x must be of dtype .u1 as in the request"):
        answer(asked, X, Y, owner="o")
    half = make_request(HARD.astype(np.float16), HARD_Y, budget=3)
    with pytest.raises(ValueError, match="x in the request's dtype must be finite"):
        answer(half, X * 1e6, Y, owner="o")


@pytest.mark.parametrize(
    ("x", "options", "match"),
    [
        (None, {}, "x must be given"),
        (X[:, :3], {}, r"x must hold samples of shape \(4,\)"),
        (X * np.nan, {}, "x must be finite"),
        (["a"] * 40, {}, "x must hold samples of shape"),
        (X, {"y": Y[:3]}, "x and y must have the same length"),
        (X, {"y": Y.astype(str)}, "y must hold labels .* integers as in the request"),
        (X, {"features": F[:3]}, "x and features must have the same length"),
        (X, {"features": F[:, :3]}, "features must have 5 columns"),
        (X, {"method": "all"}, "method must be one of"),
        (X, {"method": "random"}, "key must be given"),
        (X, {"method": "grad_match"}, "model must have an oracle"),
        (X, {"owner": "a\tb"}, "owner must be printable"),
        (X, {"metric": "near"}, "metric must be one of"),
    ],
)
def test_answers_refuse(x, options, match):
    given = {"y": Y, "owner": "o", "features": F} | options
    with pytest.raises((ValueError, TypeError), match=match):
        answer(request(), x, given.pop("y"), **given)


def test_methods_that_a_request_does_not_allow():
    bare = make_request(HARD, budget=3)
    for method in ("grad_match", "func_feat"):
        with pytest.raises(ValueError, match="the request has no labels"):
            answer(bare, X, owner="o", method=method, model=MODEL)
    with pytest.raises(ValueError, match="features must not be given"):
        answer(bare, X, owner="o", features=F)
    hidden = make_request(None, HARD_Y, features=HARD_F, budget=3)
    with pytest.raises(ValueError, match="the request shows no table"):
        answer(hidden, None, Y, features=F, owner="o", method="binned")
    with pytest.raises(ValueError, match="features must be given"):
        answer(hidden, None, Y, owner="o")
    texts = make_request(["a", "b"], budget=1)
    with pytest.raises(ValueError, match="model must have features"):
        answer(texts, ["c", "d"], owner="o")


def test_an_answer_holds_samples_or_features():
    found = sent()
    for changes in ({"x": None}, {"features": F[:6].astype(np.float32)}):
        with pytest.raises(ValueError, match="samples or features, and not both"):
            dataclasses.replace(found, **changes)
