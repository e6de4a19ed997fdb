import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxsel.data._catalog import CATALOG

from . import packages


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a tiny package for a name, and pin it in the catalogue instead."""

    def make(name: str) -> Path:
        if name == "fashion_mnist" and shutil.which("dpkg-deb") is None:
            pytest.skip("needs dpkg-deb to build and open a Debian package")
        archive, entry = packages.make(name, tmp_path / "packages")
        monkeypatch.setitem(CATALOG, name, entry)
        return archive

    return make


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "tfds"


@pytest.fixture(autouse=True)
def _own_default_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never touch what the user has prepared."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "default"))
