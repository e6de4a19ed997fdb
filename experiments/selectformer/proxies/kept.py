"""Results derived from the scores of all seeds, kept for each pool and seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._kit.seeds import Workers, at_once, free_programs, logged
from experiments._kit.store import remembered
from jaxsel._runs.progress import track

from .run import Proxies


def each_kept(
    folder: Path,
    result: Proxies,
    stem: str,
    job: Callable[[str, int], Mapping[str, Any]],
    settings: Mapping[str, Any],
    *,
    pools: Sequence[str] | None = None,
    progress: bool = False,
    workers: Workers | None = None,
) -> dict[str, list[Mapping[str, Any]]]:
    """Run a job for each pool and seed, in threads of this process.

    Args:
        folder: Where results are kept.
        result: The scores; those of other seeds count.
        stem: Beginning of the files' names.
        job: From the name of a pool and a place in `result.seeds` to results.
        settings: Identify the results, together with seeds and sources.
        pools: Which of them; all if None.
        progress: Show a progress bar.
        workers: How many threads run at once.
    """
    names = [*result.pools] if pools is None else [*pools]
    pairs = [(name, s) for name in names for s in range(len(result.seeds))]
    seeds = result.seeds.tolist()

    def run_pair(pair: tuple[str, int]) -> Mapping[str, Any]:
        name, s = pair
        path = folder / f"{stem}-{name}-{seeds[s]}.npz"
        kept = remembered(
            path, {**settings, "seeds": seeds, "at": s}, lambda: job(name, s)
        )
        free_programs()
        return kept

    results = at_once(run_pair, pairs, None if workers is None else workers.number)
    counted = track(results, progress=progress, label=stem.title(), total=len(pairs))
    by_name: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    named = [(name, seeds[s]) for name, s in pairs]
    for (name, _), pair_result in logged(named, counted, stem.title()):
        by_name[name].append(pair_result)
    return by_name
