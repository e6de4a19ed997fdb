"""Steps that save their results at once, so that a run can resume."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxsel._runs.checkpoints import Checkpoints


class Store:
    """Saves the result of each step, and reads it when the run resumes.

    Args:
        folder: Where to; None saves nothing.
        run: Digest of this run, see `run_digest`.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, run: str):
        self.folder, self.run = None if folder is None else Path(folder), run

    def place(self, name: str) -> Path | None:
        """Return the folder of a step, made for its owner alone: it holds secrets."""
        if self.folder is None:
            return None
        place = self.folder / name
        for folder in (self.folder, place):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def once(
        self, name: str, make: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        place = self.place(name)
        if place is None:
            return make()
        saved = Checkpoints(place, self.run)
        arrays = saved.load_arrays()
        if arrays is None:
            arrays = make()
            saved.save(1, arrays)
        return arrays
