"""Input that is allowed, but hardly ever meant: one line each, `Check: ...`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the warnings of jaxsel as lines, each once, and let others pass."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield lines
    for warning in caught:
        if warning.category is UserWarning:
            line = " ".join(str(warning.message).split())
            lines += [line] if line not in lines else []
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def same_inputs(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line if TRAIN and VAL are the same file, by their sums."""
    found = {entry["role"]: entry for entry in inputs}
    train, val = found.get("train", {}), found.get("val", {})
    sums = train.get("sha256"), val.get("sha256")
    arrays = train.get("array"), val.get("array")
    if None in sums or sums[0] != sums[1] or arrays[0] != arrays[1]:
        return []
    return [
        f"VAL ({val['source']}) is TRAIN ({train['source']}): each sample finds itself "
        "there. Give other samples, or --split 0.2"
    ]
