"""Examples in docstrings print what they show, and the top level has one each."""

import doctest
import inspect

import pytest

import jaxsel


def public(module):
    """Return the functions and classes of ours that a module exports, by full name."""
    return {
        f"{module.__name__}.{name}": thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__.startswith("jaxsel")
    }


TOP = public(jaxsel)
IN_ROOMS = {
    name: thing
    for room in jaxsel._ROOMS
    for name, thing in public(getattr(jaxsel, room)).items()
    if thing not in TOP.values() and ">>>" in (inspect.getdoc(thing) or "")
}
HOSTS = {"jaxsel.init_multihost"}
"""Needs several processes: its example is shown, and not run."""


@pytest.mark.parametrize("name", [*TOP, *IN_ROOMS])
@pytest.mark.every(5)
def test_example_prints_what_is_shown(name, tmp_path, monkeypatch):
    thing = (TOP | IN_ROOMS)[name]
    source = inspect.getdoc(thing) or ""
    test = doctest.DocTestParser().get_doctest(source, {}, name, None, None)
    lines = [e for e in test.examples if not e.options.get(doctest.SKIP)]
    assert any(e.want for e in lines) or name in HOSTS, "no example that prints"
    for extra in ("pandas", "sklearn"):
        if any(extra in e.source for e in lines):
            pytest.importorskip(extra, reason="comes with an extra")
    monkeypatch.chdir(tmp_path)
    report = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)
    if inspect.isclass(thing):
        assert any(isinstance(made, thing) for made in test.globs.values())
    else:
        assert any(f"{name.split('.')[-1]}(" in e.source for e in test.examples)


def test_what_is_public_is_known():
    assert {"jaxsel.knn_shapley", "jaxsel.Values", "jaxsel.make_mesh"} <= {*TOP}
    assert "jaxsel.tables.TableEncoder" in IN_ROOMS
