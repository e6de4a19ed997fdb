"""Errors on one line: the fault, the file, and the remedy, in the words of a user.

Functions name their arguments in errors; who typed a command knows options and files.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import traceback
from pathlib import Path
from typing import Any

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
_QUOTED = r"(?<!\w)(?:'[^']*'|\"[^\"]*\")(?!\w)"  # as texts of users and files are
_NAMED = (
    r"(?<![\w./\[-])(?P<name>[A-Za-z]\w*)(?P<value> ?= ?'?[\w.+-]+'?)?"
    r"(?![\w/\]-]|\.\w)"
)


def explain_error(error: BaseException, args: argparse.Namespace) -> str:
    """Format an error as one line.

    Name options and files where a function names its arguments; add a remedy to an
    OSError that has a known one.
    """
    message = " ".join(str(error).split())
    if isinstance(error, ValueError | TypeError) and _of_library(error):
        return _in_words(message, args)
    if isinstance(error, OSError) and error.strerror:
        message = error.strerror
        if error.filename is not None:
            message += f": {_PART.sub('', os.fsdecode(error.filename))}"
        remedy = _REMEDIES.get(error.errno or 0)
        return message if remedy is None else f"{message} ({remedy})"
    if isinstance(error, ModuleNotFoundError):
        message += ": pip install 'jaxsel[data,report,text]'"
    return message


def _of_library(error: BaseException) -> bool:
    """Return whether a function raised an error, rather than the command line."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = str(frames[-1].f_globals.get("__name__")) if frames else ""
    return module.startswith("jaxsel.") and not module.startswith("jaxsel._cli.")


def _in_words(message: str, args: argparse.Namespace) -> str:
    """Replace names of arguments in a function's message.

    An argument called like an option is that option, if it has a value. The command
    sets as `words` a dictionary of others and of phrases, or a function that makes one
    of `args`.
    """
    declared: Any = getattr(args, "words", {})
    words: dict[str, str] = declared if isinstance(declared, dict) else declared(args)
    parser: argparse.ArgumentParser = args.parser
    names = {
        action.dest: action.option_strings[0]
        for action in parser._actions
        if action.option_strings
        if getattr(args, action.dest, None) is not None or "must be given" in message
    } | words
    phrases = [re.escape(phrase) for phrase in words if " " in phrase] or ["(?!)"]
    whole = rf"(?:\b|(?=\W))(?P<phrase>{'|'.join(phrases)})(?!\w)"

    def replace(match: re.Match[str]) -> str:
        if match["phrase"]:
            return words[match["phrase"]]
        name, value = match["name"], match["value"]
        if name not in names or Path(name).exists():
            return match[0]
        word, after = names[name], message[match.end() :]
        if value is not None:
            shown = value.strip("= '")
            if not word.startswith("--") or shown == "None":
                return match[0]
            return word if shown == "True" else f"{word} {shown}"
        if name.isalpha() and name.islower() and name not in "xyt":
            # It may be a word of the message, but where arguments are named.
            opens = match.start() == 0 and re.match(" and | '", after)
            return word if opens or after.startswith(" must") else name
        return word

    return re.sub(rf"{_QUOTED}|{whole}|{_NAMED}", replace, message)


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


def why_not(path: str, error: Exception) -> str:
    """Return the reason why a file has no arrays, and the remedy."""
    what = contents_of(path)
    is_array = what.startswith(("a zip file", "cut short"))
    if is_array and re.search("allow_pickle|Python objects", str(error)):
        return "it holds Python objects: save texts with x.astype(str)"
    return f"it is {what}: write it again with np.save or np.savez"


def contents_of(path: str) -> str:
    """Describe, from its first bytes, a file that is no array file."""
    with open(path, "rb") as file:
        start = file.read(512)
    if not start:
        return "empty"
    known = {b"PK": "a zip file cut short or damaged", b"\x93NUMPY": "cut short"}
    for magic, kind in known.items():
        if start.startswith(magic):
            return kind
    return "text, perhaps a table" if b"\0" not in start else "of another kind"
