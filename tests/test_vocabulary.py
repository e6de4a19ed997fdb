"""One idea, one name: parameters of public functions, by the table of CONTRIBUTING."""

import dataclasses
import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest

import jaxsel
import mpc_bridge

TABLE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()

KERNELS = {"evaluate", "linear_passes", "train"}
"""Kernels that take a key among their arrays, not first."""

OTHER_CONVENTIONS = {"estimators"}
"""Rooms whose names are those of another library: scikit-learn passes `X` by that name,
finds parameters by theirs, and checks that estimators follow."""

each_room = pytest.mark.parametrize("room", sorted(jaxsel._ROOMS))

BRIDGE = mpc_bridge.__all__


def rows():
    """Return the names and the deviations of each row of the table."""
    section = TABLE.partition("## Vocabulary")[2]
    lines = re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)
    cells = [line.split(" | ") for line in lines]
    return [(re.findall(r"`(.+?)`", c[0]), re.findall(r"`(.+?)`", c[2])) for c in cells]


REFUSED = {name for _, deviations in rows() for name in deviations}


def public(room):
    """Yield name, and signature, of all public functions, methods and constructors."""
    if room == "mpc_bridge":  # its names load when they are first used
        things = [(name, getattr(mpc_bridge, name)) for name in BRIDGE]
    else:
        things = [*vars(getattr(jaxsel, room)).items()]
    for name, thing in things:
        package = getattr(thing, "__module__", "").partition(".")[0]
        if name.startswith("_") or package not in ("jaxsel", "mpc_bridge"):
            continue
        if inspect.isfunction(thing):
            yield name, inspect.signature(thing)
        elif inspect.isclass(thing):
            if dataclasses.is_dataclass(thing) or "__init__" in vars(thing):
                yield name, inspect.signature(thing)
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_"):
                    yield f"{name}.{method}", inspect.signature(function)


def refused(parameter):
    """Whether its name, or its name and type, are in the last column.

    A module that postpones annotations has them as text: `classes: 'int'`.
    """
    typed = re.sub(r" \| None|'", "", str(parameter).partition(" =")[0])
    return parameter.name in REFUSED or typed in REFUSED


def test_the_table_is_read():
    assert len(rows()) > 20
    assert {"batch", "classes: int"} <= REFUSED
    names = {name for row, _ in rows() for name in row}
    assert not names & REFUSED


def test_types_are_read():
    def count(classes: int | None = None): ...
    def postponed(classes: "int | None" = None): ...
    def labels(classes: "list[int]"): ...

    found = [
        refused(inspect.signature(function).parameters["classes"])
        for function in (count, postponed, labels)
    ]
    assert found == [True, True, False]


@pytest.mark.parametrize(
    "room", [*sorted({*jaxsel._ROOMS} - OTHER_CONVENTIONS), "mpc_bridge"]
)
def test_parameters_are_in_the_vocabulary(room):
    wrong = [
        f"{room}.{function}: {parameter}"
        for function, signature in public(room)
        for parameter in signature.parameters.values()
        if refused(parameter)
    ]
    assert not wrong, "; see the table in CONTRIBUTING.md"


@each_room
def test_keys_are_first_or_by_keyword(room):
    for function, signature in public(room):
        key = signature.parameters.get("key")
        plain = inspect.isfunction(vars(getattr(jaxsel, room)).get(function))
        if key and plain and function not in KERNELS:
            by_keyword = key.kind is inspect.Parameter.KEYWORD_ONLY
            assert by_keyword or next(iter(signature.parameters)) == "key", function


def test_a_public_name_is_of_one_room():
    homes = defaultdict(dict)
    for room in jaxsel._ROOMS:
        for name, thing in vars(getattr(jaxsel, room)).items():
            if not name.startswith("_") and not inspect.ismodule(thing):
                homes[name][id(thing)] = room
    shared = {
        name: [*rooms.values()] for name, rooms in homes.items() if len(rooms) > 1
    }
    assert not shared
    assert not {*homes} & {*jaxsel._ROOMS}, "a room's name"
