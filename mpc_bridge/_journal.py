"""What a party keeps on disk while a session runs, so that a killed one goes on.

After each batch of scores a party writes its own shares of them, and after each opening
what was opened: entries in an order that is the same for all parties. When all start
again, they take up after the last entry that all of them have. Shares of one party say
nothing without the others'; files are readable by their owner alone, and deleted at the
end.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._framing import pack, unpack
from ._handshake import Refused, SessionError, digest
from .engines import Engine, Secret

if TYPE_CHECKING:
    from ._ledger import Ledger

FOLDER = "unfinished"
_KEY = "session.json"


class Journal:
    """The entries of one party's session.

    Attributes:
        there: How many entries were written before, by the same session.
        session: A hash that tells sessions apart.
    """

    def __init__(self, output: Path, key: Any):
        """Open the journal of a session, or begin one.

        Args:
            output: The party's folder.
            key: What makes this session another one: anything that JSON can hold. The
                entries of another session are deleted.

        Raises:
            Refused: If another process works on this session here, or others may read
                its files.
        """
        self._folder = output / FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _check_mode(self._folder)
        self._lock = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Refused(
                "output must not be in use by another run", str(output)
            ) from None
        session = digest(json.dumps(key, sort_keys=True, default=str))
        self.session = session
        try:
            self._document = self._read_key()
            if self._document.get("session") != session:
                self._clear()
                self._document = {"session": session}
            self.there = sum(1 for _ in self._entries())
        except BaseException:
            os.close(self._lock)
            raise
        self._at, self._replayed = 0, 0

    def watch(self, ledger: Ledger) -> None:
        """Keep a ledger's counts and openings with each entry."""
        self._ledger = ledger

    def start(self, common: int, engine: Engine, agreed: Any) -> None:
        """Go on after the first entries, which all parties have.

        Args:
            common: How many.
            engine: That reads their shares.
            agreed: On what the parties have agreed for this run, as JSON can hold it:
                where it is not what they had agreed before, all entries are deleted.
        """
        if not 0 <= common <= self.there:
            raise ValueError(f"common must be from 0 to {self.there}, got {common}")
        if self._document.get("agreed") != agreed:
            common = 0
        for i in range(common, self.there):
            self._path(i).unlink()
        self._document["agreed"] = agreed
        _write(self._folder / _KEY, json.dumps(self._document).encode())
        self._replayed, self._engine = common, engine

    @property
    def replaying(self) -> bool:
        """True while entries are read that were written before."""
        return self._at < self._replayed

    def secrets(self, make: Callable[[], list[Secret]]) -> list[Secret]:
        """Return this party's shares as they were kept, or make and keep them."""
        if self.replaying:
            return [self._engine.load(part) for part in unpack(self._take())]
        made = make()
        self._put(pack([self._engine.dump(secret) for secret in made]))
        return made

    def opened(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return what was opened before, or open and keep it."""
        if self.replaying:
            return np.load(io.BytesIO(self._take()), allow_pickle=False)
        made, buffer = make(), io.BytesIO()
        np.save(buffer, made, allow_pickle=False)
        self._put(buffer.getvalue())
        return made

    def finish(self) -> None:
        """Delete all entries: the session has its result."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Leave the entries to a later run."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take(self) -> bytes:
        path = self._path(self._at)
        try:
            state, data = unpack(path.read_bytes())
        except ValueError:
            raise SessionError(
                f"{path} is damaged: delete {self._folder}, and start all roles again"
            ) from None
        self._at += 1
        if not self.replaying:
            self._ledger.restore(json.loads(state))
        return data

    def _put(self, data: bytes) -> None:
        state = json.dumps(self._ledger.state()).encode()
        _write(self._path(self._at), pack([state, data]))
        self._at += 1

    def _path(self, entry: int) -> Path:
        return self._folder / f"{entry:06d}.entry"

    def _entries(self) -> Iterator[Path]:
        """Yield the entries that follow each other from the first one."""
        entry = 0
        while (path := self._path(entry)).exists():
            _check_mode(path)
            yield path
            entry += 1

    def _read_key(self) -> dict[str, Any]:
        path = self._folder / _KEY
        if not path.exists():
            return {}
        _check_mode(path)
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            return {}

    def _clear(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()


class NoJournal(Journal):
    """Keeps nothing: every entry is made."""

    def __init__(self) -> None:
        self.there, self._lock = 0, -1

    @property
    def replaying(self) -> bool:
        return False

    def watch(self, ledger: Ledger) -> None:
        pass

    def secrets(self, make: Callable[[], list[Secret]]) -> list[Secret]:
        return make()

    def opened(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        return make()


def _check_mode(path: Path) -> None:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Refused(
            "shares on disk must be readable by their owner alone: chmod go= it, or "
            "delete the folder to begin again",
            str(path),
        )


def _write(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, for its owner alone.

    Raises:
        SessionError: If that fails, such as on a full disk.
    """
    part = path.with_suffix(".part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        text = error.strerror or str(error)
        raise SessionError(
            f"{path} can't be written: {text}; what was kept before is whole"
        ) from error
