"""Names of owners: each is written in one way, and no two look alike."""

from __future__ import annotations

import unicodedata
from typing import Any

from jaxsel._files.wire import check_text

# Japanese mixes them.
_TOGETHER = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK"}


def check_owner(name: str, value: Any) -> None:
    """Raise if an owner's name could pass for another one.

    It must be printable, in Unicode's normal form NFKC, with letters of one script, no
    blank at either end, and no two blanks in a row.
    """
    check_text(name, value, longest=100)
    if value != " ".join(value.split()):
        raise ValueError(
            f"{name} must have no blank at its ends and no two in a row, got {value!a}"
        )
    if not unicodedata.is_normalized("NFKC", value):
        plain = unicodedata.normalize("NFKC", value)
        raise ValueError(
            f"{name} must be in Unicode's normal form NFKC, got {value!a}: write "
            f"{plain!a}"
        )
    scripts = {
        _TOGETHER.get(script, script)
        for script in (
            unicodedata.name(c, "?").split()[0] for c in value if c.isalpha()
        )
    }
    if len(scripts) > 1:
        raise ValueError(
            f"{name} must have letters of one script, got {', '.join(sorted(scripts))} "
            f"in {value!a}"
        )
