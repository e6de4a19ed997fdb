"""Attributions of further networks, beside dattri's: `python -m benchmarks.networks`.

Linear datamodelling scores on 100 halves of the training samples, drawn by
`default_rng(10000 + i)`, and networks of other seeds. All networks have torch's initial
weights and are trained by SGD:

- "Logistic" and "perceptron" are dattri's benchmark of MNIST: 5,000 training samples
  and 500 targets, pixels less .1307 over .3081, rate .01. The logistic regression takes
  20 epochs and one run a subset, in batches of 32, which dattri's script has, and of
  64. The perceptron 784-128-64-10 takes 50 epochs in batches of 64 with momentum .9,
  two runs a subset, and has no dropout, which dattri's has (.1). The samples are the
  first ones in the order of TensorFlow Datasets, which is not that of dattri.
- "CNN" has the digits and the training of set-up A (`benchmarks.attribute`), one layer
  of eight filters 3×3 with rectifiers, means of 2×2 pixels, and a dense layer.
- "Head" classifies 20 newsgroups by a dense layer on MiniLM's features of length 1: 600
  posts and 100 targets, rate .5, momentum .9, batches of 50, 30 epochs.

BM25 is that of bm25s, with English stop words left out. The inputs of the last layer
are those of run 0's network.

dattri 0.3.0 gets the networks that ours are trained to, and the same truth. A chosen
damping is the best of a grid on 100 other halves, `default_rng(20000 + i)`, with other
networks: for influence, ours and dattri's, .1 to 10 times our default, and for dattri
.1 beside; for TRAK four decades, and for dattri's five and 0. dattri's conjugate
gradients take ten steps, its default, and over five networks the damping that is chosen
for one. Seconds are CPU seconds on one thread of one call with compilation, which an
earlier row may have done, and without the choice. Rows of dattri need `pip install
--no-deps dattri==0.3.0`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._networks import SETUPS
from ._networks_bench import Bench
from ._threads import limit, limited

HERE = Path(__file__).parent


def page(bench: Bench, only: Sequence[str] | None) -> str:
    """Measure the methods of a set-up, and write its section."""
    setup, lines = bench.setup, list[str]()
    results = dict[str, dict[str, Any]]()
    entries = bench.entries()
    for entry in entries:
        asked = not only or any(text in entry.name for text in only)
        if not asked and entry.name not in bench.kept:
            continue
        results[entry.name] = result = bench.measured(entry)
        lines.append(_line(entry.name, result))
        print(bench.name, lines[-1], flush=True)
    peers = [e.name for e in entries if e.is_peer and e.name in results]
    ours = [e.name for e in entries if not e.is_peer and e.name in results]
    first = results[ours[0]]
    about = f"The {100 * setup.seeds} trainings on halves took "
    about += f"{bench.kept['truth 10000']:.0f} CPU s."
    if first["agreement"] is not None:
        about += (
            f" Two runs on a half agree at {first['agreement']:.3f}, so that no score "
            f"can be expected above {first['ceiling']:.3f}."
        )
    about += f" Accuracy {bench.accuracy:.3f}; default damping {bench.damping:.3g}."
    head = "| method | score | damping | CPU s |\n|---|---|---|---|"
    ends = [f"- {line}" for line in verdicts(setup.least, results, ours, peers)]
    table = "\n".join([head, *lines])
    return "\n\n".join([f"## {bench.name.capitalize()}", about, table, *ends])


def verdicts(
    least: float | None,
    results: dict[str, Any],
    ours: Sequence[str],
    peers: Sequence[str],
) -> list[str]:
    """Compare the best of ours with its least score, and with dattri's best."""

    def mean(name: str) -> float:
        return results[name]["mean"]

    best, lines = max(ours, key=mean), list[str]()
    if least is not None:
        word = "reached" if mean(best) >= least else "missed"
        lines.append(f"{best} {mean(best):.3f}, must be ≥ {least}: {word}")
    if peers:
        rival = max(peers, key=mean)
        errors = [max(results[name]["errors"]) for name in (best, rival)]
        gap, error = mean(best) - mean(rival), float(np.hypot(*errors))
        word = "reached" if gap > 2 * error else "missed"
        lines.append(
            f"{best} is above {rival} by {gap:.3f} ± {error:.3f}, must be by two "
            f"standard errors: {word}"
        )
    return lines


def _line(name: str, result: dict[str, Any]) -> str:
    by_target, by_subset = result["errors"]
    damping = result["damping"]
    cells = [
        name,
        f"{result['mean']:.3f} ± {by_target:.3f} ± {by_subset:.3f}",
        "" if damping is None else f"{damping:.2g}",
        f"{result['seconds']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


HEAD = """# Attributions of further networks

Made by `python -m benchmarks.networks --write`, on one thread; its docstring has the
set-ups. A score is the mean over targets of Spearman's correlation over 100 subsets, of
key 0, ± its standard error over targets and ± that over subsets (bootstrap). The error
of a difference is the root of the sum of the squares of both methods' larger errors.
Compared are the best rows of both sides on these subsets.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if something that must be reached is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks")
    add = parser.add_argument
    add("--setup", action="append", choices=[*SETUPS], help="only this set-up")
    add("--only", action="append", help="only methods with this text, and kept ones")
    add("--keep", type=Path, required=True, help="folder of results, to go on from")
    add("--write", action="store_true", help="write NETWORKS.md")
    args = parser.parse_args(argv)
    with limited():
        limit()
        pages = [page(Bench(s, args.keep), args.only) for s in args.setup or SETUPS]
    text = "\n\n".join([HEAD.rstrip(), *pages]) + "\n"
    print(text)
    if args.write:
        (HERE / "NETWORKS.md").write_text(text)
    return int("missed" in text)


if __name__ == "__main__":
    raise SystemExit(main())
