"""What importing jaxsel does, and that it works without its compiled operations."""

import ast
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from waits import PATIENCE

import jaxsel
from jaxsel import _native, labels, match, neighbors, retrieve, value

PACKAGE = Path(jaxsel.__file__).parent
ROOMS = jaxsel._ROOMS

KERNELS = {"pursue"}
"""Pure kernels that return a result: for programs, not the first call of a user."""

OF_OTHERS = {"from_pydvl"}
"""Reads a result that another library computed."""

FIRST_CALLS = {"binning_distance", "pseudo_labels"}
"""At the top level though they return arrays; see CONTRIBUTING.md."""

HEAVY = [
    "flax",
    "optax",
    "orbax",
    "pandas",
    "scipy.optimize",
    "scipy.stats",
    "matplotlib",
    "jinja2",
    "sklearn",
    "tensorflow_datasets",
    "torch",
    "PIL",
    "tqdm",
]


def run(script, **environment):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_import_is_light_and_changes_no_setting():
    run(
        f"""
        import sys, jax
        before = dict(jax.config.values)
        import jaxsel
        assert dict(jax.config.values) == before
        heavy = [name for name in {HEAVY} if name in sys.modules]
        assert not heavy, heavy
        """
    )


@pytest.mark.left_out
def test_rooms_load_when_first_used():
    run(
        f"""
        import sys, jaxsel
        assert "jaxsel.data" not in sys.modules and "jaxsel.proxy" not in sys.modules
        assert jaxsel.data.load and jaxsel.proxy.select
        for room in {ROOMS}:
            assert getattr(jaxsel, room).__name__ == "jaxsel." + room
            assert room in dir(jaxsel)
        assert not hasattr(jaxsel, "no_such_room")
        """
    )


def test_all_rooms_are_attributes():
    folders = {path.parent.name for path in PACKAGE.glob("[a-z]*/__init__.py")}
    assert folders == {*ROOMS}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if (
            isinstance(node, ast.ImportFrom) and node.module is None
        ):  # for type checkers
            # What type checkers see.
            assert {alias.asname for alias in node.names} == {*ROOMS}


@pytest.mark.parametrize(
    "room", [labels, match, retrieve, value], ids=lambda m: m.__name__
)
def test_the_top_level_has_what_answers_a_question(room):
    answers = {"Values", "Selection", "Match", "LabelErrors"}
    for name, item in inspect.getmembers(room, inspect.isfunction):
        returned = inspect.signature(item).return_annotation
        is_answer = getattr(returned, "__name__", returned) in answers
        if name not in KERNELS | OF_OTHERS and is_answer:
            assert getattr(jaxsel, name) is item
        elif name not in FIRST_CALLS:
            assert not hasattr(jaxsel, name), name


@pytest.mark.parametrize("room", [jaxsel, neighbors, value], ids=lambda m: m.__name__)
def test_public_names_are_documented(room):
    for name, item in vars(room).items():
        if inspect.isroutine(item) or inspect.isclass(item):
            assert name.startswith("_") or item.__doc__, name


@pytest.mark.slow
def test_without_compiled_operations():
    script = """
        import numpy as np, jaxsel
        from jaxsel import _native
        rng = np.random.default_rng(0)
        x, x_val = rng.normal(size=(1500, 4)), rng.normal(size=(9, 4))
        y, y_val = rng.integers(0, 3, 1500), rng.integers(0, 3, 9)
        for function in (jaxsel.knn_shapley, jaxsel.knn_banzhaf):
            print(*np.asarray(function(x, y, x_val, y_val).values).tolist())
        """
    pure = run(script + "assert not _native.available()", JAXSEL_NATIVE="0")
    usual = run(script)
    pure, usual = (np.array(text.split(), float) for text in (pure, usual))
    np.testing.assert_allclose(pure, usual, rtol=0, atol=1e-8)


@pytest.mark.skipif(not _native.available(), reason="no C++ compiler at installation")
def test_a_library_for_another_jax_is_left_alone(tmp_path, monkeypatch):
    wrong = tmp_path / "kernels.so"
    wrong.write_bytes(b"not a library")
    monkeypatch.setattr(_native, "LIBRARY", wrong)
    with pytest.warns(RuntimeWarning, match="pure JAX takes their place"):
        assert not _native.available.__wrapped__()


def test_compiled_operations_are_optional(monkeypatch, tmp_path):
    def no_cpu(backend=None):
        if backend == "cpu":
            raise RuntimeError("an accelerator only")

    with monkeypatch.context() as patch:
        patch.setenv("JAXSEL_NATIVE", "0")
        assert not _native.available.__wrapped__()
    with monkeypatch.context() as patch:
        patch.setattr(_native, "LIBRARY", tmp_path / "none.so")
        assert not _native.available.__wrapped__()
    # An accelerator only: there is no CPU to register the operations for.
    monkeypatch.setattr(_native, "LIBRARY", tmp_path)
    monkeypatch.setattr(_native.jax, "local_devices", no_cpu)
    assert not _native.available.__wrapped__()
