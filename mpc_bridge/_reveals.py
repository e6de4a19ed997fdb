"""Leakage of a session's answer, as far as each party can measure it.

No protocol hides its own answer (`docs/leakage.md`). After the session, and on its own,
the data owner attacks the proxies with the answer on its own rows; the model owner
attacks them on samples of its own, if it has any, or a random probe in their place.
Figures are kept, and no surrogate; nothing is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsel.proxy import (
    Leakage,
    Manifest,
    Proxy,
    expected_leakage,
    is_linear_probe,
    leakage,
    leakage_of_answer,
)

from ._config import Leak
from ._result import Basis, PhaseResult, Reveal, table

ROWS_A_WEIGHT = 16
"""Rows that are attacked for each weight: twice as many as give a probe away."""

_FEWEST = 1000
_NUMBERS = 1 << 24  # of features in one attack
_CHOSEN = 200  # at least so many of the chosen rows, if there are
_OPTIONS: Any = {"steps": 60, "enough": 0.99}


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """A phase's answer, at any party.

    Attributes:
        left: Rows of the pool that were scored, `[n]`.
        kept: Which of them were chosen, their places in `left`, `[k]`.
        levels: Places of the scores among the pivots, `[n]`; None by "set".
        phase: Counts.
    """

    left: np.ndarray
    kept: np.ndarray
    levels: np.ndarray | None
    phase: PhaseResult


def opened(answer: Answer) -> str:
    """Describe the values that a phase opened to all parties."""
    phase = answer.phase
    rows = f"the {phase.kept:,} rows that are left"
    if phase.outside is not None:
        rows += ", how many samples left the proxy's bounds"
    if answer.levels is None:
        return rows
    return (
        f"{rows}, and for each of {phase.passes} pivots "
        f"which of the scores that were left lie above it: {phase.comparisons:,} "
        "outcomes"
    )


def of_data_owner(
    answers: Sequence[Answer],
    manifests: Sequence[Manifest],
    readers: Sequence[Any],
    *,
    memory: int,
) -> tuple[Reveal, ...]:
    """Attack each phase's proxy with the answer, on the data owner's own rows."""
    reveals: list[Reveal] = []
    for i, (answer, manifest, read) in enumerate(
        zip(answers, manifests, readers, strict=True)
    ):
        chosen = np.zeros(len(answer.left), bool)
        chosen[answer.kept] = True
        rows = _drawn(manifest, chosen, memory)
        x, mask = read(answer.left[rows])(slice(0, len(rows)))
        levels = None if answer.levels is None else answer.levels[rows]
        try:
            leak = leakage_of_answer(
                manifest, x, chosen[rows], mask, levels=levels, **_OPTIONS
            )
        except (ValueError, MemoryError) as error:
            reveals.append(_none(i, answer, str(error)))
        else:
            reveals.append(_reveal(i, answer, leak, "own rows"))
    return tuple(reveals)


def of_model_owner(
    answers: Sequence[Answer],
    manifests: Sequence[Manifest],
    weights: Sequence[Mapping[str, np.ndarray]],
    samples: Sequence[Any],
    *,
    leak: Leak,
    memory: int,
) -> tuple[Reveal, ...]:
    """Attack each phase's proxy by a simulated choice.

    Args:
        answers: Of the phases.
        manifests: Likewise.
        weights: Likewise.
        samples: Likewise: x and mask of samples like the pool's, the same ones in each
            phase; or none, and then a linear probe has a random one in its place.
        leak: What the choices opened.
        memory: Bytes for what is attacked.
    """
    reveals: list[Reveal] = []
    remaining: Any = None
    for i, (answer, manifest) in enumerate(zip(answers, manifests, strict=True)):
        n, keep = answer.phase.samples, answer.phase.kept
        try:
            if samples:
                proxy = Proxy.from_arrays(manifest, dict(weights[i]))
                x, mask = samples[i]
                remaining = np.arange(len(x)) if remaining is None else remaining
                rows = remaining[: attacked_rows(manifest, len(remaining), memory)]
                measured = leakage(
                    proxy, x[rows], keep / n, _of(mask, rows), leak=leak, **_OPTIONS
                )
                reveals.append(_reveal(i, answer, measured, "own samples"))
                scores = np.asarray(
                    proxy.scores(proxy.logits(x[remaining], _of(mask, remaining)))
                )
                best = np.argsort(-scores, kind="stable")
                remaining = remaining[
                    np.sort(best[: max(1, round(keep / n * len(remaining)))])
                ]
            elif is_linear_probe(manifest):
                expected = expected_reveal(manifest, n, keep, leak=leak)
                reveals.append(_reveal(i, answer, expected, "random probe"))
            else:
                why = "give model_owner.samples, or call jaxsel.proxy.leakage"
                reveals.append(_none(i, answer, why))
        except (ValueError, MemoryError) as error:
            reveals.append(_none(i, answer, str(error)))
    return tuple(reveals)


def of_nobody(answers: Sequence[Answer], why: str) -> tuple[Reveal, ...]:
    """Describe the openings, and why no attack was run."""
    return tuple(_none(i, answer, why) for i, answer in enumerate(answers))


def expected_reveal(
    manifest: Manifest, n: int, keep: int, *, leak: Leak = "rank"
) -> Leakage:
    """Estimate the least leakage of a linear probe's choice from public sizes.

    Of no more rows than `attacked_rows` says, so that it takes seconds.
    """
    rows = attacked_rows(manifest, n, 1 << 40)
    kept = min(rows - 1, max(1, round(keep / n * rows)))
    return expected_leakage(manifest, rows, kept, leak=leak, **_OPTIONS)


def expected_table(
    manifests: Sequence[Manifest], keeps: Sequence[int], n: int, leak: Leak
) -> str:
    """Tabulate the expected leakage of each phase's answer before a run."""
    header = ["rank correlation", 'leak = "rank"', 'leak = "set"']
    lines: list[list[str]] = []
    for i, (manifest, keep) in enumerate(zip(manifests, keeps, strict=True)):
        cells = ["-", "-"]
        if is_linear_probe(manifest) and keep < n:
            reveal = expected_reveal(manifest, n, keep)
            cells = [f"{reveal.rank_correlation:.2f}"]
            cells.append(f"{reveal.chosen.rank_correlation:.2f}")
        lines.append([f"phase {i + 1}: {keep:,} of {n:,}", *cells])
        n = keep
    return (
        "What the answers should give away of the proxies to whoever holds the "
        "samples, by the best known\nattack: how a surrogate ranks fresh samples, 1 as "
        f'the proxy does. This session has leak = "{leak}".\n\n'
        f"{table([header, *lines])}\n\n"
        "Of a random linear probe and normal features, at least; encoders' features "
        "give away more. Of other\nproxies nothing follows from their sizes: measure "
        "them by jaxsel.proxy.leakage."
    )


def attacked_rows(manifest: Manifest, n: int, memory: int) -> int:
    """Return how many of n rows an attack takes, so that it ends in about a minute."""
    inputs = manifest.inputs
    columns = inputs.width if inputs.kind == "features" else 2 * inputs.width
    weights = columns * (manifest.head.n_classes - 1)
    most = min(ROWS_A_WEIGHT * weights, _NUMBERS // columns)
    size = 4 * inputs.width * max(1, inputs.length)
    return min(n, max(_FEWEST, most), max(2, memory // 4 // size))


def _drawn(manifest: Manifest, chosen: np.ndarray, memory: int) -> np.ndarray:
    """Return the rows to attack with: chosen and others by their shares."""
    n = attacked_rows(manifest, len(chosen), memory)
    if n == len(chosen):
        return np.arange(n)
    rng = np.random.default_rng(0)
    of_chosen, others = (
        rng.permutation(np.flatnonzero(kind)) for kind in (chosen, ~chosen)
    )
    count = max(round(n * chosen.mean()), min(_CHOSEN, n // 2))
    count = min(len(of_chosen), count)
    return np.sort(np.concatenate([of_chosen[:count], others[: n - count]]))


def _of(mask: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if mask is None else mask[rows]


def _reveal(i: int, answer: Answer, leak: Leakage, basis: Basis) -> Reveal:
    best = leak.chosen
    if leak.outcomes and leak.outcomes.rank_correlation > best.rank_correlation:
        best = leak.outcomes
    return Reveal(
        phase=f"phase {i + 1}",
        opened=opened(answer),
        basis=basis,
        rows=leak.n,
        outcomes=leak.outcomes and round(leak.outcomes.rank_correlation, 4),
        chosen=round(leak.chosen.rank_correlation, 4),
        overlap=round(best.overlap, 4),
        chance=round(leak.chance, 4),
        verdict=leak.verdict,
    )


def _none(i: int, answer: Answer, why: str) -> Reveal:
    return Reveal(
        phase=f"phase {i + 1}",
        opened=opened(answer),
        basis="nothing",
        verdict=f"not attacked: {why}",
    )
