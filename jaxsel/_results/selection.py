"""`Selection`: the result of every function that chooses samples."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.checks import is_readable
from jaxsel._inputs.show import compared, show, show_first

from .files import load, save


@compared
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """Chosen samples, best first, with their weights.

    Its length is the number of chosen samples, and its items are positions, so that it
    serves as a list of them: `x[selection]`, `frame.iloc[selection]`,
    `torch.utils.data.Subset(dataset, selection)`, `dataset.select(selection)`.

    Attributes:
        indices: Array of shape `[k]`, int32. Results of kernels, and of several targets
            at once, are padded: entries from `n_valid` on.
        weights: Array of shape `[k]`: training weights; 0 where padded.
        n_valid: Scalar int32: how many entries are filled.
        method: Method of the choice, with its parameters.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> features = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
        >>> selection = jaxsel.retrieve_nearest(features, np.array([[0.9, 0.1]]), 2)
        >>> len(selection), features[selection].shape
        (2, (2, 2))
    """

    indices: jax.Array
    weights: jax.Array
    n_valid: jax.Array
    method: str = dataclasses.field(default="", metadata={"static": True})

    def __len__(self) -> int:
        return int(self.n_valid)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.to_numpy().astype(dtype or np.int32, copy=False)
        return array.copy() if copy else array

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_numpy().tolist())

    def __getitem__(self, key: Any) -> Any:
        """Return the position of the sample at a place in the order, or of several."""
        positions = self.to_numpy()[key]
        return positions if isinstance(positions, np.ndarray) else int(positions)

    def to_numpy(self) -> np.ndarray:
        """Return the positions of the chosen samples, best first, without padding."""
        if self.indices.ndim != 1:
            raise ValueError(
                f"to_numpy needs one selection, but this has {len(self.indices)}: take "
                "one of them, as selection[0]"
            )
        return np.asarray(self.indices)[: len(self)]

    def unpadded(self) -> Self:
        """Return the selection without entries from `n_valid` on.

        As it is where that can't be told, while traced, or of several targets.
        """
        readable = is_readable(self.indices, self.weights, self.n_valid)
        if not readable or self.indices.ndim != 1 or len(self) == len(self.indices):
            return self
        # By NumPy: a slice by JAX is a program to compile for each length.
        indices, weights = (
            jnp.asarray(np.asarray(array)[: len(self)])
            for array in (self.indices, self.weights)
        )
        return dataclasses.replace(self, indices=indices, weights=weights)

    def __repr__(self) -> str:
        size, count = self.indices.shape[-1], show(self.n_valid)
        text = f"{type(self).__name__}({self.method or 'unnamed'}, "
        text += f"{size} chosen" if count == str(size) else f"{count} of {size} filled"
        if self.indices.ndim == 1 and is_readable(self.indices, self.n_valid):
            text += f", best={show_first(np.asarray(self.indices)[: len(self)])}"
        return f"{text})"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file, without pickle, and return its path."""
        return save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Selection:
        """Read a selection from a file that `save` wrote.

        Raises:
            ValueError: If the file holds something else.
        """
        return load(cls, path)
