"""What docs/comparison.md says about other packages, and how it is checked."""

import re
import zipfile
from functools import reduce
from pathlib import Path

import pytest

import jaxsel
from benchmarks import statements

PAGE = (Path(__file__).parents[2] / "docs/comparison.md").read_text()
WORDS = " ".join(PAGE.split())
PACKAGES = statements.packages()
PEERS = {name: one for name, one in PACKAGES.items() if name != "jaxsel"}


def test_the_page_shows_the_tables():
    assert statements.as_tables().strip() in PAGE


@pytest.mark.parametrize("name", PEERS)
def test_the_page_names_the_version_that_was_checked(name):
    assert f"{name} {PEERS[name]['version']}" in WORDS


@pytest.mark.parametrize("name", PACKAGES)
def test_cells_open_with_a_verdict(name):
    for text, *_ in PACKAGES[name]["cells"].values():
        assert re.match(r"(yes|no|partly)\b", text), text


@pytest.mark.parametrize("name", PEERS)
def test_every_statement_about_a_peer_has_evidence(name):
    """What it has is shown in a file; what it lacks is searched for."""
    for feature, (text, *evidence) in PEERS[name]["cells"].items():
        shown = [piece for piece in evidence if not piece.startswith("!")]
        absent = [piece for piece in evidence if piece.startswith("!")]
        assert shown if text.startswith(("yes", "partly")) else shown or absent, feature
        for piece in shown:
            re.compile(piece.split(": ", 1)[1])
        for piece in absent:
            re.compile(piece[1:])


def test_what_jaxsel_has_is_there():
    for feature, (text, *names) in PACKAGES["jaxsel"]["cells"].items():
        assert bool(names) == text.startswith(("yes", "partly")), feature
        for name in names:
            reduce(getattr, name.split("."), jaxsel)


def test_nobody_else_where_only_jaxsel_is_claimed():
    """The page claims something for jaxsel alone only in words that the tables bear."""
    assert not re.search(r"only jaxsel|no (other|peer)", WORDS, re.IGNORECASE)


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    kept = """
    [jaxsel.cells]
    "a value" = ["yes", "knn_shapley"]
    [Peer]
    version = "1.0"
    root = "peer"
    [Peer.cells]
    "a value" = ["yes", "value.py: class Value"]
    "another" = ["no", "!another"]
    """
    monkeypatch.setattr(statements, "STATEMENTS", tmp_path / "kept.toml")
    statements.STATEMENTS.write_text(kept)

    def make(**files):
        with zipfile.ZipFile(tmp_path / "peer-1.0-py3-none-any.whl", "w") as wheel:
            for name, text in files.items():
                wheel.writestr(f"peer/{name}.py", text)
        return statements.main([str(tmp_path)])

    return make


def test_wheels_that_bear_it_out(wheels, capsys):
    assert wheels(value="class Value: ...") == 0
    assert "2 statements checked, 0 failures" in capsys.readouterr().out


def test_wheels_that_do_not(wheels, capsys):
    assert wheels(values="class Value: ...", more="ANOTHER = 1") == 1
    printed = capsys.readouterr().out
    assert "Peer 1.0, a value: no file value.py with 'class Value'" in printed
    assert "Peer 1.0, another: peer/more.py has 'ANOTHER'" in printed


def test_a_missing_wheel(tmp_path, capsys):
    assert statements.main([str(tmp_path)]) == 1
    assert "shapiq 1.8.0: no wheel in" in capsys.readouterr().out
