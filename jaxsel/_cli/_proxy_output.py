"""Outputs of `jaxsel proxy search`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxsel.proxy import Front, Schedule


def write(text: str, path: Path) -> None:
    """Write a text to a path."""
    path.write_text(text)


def plot(front: Front, path: Path) -> None:
    """Draw the front."""
    from jaxsel.report import new_figure

    figure = new_figure(7, 4.4)
    front.plot(ax=figure.add_subplot())
    figure.savefig(path, format="svg")


def page(args: argparse.Namespace, front: Front, table: str) -> str:
    """Return the page that shows the front."""
    runs, _, m = front.rehearsal.scores.shape
    return (
        f"# Schedules for {args.budget:,} of {args.pool:,} samples on {args.engine}\n\n"
        f"Rehearsed on {m:,} texts of {args.data} in {runs} runs. Overlap: the share "
        "of what a schedule chooses that the target would choose, with its standard "
        "error; held out: what to expect of a schedule that is chosen so. A random "
        f"choice overlaps by {front.random:.2f}. Hours of messages at "
        f"{args.bandwidth:g} MB/s and {args.latency:g} ms, without computing.\n\n"
        f"{table}\n\n![Hours and overlap of all schedules](front.svg)\n"
    )


def numbers(front: Front, chosen: Schedule) -> str:
    """Return all figures in JSON."""
    import numpy as np

    def plain(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    def entry(point: Schedule) -> dict[str, Any]:
        return {**dataclasses.asdict(point), "stderr": plain(point.stderr)}

    rehearsal = front.rehearsal
    document = {
        "points": [
            {**entry(point), "held_out": plain(held)}
            for point, held in zip(front.points, front.held_out, strict=True)
        ],
        "compared": {name: entry(point) for name, point in front.compared.items()},
        "chosen": front.points.index(chosen),
        "random": front.random,
        "tried": len(front.hours),
        "spearman": {
            name: [plain(value) for value in values]
            for name, values in zip(
                rehearsal.candidates, rehearsal.spearman.T, strict=True
            )
        },
        "failures": dict(rehearsal.failures),
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def toml(args: argparse.Namespace, front: Front, point: Schedule) -> str:
    """Return the public part of a session's configuration."""
    lines = [
        "# Written by `jaxsel proxy search`. Add the parties, and each its own part:",
        "# docs/secure-run.md.",
        "[session]",
        f"name = {json.dumps(f'{args.data}-{args.budget}-of-{args.pool}')}",
        f"engine = {json.dumps(args.engine)}",
        "seed = 0",
        f"samples = {args.pool}",
        f"# The {front.bought:,} rows of the bootstrap set, once they are bought:",
        '# exclude = "bought.npy"',
        f"leak = {json.dumps(args.leak)}",
        "",
        "[network]",
        f"bandwidth = {args.bandwidth:g}",
        f"latency = {args.latency:g}",
    ]
    sizes = zip(point.keeps, point.batch_sizes, strict=True)
    for i, (keep, batch_size) in enumerate(sizes):
        lines += [
            "",
            "[[phases]]",
            f'manifest = "phase-{i + 1}/manifest.json"',
            f"keep = {keep}",
            f"batch_size = {batch_size}",
        ]
    return "\n".join(lines) + "\n"
