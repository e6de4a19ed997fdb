"""Checkpoints of a pass over rows: its arrays and its position, in a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxsel._inputs.checks import check_count

from .checkpoints import Checkpoints, run_digest


class SavedStream:
    """Arrays of a pass, replaced every few chunks.

    Args:
        folder: Folder to save to, or None to save nothing.
        every: Chunks between two saves.
        settings: Settings that decide the result, as JSON or by `str`.
        trees: Arrays that decide it, too.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        every: int,
        settings: Mapping[str, Any],
        *trees: Any,
    ):
        self.every = check_count("checkpoint_every", every)
        self.done = 0
        self._kept, self._saved = 0, None
        if folder is not None:
            plain = json.loads(json.dumps(settings, default=str))
            self._saved = Checkpoints(folder, run_digest(plain, *trees))

    def load(self) -> tuple[dict[str, np.ndarray], Any] | None:
        """Return the arrays and the `rest` that `save` was given, or None."""
        arrays = None if self._saved is None else self._saved.load_arrays()
        if arrays is None:
            return None
        about = json.loads(arrays.pop("about").tobytes())
        self.done = self._kept = int(about["done"])
        return arrays, about["rest"]

    def count(self) -> bool:
        """Count a chunk; return whether to save now."""
        self.done += 1
        return self._saved is not None and self.done % self.every == 0

    def save(self, arrays: Mapping[str, Any], rest: Any) -> None:
        """Save arrays and `rest`, which JSON can hold, unless this chunk is saved."""
        if self._saved is None or self.done <= self._kept:
            return
        text = json.dumps({"done": self.done, "rest": rest}).encode()
        on_host = {name: np.asarray(array) for name, array in arrays.items()}
        self._saved.save(self.done, {**on_host, "about": np.frombuffer(text, np.uint8)})
        self._kept = self.done
