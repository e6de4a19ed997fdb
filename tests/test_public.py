"""Exhaustiveness: what is public is documented, and every kernel is in every list."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest
from kernels import KERNELS, documented

from jaxsel import (
    Selection,
    Values,
    attribute,
    filter,
    gradients,
    labels,
    market,
    match,
    neighbors,
    proxy,
    retrieve,
    value,
)
from jaxsel.attribute._in_run import InRunTraining
from jaxsel.filter._classes import ClassThresholds
from jaxsel.labels._joint import ConfidentJoint
from jaxsel.labels._neighbours import Duplicates
from jaxsel.retrieve._nearest import Nearest
from jaxsel.value._metrics import SCORERS

ROOMS = [
    *(value, neighbors, gradients, match, retrieve, filter, proxy, market),
    labels,
    attribute,
]
DOCS = Path(__file__).parents[1] / "docs"

# What the tests call a kernel, and the docs another name, or two.
NAMES = {
    "learner": {("learner", "fit"), ("learner", "predict")},
}
# Takes no arrays: where `merge_nearest` starts.
BEGINNINGS = {"empty_nearest"}
# What the methods of the rooms return.
RESULTS = (
    Values,
    Selection,
    Nearest,
    retrieve.NearDuplicates,
    filter.LossThreshold,
    ClassThresholds,
    gradients.Oracle,
    labels.LabelErrors,
    ConfidentJoint,
    Duplicates,
    InRunTraining,
)
DEFERRED = re.compile(
    r"arguments(?:, result and errors| and result)\s+as\s+for\s+`(\w+)`", re.IGNORECASE
)


def functions():
    """Return the public functions by their full names, without their wrappers."""
    return {
        f"{room.__name__}.{name}": inspect.unwrap(thing)
        for room in ROOMS
        for name, thing in vars(room).items()
        if not name.startswith("_") and inspect.isfunction(inspect.unwrap(thing))
    }


FUNCTIONS = functions()


def test_kernels_are_documented_and_tested():
    in_docs, tested = set(documented()), set()
    public = {("?", name.rsplit(".", 1)[1]) for name in FUNCTIONS}
    for kernel in KERNELS:
        name = kernel.name.split("-")[0]
        same = {entry for entry in in_docs if entry[1] == name}
        tested |= NAMES.get(name) or same or {("?", name)} & public
    assert not in_docs - tested, "in docs/kernels.md, and not in tests/kernels.py"
    assert not tested - in_docs, "in tests/kernels.py, and not in docs/kernels.md"


def test_metrics_and_learners_are_tested():
    tested = {kernel.name.split("-", 1)[-1] for kernel in KERNELS}
    assert not set(SCORERS) - tested
    learners = {
        name
        for name, thing in vars(value).items()
        if is_learner(thing) and not thing.host
    }
    assert not learners - tested - {"FlaxLearner"}  # a model of the user's


def test_what_calls_itself_a_kernel_is_in_the_docs():
    names = {name for _, name in documented()}
    for name, function in FUNCTIONS.items():
        own = name.split(".")[-1]
        if "pure kernel" in (function.__doc__ or "") and own not in BEGINNINGS:
            assert own in names, f"{name} is in no table of docs/kernels.md"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_is_whole(name):
    """Args for all parameters, Returns, Raises; or whose they are.

    A first line that begins with "Return" or "Estimate" may say it all.
    """
    function = FUNCTIONS[name]
    doc, signature = inspect.getdoc(function), inspect.signature(function)
    assert doc, "no docstring"
    described = set(re.findall(r"^    \*{0,2}(\w+):", section(doc, "Args"), re.M))
    if deferred := DEFERRED.search(doc):
        other = f"{name.rsplit('.', 1)[0]}.{deferred[1]}"
        assert other in FUNCTIONS, f"as for {other}, which is not public"
        described |= set(inspect.signature(FUNCTIONS[other]).parameters)
    missing = [
        f"Args: {each}" for each in signature.parameters if each not in described
    ]
    nothing = signature.return_annotation in (None, "None")
    says_it = doc.startswith(("Return ", "Estimate ")) or deferred or nothing
    if not (section(doc, "Returns") or says_it):
        missing.append("Returns")
    if raises(function) and not (section(doc, "Raises") or deferred):
        missing.append("Raises")
    assert not missing


def test_every_public_name_has_a_docstring():
    """Functions, classes, and their methods and properties, of every room."""
    import jaxsel
    import mpc_bridge

    modules = [jaxsel, mpc_bridge, *(getattr(jaxsel, room) for room in jaxsel._ROOMS)]
    things = {
        f"{module.__name__}.{name}": thing
        for module in modules
        for name, thing in vars(module).items()
        if not name.startswith("_") and is_ours(thing)
    }
    things |= {
        f"{owner}.{name}": getattr(thing, name)
        for owner, thing in things.items()
        if inspect.isclass(thing)
        for name, member in vars(thing).items()
        if not name.startswith("_") and is_ours(getattr(member, "fget", member))
    }
    assert len(things) > 600
    assert not [name for name, thing in things.items() if not written(thing)]


def is_ours(thing):
    """Whether it is a function or a class of this repository."""
    thing = inspect.unwrap(getattr(thing, "__func__", thing))
    ours = getattr(thing, "__module__", "").startswith(("jaxsel", "mpc_bridge"))
    return ours and (inspect.isroutine(thing) or inspect.isclass(thing))


def written(thing):
    """Return the docstring: a class's own, unless `dataclass` made it, or inherited."""
    if not inspect.isclass(thing):
        return inspect.getdoc(thing)
    own = vars(thing).get("__doc__") or ""
    return own and not own.startswith(f"{thing.__name__}(")


def section(doc, title):
    """Return the lines of a section of a docstring, "" if there is none."""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", doc + "\n", re.M)
    return found[1] if found else ""


def raises(function):
    """Whether a function raises by itself, rather than through what it calls."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def is_learner(thing):
    return (
        inspect.isclass(thing)
        and thing is not value.Learner
        and all(hasattr(thing, part) for part in ("prepare", "fit", "predict"))
    )


def is_method(thing):
    """Whether it computes what users want: values, a choice, an oracle, a threshold."""
    if is_learner(thing):
        return True
    if not inspect.isfunction(inspect.unwrap(thing)):
        return False
    function = inspect.unwrap(thing)
    result = function.__annotations__.get("return")
    if isinstance(result, str):
        result = eval(result, function.__globals__)  # noqa: S307
    return inspect.isclass(result) and issubclass(result, RESULTS)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_methods_are_in_a_guide(room):
    """The reference, docs/api, does not count: test_docs.py has a test of it."""
    guides = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    for name, thing in vars(room).items():
        if not name.startswith("_") and is_method(thing):
            assert re.search(rf"\b{name}\b", guides), f"{name} is in no page of docs/"
