"""What SPU sends, read from its log: its extension has no counters of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mpc_bridge.engines._face import Count

from ._compat import import_spu

_SENT = re.compile(
    r"Link details: total send bytes (\d+), recv bytes (\d+), "
    r"send actions (\d+), recv actions (\d+)"
)


class Traffic:
    """Counts of a process's one link; SPU writes a line after each program."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Send SPU's log to a file, and nothing of it to the terminal.

        Args:
            folder: Of the file, which names addresses and sizes.
        """
        spu = import_spu()
        self._path = Path(folder) / "spu.log"
        options = spu.logging.LogOptions()
        options.enable_console_logger = False
        options.system_log_path = os.fspath(self._path)
        spu.logging.setup_logging(options)
        self._at, self._rounds, self._sent, self._received = 0, 0, 0, 0
        self.programs = 0

    def read(self) -> None:
        """Add what was logged since the last call.

        Raises:
            RuntimeError: If there is nothing: the engine no longer says what it sends.
        """
        with self._path.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._at)
            text = file.read()
            self._at = file.tell()
        lines = _SENT.findall(text)
        if not lines:
            raise RuntimeError("SPU does not say what it sent")
        for sent, received, _, messages in lines:
            self.add(rounds=int(messages), sent=int(sent), received=int(received))
        self.programs += len(lines)

    def add(self, *, rounds: int = 0, sent: int = 0, received: int = 0) -> None:
        self._rounds += rounds
        self._sent += sent
        self._received += received

    def count(self) -> Count:
        size = self._sent + self._received
        return Count(rounds=self._rounds, bytes=size, sent=self._sent)
