"""The container that every source of data is turned into."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.scale import mean_and_scale, standardized
from jaxsel._inputs.show import compared


@compared
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Samples with their labels, as NumPy arrays.

    Attributes:
        x: Images `[n, h, w, c]` (uint8 from `load`), tables `[n, d]` (float32 from
            `load`) or texts `[n]` (str objects).
        y: Labels `[n]`: int64 classes, or float32 targets. -1 is an unknown class.
        ids: Optional `[n]`: identifiers of the samples at their source.
        feature_names: Names of the d columns of a table, if known.
        class_names: Names of classes 0, 1, ..., if known.
        extras: More arrays of length n, by name, such as scores of single raters.
        name: Name of the data set.
        split: Which part of it this is.
        license: The data's licence, as its source states it.
    """

    x: np.ndarray
    y: np.ndarray
    ids: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    extras: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    name: str = ""
    split: str = ""
    license: str = ""

    def __post_init__(self) -> None:
        columns = {"y": self.y, **self.extras}
        if self.ids is not None:
            columns["ids"] = self.ids
        for name, column in columns.items():
            if len(column) != len(self.x):
                raise ValueError(
                    f"{name} must have one entry for each of the {len(self.x)} samples "
                    f"in x, got {len(column)}"
                )
        if self.feature_names is not None and (
            self.x.ndim != 2 or len(self.feature_names) != self.x.shape[1]
        ):
            raise ValueError(
                f"feature_names must name the columns of x, got "
                f"{len(self.feature_names)} names for shape {self.x.shape}"
            )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        classes = "" if self.class_names is None else f", classes={self.n_classes}"
        return (
            f"Dataset({self.name or 'unnamed'}, split={self.split!r}, "
            f"x={self.x.dtype}{list(self.x.shape)}{classes})"
        )

    @property
    def n_classes(self) -> int:
        """Number of classes: of `class_names` if set, else the highest label + 1.

        Raises:
            ValueError: If the labels are numbers to predict, not classes.
        """
        if self.class_names is not None:
            return len(self.class_names)
        if not np.issubdtype(self.y.dtype, np.integer):
            raise ValueError(
                f"y must hold classes, got targets of dtype {self.y.dtype}"
            )
        return int(self.y.max(initial=-1)) + 1

    def take(self, indices: npt.ArrayLike) -> Dataset:
        """Return the samples at `indices` (or where a boolean mask is true).

        Raises:
            TypeError: If `indices` are neither whole numbers nor booleans.
        """
        rows = np.asarray(indices)
        if rows.size == 0 and rows.dtype != bool:
            rows = rows.astype(np.int64)
        if rows.dtype != bool and not np.issubdtype(rows.dtype, np.integer):
            raise TypeError(
                f"indices must be whole numbers or booleans, got dtype {rows.dtype}"
            )
        return dataclasses.replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            ids=None if self.ids is None else self.ids[rows],
            extras={name: column[rows] for name, column in self.extras.items()},
        )

    def as_features(self, *, fit_on: Dataset | None = None) -> np.ndarray:
        """Return float32 features of shape `[n, d]` that distances make sense of.

        Images are flattened, and divided by 255 if they hold bytes. Each column of a
        table is centred and divided by its standard deviation (by 1 if it is constant),
        because a column in dollars would otherwise drown one in years.

        Args:
            fit_on: Where a table's means and deviations come from: pass the training
                set when converting a test set. Default: these samples.

        Raises:
            TypeError: For texts, which need an encoder.
            ValueError: If `fit_on` has other columns.
        """
        if not np.issubdtype(self.x.dtype, np.number):
            raise TypeError(
                f"as_features needs numbers, got x of dtype {self.x.dtype}: encode "
                "texts first, for example with an encoder of jaxsel.models"
            )
        if self.x.ndim != 2:
            flat = self.x.reshape(len(self), int(np.prod(self.x.shape[1:])))
            flat = flat.astype(np.float32)
            return flat / np.float32(255) if self.x.dtype == np.uint8 else flat
        base = self if fit_on is None else fit_on
        if base.x.ndim != 2 or base.x.shape[1] != self.x.shape[1] or not len(base):
            raise ValueError(
                f"fit_on must hold rows of {self.x.shape[1]} columns, "
                f"got shape {base.x.shape}"
            )
        return standardized(self.x, *mean_and_scale(base.x))
