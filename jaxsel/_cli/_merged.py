"""Values merged with earlier ones, checked by their manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._output import fingerprint

Entry = Mapping[str, Any]


def describe_merged(merge: str, inputs: Sequence[Entry]) -> dict[str, Any]:
    """Return the inputs of earlier values by their manifest, those merged included.

    Args:
        merge: The file of the earlier values. Without a manifest beside it their inputs
            are unknown, and nothing is checked.
        inputs: Entries of TRAIN and VAL in the present manifest.

    Raises:
        ValueError: If they were computed from another TRAIN, or from this VAL, which
            would count twice.
    """
    entry = {"role": "merge", "source": merge, **fingerprint(merge)}
    manifest = Path(merge).with_suffix(".json")
    if not manifest.exists():
        return entry
    try:
        facts = json.loads(manifest.read_text())
        if entry["sha256"] not in [output["sha256"] for output in facts["outputs"]]:
            return entry  # the manifest of something else
        earlier = facts["inputs"]
        trained, tested = (_seen(earlier, role) for role in ("train", "val"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{manifest} is not a manifest of jaxsel") from error
    if trained and not trained & _seen(inputs, "train"):
        raise ValueError(f"{merge} values other samples than TRAIN, says {manifest}")
    if tested & _seen(inputs, "val"):
        raise ValueError(f"{merge} has counted VAL already, says {manifest}")
    return {**entry, "inputs": earlier}


def _seen(inputs: Sequence[Entry], role: str) -> set[tuple[str, str | None]]:
    return {
        (entry["sha256"], entry["array"])
        for entry in _walk(inputs)
        if entry["role"] == role and entry["sha256"] is not None
    }


def _walk(inputs: Sequence[Entry]) -> Iterator[Entry]:
    for entry in inputs:
        yield entry
        yield from _walk(entry.get("inputs", ()))
