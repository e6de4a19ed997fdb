"""Labels that one side writes otherwise than the other."""

import jax
import numpy as np
import pytest

from jaxsel.data import Dataset
from jaxsel.market import Trainer, answer, hard_set, make_request

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4)).astype(np.float32)
Y = np.where(np.arange(40) % 2, "yes", "no")
ASKED = make_request(RNG.normal(size=(8, 4)), ["yes", "no"] * 4, budget=6)


@pytest.mark.parametrize("spell", [str.upper, str.title, " {}".format, "{} ".format])
def test_labels_written_otherwise_are_refused(spell):
    labels = np.array([spell(label) for label in Y])
    with pytest.raises(ValueError, match="y must hold classes of the request, 'no', "):
        answer(ASKED, X, labels, owner="o")
    with pytest.raises(ValueError, match="differ from them in case or blanks only"):
        answer(ASKED, X, labels, owner="o")


@pytest.mark.parametrize("labels", [np.arange(40) % 2, np.arange(40) % 2 == 1])
def test_numbers_for_texts_are_refused_with_both(labels):
    with pytest.raises(ValueError, match=r"texts as in the request \('no', 'yes'\).*0"):
        answer(ASKED, X, labels, owner="o")
    other = make_request(np.eye(4), [0, 1, 0, 1], budget=2)
    with pytest.raises(ValueError, match=r"integers as in the request \(0, 1\).*'yes'"):
        answer(other, X, Y, owner="o")


def test_an_owner_of_other_classes_sends_nothing():
    found = answer(ASKED, X, np.where(Y == "no", "cat", "dog"), owner="o")
    assert (len(found), found.status) == (0, "short")
    # Its own classes are nobody else's business.
    assert found.reason == "there are no more samples of the classes asked, 'no', 'yes'"


def test_some_written_otherwise_are_told():
    labels = Y.astype("<U5")
    labels[:3] = "Yes"
    with pytest.warns(UserWarning, match=r"3 of 40 labels \('Yes'\) are none of"):
        found = answer(ASKED, X, labels, owner="o")
    assert set(found.y) <= {"yes", "no"}


def test_classes_not_asked_for_are_no_mistake():
    labels = Y.astype("<U5")
    labels[:3] = "other"
    assert len(answer(ASKED, X, labels, owner="o")) == 6


def test_the_trainers_sides_must_write_alike():
    train = Dataset(x=X, y=np.char.upper(Y))
    with pytest.raises(
        ValueError, match="train has 'NO', 'YES', which held_out writes"
    ):
        Trainer(ASKED, train, Dataset(x=X, y=Y))
    both = np.where(np.arange(40) < 20, np.char.upper(Y), Y)
    Trainer(ASKED, Dataset(x=X, y=both), Dataset(x=X, y=Y))  # two classes


def test_predictions_must_be_written_as_labels():
    key = jax.random.key(0)
    with pytest.raises(
        ValueError, match=r"as labels do \('no', 'yes'\), but have 'YES'"
    ):
        hard_set(["YES", "no", "no"], ["yes", "yes", "no"], key=key)
    with pytest.warns(UserWarning, match=r"no prediction \('0', '1'\) is a class of"):
        hard_set(["1", "0"], ["yes", "no"], key=key)
