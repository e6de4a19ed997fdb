"""Docstrings of the top level: each has an example, which prints what it shows."""

import doctest
import inspect

import pytest

import jaxsel

PUBLIC = {
    name: thing
    for name, thing in vars(jaxsel).items()
    if not name.startswith("_")
    and (inspect.isfunction(thing) or inspect.isclass(thing))
    and thing.__module__.startswith("jaxsel")
}
HOSTS = {"init_multihost"}
"""Needs several processes: its example is shown, and not run."""


def examples(name):
    """Return the lines of the examples of a docstring."""
    parser, source = doctest.DocTestParser(), inspect.getdoc(PUBLIC[name]) or ""
    return parser.get_doctest(source, {}, name, None, None)


@pytest.mark.parametrize("name", PUBLIC)
def test_example_prints_what_is_shown(name, tmp_path, monkeypatch):
    test = examples(name)
    run = [e for e in test.examples if not e.options.get(doctest.SKIP)]
    assert any(e.want for e in run) or name in HOSTS, "no example that prints"
    if any("pandas" in e.source for e in run):
        pytest.importorskip("pandas", reason="comes with the report extra")
    monkeypatch.chdir(tmp_path)
    report = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)
    if inspect.isclass(PUBLIC[name]):
        assert any(isinstance(made, PUBLIC[name]) for made in test.globs.values())
    else:
        assert any(f"jaxsel.{name}(" in e.source for e in test.examples)


def test_what_is_called_is_public():
    assert {"knn_shapley", "omp", "Values", "LabelErrors", "make_mesh"} <= {*PUBLIC}
