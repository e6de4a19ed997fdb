"""A record of all openings in an output folder, discarded attempts included.

A line is on disk before the opening that it tells of is sent or received, and no line
is ever removed. So a session that is cut and begun again with another pool is known for
what it is: another answer.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._handshake import ROLES, Refused, SessionError, agree, stop
from ._limits import Limits
from ._private import sync_folder

if TYPE_CHECKING:
    from .engines import Engine

FILE = "openings.jsonl"
_SALT = 32  # bytes
_COMMITMENT = re.compile(r"sha256:[0-9a-f]{64}")

_OWNED = "weights", "samples", "files"  # by rank

Opened = tuple[str, str, int]
"""Kind, phase and number of values."""


@dataclasses.dataclass(frozen=True)
class Start:
    """The common starting point of the parties.

    Attributes:
        work: Hash of this party's terms and files.
        common: Steps, or entries of the journal, that all parties have.
        kept: Those that this party has.
        commitments: Of the parties by rank, to weights and samples.
        rows: Rows that the phases leave.
    """

    work: str
    common: int
    kept: int
    commitments: tuple[str, ...]
    rows: int


@dataclasses.dataclass
class _Session:
    """One session as the file has it.

    Attributes:
        start: What its last start began from.
        steps: For each step in which something was opened, the start that did it last.
        starts: How often it was started.
        opened: Whether it opened something itself: steps may be of the one before.
        repeats: Starts that opened a step again; `repeated` is the last of them.
        ended: Whether all parties have its result.
    """

    start: Start
    steps: dict[int, int]
    starts: int = 1
    opened: bool = False
    repeats: int = 0
    repeated: int = 0
    ended: bool = False

    def repeats_from(self, start: Start) -> int:
        """Return the starts that open a step again, with this one."""
        again = max(self.steps, default=-1) >= start.common
        return self.repeats + again


class Record:
    """The openings of a party's output folder, session by session.

    Args:
        folder: The output folder.

    Raises:
        Refused: If the file is damaged, or others may read it.
    """

    def __init__(self, folder: Path):
        self.path = folder / FILE
        self._sessions: list[_Session] = []
        self._all: list[Opened] = []
        self._salt = b""
        if not self.path.exists():
            return
        check_mode(self.path)
        content = self.path.read_bytes()
        whole, newline, _ = content.rpartition(b"\n")
        if len(whole + newline) < len(content):
            # A crash cut the last line: what it tells of was not opened.
            os.truncate(self.path, len(whole + newline))
        for line in whole.splitlines():
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError):
                raise Refused(
                    "the record of openings in output must be whole",
                    f"{self.path}: {line[:60]!r}",
                ) from None

    @property
    def opened(self) -> int:
        """Values that were opened so far."""
        return sum(values for *_, values in self._all)

    @property
    def empty(self) -> bool:
        """Whether nothing was ever begun."""
        return not self._sessions

    def ended(self, work: str) -> bool:
        """Return whether the last session is of this work, and all have its result."""
        last = self._last
        return last is not None and last.ended and last.start.work == work

    def commitment(self, session: str, content: Any) -> str:
        """Return a commitment to weights or samples, the same for the same session.

        Args:
            session: Name of the session.
            content: Hashes of what is committed to, as JSON has them.
        """
        if not self._salt:
            self._append({"salt": secrets.token_hex(_SALT)})
        # All parts have one length: none runs into the next.
        texts = session, json.dumps(content, sort_keys=True)
        parts = [hashlib.sha256(text.encode()).digest() for text in texts]
        data = b"jaxsel commitment 1 " + self._salt + b"".join(parts)
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    def decide(self, start: Start, limits: Limits) -> str | None:
        """Return why a start begins another session; None if the last one goes on.

        Args:
            start: What the parties start from.
            limits: This party's own.

        Raises:
            Refused: If it goes beyond a limit: both numbers are named.
            SessionError: If a party goes on with other weights or samples than before.
        """
        last, reason = self._last, self._reason(start)
        answered = [session.start for session in self._sessions if session.opened]
        number, rows = len(answered), sum(session.rows for session in answered)
        if last is None or not last.opened or reason is not None:
            number, rows = number + 1, rows + start.rows
        if number > limits.sessions:
            raise Refused(
                f"limits.sessions must be at least {number} for another answer, got "
                f"{limits.sessions}: {reason}; --limit sessions={number} goes on"
            )
        self.check_rows(rows, limits)
        repeats = 0 if last is None or reason is not None else last.repeats_from(start)
        if repeats > limits.reopenings:
            raise Refused(
                f"limits.reopenings must be at least {repeats} to open a step "
                f"again that was cut, got {limits.reopenings}"
            )
        return reason

    def start(
        self, engine: Engine, start: Start, limits: Limits, *, asked: bool
    ) -> str | None:
        """Record a start that all parties accept, and return the messages for the user.

        Args:
            engine: That connects the parties.
            start: What they start from.
            limits: This party's own.
            asked: Whether a party opened something before: then all say whether they
                go on. Else none has a reason not to.

        Raises:
            Refused: As `decide`.
            SessionError: Likewise, or if another party does not go on.
        """
        try:
            reason = self.decide(start, limits)
        except (Refused, SessionError) as refused:
            if asked:
                stop(engine, str(refused))
            raise
        if asked:
            agree(engine, {}, {})
        before = self.opened
        anew = reason is not None or self._last is None
        line = {"begin": dataclasses.asdict(start), "anew": anew, "time": time.time()}
        self._append(line)
        if reason is None or not before:
            return None
        return (
            f"Another answer: {reason}. {before} values were opened before, and count, "
            f"see {self.path}."
        )

    def check_rows(self, rows: int, limits: Limits) -> None:
        """Refuse more rows than the limits allow."""
        if limits.rows is not None and rows > limits.rows:
            raise Refused(
                f"limits.rows must be at least the {rows} rows that the phases leave, "
                f"got {limits.rows}"
            )

    def note(self, entry: int, opened: Opened, most: int) -> None:
        """Have on disk that something is about to be opened.

        Args:
            entry: Of the journal that it belongs to.
            opened: What.
            most: Values that may be opened in all.

        Raises:
            SessionError: If they would be more, or the line can't be written.
        """
        if self.opened + opened[2] > most:
            raise SessionError(
                f"limits.openings must be at least {self.opened + opened[2]} values, "
                f"got {most}"
            )
        self._append({"open": [entry, *opened]})

    def end(self) -> None:
        """Note that all parties have the result."""
        self._append({"end": time.time()})

    def discarded(self, counted: Sequence[Opened]) -> list[Opened]:
        """Return the openings that are not among those that a result counts."""
        beyond = collections.Counter(self._all)
        beyond.subtract(collections.Counter(counted))
        return [*beyond.elements()]

    @property
    def _last(self) -> _Session | None:
        return self._sessions[-1] if self._sessions else None

    def _reason(self, start: Start) -> str | None:
        """Return why this is another session than the last one; None if it is not."""
        last = self._last
        if last is None:
            return None
        if last.ended:
            return "all parties have the last session's result"
        for rank, (now, before) in enumerate(
            zip(start.commitments, last.start.commitments, strict=True)
        ):
            if now == before:
                continue
            what = f"the {ROLES[rank]} commits to other {_OWNED[rank]} than before"
            if start.common:
                raise SessionError(f"{what}, and goes on after {start.common} steps")
            return f"{what}, or has lost its output folder"
        if last.start.work != start.work:
            return "this party's terms or files are other ones than before"
        # In lockstep, a party has at most one step more than another that was cut, and
        # has noted the next one, which it was about to open.
        fit = {start.common, start.common + 1 if start.kept <= start.common + 1 else -1}
        beyond = {step for step in last.steps if step > start.common} - fit
        if beyond:
            return (
                f"a party has kept {start.common} steps, and number {max(beyond) + 1} "
                "was opened before"
            )
        return None

    def _append(self, line: Mapping[str, Any]) -> None:
        """Write a line that is on disk when this returns."""
        new = not self.path.exists()
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if new:
                sync_folder(self.path.parent)
        except OSError as error:
            text = error.strerror or str(error)
            raise SessionError(f"{self.path} can't be written: {text}") from error
        self._take(line)

    def _take(self, line: Mapping[str, Any]) -> None:
        """Take up a line of the file."""
        last = self._last
        if "salt" in line:
            self._salt = bytes.fromhex(line["salt"])
            if len(self._salt) != _SALT:
                raise ValueError(f"a salt has {_SALT} bytes")
        elif "begin" in line:
            about: dict[str, Any] = dict(line["begin"])
            about["commitments"] = tuple(about["commitments"])
            start = Start(**about)
            if line["anew"] or last is None:
                kept = {} if last is None or last.ended else last.steps
                steps = {step: -1 for step in kept if step < start.common}
                self._sessions.append(_Session(start, steps))
            else:
                last.start, last.starts = start, last.starts + 1
        elif last is None:
            raise ValueError("an opening before any start")
        elif "open" in line:
            step, kind, phase, values = line["open"]
            self._all.append((str(kind), str(phase), int(values)))
            if last.steps.get(step, last.starts) != last.starts != last.repeated:
                last.repeats, last.repeated = last.repeats + 1, last.starts
            last.steps[int(step)], last.opened = last.starts, True
        else:
            last.ended = line["end"] > 0


def count_of(offer: Mapping[str, Any], name: str) -> int:
    """Read a whole number from a party's offer.

    Raises:
        SessionError: If it is none.
    """
    count = offer.get(name)
    if type(count) is not int or count < 0:
        raise SessionError(f"{name} must be a whole number, got {count!r:.60}")
    return count


def commitment_of(offer: Mapping[str, Any]) -> str:
    """Return the commitment that a party offers.

    Raises:
        SessionError: If it is none.
    """
    text = offer.get("commitment")
    if not isinstance(text, str) or not _COMMITMENT.fullmatch(text):
        raise SessionError(f"a commitment must be a hash, got {text!r:.60}")
    return text


def check_mode(path: Path) -> None:
    """Refuse a file or folder that others than its owner may read."""
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Refused(
            "shares and openings on disk must be readable by their owner alone: chmod "
            "go= it, or delete the folder to begin again",
            str(path),
        )
