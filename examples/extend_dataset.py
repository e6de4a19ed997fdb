"""A new data set: wines, under a name that `jaxsel.data.load` knows."""

from typing import Any

import numpy as np
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier

import jaxsel
from jaxsel import data

SPLITS = {"train": 119, "test": 59}


def read_wine(split: str) -> data.Dataset:
    """Return every third wine as "test", the others as "train"."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    wine: Any = load_wine()
    third = np.arange(len(wine.target)) % 3 == 2
    rows = np.flatnonzero(third if split == "test" else ~third)
    return data.from_arrays(
        wine.data[rows],
        wine.target[rows],
        ids=rows,
        feature_names=wine.feature_names,
        class_names=wine.target_names.tolist(),
    )


data.register(
    "wine",
    read_wine,
    task="table of 13 columns (chemical analysis), 3 cultivars",
    splits=SPLITS,
    license="CC BY 4.0",
    source="scikit-learn",
)


def main() -> jaxsel.Values:
    """Value the wines; the values must sum to the score of scikit-learn's KNN."""
    train, test = data.load("wine"), data.load("wine", split="test")
    assert {"train": len(train), "test": len(test)} == data.info("wine").splits
    x, x_test = train.as_features(), test.as_features(fit_on=train)
    values = jaxsel.knn_shapley(x, train.y, x_test, test.y, k=5)
    chances = KNeighborsClassifier(5).fit(x, train.y).predict_proba(x_test)
    score = chances[np.arange(len(test)), test.y].mean()
    np.testing.assert_allclose(np.asarray(values.values).sum(), score, rtol=1e-4)
    return values


if __name__ == "__main__":
    print(main().top(3))
