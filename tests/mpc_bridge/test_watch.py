"""Calls that never return are given up, and others are not."""

import threading
import time

import pytest
from waits import PATIENCE

from mpc_bridge.engines.spu._watch import Watch


def watched(received, *, timeout, seconds, inside=True):
    """Return what a watch says during a call, and when."""
    said, done, start = [], threading.Event(), time.monotonic()

    def give_up(text):
        said.append((text, time.monotonic() - start))
        done.set()

    watch = Watch(received, timeout, give_up)
    if inside:
        with watch.call():
            done.wait(seconds)
    else:
        done.wait(seconds)
    watch.close()
    return said


def test_a_call_in_which_nothing_arrives_is_given_up_once():
    ((text, at),) = watched(lambda: 5, timeout=0.3, seconds=PATIENCE)
    assert 0.6 <= at < PATIENCE
    assert "did not answer in time" in text
    assert text.endswith("nothing has arrived for 0.6 s")


@pytest.mark.left_out
def test_a_call_in_which_bytes_arrive_goes_on():
    start = time.monotonic()
    assert not watched(
        lambda: int(10 * (time.monotonic() - start)), timeout=0.4, seconds=2
    )


def test_between_calls_nothing_need_arrive():
    assert not watched(lambda: 5, timeout=0.1, seconds=1, inside=False)
