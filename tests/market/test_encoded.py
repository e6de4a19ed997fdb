"""Tables with categories, dates and gaps: one encoder, which goes with the request."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from jaxsel.data import Dataset
from jaxsel.market import Answer, Request, Trainer, answer, make_request, screen
from jaxsel.tables import TableEncoder

# Half of the owner's rows are in a category that the trainer has not seen.
pytestmark = pytest.mark.filterwarnings("ignore:column 'work' has categories in 50%")


def people(n, seed, work=("private", "state", "self")):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "work": rng.choice(work, n),
            "joined": pd.date_range("2020-01-01", periods=n).astype(str),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(3, 1, n)),
        }
    )
    return frame, (frame.age > 40).astype(int).to_numpy()


TRAIN, Y_TRAIN = people(80, 0)
HARD, Y_HARD = people(20, 1)
OWN, Y_OWN = people(60, 2, ("state", "abroad"))
ENCODER = TableEncoder().fit(TRAIN)


def asked(**options):
    return make_request(HARD, Y_HARD, budget=8, encoder=ENCODER, **options)


@pytest.mark.parametrize("method", ["retrieve", "binned"])
def test_an_owner_answers_with_a_table(method):
    request = asked(method=method)
    found = answer(request, OWN[OWN.columns[::-1]], Y_OWN, owner="north")
    x, hard = ENCODER.transform(OWN), ENCODER.transform(HARD)
    plain = make_request(
        hard, Y_HARD, budget=8, columns=ENCODER.feature_names, method=method
    )
    expected = answer(plain, x, Y_OWN, owner="north")
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y, expected.y)
    assert request.schema == plain.schema


@pytest.mark.left_out
def test_numbers_and_dates_are_encoded_though_names_stay():
    """Features are called like the columns: only the encoder knows which they are."""
    frame, y = people(30, 3)
    frame = frame[["age", "joined"]]
    encoder = TableEncoder().fit(frame)
    assert encoder.feature_names == encoder.columns
    request = make_request(frame, y, budget=8, encoder=encoder)
    np.testing.assert_array_equal(request.x, encoder.transform(frame))
    own, y_own = OWN[["joined", "age"]], Y_OWN
    found = answer(request, own, y_own, owner="north")
    plain = make_request(
        encoder.transform(frame), y, budget=8, columns=encoder.feature_names
    )
    expected = answer(plain, encoder.transform(own), y_own, owner="north")
    np.testing.assert_array_equal(found.x, expected.x)
    assert len(screen([found], request, frame).answers) == 1


def test_the_encoder_goes_along(tmp_path):
    request = asked()
    again = Request.load(request.save(tmp_path / "asked.npz"))
    assert again.encoder is not None
    assert again.encoder.to_json() == ENCODER.to_json()
    found = answer(again, OWN, Y_OWN, owner="north")
    found = Answer.load(found.save(tmp_path / "north.npz"), request)
    np.testing.assert_array_equal(found.x, answer(request, OWN, Y_OWN, owner="north").x)


def test_requests_without_one_are_written_as_before(tmp_path):
    plain = make_request(np.eye(3), [0, 1, 1], budget=1)
    path = plain.save(tmp_path / "plain.npz")
    header = json.loads(np.load(path)["header.json"])
    assert set(header["fields"]) == {"id", "budget", "method", "schema"}
    assert Request.load(path).encoder is None


def test_the_trainer_ranks_with_it():
    request = asked()
    assert request.x is not None
    assert request.y is not None
    found = answer(request, OWN, Y_OWN, owner="north")
    echo = dataclasses.replace(
        found,
        x=request.x[:8],
        y=request.y[:8],
        owner="echo",
        weights=np.ones(8, np.float32),
    )
    screened = screen([found, echo], request, TRAIN, held_out=HARD[:3])
    assert [a.owner for a in screened.answers] == ["north"]
    train = Dataset(
        x=ENCODER.transform(TRAIN), y=Y_TRAIN, feature_names=ENCODER.feature_names
    )
    other, y_other = people(15, 5)
    held_out = dataclasses.replace(train, x=ENCODER.transform(other), y=y_other)
    trainer = Trainer(request, train, held_out, seeds=1, steps=20)
    answers, refused = trainer.admit({"north": found, "echo": echo})
    assert [*answers] == ["north"]
    assert [*refused] == ["echo"]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="x: table must have the columns age, work"):
        answer(asked(), OWN.drop(columns="pay"), Y_OWN, owner="north")
    with pytest.raises(ValueError, match="encoder needs x"):
        make_request(features=np.eye(3), budget=1, encoder=ENCODER)
    with pytest.raises(ValueError, match="names the columns by itself"):
        asked(columns=HARD.columns)
    with pytest.raises(ValueError, match="fitted first"):
        make_request(HARD, Y_HARD, budget=1, encoder=TableEncoder())
    other = TableEncoder().fit(TRAIN[["age", "work"]])
    with pytest.raises(ValueError, match="must be those that encoder makes"):
        dataclasses.replace(asked(), encoder=other)


@pytest.mark.parametrize("forged", ["{}", 7, "null", json.dumps([1])])
def test_a_forged_encoder_is_refused(forged, tmp_path, monkeypatch):
    monkeypatch.setattr(TableEncoder, "to_json", lambda self: forged)
    path = asked().save(tmp_path / "forged.npz")
    with pytest.raises(ValueError, match="forged.npz.*encoder"):
        Request.load(path)
