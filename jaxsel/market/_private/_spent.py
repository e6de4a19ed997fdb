"""The stages that states of an owner have reached: no older copy may go on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

FILE = ".jaxsel-spent"
_NAMES = ("begun", "keys", "share", "masked", "reveal")


class Spent:
    """The stages that the states in a folder have reached, in a file beside them.

    Who goes on twice from one state may open both of its masks. A state that was copied
    and restored in its folder, under any name, is known by its number. One that is
    restored with its whole folder, or on another machine, is not.

    Args:
        folder: Of the states.
    """

    def __init__(self, folder: Path):
        self._path = folder / FILE

    def check(self, number: str, stage: int) -> None:
        """Raise if another step has been taken from this state already.

        Args:
            number: Of the state, the same in all its copies.
            stage: How many steps it has taken.

        Raises:
            ValueError: If it went on before.
        """
        if self._path.exists():
            with self._open() as file:
                self._check(_stages(file), number, stage)

    def note(self, number: str, before: int, stage: int) -> None:
        """Have on disk that a state reaches a stage, before it is replaced.

        Args:
            number: Of the state.
            before: The stage that it was read or saved at last.
            stage: The one that it has now.

        Raises:
            ValueError: If it went on from `before` elsewhere.
            OSError: If that can't be written.
        """
        with self._open() as file:
            self._check(_stages(file), number, before)
            # On a line of its own, whatever a crash left of the one before.
            os.write(file, f"\n{number} {stage}\n".encode())
            os.fsync(file)

    def _check(self, stages: dict[str, int], number: str, stage: int) -> None:
        reached = stages.get(number, 0)
        if reached > stage:
            raise ValueError(
                f"the state must be the newest one, after {_NAMES[reached]!r}, got a "
                f"copy from before, after {_NAMES[stage]!r} (by {self._path}): going "
                "on from it could open what it hides, so ask anew"
            )

    @contextlib.contextmanager
    def _open(self) -> Generator[int, None, None]:
        """Open the file, for one process at a time."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        handle = os.open(self._path, flags, 0o600)
        try:
            with contextlib.suppress(ImportError, OSError):  # Windows, or no locks
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def _stages(handle: int) -> dict[str, int]:
    """Return the stage that each state has reached."""
    stages: dict[str, int] = {}
    content = b""
    os.lseek(handle, 0, os.SEEK_SET)
    while part := os.read(handle, 1 << 16):
        content += part
    for line in content.decode(errors="replace").splitlines():
        number, _, stage = line.partition(" ")
        if stage in ("0", "1", "2", "3", "4"):
            stages[number] = max(stages.get(number, 0), int(stage))
    return stages
