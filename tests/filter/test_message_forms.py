"""Every kind of message refuses what it can't hold, wherever it comes from."""

import dataclasses

import numpy as np
import pytest

from jaxsel._files.wire import write
from jaxsel.filter import Counted, Question, SecureClient
from jaxsel.filter._messages import FORMAT

TASK = "0123456789abcdef" * 2
NAMES = ("ada", "bo", "cy")


def messages():
    """Return one message of every kind that a client sends, by its kind."""
    counts = np.arange(3, dtype=np.uint32)
    clients = [
        SecureClient(Counted(task=TASK, round=1, client=name, counts=counts), 2)
        for name in NAMES
    ]
    keys = [client.keys() for client in clients]
    shares = [client.share(keys) for client in clients]
    masked = [client.masked(shares) for client in clients]
    found = keys[0], shares[0], masked[0], clients[0].reveal(NAMES)
    return {message._kind: message for message in found}


KINDS = messages()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "field", [{"task": "no task"}, {"round": 0}, {"client": ""}, {"client": "x" * 101}]
)
def test_senders_are_checked(kind, field):
    with pytest.raises(ValueError, match=next(iter(field))):
        dataclasses.replace(KINDS[kind], **field)


@pytest.mark.parametrize("kind", [k for k, m in KINDS.items() if hasattr(m, "others")])
@pytest.mark.parametrize("others", [["bo"] * 2, ("ada", "bo"), ["bo", ""]])
def test_pieces_are_for_distinct_names(kind, others):
    with pytest.raises(ValueError, match="others must be a list of dist|a name in oth"):
        dataclasses.replace(KINDS[kind], others=others)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_checked(kind):
    message = KINDS[kind]
    for name in message._arrays:
        array = getattr(message, name)
        shape = array[..., None] if kind == "counts" else array[..., :-1]
        for wrong in (shape, array.astype(np.float32), array.tolist()):
            with pytest.raises(ValueError, match=f"{name} must be"):
                dataclasses.replace(message, **{name: wrong})


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_an_array_are_refused(kind, tmp_path):
    message = KINDS[kind]
    fields = {name: getattr(message, name) for name in message._fields}
    path = write(FORMAT, tmp_path / "file", kind, fields, {})
    with pytest.raises(ValueError, match=f"arrays must be {message._arrays[0]}"):
        type(message).load(path)


def test_questions_without_edges_are_refused(tmp_path):
    fields = {"task": TASK, "round": 1, "limit": 9}
    path = write(FORMAT, tmp_path / "file", "question", fields, {})
    with pytest.raises(ValueError, match="arrays must be edges"):
        Question.load(path)
