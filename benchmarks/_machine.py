"""Conditions of a run: device, versions, revision, load."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "numpy",
    "scipy",
    "pydvl",
    "scikit-learn",
    "torch",
    "faiss-cpu",
    "semhash",
)


def describe() -> dict[str, Any]:
    """Describe the device, the software and the revision, as JSON."""
    import jax

    device = jax.devices()[0]
    return {
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "cpu": _cpu_model(),
            "cores": _cores(),
            "memory_gb": round(_memory_bytes() / 1e9, 1),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) or "absent" for name in _PACKAGES},
        },
        "revision": _revision(),
    }


def load_average() -> list[float]:
    """Return the load over 1, 5 and 15 minutes; more than a little spoils timings."""
    return [round(load, 2) for load in os.getloadavg()]


def slug(text: str) -> str:
    """Return `text` in lower case with everything but letters and digits as "-"."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def _cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _revision() -> str | None:
    """The commit, marked "+" if a tracked file differs; None outside a repository."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
