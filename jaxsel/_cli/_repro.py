"""`jaxsel repro`: experiments of papers in miniature, in a report."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._parser import Commands, Parser
from ._reported import add_report_options, write_report

if TYPE_CHECKING:
    from jaxsel.report import Report

_DESCRIPTION = """\
The experiments of a paper in miniature, on real data.

mycroft: starved classes, a planted spurious correlation, noise and missing labels,
ranking of owners, and the same on a table; with the paper's figures beside ours. Needs
mnist, fashion_mnist and adult (`jaxsel data prepare`); six minutes on two cores.

proxy: SelectFormer's proxies and cheaper ones choose texts from two pools; how well,
and for how many bytes of a secure run. Needs movie_polarity, tweets and the model
minilm (`jaxsel models prepare`); 42 minutes on two cores.

values: KNN-Shapley beside values that train models again, on wrong labels,
watermarks, summarisation, acquisition and adaptation; which of the study's claims
hold. Needs mnist, fashion_mnist and adult, and takes movie_polarity and minilm where
they are there; seven and a half minutes on two cores.

filter: clients drop samples by a threshold of their loss, and learn together: noise
removed, clean samples kept, accuracy by rounds. Needs mnist and fashion_mnist; six
minutes on two cores.

What each experiment finds for each seed is kept in a folder beside the report, and read
where it is there already: run a killed run again, and it goes on."""

_EXAMPLES = """\
examples:
  jaxsel repro mycroft
  jaxsel repro mycroft --full --out repro --force
  jaxsel repro proxy --out repro-proxy
  jaxsel repro values --out repro-values
  jaxsel repro filter --out repro-filter"""


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "repro",
        help="run a paper's experiments in miniature",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "paper",
        metavar="PAPER",
        choices=tuple(_PAPERS),
        help="mycroft, proxy, values or filter",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="mycroft: whole images, and all selectors on the table; proxy: the "
        "paper's ablations too; values: 1000 points rather than 300; filter: "
        "Fashion-MNIST, and CNNs, too",
    )
    add_report_options(parser, out="repro", seeds=None)


def run(args: argparse.Namespace) -> None:
    make, seeds = _PAPERS[args.paper]
    args.seeds = seeds if args.seeds is None else args.seeds

    def write(
        folder: Path, seeds: Sequence[int], progress: bool
    ) -> tuple[Path, Path, str]:
        report, summary = make(
            folder / "runs", seeds=seeds, full=args.full, progress=progress
        )
        return *report.write(folder), summary

    write_report(args, write, config={"paper": args.paper, "full": args.full})


def one_thread_each() -> None:
    """Let a computation on the CPU have one thread, if JAX has not started yet.

    Experiments run side by side, one on every core. Where their computations are small
    and many, threads of one would wait for those of another.
    """
    flags, name = os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen"
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {name}=false".strip()


def _mycroft(folder: Path, **options: Any) -> tuple[Report, str]:
    from jaxsel.report import Report
    from jaxsel.tasks import mycroft_chapters, run_mycroft

    result = run_mycroft(folder, **options)
    report = Report(
        title="Mycroft in miniature",
        summary="Which samples of an owner's are worth having, and which owners? The "
        "experiments of the Mycroft paper, small and on other data, with the paper's "
        "figures beside what was measured on this machine.",
        chapters=mycroft_chapters(result),
    )
    return report, ""


def _proxy(folder: Path, **options: Any) -> tuple[Report, str]:
    from jaxsel.report import Report
    from jaxsel.tasks import proxies_chapter, run_proxies

    result = run_proxies(folder, **options)
    report = Report(
        title="Proxies of a secret model",
        summary="How well cheap stand-ins of a model choose texts that nobody may "
        "read, and what they cost in secret: SelectFormer's proxies, and others.",
        chapters=[proxies_chapter(result)],
    )
    of = f"of {len(result.seeds)} seeds"
    lines = [
        f"Training stopped early: {pool}, “{point}”: {count} {of}"
        for pool in result.pools
        for point, count in result.stopped_early(pool).items()
    ]
    return report, "\n".join(lines)


def _values(folder: Path, **options: Any) -> tuple[Report, str]:
    from jaxsel.report import Report
    from jaxsel.tasks import run_study, study_chapter, study_tally

    one_thread_each()
    result = run_study(folder, **options)
    report = Report(
        title="Values of data in miniature",
        summary="Is a closed form for nearest neighbours as good as values that train "
        "models again and again? The experiments of a study of KNN-Shapley, small and "
        "on other data, with a verdict on each of its claims.",
        chapters=[study_chapter(result)],
    )
    return report, f"Claims on single data sets: {study_tally(result)}"


def _filter(folder: Path, **options: Any) -> tuple[Report, str]:
    from jaxsel.report import Report
    from jaxsel.tasks import filter_chapter, run_filtering

    one_thread_each()
    result = run_filtering(folder, **options)
    report = Report(
        title="Filtering by loss in miniature",
        summary="Clients that learn together drop what a benchmark model finds too "
        "hard. How much noise goes, what clean samples go with it, and what is gained? "
        "The experiments of a paper on federated learning, small and on other data.",
        chapters=[filter_chapter(result)],
    )
    return report, ""


_PAPERS = {
    "mycroft": (_mycroft, 5),
    "proxy": (_proxy, 10),
    "values": (_values, 10),
    "filter": (_filter, 5),
}
