"""The paper's figures on parts of a model, counted on CrypTen."""

from __future__ import annotations

from typing import Any

from jaxsel.proxy import (
    Cost,
    ablation,
    choice_cost,
    cost,
    manifest,
    paper_spec,
)

from .paper import BERT, ROWS
from .ways import NETWORK, whole


def claimed(length: int) -> dict[str, float]:
    """Count each of `FIGURES`, and hours of batches one by one over some in step.

    Args:
        length: Tokens of a text.
    """
    sizes: dict[str, Any] = {**BERT, "length": length, "plan": "plain"}
    block = cost(manifest(whole(1), **sizes), 5, batch_size=5)
    bert = cost(manifest(whole(12), **sizes), 4, batch_size=4)
    comparison = choice_cost(2, 1)  # one comparison, and its opening
    last = paper_spec(1, 12, 16)
    exact, emulated = (
        cost(manifest(spec, **sizes), 5, batch_size=5)
        for spec in (ablation(last, "NoApprox"), last)
    )
    phase = manifest(paper_spec(3, 12, 16), **sizes)
    apart, together = (
        cost(phase, ROWS, NETWORK, batch_size=4, lanes=lanes).seconds or 0.0
        for lanes in (1, 4)
    )
    softmax = _bytes(exact, "softmax") / _bytes(emulated, "emulator_")
    norm = _bytes(exact, "norm") / _bytes(emulated, "norm_")
    return {
        "comparison rounds": comparison.rounds - 1,
        "comparison bytes": comparison.bytes - 16,
        "softmax rounds": _softmax_rounds(block),
        "softmax share": block.share("softmax"),
        "BERT rounds": bert.rounds,
        "BERT GB": bert.bytes / 1e9,
        "softmax by MLP": softmax,
        "norm by MLP": norm,
        "scheduling": apart / together,
    }


def _softmax_rounds(counted: Cost) -> float:
    return next(
        row.one_batch.rounds for row in counted.rows if row.operation.name == "softmax"
    )


def _bytes(counted: Cost, name: str) -> float:
    """Sum the bytes of a batch in operations of the layer, by how their names begin."""
    return sum(
        row.one_batch.bytes
        for row in counted.rows
        if row.operation.place == "layers.0" and row.operation.name.startswith(name)
    )
