"""Scores to reach of the set-ups of linear datamodelling scores."""

from __future__ import annotations

import re

from ._torch_runs import TORCH


def with_targets(text: str) -> str:
    """Compare run 0 of the set-ups, and torch's in A, with the scores to reach.

    Args:
        text: Sections; lists in those of set-ups are replaced.
    """
    sections = re.split(r"(?m)^(?=## )", text)
    for i, section in enumerate(sections):
        if section.startswith("## Set-up"):
            section = re.sub(r"(?m)^- .*\n*", "", section).rstrip()
            lines = "\n".join(f"- {line}" for line in targets(section))
            sections[i] = f"{section}\n\n{lines}\n\n"
    return "".join(sections).rstrip() + "\n"


def targets(section: str) -> list[str]:
    """Compare the table of a set-up with the scores to reach."""
    rows = [line.strip("| ").split(" | ") for line in section.splitlines()]
    table = {row[0]: row[1:] for row in rows if len(row) > 1}

    def score(name: str, column: int) -> float:
        return float(table[name][column].partition(" ")[0])

    alone, exact = "`network_influence`", "`metagradient`"
    several = '`network_influence(seeds=5, output="log_odds")`'
    torch = re.search(f"{TORCH}.*metagradient scores ([0-9.]+)", section)
    most = 0.62 if torch else 0.97
    asked = [
        ("drop, metagradient: score", score(exact, 2), most, True),
        (
            "drop, metagradient at 8 drops: score",
            score("`metagradient(drops=8)`", 2),
            most,
            True,
        ),
    ]
    if torch:
        seconds = "CPU s of the second call"
        once, five = (float(table[n][4].split(", ")[1]) for n in (alone, several))
        asked = [
            ("half, five networks, log-odds: score", score(several, 0), 0.62, True),
            (f"half, five networks, log-odds: {seconds}", five, 13, False),
            ("half, one network: score", score(alone, 0), 0.55, True),
            (f"half, one network: {seconds}", once, 3, False),
            ("drop, metagradient, torch's run: score", float(torch[1]), 0.62, True),
            *asked,
        ]
    lines = []
    for text, measured, goal, least in asked:
        reached = measured >= goal if least else measured <= goal
        word = "reached" if reached else "missed"
        sign = "≥" if least else "≤"
        lines.append(f"{text} {measured:.3f}, must be {sign} {goal}: {word}")
    return lines
