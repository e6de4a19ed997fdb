"""What is deprecated warns where it is used, and is gone when it was said to be."""

import ast
import re
import warnings
from pathlib import Path

from packaging.version import Version

import jaxsel
from jaxsel._deprecated import warn_deprecated

ROOMS = Path(jaxsel.__file__).parent


def overdue(source, version):
    """Return the lines that deprecate what this version should not have.

    By `warn_deprecated(..., removal="0.4")` or `@deprecated("... 0.4 will not ...")`.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("deprecated"):
            said = re.search(r"removal='([\d.]+)'|([\d.]+) will not", ast.unparse(node))
            if said is None or Version(said[1] or said[2]) <= Version(version):
                found.append(node.lineno)
    return found


def test_nothing_outlives_its_removal():
    late = {
        path.relative_to(ROOMS).as_posix(): lines
        for path in ROOMS.rglob("*.py")
        if (lines := overdue(path.read_text(), jaxsel.__version__))
    }
    assert not late


def test_what_is_overdue_is_found():
    source = """
warn_deprecated("f(a=...)", since="0.2", removal="0.4", instead="pass b")
@typing_extensions.deprecated("g is deprecated, and 0.5 will not have it: call f")
def g(): ...
@deprecated("says no version")
def h(): ...
"""
    assert overdue(source, "0.3.1") == [5]
    assert overdue(source, "0.4.0") == [2, 5]
    assert overdue(source, "0.10") == [2, 3, 5]


def test_the_warning_is_of_the_line_that_uses_it():
    def f():
        warn_deprecated("f(a=...)", since="0.2", removal="0.4", instead="pass b")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f()  # this line
    (warning,) = caught
    assert warning.filename == __file__
    assert "# this line" in Path(__file__).read_text().splitlines()[warning.lineno - 1]
    assert warning.category is DeprecationWarning
    assert str(warning.message) == (
        "f(a=...) is deprecated since jaxsel 0.2, and 0.4 will not have it: pass b"
    )
