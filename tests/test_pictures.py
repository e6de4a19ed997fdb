"""Pictures of the docs: there, used, described, small, and free of foreign requests."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jaxsel

ROOT = Path(__file__).parents[1]
IMAGES = sorted((ROOT / "docs" / "images").iterdir())
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = [
    (page, text, (page.parent / target).resolve())
    for page in PAGES
    for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text())
]


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.name)
def test_pictures_are_shown_and_drawn(image):
    assert image in [path for _, _, path in SHOWN]
    assert f'"{image.name}": ' in (ROOT / "docs" / "pictures.py").read_text()
    if image.suffix == ".svg":
        assert not re.search(
            r'(href|src)="(?!#|data:)|url\((?!#)|@import', image.read_text()
        )


@pytest.mark.parametrize(
    "page", sorted({page for page, _, _ in SHOWN}), ids=lambda path: path.name
)
def test_pages_say_what_pictures_show(page):
    mine = [(text, path) for shown, text, path in SHOWN if shown == page]
    assert all(len(text.split()) >= 8 for text, _ in mine)
    assert sum(path.stat().st_size for _, path in mine) < 1_000_000


def test_chart_has_the_speeds_of_its_page():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    chart = (ROOT / "docs" / "images" / "speed.svg").read_text()
    times = re.findall(r"^\| .* \| ([\d.]+)(?: \(wall\))?[†‡§]* \|$", page, re.M)
    assert len(times) > 8
    for ratio in times:
        # `python docs/pictures.py speed` draws it again.
        assert f": {float(ratio):g}× " in chart


def test_messages_are_those_of_the_page():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    gap = x.copy()
    gap[3, 1] = np.nan
    calls = [
        (gap, y, x, y),
        (np.ones((5, 4, 3)), y[:5], x, y),
        (x, y[:5], x, y),
        (x, y, x[:, :2], y),
        (x, y, x, np.where(y, "a", "b")),
        (x, y + 0.5, x, y),
        (x, pd.Series([["a"], ["a", "b"]] * 10), x, y),
        (pd.DataFrame({"emb": [*x[1:], x[0, :1]]}), y, x, y),
        (x, np.where(y, "a", "b"), x, np.where(y, "c", "d")),
    ]
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    assert len(messages) == len(calls)
    for message, arguments in zip(messages, calls, strict=True):
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}"):
            jaxsel.knn_shapley(*arguments, k=5)
