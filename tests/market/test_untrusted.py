"""What files and requests from others must not hold."""

import jax
import numpy as np
import pytest

from jaxsel.market import Answer, make_request

from . import cases


@pytest.mark.left_out
def test_an_answer_without_weights_is_refused(tmp_path):
    path = cases.sent().save(tmp_path / "answer")
    cases.forge(
        path,
        change_header=lambda header: header["arrays"].pop("weights") and header,
        change_parts=lambda parts: parts.pop("weights.npy"),
    )
    with pytest.raises(ValueError, match="answer.npz is refused: weights are missing"):
        Answer.load(path, cases.request())


@pytest.mark.parametrize("name", ["b\x1b[2J", "b\nc", "b" * 1001])
def test_class_names_that_could_act_on_a_terminal_are_refused(name):
    labels = np.array(["a", name])[cases.HARD_Y % 2]
    with pytest.raises(ValueError, match="classes must be printable"):
        make_request(cases.HARD, labels, budget=6, key=jax.random.key(0))


def test_labels_need_classes():
    schema = make_request(cases.HARD, budget=6, key=jax.random.key(0)).schema
    with pytest.raises(ValueError, match="y must not be given: .* has no classes"):
        schema.check_labels("y", cases.HARD_Y)
