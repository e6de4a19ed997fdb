"""The table of methods: requests, answers, command line and docs follow it."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from jaxsel._cli._market_options import add_answer, add_request
from jaxsel._cli._parser import Parser
from jaxsel.market import METHODS, answer

from .cases import F, X, Y, request
from .test_owner import KEY, MODEL

GUIDE = Path(__file__).parents[2] / "docs" / "market.md"
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in GUIDE.read_text().split("| method | chooses | needs |")[1].splitlines()
    if line.startswith("| `")
]


def test_each_method_is_explained_once():
    guide = [row[0].strip("`") for row in ROWS[: len(METHODS)]]
    assert sorted(guide) == sorted(METHODS)
    for name in METHODS:
        assert f'- "{name}": ' in answer.__doc__


@pytest.mark.parametrize("name", METHODS)
def test_the_guide_tells_the_needs(name):
    method = METHODS[name]
    needs = next(needs for first, _, needs in ROWS if first == f"`{name}`")
    both = needs == "both"
    assert ("feature" in needs or both) == method.features
    assert ("oracle" in needs or both) == method.gradients
    assert ("table" in needs) == method.table
    assert ("key" in needs) == method.draws


@pytest.mark.parametrize("name", METHODS)
def test_needs_are_checked_and_suffice(name):
    method = METHODS[name]
    complete = {"features": F, "model": MODEL, "key": KEY}
    asked = request(method=name)
    assert asked.gaps == method.table
    assert len(answer(asked, X, Y, owner="o", **complete))
    needs = {"model": method.gradients, "key": method.draws}
    for argument, needed in needs.items():
        lacking = {k: v for k, v in complete.items() if k != argument}
        if needed:
            with pytest.raises(ValueError, match=f"{argument} must .* {name!r}"):
                answer(asked, X, Y, owner="o", **lacking)
        else:
            assert len(answer(asked, X, Y, owner="o", **lacking))


def test_classes_of_others_are_passed_over():
    """By the method itself, or by leaving them out of its candidates."""
    for name in METHODS:
        found = answer(
            request(method=name), X, Y, owner="o", features=F, model=MODEL, key=KEY
        )
        assert not np.any(found.y == 3), name


@pytest.mark.parametrize("add", [add_request, add_answer])
def test_the_command_line_offers_each_method(add, capsys):
    top = argparse.ArgumentParser()
    parser = add(top.add_subparsers(parser_class=Parser))
    assert ", ".join(METHODS) in " ".join(parser.format_help().split())
    action = next(a for a in parser._actions if "--method" in a.option_strings)
    for name in METHODS:
        parser._check_value(action, name)
    with pytest.raises(argparse.ArgumentError, match="did you mean retrieve"):
        parser._check_value(action, "retrive")
