"""Helpers shared by the builders. All import TFDS, so import them when needed."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core.utils import tqdm_utils

from jaxsel._runs.progress import track

from ._catalog import Entry

# A number, by which TFDS shuffles (always in the same way), and the features.
Example = tuple[int, dict[str, Any]]


class LocalBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Builds from files that are already here, instead of downloading."""

    # Nothing is downloaded, so there are no checksums to look up: the look-up imports
    # importlib_resources, which TFDS 4.9 does not declare.
    url_infos = None

    def __init__(
        self, entry: Entry, files: dict[str, Path], data_dir: Path, *, progress: bool
    ) -> None:
        """Set up.

        Args:
            entry: The catalogue's entry.
            files: Where the files are, by base name.
            data_dir: Where to write.
            progress: Whether to show a bar.
        """
        self.entry, self.files, self.progress = entry, files, progress
        super().__init__(data_dir=data_dir, file_format="array_record")

    def splits(self) -> Mapping[str, Iterable[Example]]:
        """Return the examples of each split."""
        raise NotImplementedError

    def _split_generators(self, dl_manager: Any) -> Any:
        del dl_manager  # nothing to download
        return {
            name: track(
                examples,
                progress=self.progress,
                label=f"{self.name}: {name}",
                total=self.entry.splits.get(name),
            )
            for name, examples in self.splits().items()
        }

    def _generate_examples(self, *unused: Any, **also_unused: Any) -> Any:
        del unused, also_unused
        raise NotImplementedError("each split brings its own examples")


def run(builder: LocalBuilder) -> Path:
    """Write the data set as array_record and return its folder."""
    with _quiet():
        builder.download_and_prepare(file_format="array_record")
    return Path(builder.data_dir)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence TFDS, which prints the temporary folder and its own progress bars."""
    active = tqdm_utils._active  # there is no public way to ask
    tqdm_utils.display_progress_bar(enable=False)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tqdm_utils.display_progress_bar(enable=active)
