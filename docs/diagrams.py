"""Drawings of no data, which `pictures.py` saves: what travels, and the floors."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#007a5a"


def certificates() -> None:
    """What travels between two parties before a run, and by which way."""
    _, ax = plt.subplots(figsize=(6.4, 2.3))
    ax.set(xlim=(0, 10), ylim=(0, 4))
    ax.axis("off")
    for left, name in ((0.1, "model owner"), (7.3, "data owner")):
        ax.add_patch(plt.Rectangle((left, 0.4), 2.6, 3.2, fc="none", ec="black"))
        ax.text(left + 1.3, 3.1, name, ha="center", weight="bold")
        ax.text(left + 1.3, 2.2, "key.pem stays", ha="center", fontsize=8)
        ax.text(
            left + 1.3, 1.2, "peers: the other's\ncertificate", ha="center", fontsize=8
        )
    for y, colour, text in (
        (2.9, BLUE, "certificate.pem, by e-mail"),
        (1.9, ORANGE, "fingerprint, by telephone"),
        (0.9, GREEN, "run: TLS 1.3, both certificates"),
    ):
        ends = {"arrowstyle": "<->", "color": colour}
        ax.annotate("", (7.2, y), (2.8, y), arrowprops=ends)
        ax.text(5, y + 0.15, text, ha="center", color=colour, fontsize=8)


def floors(table: Sequence[Sequence[str]]) -> None:
    """Draw the floors of the house with their rooms, foundations at the bottom.

    Args:
        table: Name and rooms of each floor, and what it holds.
    """
    _, ax = plt.subplots(figsize=(6.4, 3.4))
    ax.set(xlim=(0, 10), ylim=(0, len(table)))
    ax.axis("off")
    for level, (name, rooms, _) in enumerate(table):
        ax.add_patch(plt.Rectangle((0.1, level + 0.08), 9, 0.84, fc="#eef3f8", ec=BLUE))
        ax.text(0.3, level + 0.62, name, weight="bold", fontsize=9, va="center")
        shown = rooms.replace("`", "").replace(", ", "   ")
        ax.text(0.3, level + 0.3, shown, fontsize=8, va="center", family="monospace")
    ends = {"arrowstyle": "->", "color": ORANGE, "lw": 2}
    ax.annotate("", (9.5, 0.2), (9.5, len(table) - 0.2), arrowprops=ends)
    ax.text(9.75, len(table) / 2, "imports", rotation=270, color=ORANGE, va="center")
