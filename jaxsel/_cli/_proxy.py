"""`jaxsel proxy search`: phases for a choice from a secret pool."""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._output import (
    Record,
    check_outputs,
    fingerprint_dataset,
    publish,
    say,
    say_checks,
    show_progress,
)
from ._parser import Commands, Parser, add_force
from ._proxy_output import numbers, page, plot, toml, write

if TYPE_CHECKING:
    from jaxsel.proxy import Rehearsal

_DESCRIPTION = """\
Rehearse the choice from a secret pool on texts that one may see, and search for phases
that choose much like the target and take few hours in secret. Writes a folder:

  front.md, front.svg   the schedules that no other one beats, beside the paper's
  front.json            the same numbers
  run.toml              the chosen one, for `python -m mpc_bridge estimate`
  phase-*/manifest.json its proxies as they were rehearsed: `mpc_bridge.export`
                        replaces them once those of the real bootstrap set are trained
  run.json              how it came about

Each run trains every proxy: three runs with minilm take five minutes on two cores. They
are kept in OUT/rehearsal: a killed search goes on, and another search by the same runs,
such as for another network, takes seconds."""

_EXAMPLES = """\
examples:
  jaxsel proxy search movie_polarity --pool 42000 --budget 8400
  jaxsel proxy search tweets --pool 10000 --budget 2000 --engine spu-aby3 \\
      --bandwidth 100 --latency 100 --max-hours 2 --out search"""

ENGINES = ("spu-cheetah", "spu-aby3", "spu-aby3-128", "crypten")
LEAKS = ("rank", "set")
KINDS = ("entropy", "prior_entropy", "margin")


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "proxy",
        help="search for the phases of a secret choice",
        description="Choose from a pool that nobody may read, by proxies of a target.",
    )
    parser.set_defaults(show_help=parser.print_help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    action = actions.add_parser(
        "search",
        help="which phases rank well for few hours?",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    action.set_defaults(run=_search)
    option = action.add_argument
    option("data", metavar="DATA", help="a prepared data set of texts like the pool's")
    option("--pool", type=int, metavar="N", required=True, help="samples in the pool")
    option(
        "--budget",
        type=int,
        metavar="N",
        required=True,
        help="samples to buy, the bootstrap set counted",
    )
    option(
        "--bootstrap",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="of the pool, bought first at random (default: 0.05)",
    )
    option("--model", default="minilm", metavar="NAME", help="the public base model")
    option(
        "--length",
        type=int,
        default=48,
        metavar="N",
        help="tokens of a text; the rest is cut off (default: 48)",
    )
    option(
        "--samples",
        type=int,
        default=2000,
        metavar="N",
        help="texts to rehearse on (default: 2000)",
    )
    option(
        "--distil",
        type=int,
        default=1000,
        metavar="N",
        help="further texts, read without labels, to distil on; 0: none (default: "
        "1000)",
    )
    option(
        "--seeds", type=int, default=3, metavar="N", help="runs of the rehearsal (3)"
    )
    option("--kind", choices=KINDS, default="entropy", help="score to rank samples by")
    option("--engine", choices=ENGINES, default="spu-cheetah", help="of the secure run")
    option("--leak", choices=LEAKS, default="rank", help="what a choice opens")
    option(
        "--bandwidth",
        type=float,
        default=12.5,
        metavar="MB/S",
        help="between the parties, each direction (default: 12.5)",
    )
    option(
        "--latency",
        type=float,
        default=20.0,
        metavar="MS",
        help="one way (default: 20)",
    )
    option(
        "--max-hours",
        type=float,
        metavar="HOURS",
        help="of run.toml's schedule (default: the best one, whatever it takes)",
    )
    option("--out", default="search", metavar="FOLDER", help="(default: search)")
    option("--data-dir", metavar="FOLDER", help="where data sets are prepared")
    add_force(action)


def _search(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    out = Path(args.out)
    rehearsal_folder = out / "rehearsal"
    _check(args)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file: name a folder")
    names = ("front.md", "front.svg", "front.json", "run.json", "run.toml")
    if out.is_dir():
        check_outputs([out / name for name in names], inputs=(), force=args.force)
        _check_phases(out)
    from jaxsel.proxy import PAPER_SCHEDULES, Network, search_schedule

    rehearsal, facts = _rehearse(args, rehearsal_folder)
    link = Network(bandwidth=1e6 * args.bandwidth, latency=args.latency / 1000)
    front = search_schedule(
        rehearsal,
        args.pool,
        args.budget,
        network=link,
        engine=args.engine,
        bootstrap=args.bootstrap,
        leak=args.leak,
        compare={
            name: phases
            for name, phases in PAPER_SCHEDULES.items()
            if all(
                share is None or share > args.budget / args.pool for _, share in phases
            )
        },
        progress=show_progress(),
    )
    point = front.best(args.max_hours)
    checks = [
        f"{name} is not on the front: {why}" for name, why in rehearsal.failures.items()
    ]
    bought = front.bought
    if facts["bootstrap"] < bought:
        checks.append(
            f"each run learned from {facts['bootstrap']} labelled texts, and the real "
            f"bootstrap set has {bought}: proxies will rank better than here. More "
            "--samples come nearer"
        )
    say_checks(checks)
    phases = [out / f"phase-{i + 1}" for i in range(len(point.names))]
    for folder in phases:
        folder.mkdir(parents=True, exist_ok=True)
    config = {
        k: v
        for k, v in sorted(vars(args).items())
        if isinstance(v, str | int | float | None)
        and k not in ("command_line", "debug", "force", "no_cache", "out", "data_dir")
    }
    record = Record(
        command=args.command_line,
        config=config,
        started=started,
        inputs=[facts["input"]],
        seeds=list(range(args.seeds)),
        checks=checks,
    )
    table = front.table()
    writers: dict[Path, Any] = {
        **{
            folder / "manifest.json": functools.partial(
                write, rehearsal.manifests[name].to_json()
            )
            for folder, name in zip(phases, point.names, strict=True)
        },
        out / "front.md": functools.partial(write, page(args, front, table)),
        out / "front.svg": functools.partial(plot, front),
        out / "front.json": functools.partial(write, numbers(front, point)),
        out / "run.toml": functools.partial(write, toml(args, front, point)),
    }
    publish(writers, record)
    for old in out.glob("phase-*/manifest.json"):
        if old not in writers:  # an earlier schedule had more phases
            old.unlink()
    say(
        table,
        "",
        f"A random choice overlaps by {front.random:.2f}.",
        f"Chosen: {' → '.join(point.names)}, {point.hours:.3g} hours of messages.",
        f"Wrote {out / 'front.md'}, front.svg, front.json, run.toml and run.json",
        f"Next: python -m mpc_bridge estimate --config {out / 'run.toml'} --calibrate",
    )


def _check_phases(out: Path) -> None:
    """Refuse to put a rehearsed manifest beside the weights of a trained proxy."""
    for weights in out.glob("phase-*/weights.safetensors"):
        raise FileExistsError(
            f"{weights} is of a trained proxy, whose manifest would be replaced: name "
            "another folder by --out"
        )


def _check(args: argparse.Namespace) -> None:
    """Raise now on options that would fail only after minutes of training."""
    least = {"pool": 2, "budget": 1, "samples": 20, "distil": 0, "seeds": 1}
    for name, minimum in least.items():
        if getattr(args, name) < minimum:
            raise ValueError(
                f"--{name} must be at least {minimum}, got {getattr(args, name)}"
            )
    for name in ("bandwidth", "latency", "max_hours"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise ValueError(f"--{name.replace('_', '-')} must be above 0, got {value}")
    bought = round(args.bootstrap * args.pool)
    if not 0 < args.bootstrap < 1 or not bought:
        raise ValueError(
            "--bootstrap must be a share of the pool that comes to a sample, got "
            f"{args.bootstrap}"
        )
    if not bought < args.budget < args.pool:
        raise ValueError(
            f"--budget must be above the bootstrap set's {bought} and below the pool's "
            f"{args.pool} samples, got {args.budget}"
        )
    if args.leak == "set" and args.engine == "crypten":
        raise ValueError("--leak set needs an engine of SPU, got --engine crypten")


def _rehearse(
    args: argparse.Namespace, folder: Path
) -> tuple[Rehearsal, dict[str, Any]]:
    """Return the rehearsal, and facts on its data for the records."""
    import jax
    import numpy as np
    from flax import nnx

    from jaxsel.data import load
    from jaxsel.models import (
        cache_folder,
        load_target,
        prepare_model,
        text_features,
        tokenize,
    )
    from jaxsel.proxy import Samples, default_candidates, rehearse

    data = load(args.data, split="train", data_dir=args.data_dir)
    x, y = np.asarray(data.x), np.asarray(data.y)
    if x.dtype.kind not in "OU" or y.dtype.kind not in "iu":
        raise ValueError(f"DATA must hold texts with classes, got {args.data}")
    wanted = args.samples + args.distil
    if wanted > len(x):
        raise ValueError(
            f"--samples and --distil must add up to at most the {len(x)} texts of "
            f"{args.data}, got {wanted}"
        )
    rows = np.random.default_rng(0).permutation(len(x))[:wanted]
    texts, labels = [str(x[row]) for row in rows], y[rows].astype(np.int32)
    base = prepare_model(args.model)
    n_classes = int(y.max()) + 1
    target = load_target(base, n_classes=n_classes, read="mean", rngs=nnx.Rngs(0))
    if target.tokenizer is None:
        raise ValueError(f"--model must be an encoder of texts, got {args.model}")
    depth = target.config.layers
    features = text_features(
        texts,
        load_target(base),
        length=args.length,
        layers=tuple(sorted({-(-depth * i // 3) for i in (1, 2, 3)})),
        cache=cache_folder("features"),
        progress=show_progress(),
    )
    every = Samples(tokenize(texts, target.tokenizer, length=args.length), features)
    distil_rows = np.arange(args.samples, wanted)
    # As many labels as will be bought, as far as they reach: training takes longest.
    labelled = min(round(args.bootstrap * args.pool), args.samples // 5)
    rehearsal = rehearse(
        every.take(np.arange(args.samples)),
        labels[: args.samples],
        default_candidates(target),
        target=target,
        secret=jax.random.key(0),
        seeds=args.seeds,
        bootstrap=labelled / args.samples,
        kind=args.kind,
        distil=every.take(distil_rows) if len(distil_rows) else None,
        folder=folder,
        progress=show_progress(),
    )
    facts = {"role": "data", "source": args.data, **fingerprint_dataset(data)}
    return rehearsal, {"bootstrap": labelled, "input": facts}
