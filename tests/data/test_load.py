"""Data sets that the user has prepared with TFDS."""

import contextlib
import io
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from waits import PATIENCE

import jaxsel.data as data

tfds = pytest.importorskip("tensorflow_datasets")
features = tfds.features


def png(image: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


def write(data_dir, name, structure, examples, *, keys=None, config=None, licence=None):
    """Prepare a data set as a user of TFDS would."""

    class Mine(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.2.0")
        url_infos = None
        BUILDER_CONFIGS = (
            [] if config is None else [tfds.core.BuilderConfig(name=config)]
        )

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                features=features.FeaturesDict(structure),
                supervised_keys=keys,
                license=licence,
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield from enumerate(examples)

    Mine.name = name
    builder = Mine(data_dir=data_dir, file_format="array_record")
    with contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare(file_format="array_record")


LABEL = features.ClassLabel(names=["no", "yes"])


def test_vectors_with_extras(data_dir):
    examples = [
        {
            "v": np.full(3, i, np.float32),
            "good": i % 2,
            "id": 10 + i,
            "weight": i / 4,
            "many": list(range(i)),
            "note": f"n{i}",
            "box": np.zeros((2, 2), np.float32),
        }
        for i in range(4)
    ]
    structure = {
        "v": features.Tensor(shape=(3,), dtype=np.float32),
        "good": LABEL,
        "id": features.Scalar(dtype=np.int64),
        "weight": features.Scalar(dtype=np.float64),
        "many": features.Sequence(features.Scalar(dtype=np.int32)),
        "note": features.Text(),
        "box": features.Tensor(shape=(2, 2), dtype=np.float32),
    }
    write(data_dir, "mine", structure, examples, keys=("v", "good"), licence="free")
    d = data.load("mine", data_dir=data_dir)
    assert d.x.dtype == np.float32
    assert d.y.dtype == np.int64
    assert d.license == "free"
    assert d.class_names == ("no", "yes")
    assert set(d.extras) == {"weight", "many", "note", "box"}
    order = d.ids - 10
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_array_equal(d.x, np.repeat(order[:, None], 3, axis=1))
    np.testing.assert_array_equal(d.y, order % 2)
    np.testing.assert_array_equal(d.extras["weight"], order / 4)
    np.testing.assert_array_equal((~np.isnan(d.extras["many"])).sum(axis=1), order)
    assert d.extras["note"].tolist() == [f"n{i}" for i in order]
    assert data.load("mine:1.2.0", data_dir=data_dir).ids.tolist() == d.ids.tolist()
    part = data.load("mine", split="train[:50%]", data_dir=data_dir)
    assert part.ids.tolist() == d.ids[:2].tolist()
    with pytest.raises(ValueError, match=r"split must hold samples.*train\[:0\]"):
        data.load("mine", split="train[:0]", data_dir=data_dir)


def test_numbers_by_name_become_a_table(data_dir):
    structure = {
        "features": {
            "b": features.Scalar(dtype=np.int64),
            "a": features.Scalar(dtype=np.float32),
        },
        "label": features.Scalar(dtype=np.float32),
    }
    examples = [{"features": {"b": 2, "a": 0.5}, "label": 7.5}] * 3
    write(data_dir, "named", structure, examples)
    d = data.load("named", data_dir=data_dir)
    assert d.feature_names == ("a", "b")
    np.testing.assert_array_equal(d.x, [[0.5, 2]] * 3)
    assert d.y.dtype == np.float32
    assert d.y.tolist() == [7.5] * 3
    with pytest.raises(ValueError, match="y must hold classes"):
        _ = d.n_classes


def test_images_without_the_hint_to_install_opencv(data_dir, caplog):
    pixels = np.arange(2 * 5 * 4 * 3, dtype=np.uint8).reshape(2, 5, 4, 3)
    structure = {"image": features.Image(shape=(None, None, 3)), "label": LABEL}
    write(
        data_dir,
        "pictures",
        structure,
        [{"image": png(p), "label": i} for i, p in enumerate(pixels)],
    )
    with caplog.at_level(logging.WARNING, logger="absl"):
        d = data.load("pictures", data_dir=data_dir)
    assert "OpenCV" not in caplog.text
    np.testing.assert_array_equal(d.x[np.argsort(d.y)], pixels)


def test_images_of_several_sizes(data_dir):
    structure = {"image": features.Image(shape=(None, None, 1)), "label": LABEL}
    examples = [
        {"image": png(np.zeros((4, 4 + i), np.uint8)), "label": i} for i in range(2)
    ]
    write(data_dir, "pictures", structure, examples)
    match = r"one shape.*\(4, 4, 1\), \(4, 5, 1\)"
    with pytest.raises(ValueError, match=match):
        data.load("pictures", data_dir=data_dir)


@pytest.mark.parametrize(
    ("structure", "example", "match"),
    [
        (
            {"text": features.Text(), "title": features.Text()},
            {"text": "a", "title": "b"},
            "a label.*text, title",
        ),
        (
            {
                "image": features.Image(shape=(2, 2, 1)),
                "text": features.Text(),
                "label": LABEL,
            },
            {"image": png(np.zeros((2, 2), np.uint8)), "text": "b", "label": 0},
            "one of image, features, text",
        ),
        (
            {"text": features.Text(), "label": features.Text()},
            {"text": "a", "label": "b"},
            "label of 'odd' must be one class or number",
        ),
        (
            {"features": {"a": features.Text()}, "label": LABEL},
            {"features": {"a": "b"}, "label": 0},
            "table.*not so a",
        ),
        (
            {"text": features.Text(), "label": {"a": LABEL}},
            {"text": "b", "label": {"a": 0}},
            "label of 'odd' must be one class or number",
        ),
    ],
)
def test_features_that_cannot_be_mapped(structure, example, match, data_dir):
    write(data_dir, "odd", structure, [example])
    with pytest.raises(TypeError, match=match):
        data.load("odd", data_dir=data_dir)


def test_configurations(data_dir):
    structure = {"text": features.Text(), "label": LABEL}
    for config in ("small", "large"):
        write(
            data_dir, "both", structure, [{"text": config, "label": 0}], config=config
        )
    d = data.load("both/large", data_dir=data_dir)
    assert d.x.tolist() == ["large"]
    with pytest.raises(FileNotFoundError, match="both/large, both/small"):
        data.load("both", data_dir=data_dir)


def test_not_prepared(data_dir):
    with pytest.raises(FileNotFoundError, match="`jaxsel data prepare mnist`"):
        data.load("mnist")
    match = f"`jaxsel data prepare mnist --data-dir {data_dir}`"
    with pytest.raises(FileNotFoundError, match=match):
        data.load("mnist", data_dir=data_dir)
    with pytest.raises(FileNotFoundError, match="file_format='array_record'"):
        data.load("cifar10", data_dir=data_dir)
    with pytest.raises(ValueError, match="name must look like"):
        data.load("../mnist", data_dir=data_dir)
    assert not data_dir.exists()


def test_unknown_split(tiny, data_dir):
    data.prepare("tweets", data_dir=data_dir, package=tiny("tweets"))
    with pytest.raises(ValueError, match="Unknown split 'dev'"):
        data.load("tweets", split="dev", data_dir=data_dir)


def test_progress(tiny, data_dir, capsys):
    data.prepare("tweets", data_dir=data_dir, package=tiny("tweets"))
    data.load("tweets", data_dir=data_dir, progress=True)
    assert "Loading tweets" in capsys.readouterr().err
    data.load("tweets", data_dir=data_dir)
    assert capsys.readouterr() == ("", "")


def test_newest_version_wins(tiny, data_dir):
    done = data.prepare("tweets", data_dir=data_dir, package=tiny("tweets"))
    old = done.path.with_name("0.9.0")
    os.rename(done.path, old)
    newer = data.prepare("tweets", data_dir=data_dir, package="unused")
    assert newer.path == old  # what is there is used


# While TFDS is being imported, `import` is another function for all threads, which then
# get modules that wait for each other: the second thread comes just then.
IN_THREADS = """
import contextlib, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from etils import epy
import jaxsel.data as data

lazy_imports, begun = epy.lazy_imports, threading.Event()

@contextlib.contextmanager
def slowly(**options):
    with lazy_imports(**options):
        begun.set()
        time.sleep(0.2)
        yield

def load(wait):
    if wait:
        begun.wait()
    return data.load("mine", data_dir=sys.argv[1])

epy.lazy_imports = slowly
with ThreadPoolExecutor(2) as pool:
    sets = list(pool.map(load, [False, True]))
assert all(len(one.y) == 4 for one in sets)
"""


@pytest.mark.slow
def test_threads_may_load_while_another_one_imports_tfds(data_dir):
    examples = [{"v": np.full(3, i, np.float32), "good": i % 2} for i in range(4)]
    structure = {"v": features.Tensor(shape=(3,), dtype=np.float32), "good": LABEL}
    write(data_dir, "mine", structure, examples, keys=("v", "good"))
    command = [sys.executable, "-c", IN_THREADS, str(data_dir)]
    subprocess.run(command, check=True, timeout=PATIENCE)
