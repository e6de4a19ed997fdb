"""The notebooks: what is stored, and that each runs and finds what it says it finds."""

import ast
import importlib.util
import re
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from waits import PATIENCE

from tests.printed import shows

nbformat = pytest.importorskip("nbformat", reason="comes with the dev extra")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OURS = {"jaxsel", "mpc_bridge"}
PACKAGES = {"sklearn": "scikit-learn"}  # modules of another name than their package

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def imported(notebook):
    for source in code(notebook):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module.partition(".")[0]


def requirements(names):
    return {re.match(r"[\w-]+", name)[0] for name in names}


@each
def test_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert notebook.metadata == {
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    assert [*code(notebook)]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None
    # As Jupyter writes it, so that saving there changes what was changed.
    assert path.read_text("utf-8") == nbformat.writes(notebook) + "\n"


@each
def test_imports_what_the_extras_that_it_names_bring(path):
    notebook = nbformat.read(path, as_version=4)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(
        r'pip install "jaxsel\[([\w,]+)\]"', notebook.cells[0].source
    )
    brought = requirements(project["dependencies"])
    for extra in extras.split(","):
        brought |= requirements(project["optional-dependencies"][extra])
    for name in {*imported(notebook)} - OURS - sys.stdlib_module_names:
        assert PACKAGES.get(name, name) in brought


def test_each_is_in_the_guide():
    guide = (ROOT / "docs" / "notebooks.md").read_text("utf-8")
    assert sorted(re.findall(r"`notebooks/(\w+)\.ipynb`", guide)) == [
        path.stem for path in NOTEBOOKS
    ]


def printed(notebook):
    """Return all that its cells print, or show as text."""
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", ())]
    shown = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs]
    return "\n".join(text.rstrip("\n") for text in shown)


def in_the_guide(path):
    """Return what the guide shows of a notebook's results."""
    guide = (ROOT / "docs" / "notebooks.md").read_text("utf-8")
    section = guide.split(f"`notebooks/{path.name}`")[1].partition("\n##")[0]
    (found,) = re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def sockets():
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.mark.slow
@each
def test_runs_and_prints_what_is_shown(path, monkeypatch, tmp_path, sockets):
    """Their assertions hold that what they say of their results is so."""
    nbclient = pytest.importorskip("nbclient", reason="comes with the dev extra")
    engines = map(importlib.util.find_spec, ("spu", "crypten"))
    if path.stem == "secure_choice" and not any(engines):
        pytest.skip("neither SPU nor CrypTen is installed")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel chooses its own
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    # Ports of TCP may be taken between the choice and the kernel's start.
    manager = pytest.importorskip("jupyter_client").AsyncKernelManager
    kernel = manager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
    client = nbclient.NotebookClient(
        notebook,
        km=kernel,
        timeout=PATIENCE,
        startup_timeout=PATIENCE,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [o.text for o in shown if o.get("name") == "stderr"]
    assert shows(in_the_guide(path), printed(notebook), whole=False), printed(notebook)
