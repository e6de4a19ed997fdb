"""The mutation run itself, on a package of one small module."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

# What the run needs is in the `dev` extra; the package's own tests do without.
pytest.importorskip("cosmic_ray")
pytest.importorskip("coverage")

from . import operators, sample
from .__main__ import main

MODULE = '''\
"""Numbers."""


def clip(x: int | None, top: int = 10) -> int:
    """Return x, or `top` if that is less; 1 + 1 is not touched."""
    if x is None:
        raise ValueError(f"x must be a number, got {1 + 1}")
    return min(x, top)


def count(stop):
    n = 0
    while n < stop:
        n += 1
    return n


def unused(x):
    return x + 1
'''
TESTS = """\
import pytest
import tiny


def test_clip():
    assert tiny.clip(3, 5) == 3
    assert tiny.clip(8, 5) == 5


def test_none():
    with pytest.raises(ValueError):
        tiny.clip(None)


def test_count():
    assert tiny.count(5) == 5


@pytest.mark.slow
def test_unused():
    assert tiny.unused(1) == 2
"""
ROOMS = """\
package = "tiny"
[rooms.all]
sources = ["tiny"]
tests = ["tests"]
heavy = ["tiny/__init__.py"]
"""
FIXED = """\
[[mutant]]
room = "all"
file = "tiny/__init__.py"
old = "min(x, top)"
new = "x"
why = "nothing clipped"
[[mutant]]
room = "all"
file = "tiny/__init__.py"
old = "n += 1"
new = "n += 0"
why = "counts for ever"
[[mutant]]
room = "all"
file = "tiny/__init__.py"
old = "return x + 1"
new = "return x - 1"
why = "only a slow test sees it"
"""
EXPLAINED = """\
[[survivor]]
file = "tiny/__init__.py"
function = "unused"
old = "return x + 1"
new = "return x - 1"
why = "Nobody calls it."
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    files = {
        "tiny/__init__.py": MODULE,
        "tests/test_tiny.py": TESTS,
        "pytest.ini": "[pytest]\nmarkers =\n    slow: slow\n",
        "settings/rooms.toml": ROOMS,
        "settings/fixed.toml": FIXED,
        "settings/survivors.toml": "",
    }
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "root", check=True)
    monkeypatch.setattr("mutation.runner._TEST_LIMIT", 2.0)
    return tmp_path / "root"


def run(checkout, *more, mutants=0):
    arguments = f"--root {checkout} --out {checkout.parent / 'out'} --mutants {mutants}"
    arguments = " ".join([arguments, *more])
    status = main([*arguments.split(), "--settings", str(checkout / "settings")])
    path = checkout.parent / "out" / "mutants.jsonl"
    return status, [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow  # starts pytest again and again
def test_mutants_are_killed_time_out_or_survive_and_are_resumed(checkout, capsys):
    status, results = run(checkout)
    assert status == 1  # the survivor is not explained
    found = {r["mutant"]["new"]: r["status"] for r in results}
    assert found == {
        "return x": "killed",
        "n += 0": "timeout",
        "return x - 1": "survived",
    }
    (killed,) = (r for r in results if r["status"] == "killed")
    assert killed["test"] == "tests/test_tiny.py::test_clip"
    assert "| all | 3 | 2 | 1 | 1 | 66.7% |" in capsys.readouterr().out
    assert (checkout / "tiny/__init__.py").read_text() == MODULE

    # An explained survivor is none to mend; nothing is tried again.
    (checkout / "settings/survivors.toml").write_text(EXPLAINED)
    assert run(checkout) == (0, results)
    assert "Nobody calls it." in (checkout.parent / "out" / "mutants.md").read_text()

    # A new test: what survived is tried again, and only that; nor does it matter that
    # the run was killed as it wrote.
    with (checkout.parent / "out" / "mutants.jsonl").open("a") as lines:
        lines.write('{"mutant": {"id"')
    tests = TESTS.replace("@pytest.mark.slow\n", "")
    (checkout / "tests/test_tiny.py").write_text(tests)
    assert run(checkout) == (0, results)  # explained, so not tried
    status, again = run(checkout, "--explained")
    assert status == 0
    assert again[:3] == results
    assert [(r["mutant"]["new"], r["status"]) for r in again[3:]] == [
        ("return x - 1", "killed")
    ]

    # What a whole run found may be kept beside the settings.
    (checkout / "settings/survivors.toml").write_text("")
    out = checkout.parent / "out"
    (out / "mutants.jsonl").rename(checkout / "settings/record.jsonl")
    shutil.rmtree(out)
    capsys.readouterr()
    arguments = f"--root {checkout} --out {out} --mutants 0"
    assert main([*arguments.split(), "--settings", str(checkout / "settings")]) == 0
    assert "3 mutants, of which 3 were tried before" in capsys.readouterr().out


@pytest.mark.slow
def test_tests_that_fail_without_a_mutant_are_left_out(checkout, capsys):
    (checkout / "tiny/__init__.py").write_text(MODULE.replace("n = 0", "n = 9"))
    (checkout / "settings/fixed.toml").write_text(FIXED.replace("n += 0", "n -= 1"))
    _, results = run(checkout)
    said = (
        "left out, as it fails alone without a mutant: tests/test_tiny.py::test_count"
    )
    assert said in capsys.readouterr().out
    found = {r["mutant"]["new"]: r["status"] for r in results}
    assert found["n -= 1"] == "survived"


def test_fixed_mutants_that_fit_no_more_are_refused(checkout):
    (checkout / "tiny/__init__.py").write_text(MODULE.replace("n += 1", "n = n + 1"))
    with pytest.raises(ValueError, match=r"0 times: 'n \+= 1'"):
        run(checkout)


def test_fixed_mutants_and_explanations_fit_this_checkout():
    here = Path(__file__).parent
    root, settings = here.parents[1], sample.Settings.load(here)
    assert sample.fixed(root, settings, list(settings.rooms))
    stale = [
        f"{file}: {old}"
        for file, _, old, _ in settings.why
        if old not in (root / file).read_text()
    ]
    assert not stale


def test_samples_are_the_same_for_a_seed_and_spread_over_files(checkout):
    (checkout / "tiny/more.py").write_text(MODULE.replace("clip", "cut"))
    settings = sample.Settings.load(checkout / "settings")
    one, again, other = (
        sample.draw(checkout, "all", settings, 6, seed) for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other
    files = [mutant.file for mutant in one]
    # The one of kernels and protocols has twice as many.
    assert (files.count("tiny/__init__.py"), files.count("tiny/more.py")) == (4, 2)
    assert len({(mutant.file, mutant.line) for mutant in one}) == 6


def test_the_operators_leave_out_what_is_said():
    lines = MODULE.splitlines()
    new = [
        (site.operator, mutated.splitlines()[site.line - 1].strip())
        for site, mutated in operators.all_mutants(MODULE)
    ]
    assert ("DropStatement", "pass") in new  # the refusal as a whole
    assert ("AddNot", "if not x is None:") in new
    assert ("ReplaceComparisonOperator_Lt_LtE", "while n <= stop:") in new
    assert ("SwapFunction", "return max(x, top)") in new
    touched = {site.line for site, _ in operators.all_mutants(MODULE)}
    said = {i for i, line in enumerate(lines, 1) if '"' in line}
    assert touched & said == {lines.index(next(s for s in lines if "raise" in s)) + 1}
    assert not any("int &" in text for _, text in new)  # annotations


@pytest.mark.parametrize(
    ("source", "operator", "mutated"),
    [
        ("f(x, axis=1)\n", "DropKeyword", "f(x, **{})\n"),
        ("if x:\n    check(x)\n", "DropStatement", "if x:\n    pass\n"),
        ("x = jnp.cummax(x)\n", "SwapFunction", "x = jnp.cummin(x)\n"),
        ("x += y\n", "DropStatement", "pass\n"),
    ],
)
def test_our_own_operators(source, operator, mutated):
    assert mutated in [
        text
        for site, text in operators.all_mutants(source)
        if site.operator == operator
    ]
