"""Mycroft's experiments in miniature: all of them, one file for each and each seed."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.scenes.trainer import Samples, Sizes, images
from experiments._kit.seeds import Job, Work, Workers, each_seed, stacked
from experiments.values.data import shrink
from jaxsel.data import load

from .cases import Cases, cases_seed
from .ranking import Owners, owners_seed
from .sizes import FULL
from .spurious import FULL_SIZES, SIZES, Spurious, spurious_seed
from .starved import FOREIGN, Starved, starved_seed
from .tabular.paths import Paths, join_paths, paths_seed
from .tabular.run import Tabular, join_tabular, tabular_seed
from .tabular.select import OURS
from .tabular.tuning import searched
from .variants import Variants, requests, variants_seed

DATA = ("fashion_mnist", "mnist")

_SPLIT = "train[:40000]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mycroft:
    """Results of the experiments, for each of S seeds.

    Attributes:
        seeds: `[S]`.
        full: Whether these are the larger experiments.
        sizes: How large the starved classes are.
        backgrounds: How large the experiments on stripes are: all others on images.
        starved: Starved classes, by data set.
        foreign: The same on MNIST, where the owner has another source's digits; None
            if it was left out.
        spurious: A planted spurious correlation.
        cases: The case studies, on stripes.
        owners: Five owners, ranked.
        variants: Other ways to match, small requests, other answers; on stripes.
        tabular: The tabular experiments; None if they were left out.
        paths: Decision paths on the same table, by trees as in the authors' code; None
            if they were left out.
        grown_paths: The same by trees that are grown further.
    """

    seeds: np.ndarray
    full: bool
    sizes: Sizes
    backgrounds: Sizes
    starved: Mapping[str, Starved]
    spurious: Spurious
    cases: Cases
    owners: Owners
    variants: Variants
    tabular: Tabular | None
    foreign: Starved | None = None
    paths: Paths | None = None
    grown_paths: Paths | None = None


def run_mycroft(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(5)),
    full: bool = False,
    progress: bool = False,
    workers: Workers | None = None,
) -> Mycroft:
    """Run the experiments of the Mycroft paper in miniature, on real data.

    Every experiment writes its results for every seed to a file as soon as it has them,
    and what is there already is read: a killed run goes on where it was.

    Args:
        folder: Where those files are, or will be, in "default" or "full".
        seeds: Each deals the data, and draws noise and weights, anew.
        full: Whether to take whole images, wider networks, more budgets, and all of
            the tabular experiments. Otherwise images are averaged to 14×14 pixels.
        progress: Whether to show a progress bar.
        workers: Where they run; on threads of this process if None.

    Returns:
        Accuracies on hard samples held out, shares of useful samples, and rankings.

    Raises:
        ValueError: If there are no seeds.
        FileNotFoundError: If MNIST, Fashion-MNIST or Adult is not prepared; names the
            command that does it.

    References:
        Sarwar et al., Mycroft: Towards Effective and Efficient External Data
        Augmentation, arXiv:2410.08432.
    """
    sizes, backgrounds = (FULL, FULL_SIZES) if full else (Sizes(), SIZES)
    sized = experiments(sizes, backgrounds, full=full)
    folder = Path(folder) / ("full" if full else "default")

    def file(name: str, seed: int) -> tuple[Path, dict[str, Any]]:
        size, _ = sized[name]
        return folder / f"{name}-{seed}.npz", {
            "seed": seed,
            "full": full,
            "data": _SPLIT,
            "sizes": None if size is None else dataclasses.asdict(size),
            **({"classifiers": searched()} if name == "tabular" else {}),
        }

    results = each_seed(
        Work(_jobs, (sizes, backgrounds, full)),
        seeds,
        file,
        label="Experiments",
        progress=progress,
        workers=workers,
    )
    return assemble(results, seeds, full=full, sizes=sizes, backgrounds=backgrounds)


def _jobs(sizes: Sizes, backgrounds: Sizes, full: bool) -> dict[str, Job]:
    """Return the functions that run each experiment for a seed, by name."""
    sized = experiments(sizes, backgrounds, full=full)
    return {name: run for name, (_, run) in sized.items()}


def experiments(
    sizes: Sizes, backgrounds: Sizes, *, full: bool
) -> dict[str, tuple[Sizes | None, Job]]:
    """Return the sizes of each experiment, and the function of a seed, by name."""
    read = functools.cache(lambda name: images(load(name, split=_SPLIT), sizes.side))
    first = DATA[0]
    return {
        **{
            f"starved-{name}": (sizes, _on(starved_seed, read, name, sizes))
            for name in DATA
        },
        "foreign": (FOREIGN, _foreign),
        "spurious": (backgrounds, _on(spurious_seed, read, first, backgrounds)),
        "cases": (backgrounds, _on(cases_seed, read, first, backgrounds)),
        "variants": (backgrounds, _on(variants_seed, read, first, backgrounds)),
        "owners": (backgrounds, _on(owners_seed, read, first, backgrounds)),
        "tabular": (
            None,
            lambda seed: dataclasses.asdict(tabular_seed(seed, full=full)),
        ),
        "paths": (None, paths_seed),
        "grown-paths": (None, functools.partial(paths_seed, tree=OURS)),
    }


def assemble(
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    seeds: Sequence[int],
    *,
    full: bool,
    sizes: Sizes,
    backgrounds: Sizes,
) -> Mycroft:
    """Join the results of single seeds, by experiment, into one."""
    budgets = np.asarray(sizes.budgets)
    prefix = "starved-"
    tabular, foreign, paths, grown = map(
        found.get, ("tabular", "foreign", "paths", "grown-paths")
    )
    return Mycroft(
        seeds=np.asarray(seeds),
        full=full,
        sizes=sizes,
        backgrounds=backgrounds,
        starved={
            name.removeprefix(prefix): Starved(budgets=budgets, **stacked(runs))
            for name, runs in found.items()
            if name.startswith(prefix)
        },
        spurious=Spurious(
            budgets=np.asarray(backgrounds.budgets),
            steps=_steps(backgrounds),
            **stacked(found["spurious"]),
        ),
        cases=Cases(
            budget=backgrounds.main,
            steps=_steps(backgrounds),
            **stacked(found["cases"]),
        ),
        variants=Variants(
            budgets=np.asarray(backgrounds.budgets),
            main=backgrounds.main,
            n_hard=np.asarray(requests(backgrounds)),
            **stacked(found["variants"]),
        ),
        owners=Owners(budget=backgrounds.main, **stacked(found["owners"])),
        tabular=join_tabular([Tabular(**run) for run in tabular]) if tabular else None,
        foreign=Starved(budgets=np.asarray(FOREIGN.budgets), **stacked(foreign))
        if foreign
        else None,
        paths=join_paths(paths) if paths else None,
        grown_paths=join_paths(grown) if grown else None,
    )


def _on(
    run: Callable[[Samples, Sizes, int], Mapping[str, Any]],
    read: Callable[[str], Samples],
    name: str,
    sizes: Sizes,
) -> Job:
    """Bind an experiment to a data set, which is read when it is first needed."""
    return lambda seed: run(read(name), sizes, seed)


def _foreign(seed: int) -> dict[str, np.ndarray]:
    """Starve a trainer of MNIST; the owner has the 1,797 digits of scikit-learn."""
    x, y = _mnist(FOREIGN.side)
    digits = images(load("digits", split="all"), FOREIGN.side)
    return starved_seed((x, y), FOREIGN, seed, foreign=digits)


@functools.cache
def _mnist(side: int) -> Samples:
    """Return MNIST without two pixels at each edge, which makes its digits fill it."""
    data = load("mnist", split=_SPLIT)
    return shrink(data.x[:, 2:26, 2:26], side)[..., 0], np.asarray(data.y)


def _steps(sizes: Sizes) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes.cycles)])
