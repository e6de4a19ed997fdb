"""Errors on one line: the fault, the file, and the remedy."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from ._parser import did_you_mean

_PART = re.compile(r"\.\d+\.(?=[^/]+$)")  # of files that are being written
_REMEDIES = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "change who may read and write there, or choose another place",
    errno.EPERM: "change who may read and write there, or choose another place",
    errno.ENOENT: "see that it is there, and not removed meanwhile",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


def explain_error(error: BaseException) -> str:
    """Format an error as one line; add a remedy to an OSError that has a known one."""
    message = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        message = error.strerror
        if error.filename is not None:
            message += f": {_PART.sub('', os.fsdecode(error.filename))}"
        remedy = _REMEDIES.get(error.errno or 0)
        return message if remedy is None else f"{message} ({remedy})"
    if isinstance(error, ModuleNotFoundError):
        message += ": pip install 'jaxsel[data,report,text]'"
    return message


def check_file(path: str) -> None:
    """Refuse a file that is not there, with the name of one that is.

    Raises:
        FileNotFoundError: If there is none.
    """
    file = Path(path)
    if file.is_file():
        return
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{path} is not there: nor is the folder {file.parent}")
    near = [other.name for other in file.parent.iterdir() if other.is_file()]
    guess = did_you_mean(file.name, near)
    raise FileNotFoundError(f"{path} is not there, or is not a file{guess}")
