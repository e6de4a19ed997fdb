"""A party's journal on disk, from which a killed session resumes.

After each batch of scores a party writes its own shares of them, and after each opening
what was opened: entries in an order that is the same for all parties. When all start
again, they take up after the last entry that all of them have. Shares of one party say
nothing without the others'; files are readable by their owner alone, and deleted at the
end.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ._framing import pack, unpack
from ._handshake import Refused, SessionError, digest
from ._private import make_private_folder, sync_folder, write_private
from ._record import Opened, Record, check_mode
from .engines import Engine, Secret

FOLDER = "unfinished"
_KEY, _RESULT = "session.json", "result.json"
_HASH = hashlib.sha256().digest_size
_NEAR = 1e-2  # of a mean: the last digits of its shares differ from run to run


class Counts(Protocol):
    """Counts and openings of a run, which the journal keeps with each entry."""

    def state(self) -> dict[str, Any]:
        """Return counts and openings as JSON can hold them."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the counts and openings of a run that was killed."""
        ...


class Journal:
    """The entries of one party's session.

    Attributes:
        there: How many entries were written before, by the same session.
        session: A hash that tells sessions apart.
        anew: What is unlike the session that wrote the entries, which are of no use
            then; None where they are, or there are none.
    """

    def __init__(self, output: Path, key: Any, record: Record | None = None):
        """Open the journal of a session, or begin one.

        Args:
            output: The party's folder.
            key: What makes this session another one: anything that JSON can hold. The
                entries of another session are deleted once this one starts.
            record: Of what was opened in this folder; None keeps none.

        Raises:
            Refused: If another process works on this session here, or others may read
                its files.
        """
        self._folder = output / FOLDER
        make_private_folder(self._folder)
        check_mode(self._folder)
        self._lock = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Refused(
                "output must not be in use by another run", str(output)
            ) from None
        self.session = _digest(key)
        parts = key if isinstance(key, Mapping) else {"key": key}
        parts = {str(name): _digest(part) for name, part in parts.items()}
        self.there, self.anew = 0, None
        try:
            self._document = self._read_key()
            kept = sum(1 for _ in self._entries())
            if record is not None and record.empty:
                self.anew = "record of its openings" if kept else None
                self._document = {"session": self.session, "parts": parts}
            elif self._document.get("session") == self.session:
                self.there = kept
            else:
                before = self._document.get("parts", {})
                other = [name for name in parts if before.get(name) != parts[name]]
                self.anew = ", ".join(other) if kept else None
                self._document = {"session": self.session, "parts": parts}
        except BaseException:
            os.close(self._lock)
            raise
        self._at, self._replayed, self._record, self._most = 0, 0, record, 0

    def watch(self, counts: Counts) -> None:
        """Keep a ledger's counts and openings with each entry."""
        self._counts = counts

    def usable(self, common: int, agreed: Any) -> int:
        """Return how many of the common entries can be gone on with.

        Args:
            common: How many all parties have.
            agreed: On what the parties have agreed for this run, as JSON can hold it:
                where it is not what they had agreed before, no entry fits.
        """
        if not 0 <= common <= self.there:
            raise ValueError(f"common must be from 0 to {self.there}, got {common}")
        return common if self._document.get("agreed") == agreed else 0

    def start(
        self, common: int, engine: Engine, agreed: Any, *, most: int = 2**62
    ) -> None:
        """Go on after the first entries; those behind are deleted.

        Args:
            common: How many, of `usable`.
            engine: That reads their shares.
            agreed: As for `usable`.
            most: Values that may be opened, with those that the record has.
        """
        common = self.usable(common, agreed)
        for path in self._folder.glob("*.entry"):
            step = int(path.stem)
            if step == common and self.there > common:
                path.replace(self._before(step))  # it must open as the same again
            elif step >= common:
                path.unlink()
        for path in self._folder.glob("*.before"):
            if path != self._before(common):
                path.unlink()
        self._document["agreed"] = agreed
        _write(self._folder / _KEY, json.dumps(self._document).encode())
        self._replayed, self._engine, self._most = common, engine, most

    @property
    def replaying(self) -> bool:
        """True while entries are read that were written before."""
        return self._at < self._replayed

    def secrets(self, make: Callable[[], list[Secret]]) -> list[Secret]:
        """Return this party's shares as they were kept, or make and keep them."""
        if self.replaying:
            return [self._engine.load(part) for part in unpack(self._take())]
        secrets = make()
        self._put(pack([self._engine.dump(secret) for secret in secrets]))
        return secrets

    def opened(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return an opening that was kept before, or open and keep it.

        Raises:
            SessionError: If it was opened before as something else, and cut then.
        """
        if self.replaying:
            return _array(self._take())
        opened, buffer = make(), io.BytesIO()
        self._check_same(opened)
        np.save(buffer, opened, allow_pickle=False)
        self._put(buffer.getvalue())
        return opened

    def opening(self, opened: Opened) -> None:
        """Record an opening on disk before any share of it is sent.

        Raises:
            SessionError: If the party's limit forbids it.
        """
        if self._record is not None:
            self._record.note(self._at, opened, self._most)

    def keep_result(self, text: str) -> None:
        """Write a result beside the entries; `finish` moves it to its place.

        Raises:
            SessionError: If that fails, such as on a full disk.
        """
        _write(self._folder / _RESULT, text.encode())

    def show_result(self, path: Path) -> None:
        """Move the result to its place: all parties have seen the same opened."""
        (self._folder / _RESULT).replace(path)
        sync_folder(path.parent)

    def finish(self) -> None:
        """Delete all entries: all parties have the session's result."""
        if self._record is not None:
            self._record.end()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Leave the entries to a later run."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take(self) -> bytes:
        path = self._path(self._at)
        state, data = _parts(path)
        self._at += 1
        if not self.replaying:
            self._counts.restore(json.loads(state))
        return data

    def _put(self, data: bytes) -> None:
        state = json.dumps(self._counts.state()).encode()
        content = pack([state, data])
        content = hashlib.sha256(content).digest() + content
        _write(self._path(self._at), content)
        self._before(self._at).unlink(missing_ok=True)
        self._at += 1

    def _check_same(self, made: np.ndarray) -> None:
        """Raise if an opening differs from the one seen before the interruption."""
        path = self._before(self._at)
        if not path.exists():
            return
        before = _array(_parts(path)[1])
        if before.dtype.kind == "f" == made.dtype.kind:
            same = np.allclose(before, made, rtol=_NEAR, atol=_NEAR)
        else:
            same = np.array_equal(before, made)
        if not same:
            raise SessionError(
                f"what was opened before the cut, in {path}, is not what was opened "
                "now: another party goes on with other shares"
            )

    def _before(self, entry: int) -> Path:
        return self._folder / f"{entry:06d}.before"

    def _path(self, entry: int) -> Path:
        return self._folder / f"{entry:06d}.entry"

    def _entries(self) -> Iterator[Path]:
        """Yield the entries that follow each other from the first one."""
        entry = 0
        while (path := self._path(entry)).exists():
            check_mode(path)
            yield path
            entry += 1

    def _read_key(self) -> dict[str, Any]:
        path = self._folder / _KEY
        if not path.exists():
            return {}
        check_mode(path)
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            return {}


class NoJournal(Journal):
    """Keeps nothing: every entry is made."""

    def __init__(self) -> None:
        self.there, self._lock = 0, -1

    @property
    def replaying(self) -> bool:
        return False

    def watch(self, counts: Counts) -> None:
        pass

    def secrets(self, make: Callable[[], list[Secret]]) -> list[Secret]:
        return make()

    def opened(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        return make()

    def opening(self, opened: Opened) -> None:
        pass


def _digest(key: Any) -> str:
    return digest(json.dumps(key, sort_keys=True, default=str))


def _array(data: bytes) -> np.ndarray:
    return np.load(io.BytesIO(data), allow_pickle=False)


def _parts(path: Path) -> list[bytes]:
    """Return the ledger's state and the data of an entry."""
    content = path.read_bytes()
    try:
        if hashlib.sha256(content[_HASH:]).digest() != content[:_HASH]:
            raise ValueError("a hash that is not its content's")
        return unpack(content[_HASH:])
    except ValueError:
        raise SessionError(
            f"{path} is damaged: delete {path.parent}, and start all roles again"
        ) from None


def _write(path: Path, data: bytes) -> None:
    """Write a file that is whole or absent, for its owner alone.

    Raises:
        SessionError: If that fails, such as on a full disk.
    """
    try:
        write_private(path, data)
    except OSError as error:
        text = error.strerror or str(error)
        raise SessionError(
            f"{path} can't be written: {text}; what was kept before is whole"
        ) from error
