"""The compiled row operations execute what they did: counted, whatever the load."""

import shutil

import pytest

from benchmarks import instructions

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None or shutil.which("c++") is None,
    reason="counting needs a C++ compiler and valgrind",
)


@pytest.mark.slow
@needs_valgrind
def test_operations_execute_what_is_recorded():
    found = instructions.measure()
    assert found.keys() == instructions.recorded().keys()
    assert not instructions.regressions(found, instructions.recorded())


@pytest.mark.slow
@needs_valgrind
def test_a_loop_that_does_nothing_is_noticed(tmp_path):
    native = tmp_path / "native"
    shutil.copytree(instructions.NATIVE, native)
    source, line = native / "sort.h", "  s.keys.resize(n);\n"
    text = source.read_text()
    assert text.count(line) == 1
    idle = "  for (volatile int64_t i = 0; i < 8 * n; ++i);\n"
    source.write_text(text.replace(line, line + idle))
    failed = instructions.regressions(
        instructions.measure(native), instructions.recorded()
    )
    names = [line.split(":")[0] for line in failed]
    assert names == ["sort", "sort few", "sort short", "sort ties"]


def test_a_fifth_is_the_limit_in_both_directions():
    before = {"sort": 0.5, "nearest": 0.25}
    assert not instructions.regressions({"sort": 0.599, "nearest": 0.209}, before)
    more, fewer = instructions.regressions({"sort": 0.601, "nearest": 0.2}, before)
    assert more.startswith("sort: 0.601 of its textbook form's instructions")
    assert fewer.startswith("nearest: 0.200 of its textbook form's instructions")


def test_without_valgrind_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(instructions.shutil, "which", lambda name: None)
    assert instructions.main([]) == 2
    assert "needs a C++ compiler" in capsys.readouterr().out
