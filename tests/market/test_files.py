"""Requests and answers as files: they round-trip, and nothing else is read."""

import dataclasses
import json
import struct
import tracemalloc
import zipfile

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jaxsel.market import Answer, Request, answer, make_request, refuse

from .cases import (
    HARD,
    HARD_F,
    HARD_Y,
    parts_of,
    refused,
    request,
    same,
    sent,
    write,
)

FUZZ = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TEXTS = ["one", "two", "zwölf " * 3]


def requests():
    return {
        "all": request(),
        "samples": request(features=None),
        "features": make_request(None, HARD_Y, features=HARD_F, budget=3),
        "no labels": make_request(HARD, budget=3),
        "wanted": make_request(
            features=HARD_F, sample_shape=(2, 2), sample_dtype=np.uint8, budget=3
        ),
        "texts": make_request(TEXTS, ["b", "a", "b"], budget=1, features=HARD_F[:3]),
        "bytes": make_request((HARD > 0).astype(np.uint8), HARD_Y, budget=1),
        "columns": make_request(HARD, budget=1, columns=["a", "b", "c", "é"]),
        "big-endian": make_request(HARD.astype(">f8"), HARD_Y, budget=1),
        "booleans": make_request(HARD > 0, HARD_Y.astype(float), budget=1),
        "one more class": request(classes=[0, 1, 2, 9]),
    }


@pytest.mark.parametrize("kind", requests())
def test_requests_round_trip(tmp_path, kind):
    asked = requests()[kind]
    path = asked.save(tmp_path / "r")
    assert path == tmp_path / "r.npz"
    read = Request.load(path)
    for name in ("id", "budget", "method", "schema"):
        assert getattr(read, name) == getattr(asked, name)
    for name in ("x", "y", "features"):
        mine = getattr(asked, name)
        little = None if mine is None else mine.astype(mine.dtype.newbyteorder("<"))
        assert same(little, getattr(read, name)), name
    assert read.save(tmp_path / "again.npz").read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.npz", "r.npz"]
    refused = refuse(read, owner="west", reason="not for sale")
    assert len(Answer.load(refused.save(tmp_path / "no.npz"), read)) == 0


@pytest.mark.parametrize("options", [{}, {"allow_all": True}, {"method": "random"}])
def test_answers_round_trip(tmp_path, options):
    found = sent(key=jax.random.key(1), **options)
    read = Answer.load(found.save(tmp_path / "a.npz"), request())
    for field in dataclasses.fields(Answer):
        mine, theirs = getattr(found, field.name), getattr(read, field.name)
        if isinstance(mine, np.ndarray) or mine is None:
            assert same(mine, theirs)
        else:
            assert mine == theirs


def test_a_request_is_its_arrays_and_no_model(tmp_path):
    """C.1: what a file holds is what is declared, and there is no field to misuse."""
    assert {f.name for f in dataclasses.fields(Request)} == {
        *("id", "budget", "method", "schema"),
        *("x", "y", "features", "encoder"),
    }
    asked = request()
    path = asked.save(tmp_path / "r.npz")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    arrays = {"x": asked.x, "y": asked.y, "features": asked.features}
    assert set(sizes) == {"header.json", "header.sha256"} | {f"{n}.npy" for n in arrays}
    for name, array in arrays.items():
        assert sizes[f"{name}.npy"] <= array.nbytes + 128
    # Local and central records, by the ZIP specification: nothing lies between.
    overhead = sum(30 + 46 + 2 * len(name) for name in sizes) + 22
    assert path.stat().st_size == overhead + sum(sizes.values())
    with np.load(path) as opened:
        for name, array in arrays.items():
            np.testing.assert_array_equal(opened[name], array)
        header = json.loads(opened["header.json"])
    assert set(header["fields"]) == {"id", "budget", "method", "schema"}


# Damage: every change of a file is seen.


@FUZZ
@given(data=st.data())
def test_no_changed_byte_goes_unseen(tmp_path, data):
    original = request().save(tmp_path / "r.npz").read_bytes()
    kind = data.draw(st.sampled_from(["flip", "cut", "append", "insert", "swap"]))
    at = data.draw(st.integers(0, len(original) - 1))
    if kind == "flip":
        bits = data.draw(st.integers(1, 255))
        changed = original[:at] + bytes([original[at] ^ bits]) + original[at + 1 :]
    elif kind == "cut":
        changed = original[:at]
    elif kind == "append":
        changed = original + data.draw(st.binary(min_size=1, max_size=50))
    elif kind == "insert":
        changed = original[:at] + b"PK\1\2" + original[at:]
    else:
        to = data.draw(st.integers(0, len(original) - 1))
        a, b = min(at, to), max(at, to)
        changed = original[b:] + original[a:b] + original[:a]
        if changed == original:
            return
    refused(tmp_path, changed)


@FUZZ
@given(data=st.binary(max_size=200))
def test_anything_else_is_refused(tmp_path, data):
    refused(tmp_path, data)
    refused(tmp_path, b"PK\3\4" + data)


def test_headers_have_one_form(tmp_path):
    """Blanks and repeated keys would be room for a message beside the message."""
    import hashlib

    path = request().save(tmp_path / "r.npz")
    parts = parts_of(path)
    for text, match in (
        (parts["header.json"] + b" " * 100, "not in canonical form"),
        (parts["header.json"][:-2] + b',\n "kind": "request"\n}', "canonical form"),
        (b'{"format": NaN}', "header.json holds NaN"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "codec can't decode"),
        (b"9" * 5000, "integer string"),
        (b" " * (1 << 22) + b" ", "larger than 4 MiB"),
    ):
        digest = hashlib.sha256(text).hexdigest().encode()
        write(path, parts | {"header.json": text, "header.sha256": digest})
        refused(tmp_path, path.read_bytes(), match=match)


def test_other_zip_files(tmp_path):
    """NumPy's own archives, compressed ones, bombs, and those with something before."""
    path = request().save(tmp_path / "r.npz")
    np.savez(tmp_path / "plain.npz", x=HARD, y=HARD_Y)
    refused(tmp_path, (tmp_path / "plain.npz").read_bytes(), match="extra fields")
    with zipfile.ZipFile(tmp_path / "z", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b"0" * 10_000_000)
    assert (tmp_path / "z").stat().st_size < 20_000
    refused(tmp_path, (tmp_path / "z").read_bytes(), match="is compressed")
    refused(tmp_path, b"#!/bin/sh\n" + path.read_bytes(), match="no file of")
    data = bytearray(path.read_bytes())
    data[18:22] = struct.pack("<L", 0xFFFFFFFF)  # size of the first part
    refused(tmp_path, bytes(data), match="header.json is cut short")


def test_oversized(tmp_path):
    asked = request()
    path = asked.save(tmp_path / "r.npz")
    size = path.stat().st_size
    assert len(Request.load(path, max_bytes=size)) == 12
    with pytest.raises(ValueError, match=f"has {size} bytes, more than max_bytes"):
        Request.load(path, max_bytes=size - 1)
    with pytest.raises(FileNotFoundError):
        Request.load(tmp_path)
    # A sparse file: nothing of it is read.
    with (tmp_path / "huge.npz").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="more than max_bytes = 1073741824"):
        Request.load(tmp_path / "huge.npz")


def sparse(path, head, size):
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


def test_what_cannot_be_a_message_is_not_read(tmp_path):
    """A file within `max_bytes` is judged by its first bytes, the rest unread."""
    asked = request()
    head = asked.save(tmp_path / "r.npz").read_bytes()
    found = sent(asked).save(tmp_path / "a.npz").read_bytes()
    path, size = tmp_path / "bad.npz", 1 << 30
    load = lambda path: Answer.load(path, asked)
    cases = [
        (b"", Request.load, "it is no file of jaxsel's"),
        (b"PK\3\4" + b"\0" * 26, Request.load, "does not begin with header.json"),
        (head, Request.load, "1073741824 bytes, more than the .* its header"),
        (found, Request.load, "no request but holds 'answer'"),
        (found, load, "more than the .* that an answer of 6 samples can have"),
    ]
    for start, read, match in cases:
        sparse(path, start, size)
        tracemalloc.start()
        with pytest.raises(ValueError, match=match) as caught:
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
        tracemalloc.stop()
        assert str(path) in str(caught.value)


def test_large_messages_are_read(tmp_path):
    """Those beyond what is judged by its first bytes."""
    x = np.random.default_rng(0).normal(size=(90, 20_000)).astype(np.float32)
    asked = make_request(x, budget=80)
    path = asked.save(tmp_path / "r.npz")
    assert path.stat().st_size > 1 << 22
    assert same(Request.load(path).x, x)
    found = answer(asked, x, owner="o", method="random", key=jax.random.key(0))
    read = Answer.load(found.save(tmp_path / "a.npz"), asked)
    assert same(read.x, found.x)
    data = bytearray(path.read_bytes())
    data[-300] ^= 1
    refused(tmp_path, bytes(data))
    refused(tmp_path, bytes(data[: 1 << 22]))
    refused(tmp_path, bytes(data) + b"more")


def test_a_bad_limit_is_not_the_file_s_fault(tmp_path):
    asked, found = request(), sent()
    paths = asked.save(tmp_path / "r.npz"), found.save(tmp_path / "a.npz")
    loads = [
        lambda limit: Request.load(paths[0], max_bytes=limit),
        lambda limit: Answer.load(paths[1], asked, max_bytes=limit),
    ]
    for load in loads:
        with pytest.raises(ValueError, match="^max_bytes must be at least 1, got 0"):
            load(0)
        with pytest.raises(TypeError, match="^max_bytes must be a whole number"):
            load(1e9)
    with pytest.raises(TypeError):
        Request.load(b"r.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = request().save(tmp_path / "r.npz")
    before = path.read_bytes()
    names = [f"{i:0900}" for i in range(5000)]
    many = make_request(HARD, names[:12], budget=1, classes=names)
    with pytest.raises(ValueError, match="the header of a request must be below 4 MiB"):
        many.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["r.npz"]
    assert path.read_bytes() == before
