"""Adult: census rows, one-hot, with an income above or below 50000 dollars."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from ._build import Example, LocalBuilder

_CLASSES = ("<=50K", ">50K")
# The package's script put the official training and test rows one after the other,
# dropped those with missing values and shuffled with this seed.
_SHUFFLE_SEED = 888


class Adult(LocalBuilder, skip_registration=True):
    """The table with its official split and order restored."""

    name = "adult"
    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=(
                "The census income (Adult) data without the rows that have missing "
                "values. Numbers as they are, categories one-hot."
            ),
            features=tfds.features.FeaturesDict(
                {
                    "features": tfds.features.Tensor(shape=(104,), dtype=np.float32),
                    "label": tfds.features.ClassLabel(names=_CLASSES),
                    "id": tfds.features.Scalar(dtype=np.int64),
                }
            ),
            supervised_keys=("features", "label"),
            license=self.entry.license,
            metadata=tfds.core.MetadataDict(),
        )

    def splits(self) -> dict[str, Iterator[Example]]:
        names, table = self._read()
        labels = [names.index(f"salary_{name}") for name in _CLASSES]
        columns = [i for i in range(len(names)) if i not in labels]
        metadata: Any = self.info.metadata
        metadata["feature_names"] = [names[i].replace("_", "=", 1) for i in columns]
        shuffled = np.random.RandomState(_SHUFFLE_SEED)  # noqa: NPY002 (as they did)
        order = np.argsort(shuffled.choice(len(table), size=len(table), replace=False))
        is_rich = table[:, labels[1]].astype(np.int64)

        def examples(ids: range) -> Iterator[Example]:
            for i in ids:
                row = order[i]
                yield (
                    i,
                    {
                        "features": table[row, columns],
                        "label": is_rich[row],
                        "id": i,
                    },
                )

        n_train = self.entry.splits["train"]
        return {
            "train": examples(range(n_train)),
            "test": examples(range(n_train, len(table))),
        }

    def _read(self) -> tuple[list[str], np.ndarray]:
        with (
            zipfile.ZipFile(self.files["adult.csv.zip"]) as zipped,
            zipped.open("adult.csv") as file,
        ):
            rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            names = next(rows)
            return names, np.array(list(rows), np.float32)


BUILDERS = {Adult.name: Adult}
