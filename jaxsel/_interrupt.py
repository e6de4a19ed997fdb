"""Ctrl-C while the program `jaxsel` still loads: one line, no traceback."""

from __future__ import annotations

import os
import sys
from types import TracebackType


def quiet_interrupts() -> None:
    """Report an interrupt on one line where jaxsel is imported to run its program.

    That import takes seconds, all of them before the command line can catch anything.
    Python still ends by the signal, which shells report as exit status 130.
    """
    program = os.path.basename(sys.argv[0] if sys.argv else "")
    as_module = program == "-m" and "jaxsel" in sys.orig_argv
    if not as_module and os.path.splitext(program)[0] != "jaxsel":
        return
    shown = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.stderr.write("jaxsel: interrupted\n")
        else:
            shown(kind, error, trace)

    sys.excepthook = hook
