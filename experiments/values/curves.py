"""Curves of single seeds as arrays for a file, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsel.tasks import Curves


def packed(curves: Curves) -> dict[str, Any]:
    """Return the curves of one seed as arrays by name, for a file."""
    arrays: dict[str, Any] = {
        "name": curves.name,
        "x": curves.x,
        "labels": (curves.xlabel, curves.ylabel),
        "percent_x": int(curves.percent_x),
        "ticks": np.array(curves.ticks, dtype="U"),
    }
    for method, curve in curves.curves.items():
        arrays[f"curve/{method}"] = curve[0]
        for measure, numbers in curves.summary[method].items():
            arrays[f"summary/{method}/{measure}"] = numbers[0]
    return arrays | {
        f"reference/{name}": numbers[0] for name, numbers in curves.reference.items()
    }


def unpacked(runs: Sequence[Mapping[str, Any]]) -> Curves:
    """Return the curves of several seeds from the arrays of `packed` for each."""
    first = runs[0]

    def under(prefix: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(prefix): np.stack([run[name] for run in runs])
            for name in first
            if name.startswith(prefix)
        }

    curves = under("curve/")
    return Curves(
        name=first["name"],
        x=first["x"],
        curves=curves,
        summary={method: under(f"summary/{method}/") for method in curves},
        reference=under("reference/"),
        xlabel=first["labels"][0],
        ylabel=first["labels"][1],
        percent_x=bool(first["percent_x"]),
        ticks=tuple(first["ticks"]),
    )
