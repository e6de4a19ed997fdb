"""The end of a role from outside: a signal, or the death of its parent process.

A call of an engine can take minutes, and Python's handlers wait for it. A thread hears
of signals as they come, says what was being done, removes what must not stay, and ends
the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from ._private import remove_held_folders, sweep

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_EVERY = 0.5  # seconds between two looks at the parent
_PR_SET_PDEATHSIG = 1

_doing: Callable[[], str] = lambda: ""


def set_doing(doing: Callable[[], str]) -> None:
    """Set the function that describes this role's current step in its last message."""
    global _doing
    _doing = doing


def watch_for_end(name: str, *, parent: int | None = None) -> None:
    """End this process, with a sentence, by SIGTERM, SIGHUP or its parent's death.

    Call it in the main thread of a process that plays a role.

    Args:
        name: Of the role, in the sentence.
        parent: Process id of the one that started this role and must outlive it; None
            for a role of its own.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in _SIGNALS:
        signal.signal(number, _ignore)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if parent is not None and sys.platform == "linux":
        # The kernel tells at once; elsewhere the thread's own look does.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def watch() -> None:
        while True:
            ready, _, _ = select.select([reader], [], [], _EVERY)
            if parent is not None and os.getppid() != parent:
                end_now(name, "ended, since the process that started it is gone", 1)
            for number in os.read(reader, 64) if ready else b"":
                if number in _SIGNALS:
                    by = signal.Signals(number).name
                    end_now(name, f"ended by {by}", 128 + number)

    threading.Thread(target=watch, name="end", daemon=True).start()


def end_now(name: str, reason: str, status: int) -> None:
    """Say why, remove temporary folders, and end this process."""
    where = _doing()
    text = f"{name}: error: {where}: {reason}" if where else f"{name}: error: {reason}"
    with contextlib.suppress(OSError):  # nobody may be left to hear it
        # Not sys.stderr, whose lock the main thread may hold.
        os.write(2, f"{text}\n".encode())
    remove_held_folders()
    sweep()  # of a parent that was killed
    os._exit(status)


def _ignore(number: int, frame: Any) -> None:
    """Keep the default action from ending the process without a word."""
