"""Rules of CONTRIBUTING for comparisons, as far as code shows whether they are kept."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = "experiments", "benchmarks"
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

GUARDS = {"min_correlation": 0.9}
"""Options by which a method is refused, and the library's own value."""

ASKED_LATER = {"check_monotonicity", "check_ranking"}
"""Functions that ask the same, for modules that train first and judge afterwards."""

RULES = "counts only if it passes the guard", "get all that does not belong"


def lax_guards(tree):
    """Yield the lines that loosen a guard: a keyword, or a default of an argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in GUARDS:
            options = [(node.arg, node.value)]
        elif isinstance(node, ast.arguments):
            several = node.posonlyargs + node.args
            pairs = [*zip(several[::-1], node.defaults[::-1], strict=False)]
            pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
            options = [(a.arg, v) for a, v in pairs if a.arg in GUARDS and v]
        elif isinstance(node, ast.Dict):
            keys = [getattr(key, "value", None) for key in node.keys]
            pairs = zip(keys, node.values, strict=True)
            options = [(k, v) for k, v in pairs if k in GUARDS]
        else:
            continue
        for name, chosen in options:
            if isinstance(chosen, ast.Constant | ast.UnaryOp):
                number = ast.literal_eval(chosen)
                if number is None or number < GUARDS[name]:
                    yield chosen.lineno


def names(tree):
    """Return the names that are called."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {getattr(f, "id", getattr(f, "attr", None)) for f in calls}


def unguarded(text):
    tree = ast.parse(text)
    return sorted(lax_guards(tree)) if not names(tree) & ASKED_LATER else []


def test_no_method_is_judged_without_the_guard():
    """A paper's or a peer's method passes the guard that ours must pass."""
    lax = {
        path.relative_to(ROOT).as_posix(): lines
        for path in FILES
        if (lines := unguarded(path.read_text()))
    }
    assert not lax


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("tune(x, min_correlation=None)", [1]),
        ("tune(x, min_correlation=0.5)", [1]),
        ("tune(x, min_correlation=-1)", [1]),
        ("\nPhase(**{'min_correlation': None})", [2]),
        ("def make(min_correlation=None): ...", [1]),
        ("def make(*, min_correlation=None): ...", [1]),
        ("tune(x, min_correlation=0.9)", []),
        ("tune(x, min_correlation=least)", []),
        ("tune(x)", []),
        ("check_monotonicity(*tune(x, min_correlation=None))", []),
    ],
)
def test_loosened_guards_are_noticed(text, lines):
    assert unguarded(text) == lines


def test_contributing_states_the_rules():
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    for rule in RULES:
        assert rule in text
