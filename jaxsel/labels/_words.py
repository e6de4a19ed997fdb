"""Labels as words in tables and figures."""

from __future__ import annotations

from typing import Any


def short(label: Any, most: int = 24) -> str:
    """Return a label as text for one line: no control characters, and not long."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(label)).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."
