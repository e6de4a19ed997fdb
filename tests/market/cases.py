"""What the tests of the market share."""

import hashlib
import json

import jax
import numpy as np
import pytest

from jaxsel._files.archive import pieces, unpack
from jaxsel.market import Request, answer, make_request

RNG = np.random.default_rng(0)
HARD = RNG.normal(size=(12, 4)).astype(np.float32)
HARD_Y = np.arange(12) % 3
HARD_F = RNG.normal(size=(12, 5)).astype(np.float32)
X = RNG.normal(size=(40, 4))
Y = RNG.permutation(40) % 4  # class 3 is not asked for
F = RNG.normal(size=(40, 5))


def request(**options):
    given = {"budget": 6, "key": jax.random.key(0), "features": HARD_F} | options
    return make_request(HARD, HARD_Y, **given)


def sent(asked=None, **options):
    given = {"owner": "north", "features": F} | options
    return answer(request() if asked is None else asked, X, Y, **given)


def same(a, b):
    """Whether two arrays are equal in type, shape and every bit, or both None."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def parts_of(path):
    return {
        name: bytes(part)
        for name, part in unpack(memoryview(path.read_bytes())).items()
    }


def forge(path, change_header=None, change_parts=None):
    """Rewrite a file with all checksums right, as one who means harm would."""
    parts = parts_of(path)
    if change_parts is not None:
        change_parts(parts)
    header = json.loads(parts["header.json"])
    for name, facts in header["arrays"].items():
        content = parts.get(f"{name}.npy", b"")
        start = 10 + int.from_bytes(content[8:10], "little")
        facts["sha256"] = hashlib.sha256(content[start:]).hexdigest()
    if change_header is not None:
        header = change_header(header) or header
    text = json.dumps(header, sort_keys=True, indent=1).encode()
    parts["header.json"] = text
    parts["header.sha256"] = hashlib.sha256(text).hexdigest().encode()
    write(path, parts)


def write(path, parts):
    path.write_bytes(b"".join(bytes(piece) for piece in pieces(parts)))


def refused(folder, content, match="is refused: ", load=Request.load):
    """Refuse a file with a reason, and leave it, and all else, as it was."""
    path = folder / "bad.npz"
    path.write_bytes(content)
    before = {p: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(ValueError, match=match) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert {p: p.read_bytes() for p in folder.iterdir()} == before
