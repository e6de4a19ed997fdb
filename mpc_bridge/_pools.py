"""Digests of the pools that a data owner has offered, in a folder that only it reads.

Two choices from pools that differ by few rows open what neither opens alone; only the
data owner can see that coming. Nothing of this is sent.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._files.staged import staged
from jaxsel._results.files import read_arrays, write_arrays
from jaxsel.proxy import compare_pools, row_digests

from ._handshake import Refused, SessionError
from ._holdings import Read
from ._private import make_private_folder, write_private

_KEY = "key"
_ROWS = 1 << 12  # digested at once


class Pools:
    """A folder of digests, one file a session.

    Digests are made under a random key that lies beside them: who has the folder can
    test guesses of samples, so that it is to be kept as the samples are.
    """

    def __init__(self, folder: Path):
        """Open a folder, or make one.

        Raises:
            Refused: If it is none, or others may read it.
        """
        self._folder = folder
        try:
            make_private_folder(folder)
            if folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Refused(
                    "data_owner.pools must be readable by its owner alone: chmod 700",
                    str(folder),
                )
            self._key = self._read_key()
        except OSError as error:
            raise Refused("data_owner.pools must be a folder", str(error)) from None

    def digests(self, read: Read, n: int) -> np.ndarray:
        """Return digests of the n rows of a pool, as its first phase reads them."""
        digests = [
            row_digests(*read(slice(start, start + _ROWS)), secret=self._key)
            for start in range(0, n, _ROWS)
        ]
        return np.concatenate(digests)

    def warnings(
        self, digests: np.ndarray, *, few: int, session: str, resumed: bool
    ) -> tuple[str, ...]:
        """Return a sentence for each earlier pool that is too near to this one.

        Args:
            digests: Of this pool.
            few: Rows from which on a change is not warned of.
            session: What tells sessions apart.
            resumed: Whether this session goes on after it was cut: its own pool is no
                other one then.
        """
        warnings: list[str] = []
        for path in sorted(self._folder.glob("*.npz")):
            unfinished = path.name.startswith(".")  # by a run that was killed
            if unfinished or (resumed and path == self._path(session)):
                continue
            try:
                arrays = read_arrays(path)
                name, earlier = str(arrays["name"]), arrays["digests"]
                warning = compare_pools(earlier, digests).warning(few=few)
            except (ValueError, TypeError, KeyError, OSError) as error:
                raise Refused(
                    "data_owner.pools must hold whole digests: delete a damaged file, "
                    "and compare with that session's pool by hand",
                    f"{path}: {error}",
                ) from None
            if warning is not None:
                warnings.append(f"Of session {name!r}: {warning}.")
        return tuple(warnings)

    def remember(self, digests: np.ndarray, *, name: str, session: str) -> None:
        """Keep a pool for later sessions to compare with, before anything is opened.

        Raises:
            SessionError: If that fails, such as on a full disk; no file is cut then.
        """
        arrays: dict[str, Any] = {"name": np.array(name), "digests": digests}
        path = self._path(session)
        try:
            with staged([path]) as [part]:
                os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                write_arrays(part, arrays)
        except OSError as error:
            text = error.strerror or str(error)
            raise SessionError(f"{path} can't be written: {text}") from error

    def _path(self, session: str) -> Path:
        return self._folder / f"{session.removeprefix('sha256:')[:32]}.npz"

    def _read_key(self) -> bytes:
        path = self._folder / _KEY
        if not path.exists():
            new = path.with_name(f"{_KEY}.{os.getpid()}")
            write_private(new, secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):  # another session was first
                os.link(new, path)
            new.unlink()
        key = path.read_bytes()
        if len(key) != 32:
            raise Refused("data_owner.pools must hold a key of 32 bytes", str(path))
        return key
