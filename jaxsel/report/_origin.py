"""Date, revision and versions that a report names as its origin."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of a report.

    Attributes:
        date: Day it was made, in UTC, as 2026-01-31.
        revision: Git commit of jaxsel, with "+" if tracked files differ from it; None
            if jaxsel does not run from a checkout.
        versions: Versions of jaxsel, JAX and Python, and the kind of device.
    """

    date: str
    revision: str | None
    versions: Mapping[str, str]


def origin() -> Origin:
    """Return the origin of a report that is made now.

    Raises:
        ValueError: If the environment sets `SOURCE_DATE_EPOCH` to no number of seconds.
    """
    import jax

    from jaxsel._version import __version__

    return Origin(
        date=_now().date().isoformat(),
        revision=_revision(),
        versions={
            "jaxsel": __version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
            "device": jax.devices()[0].device_kind,
        },
    )


def _now() -> datetime:
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if not seconds:
        return datetime.now(UTC)
    if not seconds.isdecimal():
        raise ValueError(
            f"SOURCE_DATE_EPOCH must be seconds since 1970, got {seconds!r}: unset it, "
            "or set it to a count such as 1767225600"
        )
    return datetime.fromtimestamp(int(seconds), UTC)


def _revision() -> str | None:
    try:
        # An environment may lie in somebody else's repository.
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],
        cwd=Path(__file__).parent,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
