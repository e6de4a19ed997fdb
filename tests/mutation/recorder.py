"""A pytest plugin: which tests run which lines of the package, and for how long.

Loaded by `-p recorder`, with the package to watch in `MUTATION_PACKAGE` and the file to
write in `MUTATION_RECORD`. Lines that modules run on import belong to no test.
"""

import json
import os
import sys
from pathlib import Path

import coverage
import pytest

_ROOT = Path.cwd()
_PACKAGE = os.environ["MUTATION_PACKAGE"]
_coverage = coverage.Coverage(
    data_file=None, source=[str(_ROOT / _PACKAGE)], config_file=False, messages=False
)
_seconds: dict[str, float] = {}
_failed: set[str] = set()
_test = ""
_coverage.start()  # before the first import of the package


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global _test
    # Every test traces what it uses itself: compiled functions run no lines. Tests that
    # count on what others have compiled fail, and are left out.
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    _test = item.nodeid
    _coverage.switch_context(_test)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """All tests of a file depend on what its shared fixtures run."""
    if fixturedef.scope == "function":
        return (yield)
    _coverage.switch_context(_test.split("::")[0])
    try:
        return (yield)
    finally:
        _coverage.switch_context(_test)


def pytest_runtest_logreport(report):
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish():
    _coverage.stop()
    file = getattr(sys.modules.get(_PACKAGE), "__file__", None)
    if file and not Path(file).is_relative_to(_ROOT):
        raise RuntimeError(f"the tests import {file}, not the copy in {_ROOT}")
    data = _coverage.get_data()
    lines = {
        str(Path(file).relative_to(_ROOT)): data.contexts_by_lineno(file)
        for file in data.measured_files()
    }
    record = {"seconds": _seconds, "failed": sorted(_failed), "lines": lines}
    Path(os.environ["MUTATION_RECORD"]).write_text(json.dumps(record))
