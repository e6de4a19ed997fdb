"""Roles under the Python of another environment: what is asked of it first."""

import json
import os
import sys

import pytest
from sessions import command, config_of

from jaxsel import __version__
from mpc_bridge import SessionError, _interpreter, _local, run, run_local
from mpc_bridge._interpreter import check_python
from mpc_bridge._toml import ConfigError

pytestmark = pytest.mark.mpc


@pytest.fixture
def interpreter(tmp_path):
    """Make a program that answers as an interpreter does, and fails as every role."""

    def make(answer, status=0, name="python"):
        path = tmp_path / name
        path.write_text(
            f"""#!/bin/sh
            if [ "$1" = -c ]; then
                {answer}
                exit {status}
            fi
            echo "role: error: PYTHONPATH is [$PYTHONPATH] $PYTHONHOME" >&2
            exit 1
            """
        )
        path.chmod(0o755)
        return path

    return make


def versions(jaxsel):
    return f"echo '{json.dumps({'jaxsel': jaxsel, 'versions': {}})}'"


def test_none_is_this_interpreter():
    assert check_python(None, "spu-cheetah") == sys.executable


def test_an_environment_that_has_all_is_taken_by_its_own_path(interpreter, tmp_path):
    made = interpreter(versions(__version__))
    link = tmp_path / "link"
    link.symlink_to(made)
    assert check_python(link, "spu-aby3") == str(link)


def test_the_question_is_answered_by_names_that_exist(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["-c", "published"])
    exec(_interpreter._VERSIONS, {})  # noqa: S102
    assert json.loads(capsys.readouterr().out)["jaxsel"] == __version__


@pytest.mark.slow
def test_this_interpreter_passes_its_own_questions():
    assert check_python(sys.executable, "published") == sys.executable


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (versions("0.0.1"), 0, f"the jaxsel of this process, {__version__}, got 0.0.1"),
        (
            "echo \"ModuleNotFoundError: No module named 'jaxsel'\" >&2",
            1,
            f"must have jaxsel {__version__} and engine 'spu-cheetah', got .*python: "
            "ModuleNotFoundError: No module named 'jaxsel'",
        ),
        ("true", 1, "got .*python: it says nothing"),
        ("true", 0, "no answer of a Python interpreter"),
        ("echo 7", 0, "no answer of a Python interpreter"),
        ("printf '\\377\\033[31m' >&2", 1, r"got .*python: \S+ \[31m$"),
    ],
)
def test_an_environment_that_lacks_something_is_refused(
    interpreter, answer, status, message
):
    with pytest.raises(ConfigError, match=message):
        check_python(interpreter(answer, status), "spu-cheetah")


def test_what_is_no_program_is_refused(tmp_path):
    (tmp_path / "text").write_text("no program")
    for path in (tmp_path / "none", tmp_path, tmp_path / "text"):
        with pytest.raises(ConfigError, match="such as secure/bin/python, got"):
            check_python(path, "published")


def test_roles_run_under_it_without_the_packages_of_this_one(
    files, interpreter, monkeypatch
):
    made = interpreter(versions(__version__))
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setattr(_local, "_GRACE", 0.2)
    config = config_of(files, "foreign", engine="spu-cheetah")
    with pytest.raises(SessionError, match=r"PYTHONPATH is \[mine\] ?(;|$)"):
        run_local(config, notice=False, python=made)
    # This interpreter's own roles read the packages of this process first.
    assert _interpreter.environment()["PYTHONPATH"].endswith(os.pathsep + "mine")


def test_every_way_in_asks(files, interpreter, capsys):
    made = interpreter(versions("0.0.1"))
    config = config_of(files, "asked", engine="spu-cheetah")
    with pytest.raises(ConfigError, match=r"got 0\.0\.1 in"):
        run("data-owner", config, notice=False, python=made)
    path = files / "asked.toml"
    config.write(path)
    assert command("local", "--config", path, "--python", made) == 2
    assert "got 0.0.1 in" in capsys.readouterr().err
    crypten = config_of(files, "asked")
    with pytest.raises(ConfigError, match="python is not for a role of engine 'cryp"):
        run("data-owner", crypten, notice=False, python=made)
