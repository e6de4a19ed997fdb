"""Requests and answers whose checksums are right, and what they cover is not."""

import dataclasses
import struct

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jaxsel.market import Answer, Request, make_request

from .cases import (
    HARD,
    HARD_F,
    HARD_Y,
    forge,
    parts_of,
    refused,
    request,
    same,
    sent,
    write,
)

pytestmark = pytest.mark.every(3)

FUZZ = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


# Forgery: checksums are right, and what they cover is not.

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(["<f4", "|O", "<U3", "retrieve", "0" * 32]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@FUZZ
@given(data=st.data())
def test_any_forged_header_is_refused_or_harmless(tmp_path, data):
    """Whatever JSON stands in place of a value, there is a reason, or a request."""
    asked = request()
    path = asked.save(tmp_path / "r.npz")
    value = data.draw(ANY)

    def change(header):
        node = header
        while True:
            key = data.draw(st.sampled_from(sorted(node)))
            if not isinstance(node[key], dict) or data.draw(st.booleans()):
                node[key] = value
                return
            node = node[key]

    forge(path, change)
    reason, read = None, None
    try:
        read = Request.load(path)
    except ValueError as error:
        reason = str(error)
    if read is None:
        assert reason is not None
        assert reason.startswith(f"{path} is refused: ")
    else:
        assert same(read.x, asked.x)
        read.save(path)


def change_fields(**values):
    return lambda header: header["fields"].update(values)


def change_schema(**values):
    return lambda header: header["fields"]["schema"].update(values)


def change_array(name, **values):
    return lambda header: header["arrays"][name].update(values)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda h: h.update(version=2), "version '2' is not known"),
        (lambda h: h.update(version=True), "version 'True' is not known"),
        (lambda h: h.update(kind="answer"), "it is no request but holds 'answer'"),
        (lambda h: h.update(format="zip"), "not one of jaxsel.market"),
        (lambda h: h.update(model={"w": [1]}), "header.json must have format"),
        (lambda h: h.pop("arrays") and None, "header.json must have format"),
        (lambda h: [h], "not one of jaxsel.market"),
        (change_fields(model="weights"), "fields must have the fields budget"),
        (change_fields(id="12"), "id must be 32 hexadecimal digits"),
        (change_fields(budget=0), "budget must be at least 1"),
        (change_fields(budget=2**62), "budget must be at most 1000000 samples"),
        (change_fields(budget=1.5), "budget must be a whole number"),
        (change_fields(budget=True), "budget must be a whole number"),
        (change_fields(method="all of it"), "method must be one of"),
        (change_schema(classes=[0, 1]), "y must hold classes of the request"),
        (change_schema(classes=["0", "1", "2"]), "y must hold labels of shape"),
        (change_schema(classes=[2, 1, 0]), "classes must be in ascending order"),
        (change_schema(classes=[0, 1, "2"]), "classes must be all integers"),
        (change_schema(classes=None), "both labels and classes"),
        (change_schema(sample_shape=[5]), "x must hold samples of shape"),
        (change_schema(sample_dtype="|u1"), "x must hold samples of shape"),
        (change_schema(sample_dtype="|O"), "sample_dtype is unknown"),
        (change_schema(sample_shape=[2**40]), "sample_shape is impossible"),
        (change_schema(n_features=6), "features must have shape"),
        (change_schema(columns=["\x1b[2J"] * 4), "columns must be printable"),
        (change_schema(columns=["a"]), "columns must name the columns"),
        (change_array("x", dtype="|O"), "x must hold real numbers or texts"),
        (change_array("x", dtype="<M8[s]"), "x must hold real numbers or texts"),
        (change_array("x", dtype="<c8"), "x must hold real numbers or texts"),
        (change_array("x", dtype="<f8"), "x must have .* bytes"),
        (change_array("x", shape=[2**31 - 1] * 8), "x must have .* bytes"),
        (change_array("x", shape=[2**62, 4]), "x has an impossible shape"),
        (change_array("x", shape=[1] * 9), "x has an impossible shape"),
        (change_array("x", shape=[4, 12]), "x.npy declares another shape"),
        (change_array("x", sha256="0" * 64), "x is damaged: its sha256 differs"),
        (change_array("x", note="more"), "x must be declared by"),
        (lambda h: h["arrays"].pop("x") and None, "part 'x.npy' is not declared"),
        (
            lambda h: h["arrays"].update(model=h["arrays"]["x"]),
            "array 'model' has no place in a request",
        ),
    ],
)
def test_forged_headers(tmp_path, change, match):
    path = request().save(tmp_path / "r.npz")
    forge(path, change)
    refused(tmp_path, path.read_bytes(), match=match)


def npy(array):
    array = np.asarray(array)
    facts = f"{{'descr': {array.dtype.str!r}, 'fortran_order': False, 'shape': "
    text = f"{facts}{array.shape}}}".encode()
    text += b" " * (-(11 + len(text)) % 64) + b"\n"
    head = b"\x93NUMPY\1\0" + struct.pack("<H", len(text))
    return head + text + array.tobytes()


def replaced(name, array):
    """A change of an array and of all that is declared of it."""
    array = np.asarray(array)

    def parts(parts):
        parts[f"{name}.npy"] = npy(array)

    def header(header):
        facts = header["arrays"][name]
        facts.update(dtype=array.dtype.str, shape=list(array.shape))

    return header, parts


@pytest.mark.parametrize(
    ("name", "array", "match"),
    [
        ("x", np.where(HARD > 1, np.nan, HARD), "x must be finite"),
        ("x", np.where(HARD > 1, np.inf, HARD), "x must be finite"),
        ("x", HARD[:-1], "must have the same length"),
        ("x", HARD[:0], "a request must show samples"),
        ("x", np.float32(1), "x must be an array"),
        ("x", HARD.astype(np.float64), "x must hold samples of shape"),
        ("features", HARD_F * np.nan, "features must be finite"),
        ("features", HARD_F.astype(np.float16), "features must have shape"),
        ("y", HARD_Y[:, None], "y must hold labels of shape"),
        ("y", HARD_Y + 1, "row 2 holds '3'"),
        ("y", HARD_Y.astype(float), "y must hold labels of shape"),
        ("y", HARD_Y.astype(str), "y must hold labels of shape"),
        ("y", np.full(12, -5, np.int32).view("<U1"), "y must hold texts in Unicode"),
        ("y", np.full(12, 0xD800, np.int32).view("<U1"), "texts in Unicode"),
        ("x", np.full((12, 4), 7, np.uint8).view(bool), "x must hold booleans"),
    ],
)
def test_forged_arrays(tmp_path, name, array, match):
    with np.errstate(invalid="ignore"):
        path = request().save(tmp_path / "r.npz")
        header, parts = replaced(name, array)
        forge(path, header, parts)
    refused(tmp_path, path.read_bytes(), match=match)


def test_forged_parts(tmp_path):
    path = request().save(tmp_path / "r.npz")
    whole = parts_of(path)

    def bad(parts, match):
        write(path, parts)
        refused(tmp_path, path.read_bytes(), match=match)

    swapped = whole | {"x.npy": whole["features.npy"], "features.npy": whole["x.npy"]}
    bad(swapped, "features must have .* bytes")
    bad(whole | {"model.npy": whole["x.npy"]}, "part 'model.npy' is not declared")
    bad({n: p for n, p in whole.items() if n != "y.npy"}, "are missing")
    bad(dict(reversed(whole.items())), "are missing, or in another order")
    bad(
        {n: whole[n] for n in whole if n != "header.sha256"}, "header.sha256 is missing"
    )
    bad(whole | {"header.json": whole["header.json"] + b" "}, "its sha256 differs")
    bad({f"a{'b' * i}.npy": b"" for i in range(17)}, "more than 16 parts")
    bad({"../evil.npy": b""}, "is unknown")
    bad({"X.npy": b""}, "is unknown")


# Answers that do not fit the request.


def test_answers_to_something_else(tmp_path):
    found = sent()
    path = found.save(tmp_path / "a.npz")

    def bad(asked, match):
        load = lambda path: Answer.load(path, asked)
        refused(tmp_path, path.read_bytes(), match=match, load=load)

    def asking(**changes):
        return dataclasses.replace(request(), **changes)

    bad(request(key=jax.random.key(9)), "request_id must be .* another request")
    bad(asking(budget=5), "within the budget of 5 samples, got 6")
    bad(asking(budget=7), "must not be 'complete' with 6 samples of a budget of 7")
    wider = make_request(HARD[:, [0, 0, 1, 2, 3]], HARD_Y, budget=6)
    bad(
        dataclasses.replace(wider, id=found.request_id), r"x must hold samples of shape"
    )
    zeros = make_request(HARD, HARD_Y % 1, budget=6)
    bad(dataclasses.replace(zeros, id=found.request_id), "y must hold classes of the")
    only = make_request(None, HARD_Y, features=HARD_F, budget=6)
    bad(dataclasses.replace(only, id=found.request_id), "x must not be given")
    refused(tmp_path, path.read_bytes(), match="no request but holds 'answer'")
    request().save(path)
    bad(request(), "it is no answer but holds 'request'")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (change_fields(owner="\x1b]0;x\x07"), "owner must be printable"),
        (change_fields(owner=""), "owner must be printable"),
        (change_fields(owner="a" * 101), "at most 100 characters"),
        (change_fields(owner=3), "owner must be a text"),
        (change_fields(owner="north "), "no blank at its ends .* got 'north '"),
        (change_fields(owner="the  north"), "and no two in a row"),
        (change_fields(owner="n\u043erth"), r"one script, got CYRILLIC, LATIN in 'n.u"),
        (change_fields(owner="n\uff4frth"), "form NFKC, .* write 'north'"),
        (change_fields(owner="nor\u200bth"), "owner must be printable"),
        (change_fields(reason="a\nb"), "reason must be printable"),
        (change_fields(status="fine"), "status must be one of"),
        (change_fields(status="z" * 10_000), "status must be one of .{0,500}$"),
        (change_fields(status="refused"), "status must not be 'refused'"),
        (change_fields(pseudo_labels=1), "pseudo_labels must be a bool"),
        (change_fields(request_id=None), "request_id must be 32"),
        (
            replaced("weights", np.full(6, -1, np.float32)),
            "weights must be finite",
        ),
        (replaced("weights", np.full(6, np.nan, np.float32)), "weights must be finite"),
        (replaced("weights", np.ones(6)), "weights must be finite, .* float32"),
        (replaced("weights", np.ones(7, np.float32)), "must have the same length"),
        (replaced("x", HARD[:6] * np.nan), "x must be finite"),
        (replaced("x", HARD[:5]), "must have the same length"),
        (replaced("y", HARD_Y[:6] + 7), "y must hold classes"),
        (replaced("y", HARD_Y[:6].astype(float)), "y must hold labels"),
    ],
)
def test_forged_answers(tmp_path, change, match):
    path = sent().save(tmp_path / "a.npz")
    change = change if isinstance(change, tuple) else (change, None)
    forge(path, *change)
    load = lambda path: Answer.load(path, request())
    refused(tmp_path, path.read_bytes(), match=match, load=load)


@FUZZ
@given(data=st.data())
def test_no_changed_byte_of_an_answer_goes_unseen(tmp_path, data):
    path = tmp_path / "a.npz"
    if not path.exists():
        sent().save(path)
    original = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(original) - 1))
        original[at] ^= data.draw(st.integers(1, 255))
    if bytes(original) != path.read_bytes():
        load = lambda path: Answer.load(path, request())
        refused(tmp_path, bytes(original), load=load)
