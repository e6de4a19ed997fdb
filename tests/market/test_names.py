"""Owners' names: written in one way, and shown so that none passes for another."""

import pytest

from jaxsel._inputs.show import printable_name
from jaxsel.market._names import check_owner


@pytest.mark.parametrize(
    "name",
    ["north", "Owner 3 (EU)", "Zürich", "Ørsted", "Москва", "北京", "東京タワー", "42"],
)
def test_plain_names_pass(name):
    check_owner("owner", name)


@pytest.mark.parametrize(
    "name",
    [" north", "north ", "a  b", "n\u043erth", "\u0441oco", "no\u0301rth", "\u2167"]
    + ["north\u00a0", "a\u3000b", "nor\u00adth", "\u202enorth", "", "x" * 101],
)
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="owner must "):
        check_owner("owner", name)


def test_names_of_other_scripts_are_shown_as_such():
    assert printable_name("Zürich 2") == "Zürich 2"
    assert printable_name("\u0441\u043e\u0441\u043e") == r"\u0441\u043e\u0441\u043e"
    assert printable_name("d\u0131m") == r"d\u0131m"
