"""The trainer's network and the owners', without files."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

from jaxsel.data import Dataset
from jaxsel.market import (
    Trainer,
    answer,
    make_request,
    network_model,
    rank,
    standardized_model,
)
from jaxsel.market._network import Network
from jaxsel.market._scale import Scale
from jaxsel.models import fit

CENTRES = 1.5 * np.random.default_rng(0).normal(size=(3, 6))


def draw(*counts, seed=0):
    y = np.repeat(np.arange(3), counts)
    noise = np.random.default_rng(seed).normal(size=(len(y), 6))
    return (CENTRES[y] + noise).astype(np.float32), y


@pytest.fixture(scope="module")
def asked():
    return make_request(*draw(20, 0, 0, seed=1), budget=12, classes=[0, 1, 2])


def hire(asked, **options):
    train, held_out = draw(1, 60, 60, seed=2), draw(40, 0, 0, seed=3)
    sets = (Dataset(x=x, y=y) for x, y in (train, held_out))
    return Trainer(asked, *sets, seeds=2, steps=60, **options)


def answers_of(asked, **models):
    return {
        owner: answer(asked, *draw(*counts, seed=4), owner=owner, **models)
        for owner, counts in {"rich": (80, 40, 40), "poor": (1, 60, 60)}.items()
    }


@pytest.mark.left_out
def test_owners_are_ranked_by_what_the_trainer_learns(asked):
    trainer = hire(asked, without_shown=True)
    found, refused = trainer.admit(answers_of(asked))
    assert not refused
    ranking = rank(found.values(), trainer.score, baseline=trainer.score(None))
    assert ranking.owners[0] == "rich"
    assert ranking.scores.shape == (2, 2)
    assert ranking.gain[0] > 0
    assert trainer.shown == 0
    assert trainer.warnings == []


@pytest.mark.left_out
def test_the_network_learns_at_its_own_rate():
    x, y = draw(20, 20, 20)
    new = Network.new(6, 3, jax.random.key(0))
    found = new.trained(x, y, jax.random.key(1), steps=5)
    expected = fit(
        new.graphdef,
        new.params,
        x,
        y,
        key=jax.random.key(1),
        steps=5,
        learning_rate=3e-3,
    )
    for one, other in zip(
        jax.tree.leaves(found.params), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_samples_are_scaled_by_sums_in_float64():
    """In float32 the mean of many large numbers that are near each other is off."""
    x = (1e6 + np.random.default_rng(0).normal(size=(4000, 1))).astype(np.float32)
    scale = Scale.of(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(scale.mean, exact.mean(0), rtol=1e-12)
    np.testing.assert_allclose(scale.spread, exact.std(0), rtol=1e-9)


def test_columns_without_spread_keep_their_unit():
    scale = Scale.of(np.array([[5.0, 1], [5, 3], [5, 2]]))
    np.testing.assert_allclose(scale.spread, [1, np.sqrt(2 / 3)])
    np.testing.assert_array_equal(scale(np.array([[7.0, 2]])), [[2, 0]])


def test_columns_are_those_of_the_request_or_of_the_trainer(asked):
    names = ("a", "b", "c", "d", "e", "f")
    x, y = draw(20, 0, 0, seed=1)
    table = pd.DataFrame(x, columns=names)
    request = make_request(table, y, budget=12, classes=[0, 1, 2])
    train = Dataset(x=draw(1, 60, 60)[0], y=draw(1, 60, 60)[1], feature_names=names)
    other = dataclasses.replace(train, feature_names=("a", "b", "c", "d", "e", "z"))
    with pytest.raises(ValueError, match="columns of the request"):
        Trainer(request, train, other, seeds=2, steps=5)
    with pytest.raises(ValueError, match="columns of mine"):
        Trainer(asked, train, other, seeds=2, steps=5, names=("mine", "held out"))


def test_an_answer_is_refused_by_the_name_it_came_under(asked):
    trainer = hire(asked)
    assert trainer.shown == 20
    rich = answers_of(asked)["rich"]
    far = dataclasses.replace(rich, owner="far", x=1e6 * rich.x)
    found, refused = trainer.admit({"a": rich, "b": rich, "c": far})
    assert [*found] == ["a"]
    assert refused["b"] == "b is refused: owner 'rich' has answered already"
    assert refused["c"].startswith("c is refused: ")


def test_answers_that_teach_nothing_are_refused(asked):
    trainer = hire(asked)
    rich = answers_of(asked)["rich"]
    bare = dataclasses.replace(rich, owner="bare", y=None)
    other = dataclasses.replace(rich, owner="other", y=rich.y + 7)
    found, refused = trainer.admit({"a": rich, "b": bare, "c": other})
    assert [*found] == ["a"]
    assert refused["b"].startswith("b is refused: y is missing: without labels")
    assert refused["c"].startswith("c is refused: y must hold classes of train, held_")
    assert refused["c"].endswith("or the request: 0, 1, 2")


def test_errors_name_the_arguments(asked):
    x, y = draw(1, 60, 60)
    train = Dataset(x=x, y=y)
    with pytest.raises(ValueError, match="^train and held_out must hold numbers of"):
        Trainer(asked, train, Dataset(x=np.ones((2, 5)), y=np.zeros(2, int)))
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        Trainer(asked, train, train, seeds=0)
    x, y = draw(4, 4, 4)
    with pytest.raises(ValueError, match="x has no sample of a class that the request"):
        network_model(asked, x, y + 5, key=jax.random.key(0))
    unlabelled = make_request(x, budget=4)
    with pytest.raises(ValueError, match="request must name classes"):
        network_model(unlabelled, x, y, key=jax.random.key(0))


@pytest.mark.left_out
def test_models_of_owners_who_have_none(asked):
    x, y = draw(30, 30, 30)
    model = network_model(asked, x, y, key=jax.random.key(0))
    assert len(model.oracle(x[:7], y[:7])) == 7
    assert model.features(x).shape == (90, 64)
    assert (
        network_model(asked, x, y, key=jax.random.key(0), features=False).features
        is None
    )
    scaled = standardized_model(100 * x + 5).features(100 * x + 5)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-5)
