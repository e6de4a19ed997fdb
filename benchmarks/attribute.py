"""Linear datamodelling scores of attributions: `python -m benchmarks.attribute`.

Set-up A: scikit-learn's digits in the order of `default_rng(0).permutation`, pixels /
16, the first 1,000 to train on and the next 200 as targets; a perceptron 64-32-10 with
rectifiers, torch's initial weights, SGD with rate .1 and momentum .9, batches of 50, 30
epochs. Set-up B has GELU and batches of 250. Subset i is drawn by `default_rng(10000 +
i)`. "Half" are networks of other seeds on half of the samples, two a subset; "drop" is
the same run without 5 % of the samples. "Removal" retrains five networks without each
target's top 1 %, and without the top 1 % by the sum over targets; scores are of another
seed. The damping of TRAK that is chosen is the best of four on 100 further halves,
`default_rng(20000 + i)`, with other networks, and the share of metagradients the best
of five for three networks; on these, too, in set-up A, log-odds
scored higher than losses where several networks are averaged, the default damping of
influence higher than .3 and 3 times of it, and the mean of metagradient and influence,
each target's scores of both divided by their standard deviation, higher than each on
the same run.
`--write` keeps the tables as ATTRIBUTE.md beside this file; with `--only`, some rows of
them.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxsel
from jaxsel import attribute, tasks
from jaxsel.tasks._lds import Lds

from ._lds_targets import with_targets
from ._setups import DROPPED, TARGETS, TRAIN, Data, digits, recipe_of, subsets
from ._threads import limit, limited
from ._torch_runs import TORCH, dropped, torch_line

HERE = Path(__file__).parent
DAMPINGS = 0.01, 0.1, 1.0, 10.0
SHARES = 0.5, 0.6, 0.7, 0.8, 0.9
OTHER = 100  # the run whose scores are judged by removal, and by which dampings are
KEY = jax.random.key

Scores = Callable[[int], Any]
"""From the number of a run to scores `[t, n]`."""


class Method(NamedTuple):
    """A method of attribution.

    Attributes:
        name: For the table.
        scores: Computes them; of run 0 for methods without a run.
        by_run: Whether scores differ between runs.
    """

    name: str
    scores: Scores
    by_run: bool


class Row(NamedTuple):
    """Results of a method.

    Attributes:
        half: Scores of each run on other seeds.
        drop: Scores of each run on the same run without some samples.
        first: CPU seconds of the first call, with compilation.
        again: CPU seconds of the second.
    """

    half: list[Lds]
    drop: list[Lds]
    first: float
    again: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attribute")
    add = parser.add_argument
    add("--setup", action="append", choices=["A", "B"], help="only this set-up")
    add("--removal", action="store_true", help="only removal, in set-up A")
    add("--runs", type=int, default=5, help="runs that are dropped from (5)")
    add("--only", action="append", help="only methods with this text in their names")
    add("--write", action="store_true", help="write ATTRIBUTE.md")
    args = parser.parse_args(argv)
    data, path = digits(), HERE / "ATTRIBUTE.md"
    whole = not (args.setup or args.removal or args.only)
    text = "" if whole else path.read_text()
    with limited():
        limit()
        for setup in [] if args.removal else args.setup or ["A", "B"]:
            page = measure(setup, data, args.runs, args.only)
            if setup == "A" and "metagradient" in "".join(
                args.only or ["metagradient"]
            ):
                whole_run = torch_runs(data, 1, weight=1)[0]
                page += "\n\n" + torch_line(torch_runs(data, args.runs), whole_run)
            text = merged(text, page, rows=bool(args.only))
        if whole or args.removal:
            page = removal(data, args.only)
            text = merged(text, page, rows=bool(args.only))
    text = f"{HEAD.format(runs=args.runs)}\n\n{with_targets(text)}"
    print(text)
    if args.write:
        path.write_text(text)
    return int(": missed" in text)


def merged(text: str, page: str, *, rows: bool) -> str:
    """Return sections with a new one, or rows of its table, in place of the old ones.

    Args:
        text: Sections, and perhaps a head, which is left out.
        page: A section.
        rows: Whether to keep other rows of the old table, and all around it.
    """
    _, *sections = re.split(r"(?m)^(?=## )", text)
    pages = {section.partition("\n")[0]: section.rstrip() for section in sections}
    title = page.partition("\n")[0]
    if rows and title in pages:
        old = pages[title]
        lines = {
            line.split(" | ")[0]: line
            for line in (*old.splitlines(), *page.splitlines())
            if line.startswith("|")
        }
        table = "\n".join(lines.values()) + "\n"
        old = re.sub(r"(?m)(?:^\|.*(?:\n|\Z))+", lambda _: table, old).rstrip()
        for line in re.findall(f"(?m)^{TORCH}.*", page):
            old = re.sub(f"(?m)^{TORCH}.*", lambda _, line=line: line, old)
        page = old
    pages[title] = page
    return "\n\n".join(pages.values()) + "\n"


HEAD = (
    "# Linear datamodelling scores\n\n"
    "Made by `python -m benchmarks.attribute --write`, on one thread; its docstring "
    "has the set-ups. A score is the mean over 200 targets of Spearman's correlation "
    "over 100 subsets, ± its standard error over targets and ± that over subsets "
    '(bootstrap). The first column is of run 0; "all runs" is the mean, with the least '
    "and the greatest in brackets, over {runs} runs: what is dropped from is one "
    "training, and trainings differ. Seconds are CPU seconds for 200 targets, "
    "trainings included, of the first call and of the second, which compiles nothing; "
    "of metagradients with a share or without options on a machine that takes three "
    "times as long as that of the other rows. "
    "The damping is the default, except where it was chosen, on other subsets. All "
    "methods are judged by the loss: scores of log-odds, which fall as the loss rises, "
    "differ from those of the loss by the weights of the runs in their mean."
)


def chosen(
    recipe: attribute.Recipe,
    data: Data,
    function: Callable[..., Any],
    settings: Sequence[float],
    name: str,
    **options: Any,
) -> float:
    """Return the setting that is best on subsets which score nothing here."""
    halves = subsets(TRAIN // 2, 20_000)
    runs = tasks.retrain_subsets(recipe, *data, key=KEY(OTHER), subsets=halves, seeds=2)

    def score(setting: float) -> float:
        picked = options | {name: setting, "reduce": None}
        values = function(recipe, *data, key=KEY(OTHER), **picked)
        return tasks.lds(values, runs, key=KEY(0)).mean

    return max(settings, key=score)


def methods(
    recipe: attribute.Recipe, data: Data, only: Sequence[str] | None = None
) -> list[Method]:
    """Return the methods, baselines first, or those with a text in their names."""

    def alike(run: int) -> np.ndarray:
        return cosine(data)

    def random(run: int) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(TARGETS, TRAIN))

    def nearest(run: int) -> Any:
        return jaxsel.knn_shapley(*data, k=5, reduce=None)

    def nearest_hidden(run: int) -> Any:
        hidden = [_hidden(recipe, data, run, x) for x in (data.x, data.x_val)]
        samples = hidden[0], data.y, hidden[1], data.y_val
        return jaxsel.knn_shapley(*samples, k=5, reduce=None)

    def by_run(name: str, *, note: str = "", **options: Any) -> Method:
        function = getattr(attribute, name)

        def scores(run: int) -> Any:
            return function(recipe, *data, key=KEY(run), reduce=None, **options)

        return Method(called(name, options) + note, scores, True)

    several = by_run("network_influence", seeds=5, output="log_odds")

    def standardised(scores: Any) -> np.ndarray:
        rows = np.asarray(scores.values)
        return (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)

    def both(run: int) -> np.ndarray:
        parts = by_run("metagradient"), several
        return np.mean([standardised(part.scores(run)) for part in parts], 0)

    every = [
        Method("random", random, False),
        Method("cosine of pixels, minus for other labels", alike, False),
        Method("`knn_shapley(k=5)` on pixels", nearest, False),
        Method("`knn_shapley(k=5)` on the hidden layer", nearest_hidden, True),
        by_run("network_influence"),
        by_run("network_influence", seeds=5),
        by_run("network_influence", seeds=10),
        several,
        by_run("network_influence", solver="cg"),
        by_run("network_influence", solver="ekfac"),
        by_run("source"),
        by_run("source", seeds=5),
        by_run("source", seeds=5, output="log_odds"),
        by_run("source", solver="ekfac"),
        by_run("source", solver="ekfac", seeds=10),
        by_run("metagradient"),
        by_run("metagradient", drop_share=0),
        by_run("metagradient", drop_share=0.5),
        by_run("metagradient", seeds=5, drop_share=0.5, output="log_odds"),
        by_run("metagradient", drops=8),
        by_run("metagradient", drops=8, output="log_odds"),
        Method(f"mean of `metagradient` and {several.name}, standardised", both, True),
        by_run("trak"),
        by_run("trak", seeds=10),
        by_run("trak", seeds=10, share=0.5),
        by_run("network_tracin"),
        by_run("network_tracin", seeds=10),
    ]
    if not only or "chosen" in "".join(only):
        pick = functools.partial(chosen, recipe, data)
        averaged: Any = {"seeds": 3, "output": "log_odds"}
        share = pick(attribute.metagradient, SHARES, "drop_share", **averaged)
        damping = pick(attribute.trak, DAMPINGS, "damping", seeds=2)
        averaged = {"seeds": 5, "drop_share": share, "output": "log_odds"}
        every += [
            by_run("metagradient", **averaged, note=", a chosen share"),
            by_run("trak", seeds=10, damping=damping, note=", a chosen damping"),
        ]
    return [m for m in every if not only or any(text in m.name for text in only)]


def cosine(data: Data) -> np.ndarray:
    """Return cosines of inputs, minus for other labels, `[t, n]`."""
    x, x_val = (
        a / np.linalg.norm(a, axis=1, keepdims=True) for a in (data.x, data.x_val)
    )
    return (x_val @ x.T) * np.where(data.y == data.y_val[:, None], 1, -1)


def called(name: str, options: dict[str, Any]) -> str:
    """Return a call with its options, as code."""
    listed = ", ".join(f"{k}={json.dumps(v)}" for k, v in options.items())
    return f"`{name}({listed})`" if options else f"`{name}`"


def measure(
    setup: str, data: Data, runs: int, only: Sequence[str] | None = None
) -> str:
    """Measure methods in a set-up, and write its table."""
    recipe = recipe_of(setup)
    retrain = tasks.retrain_subsets
    halves = subsets(TRAIN // 2)
    half, first, again = _timed(
        lambda: retrain(recipe, *data, key=KEY(0), subsets=halves, seeds=2)
    )
    kept = subsets(round(TRAIN * (1 - DROPPED)))
    drops = [
        retrain(recipe, *data, key=KEY(run), subsets=kept, seeds=1, same_seed=True)
        for run in range(runs)
    ]
    lines, row = [], None
    for method in methods(recipe, data, only):
        scores, *seconds = _timed(lambda method=method: method.scores(0))
        others = range(1, runs)
        by_run = [
            scores,
            *(method.scores(r) if method.by_run else scores for r in others),
        ]
        row = Row(
            [tasks.lds(s, half, key=KEY(0)) for s in by_run],
            [tasks.lds(s, d, key=KEY(0)) for s, d in zip(by_run, drops, strict=True)],
            *seconds,
        )
        lines.append(_line(method.name, row))
        print(lines[-1], flush=True)
    right = [_accuracy(recipe, data, run) for run in range(runs)]
    if row is None:
        raise ValueError(f"--only must be a part of a method's name, got {only}")
    ceiling = row.half[0]
    head = (
        f"## Set-up {setup}\n\n"
        f"Accuracy of runs {min(right):.3f} to {max(right):.3f}. Two runs on a half "
        f"agree at {ceiling.agreement:.3f}, so that no score can be expected above "
        f"{ceiling.ceiling:.3f} on halves. The 200 trainings on halves took "
        f"{again:.1f} CPU s ({first:.1f} with compilation).\n\n"
        "| method | half | half, all runs | drop | drop, all runs | CPU s |\n"
        "|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(lines)


def torch_runs(data: Data, runs: int, *, weight: float = 1 - DROPPED) -> list[Lds]:
    """Score metagradients on runs of torch's seeds, in set-up A."""
    masks, recipe = subsets(round(TRAIN * (1 - DROPPED))), recipe_of("A")
    return [dropped(recipe, data, masks, seed, weight=weight) for seed in range(runs)]


def removal(data: Data, only: Sequence[str] | None = None) -> str:
    """Measure losses of networks without their top samples, in set-up A, as a table."""
    recipe, lines, share = recipe_of("A"), [], 0.01
    random = None
    for method in methods(recipe, data, only):
        scores, cells = method.scores(OTHER), [method.name]
        for by in ("target", "sum"):
            result = tasks.removal_effect(
                scores, recipe, *data, key=KEY(0), share=share, by=by
            )
            cells += _cells(result.top)
            random = result.random
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    assert random is not None
    loss, flips = _cells(random)
    return (
        f"## Removal, set-up A\n\n"
        f"Rise of the targets' mean loss, and share of predictions that flip, in five "
        f"networks without {share:.0%} of the samples: each target's own top samples, "
        f"or those of the sum over targets. Without as many at random: {loss}, and "
        f"{flips} flip.\n\n"
        "| method | loss, by target | flips, by target | loss, by sum | flips, by sum |"
        "\n|---|---|---|---|---|\n"
    ) + "\n".join(lines)


def _cells(effect: Any) -> list[str]:
    return [
        f"{effect.rise:+.3f} ± {effect.rise_stderr:.3f}",
        f"{effect.flipped:.1%} ± {effect.flipped_stderr:.1%}",
    ]


def _hidden(
    recipe: attribute.Recipe, data: Data, run: int, x: np.ndarray
) -> np.ndarray:
    """Return the hidden layer of a run's network, `[n, 32]`."""
    first, _ = _trained(recipe, data, run)
    # A last layer that changes nothing.
    width = first.shape[1]
    last = jax.numpy.eye(width + 1, width)
    return np.asarray(recipe.apply([first, last], jax.numpy.asarray(x)))


def _trained(recipe: attribute.Recipe, data: Data, run: int) -> Any:
    key = jax.random.fold_in(KEY(run), 0)
    return recipe.train(key, *map(jax.numpy.asarray, data[:2]))


def _accuracy(recipe: attribute.Recipe, data: Data, run: int) -> float:
    params = _trained(recipe, data, run)
    outputs = recipe.apply(params, jax.numpy.asarray(data.x_val))
    return float((outputs.argmax(1) == data.y_val).mean())


def _timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Call twice, and return the result and CPU seconds of both calls."""
    seconds, result = [], None
    for _ in range(2):
        start = time.process_time()
        result = jax.block_until_ready(call())
        seconds.append(time.process_time() - start)
    return result, *seconds


def _line(name: str, row: Row) -> str:
    cells = [name]
    for scores in (row.half, row.drop):
        score, means = scores[0], [s.mean for s in scores]
        errors = f"± {score.stderr_targets:.3f} ± {score.stderr_subsets:.3f}"
        cells.append(f"{score.mean:.3f} {errors}")
        cells.append(f"{np.mean(means):.3f} ({min(means):.3f} to {max(means):.3f})")
    cells.append(f"{row.first:.2f}, {row.again:.2f}")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    raise SystemExit(main())
