"""How long tests wait for what comes in the end, however busy the machine is.

    until(path.exists, "the run has begun")

No test asserts how fast something is. A test of a timeout gives the product a short
one, and waits for its end with patience.
"""

import time

PATIENCE = 300.0  # seconds; a test that waits so long has failed


def until(condition, what, *, alive=lambda: True):
    """Return the first result of a condition that is true.

    Args:
        condition: Called again and again.
        what: What is waited for, in errors; a text, or a function that returns one.
        alive: Whether it can still come true.
    """
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        about = what if isinstance(what, str) else what()
        assert alive(), f"ended before {about}"
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {about}"
        time.sleep(0.02)
    return result
