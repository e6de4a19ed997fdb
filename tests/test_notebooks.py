"""Notebooks: they run as they are, and are stored without outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
RUN = """
import sys
import nbclient, nbformat
nb = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(nb, timeout=60).execute()
outputs = [o for cell in nb.cells for o in cell.get("outputs", [])]
assert any("image/png" in o.get("data", {}) for o in outputs), "no figure"
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path):
    pytest.importorskip("nbclient", reason="comes with the dev extra")
    # Without the tests' backend: a notebook shows its figures by its own.
    env = {name: text for name, text in os.environ.items() if name != "MPLBACKEND"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
