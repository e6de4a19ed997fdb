"""Array files that were cut or changed: an array, or an error that names the file."""

import random

import numpy as np
import pytest

from jaxsel._cli._read import read_array
from jaxsel._files import npy
from jaxsel.data import open_rows

HEADERS = [
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (20, 6",  # TokenError
    b"{'descr': '<f4', 'fortran_order': False, 'shape': 20 6}",
    b"{'descr': 3, 'fortran_order': False, 'shape': (20, 6)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (2e9, 6)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 6)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 6)}",
    b"(" * 150,
    b"'",
    b"",
]
READERS = {
    "map_array": npy.map_array,
    "open_rows": open_rows,
    "command line": lambda path: read_array(str(path), "x"),
}


def headed(header):
    """Return an .npy file of 20 rows of 6 numbers whose header is another one."""
    text = header + b" " * (118 - len(header) - 1) + b"\n"
    size = len(text).to_bytes(2, "little")
    return b"\x93NUMPY\x01\x00" + size + text + bytes(480)


def refuses(read, path):
    """Return whether a file is refused, by its name, and not read."""
    try:
        read(path)
    except ValueError as error:
        if str(path) not in str(error):
            raise
        return True
    return False


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_are_no_header_are_refused(tmp_path, reader, header):
    path = tmp_path / "x.npy"
    path.write_bytes(headed(header))
    assert refuses(READERS[reader], path)


@pytest.mark.parametrize("reader", READERS)
def test_headers_that_were_changed(tmp_path, reader):
    drawn = random.Random(0)
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((20, 6), np.float32))
    whole, refused = path.read_bytes(), 0
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(drawn.randint(1, 3)):
            content[drawn.randrange(128)] = drawn.choice(b"(){}[]'\":,9-\0\xff")
        path.write_bytes(content)
        refused += refuses(READERS[reader], path)
    assert refused > 50


def test_archives_that_were_changed(tmp_path):
    drawn = random.Random(1)
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros((20, 6), np.float32), y=np.arange(20))
    assert set(npy.read_npz(path)) == {"x", "y"}
    whole, refused = path.read_bytes(), 0
    for _ in range(200):
        content = bytearray(whole)
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
        path.write_bytes(content[: drawn.choice([None, drawn.randrange(900)])])
        refused += refuses(npy.read_npz, path)
    assert refused > 50


def test_one_is_not_the_other(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="x.npy is no .npz file"):
        npy.read_npz(tmp_path / "x.npy")
    with pytest.raises(ValueError, match="x.npz is no .npy file: it holds several"):
        npy.map_array(tmp_path / "x.npz")
