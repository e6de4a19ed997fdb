"""Byte strings in one: what is packed comes back, and nothing else is taken."""

import pytest
from hypothesis import given, strategies as st

from mpc_bridge._framing import pack, unpack

pytestmark = pytest.mark.mpc


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_parts_come_back(parts):
    assert unpack(pack(parts)) == parts


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.data())
def test_what_is_cut_off_or_too_long_is_refused(parts, data):
    whole = pack(parts)
    at = data.draw(st.integers(0, len(whole) - 1))
    for wrong in (whole[:at], whole + b"x"):
        with pytest.raises(ValueError, match="data must "):
            unpack(wrong)


def test_a_length_that_lies_takes_no_memory():
    with pytest.raises(ValueError, match="no lengths"):
        unpack(b"\xff" * 100)
