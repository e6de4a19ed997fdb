"""Traffic of SPU, read from its log: its extension has no counters."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mpc_bridge._handshake import SessionError
from mpc_bridge.engines._face import Count

from ._compat import import_spu

_SENT = re.compile(
    r"Link details: total send bytes (\d+), recv bytes (\d+), "
    r"send actions (\d+), recv actions (\d+)"
)

_ROOM = 1 << 16  # bytes


class Traffic:
    """Counts of a process's links together; SPU writes a line after each program.

    A line says what all links took while its program ran. Of programs that start at
    once the largest line is taken: the last one to end has seen what all sent, but for
    what left before it had begun.
    """

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

    def read(self, *, at_once: bool = False) -> None:
        """Add the traffic logged since the last call.

        Args:
            at_once: Whether the programs that ended since then ran at the same time.

        Raises:
            SessionError: If the folder can't be written, as on a full disk.
            RuntimeError: If there is nothing: the engine no longer says what it sends.
        """
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                file.seek(self._at)
                text = file.read()
                self._at = file.tell()
            lines = _SENT.findall(text)
            if not lines:  # SPU does not tell when it can't write
                room = self._path.with_suffix(".room")
                room.write_bytes(bytes(_ROOM))
                room.unlink()
        except OSError as error:
            raise SessionError(
                f"the temporary folder {self._path.parent} must be one with room to "
                f"write, got: {error.strerror}; TMPDIR names another"
            ) from error
        if not lines:
            raise RuntimeError("SPU does not say what it sent")
        counts = [[int(number) for number in line] for line in lines]
        if at_once:
            counts = [[max(column) for column in zip(*counts, strict=True)]]
        for sent, received, _, messages in counts:
            self.add(rounds=messages, sent=sent, received=received)
        self.programs += len(lines)

    def add(self, *, rounds: int = 0, sent: int = 0, received: int = 0) -> None:
        self._rounds += rounds
        self._sent += sent
        self._received += received

    def count(self) -> Count:
        size = self._sent + self._received
        return Count(rounds=self._rounds, bytes=size, sent=self._sent)
