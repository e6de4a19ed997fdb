"""Set the formulas of pages as MathML, which browsers draw without any script."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.S
)


def on_page_content(content: str, **_: Any) -> str:
    """Replace what pymdownx.arithmatex marked, on a line or within a sentence."""
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    block = found["tag"] == "div"
    formula = convert(
        html.unescape(found["tex"]).strip(), display="block" if block else "inline"
    )
    return f'<div class="formula">{formula}</div>' if block else formula
