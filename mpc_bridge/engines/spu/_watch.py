"""An end for calls of SPU that never return: not all of its waits end in an error.

Cheetah computes in several threads. Where the wire is cut or stalls while they send,
some wait for each other for good, and no timeout of the link ends that
(tests/mpc_bridge/test_faults.py). Whoever is alive acknowledges what it gets: a call in
which nothing arrives for twice the timeout is over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_STEP = 0.25  # seconds


class Watch:
    """Call something once, when nothing has arrived for long in a call.

    Args:
        received: Return how many bytes have arrived so far.
        timeout: Of the link, in seconds.
        give_up: Called with a sentence, in a thread of its own.
    """

    def __init__(
        self,
        received: Callable[[], int],
        timeout: float,
        give_up: Callable[[str], None],
    ):
        self._received, self._limit, self._give_up = received, 2 * timeout, give_up
        self._since: float | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Watch the calls in the block."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def close(self) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        size, last = self._received(), time.monotonic()
        while not self._done.wait(_STEP):
            now, before, since = time.monotonic(), size, self._since
            size = self._received()
            last = now if size != before else last
            if since is not None and now - max(since, last) > self._limit:
                self._give_up(
                    "another party did not answer in time, is gone or was cut off: "
                    f"nothing has arrived for {self._limit:g} s"
                )
                return
