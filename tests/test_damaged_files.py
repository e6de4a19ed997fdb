"""Every file that the project writes and reads, damaged in many ways.

Whatever happened to it, reading ends soon, in little memory, with ValueError or with
the content that was written. Texts that people edit (`BY_HAND`) may hold another
content, which their readers check.
"""

import contextlib
import errno
import functools
import hashlib
import io
import json
import random
import resource
import shutil
import time
import zipfile

import numpy as np
import pytest
from file_formats import FORMATS, secure_messages

from jaxsel import Values
from jaxsel._files.archive import pieces, unpack
from jaxsel._results import files as result_files
from jaxsel._runs.checkpoints import Checkpoints
from jaxsel._runs.fingerprint import fingerprint

SOON = 20.0  # seconds, on a machine at load 20
LITTLE = 1 << 28  # bytes that all damaged files of a format may take
FAST, MANY = 24, 2000

BY_HAND = {"manifest", "published", "encoder", "run.toml"}
SLOW_TO_READ = {"checkpoint": 20}  # how many times fewer


def mutated(raw, draw):
    """Return damaged content, and what was done to it."""
    raw = bytearray(raw)
    n = len(raw)
    at, other = sorted((draw.randrange(n), draw.randrange(n)))
    kind = draw.choice(
        ["bit", "bit", "bit", "byte", "cut", "head", "insert", "gone", "swap", "twice"]
        + ["length", "zeros", "nan", "deep", "key", "number"]
    )
    numbers = [i for i, byte in enumerate(raw) if 48 <= byte < 58]
    if kind == "bit":
        raw[at] ^= 1 << draw.randrange(8)
    elif kind == "byte":
        raw[at] = draw.randrange(256)
    elif kind == "cut":
        del raw[at:]
    elif kind == "head":
        del raw[: at + 1]
    elif kind == "insert":
        raw[at:at] = draw.randbytes(draw.choice([1, 4, 64]))
    elif kind == "gone":
        del raw[at : at + draw.choice([1, 4, 64])]
    elif kind == "swap":
        size = min(16, n - other, max(1, other - at))
        raw[at : at + size], raw[other : other + size] = (
            raw[other : other + size],
            raw[at : at + size],
        )
    elif kind == "twice":
        raw[other:other] = raw[at:other]
    elif kind == "length":
        raw[at : at + draw.choice([2, 4, 8])] = b"\xff" * 4
    elif kind == "zeros":
        raw[at:other] = bytes(other - at)
    elif kind == "deep":
        raw[at:at] = draw.choice([b"[", b'{"a":', b"("]) * 20_000
    elif kind == "key":
        raw[at:at] = draw.choice([b'"n": 1, ', b'"version": 1, ', b'"x": {}, '])
    elif numbers:
        word = [
            b"NaN",
            b"Infinity",
            b"-1",
            b"1e999",
            b"9" * 30,
            b"null",
            b"nan",
            b'"1"',
        ]
        at = draw.choice(numbers)
        raw[at : at + 1] = draw.choice(word)
    return bytes(raw), f"{kind} at {at} of {n}"


def damage(path, good, draw):
    """Damage a file, or one of a folder, in place."""
    if good.is_dir():
        shutil.rmtree(path)
        shutil.copytree(good, path)
        files = sorted(p for p in good.rglob("*") if p.is_file() and p.stat().st_size)
        chosen = draw.choice(files)
        path, good = path / chosen.relative_to(good), chosen
    content, how = mutated(good.read_bytes(), draw)
    path.write_bytes(content)
    return f"{path.name}: {how}"


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check(name, folder, times):
    path, read = FORMATS[name](folder)
    expected = fingerprint(read(path))
    good = folder / "good"
    (shutil.copytree if path.is_dir() else shutil.copy)(path, good)
    draw, before, refused = random.Random(name), peak(), 0
    for _ in range(times):
        how = damage(path, good, draw)
        started = time.monotonic()
        try:
            content = read(path)
        except ValueError:
            refused += 1
        else:
            # A checkpoint that is not whole is none: the run starts again.
            again = name == "checkpoint" and content is None
            assert again or name in BY_HAND or fingerprint(content) == expected, how
        assert time.monotonic() - started < SOON, how
    assert peak() - before < LITTLE
    assert refused > times // 4
    # What was there first is read again: no failure leaves anything behind.
    if good.is_dir():
        shutil.rmtree(path)
    (shutil.copytree if good.is_dir() else shutil.copy)(good, path)
    assert fingerprint(read(path)) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused_or_harmless(name, tmp_path):
    check(name, tmp_path, max(3, FAST // SLOW_TO_READ.get(name, 1)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_two_thousand_damaged_files_are_refused_or_harmless(name, tmp_path):
    check(name, tmp_path, MANY // SLOW_TO_READ.get(name, 1))


@pytest.mark.parametrize("name", ["values", "selection", "pools"])
def test_archives_that_expand_or_lie_about_sizes_are_refused(name, tmp_path):
    path, read = FORMATS[name](tmp_path)
    before = peak()
    with zipfile.ZipFile(path) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    for packing in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(path, "w", packing) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
            with archive.open("bomb.npy", "w") as bomb:
                for _ in range(4):
                    bomb.write(bytes(1 << 20))
        with pytest.raises(ValueError, match="sizes|compressed"):
            read(path)
    # Every hash right, and more numbers declared than there are.
    for shape in ((1 << 40,), (1 << 31, 1 << 20), (-1,)):
        header = io.BytesIO()
        facts = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, facts)
        first = next(n for n in members if not n.startswith("__"))
        with zipfile.ZipFile(path, "w") as archive:
            for member in members.keys() - {"__sha256__.npy"}:
                content = header.getvalue() if member == first else members[member]
                archive.writestr(member, content)
            archive.writestr("__sha256__.npy", result_files._digest(archive))
        with pytest.raises(ValueError, match="was not written by jaxsel"):
            read(path)
    assert peak() - before < LITTLE


ODD = [
    None,
    True,
    -1,
    2**70,
    0.5,
    "",
    "x" * 2000,
    "\n",
    [],
    {},
    [[]],
    ["a", 1],
    {"a": {}},
]
ODD += [[0] * 10_000, ["ada"] * 3, "0" * 32, "<f8", [2**31, 2**31], "retrieve"]


def nodes(tree, at=()):
    """Yield the places of a JSON document."""
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        yield (*at, key)
        if isinstance(tree[key], dict | list):
            yield from nodes(tree[key], (*at, key))


def forge_header(content, draw):
    """Change a value of a header, or remove it, and make all hashes right again."""
    parts = {name: bytes(part) for name, part in unpack(memoryview(content)).items()}
    header = json.loads(parts["header.json"])
    *path, last = draw.choice([*nodes(header)])
    node = functools.reduce(lambda tree, key: tree[key], path, header)
    if isinstance(node, dict) and draw.random() < 0.2:
        del node[last]
    else:
        node[last] = draw.choice(ODD)
    if path == ["arrays"] and last not in header["arrays"]:
        del parts[f"{last}.npy"]
    text = json.dumps(header, sort_keys=True, indent=1).encode()
    parts["header.json"] = text
    parts["header.sha256"] = hashlib.sha256(text).hexdigest().encode()
    return b"".join(pieces(parts)), (*path, last)


def check_forged(name, folder, times):
    path, read = FORMATS[name](folder)
    good, draw, before = path.read_bytes(), random.Random(name), peak()
    for _ in range(times):
        content, where = forge_header(good, draw)
        path.write_bytes(content)
        started = time.monotonic()
        with contextlib.suppress(ValueError):
            read(path)
        assert time.monotonic() - started < SOON, where
    assert peak() - before < LITTLE


SENT = ["request", "answer", "valuation", "survivors", "sums", "owner", "client"]
SENT += [name for name in secure_messages() if name != "client"]


@pytest.mark.parametrize("name", SENT)
def test_headers_that_somebody_forged_are_refused_or_harmless(name, tmp_path):
    check_forged(name, tmp_path, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", SENT)
def test_two_thousand_forged_headers_are_refused_or_harmless(name, tmp_path):
    check_forged(name, tmp_path, MANY)


def test_a_checkpoint_without_a_hash_is_refused_with_what_to_do(tmp_path, monkeypatch):
    saved = Checkpoints(tmp_path / "run", "a run")
    monkeypatch.setattr(Checkpoints, "_digest", lambda *args: "0" * 64)
    saved.save(1, {"x": np.ones(3)})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="damaged, .* sha256 differs. Delete it"):
        saved.load_arrays()
    metadata = tmp_path / "run" / "1" / "_CHECKPOINT_METADATA"
    metadata.write_text(metadata.read_text().replace("sha256", "sha255"))
    with pytest.raises(ValueError, match="has no sha256, as of earlier .*: delete it"):
        saved.load_arrays()


def test_every_leaf_of_a_checkpoint_is_in_its_hash(tmp_path):
    saved = Checkpoints(tmp_path / "run", "a run")
    state = {"b": np.ones(3), "a": np.arange(4), "key": np.uint8([1, 0])}
    leaves = {str(i): state[name] for i, name in enumerate(sorted(state))}
    digest = saved._digest(1, sorted(state), leaves)
    other = [
        saved._digest(2, sorted(state), leaves),
        saved._digest(1, ["a", "b", "kez"], leaves),
        Checkpoints(tmp_path, "another")._digest(1, sorted(state), leaves),
    ]
    for name, leaf in leaves.items():
        changed = leaf.copy()
        changed[-1] += 1
        other.append(saved._digest(1, sorted(state), leaves | {name: changed}))
    assert len({digest, *other}) == 7
    narrow = leaves | {"0": leaves["0"].astype(np.int32)}  # as JAX reads it
    assert saved._digest(1, sorted(state), narrow) == digest


def test_results_of_earlier_versions_are_refused(tmp_path):
    path = tmp_path / "old.npz"
    header = '{"kind": "Values", "version": 1, "static": {}}'
    np.savez(path, __jaxsel__=np.array(header), values=np.ones(3), count=np.int32(1))
    with pytest.raises(ValueError, match="old.npz' .* no sha256, as those of earlier"):
        Values.load(path)


def test_a_checkpoint_on_a_full_disk_is_named_and_the_one_before_stays(tmp_path):
    """A limit on files stands for the disk: the system's error is another."""
    saved, small = Checkpoints(tmp_path / "run", "a run"), {"x": np.arange(10.0)}
    saved.save(1, small)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as full:
            saved.save(2, {"x": np.random.default_rng(0).normal(size=1 << 16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (full.value.errno, full.value.filename) == (errno.EFBIG, str(saved.folder))
    assert [path.name for path in saved.folder.iterdir()] == ["1"]
    np.testing.assert_array_equal(saved.load_arrays()["x"], small["x"])
    saved.save(3, small)
