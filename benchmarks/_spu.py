"""Whole sessions on SPU for `bench_mpc`: every role a process, over TLS on loopback."""

from __future__ import annotations

import dataclasses
import functools
import resource
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel import proxy
from jaxsel.proxy import Manifest, Spec

from . import _mpc
from ._case import Case, Contender, Target, at_most
from ._mpc import Ran
from ._mpc_scoring import BLOCK, TINY, Samples, random_arrays, samples_for

# What fixed-point scores may be off, of the largest, where two of them are told apart.
BORDER = 2e-4
Check = Callable[[Samples, Any], Mapping[str, float]]
_PATIENCE = 600.0  # seconds: all roles share the cores
_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Session:
    """A selection in one phase.

    Attributes:
        engine: Its name.
        leak: Leakage mode of the choice.
        n: Samples.
        keep: How many to choose.
        batch: Samples of a batch; None takes what fits the memory.
    """

    engine: str
    leak: str
    n: int
    keep: int
    batch: int | None = None


def run(
    job: Session, folder: str, *, python: Path | None = None
) -> tuple[Ran, dict[str, float]]:
    """Run a session in a folder of `_mpc.folder_for`; return its cost and figures.

    Args:
        job: The session.
        folder: Weights and samples.
        python: Interpreter of the roles, this process's if None.
    """
    from mpc_bridge import Result, run_local
    from mpc_bridge._config import (
        Appraisal,
        Config,
        DataOwner,
        Inputs,
        ModelOwner,
        PhaseConfig,
        Session as SessionConfig,
    )

    source = Path(folder)
    mask = source / "mask.npy"
    with tempfile.TemporaryDirectory() as out:
        outputs = [Path(out) / role for role in ("model", "data")]
        config = Config(
            session=SessionConfig(
                name="benchmark",
                seed=0,
                samples=job.n,
                engine=job.engine,
                leak=job.leak,  # pyright: ignore[reportArgumentType]
                timeout=_PATIENCE,
            ),
            phases=(
                PhaseConfig(
                    manifest=source / "manifest.json",
                    keep=job.keep,
                    batch_size=job.batch,
                ),
            ),
            appraisal=Appraisal(mode="none"),
            model_owner=ModelOwner(weights=(source,), output=outputs[0], measure=False),
            data_owner=DataOwner(
                inputs=(
                    Inputs(x=source / "x.npy", mask=mask if mask.exists() else None),
                ),
                output=outputs[1],
                measure=False,
            ),
        )
        used, began = _children(), time.perf_counter()
        run_local(config, notice=False, python=python)
        wall, used = time.perf_counter() - began, _children() - used
        results = [Result.read(path) for path in outputs]
    model = results[0]
    choices = [result.total(place="choice") for result in results]
    wholes = [result.total() for result in results]
    scoring = [
        (whole.seconds - choice.seconds, whole.sent - choice.sent)
        for whole, choice in zip(wholes, choices, strict=True)
    ]
    # On ABY3 each number of the data owner's goes to two parties; on Cheetah none does.
    inputs = 16 * np.load(source / "x.npy").size * (job.engine == "spu-aby3")
    figures = {
        "scoring s": max(seconds for seconds, _ in scoring),
        "choosing s": max(choice.seconds for choice in choices),
        "scoring MB one way": max(scoring[0][1], scoring[1][1] - inputs) / 1e6,
        "inputs MB": inputs / 1e6,
        "choosing MB one way": max(choice.sent for choice in choices) / 1e6,
    }
    compared = sum(step.bytes for step in model.steps if step.name == "compare")
    if comparisons := model.phases[0].comparisons:
        figures["bytes a comparison"] = compared / 2 / comparisons
    rows = np.asarray(model.rows)
    counts = {"all": (model.total().rounds, model.total().bytes)}
    return Ran(counts, wall_s=wall, cpu_s=used, rows=rows), figures


def _children() -> float:
    """Return the CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _prepare(manifest: Manifest, samples: Samples) -> tuple[str, np.ndarray]:
    """Return a folder with a proxy of random weights and samples, and their scores."""
    from mpc_bridge.engines import engine_of

    engine_of("spu-cheetah").versions()  # or an ImportError
    x, mask = samples
    arrays = random_arrays(manifest)
    model = proxy.Proxy.from_arrays(manifest, arrays)
    folder = _mpc.folder_for(proxy.with_bounds(model, x, mask), x, mask)
    return folder, np.asarray(model.scores(model.logits(x, mask)))


def _misplaced(rows: np.ndarray, clear: np.ndarray, keep: int) -> float:
    """Count chosen rows that are not among the best, by more than scores are off."""
    border = np.sort(clear)[-keep] - BORDER * np.abs(clear).max()
    return float(np.sum(clear[rows] < border))


def _probe(job: Session, manifest: Manifest) -> Callable[[Samples], Callable[[], Any]]:
    def make(samples: Samples) -> Callable[[], Any]:
        folder, clear = _prepare(manifest, samples)

        def call() -> Any:
            ran, figures = run(job, folder)
            return ran, figures, clear

        weakref.finalize(call, shutil.rmtree, folder, ignore_errors=True)
        return call

    return make


def _checked_probe(job: Session, choosing: dict[str, float]) -> Check:
    """Check a choice; by "set" compare its seconds with those by "rank" before it."""

    def check(samples: Samples, result: Any) -> Mapping[str, float]:
        del samples
        ran, figures, clear = result
        figures = dict(figures)
        if job.leak == "rank":
            choosing[job.engine] = figures["choosing s"]
        elif job.engine in choosing:
            figures["of rank's seconds"] = figures["choosing s"] / choosing[job.engine]
        figures["misplaced"] = _misplaced(ran.rows, clear, job.keep)
        return figures

    return check


def _linear_case(
    name: str,
    shape: tuple[int, int, int],
    jobs: Sequence[tuple[str, Session, Check]],
    targets: Sequence[Target],
    rounds: int,
) -> Case[Samples]:
    """Return a case of a probe: `shape` has samples, how many to choose, width."""
    n, keep, width = shape
    manifest = proxy.probe_manifest(width=width, n_classes=2)
    return Case(
        name=name,
        title=f"a linear probe on SPU: {n:,} × {width} samples, {keep:,} are chosen; "
        "all roles on this machine, over TLS",
        inputs=functools.partial(samples_for, manifest, n),
        tiny=functools.partial(samples_for, manifest, 8),
        work=n,
        unit="sample",
        contenders=[
            Contender(
                name=row,
                make=_probe(job, manifest),
                check=check,
                limits={"misplaced": 0},
            )
            for row, job, check in jobs
        ],
        targets=targets,
        rounds=rounds,
        threads=None,
    )


def probe_case(*, quick: bool) -> Case[Samples]:
    """Score 42,000 × 384 samples with a linear probe, and choose 8,400 of them."""
    shape = n, keep, _ = (200, 40, 8) if quick else (42_000, 8_400, 384)
    choosing: dict[str, float] = {}
    jobs, targets = [], []
    for engine in ("spu-cheetah", "spu-aby3"):
        for leak in ("rank", "set"):
            job = Session(engine, leak, n, keep)
            jobs.append((f"{engine}, {leak}", job, _checked_probe(job, choosing)))
    for name, both, mb, a_comparison, goals in (
        ("spu-cheetah, rank", (60, 30), (20, 20), 100, (30, 10)),
        ("spu-aby3, rank", (15, 15), (10, 10), 40, (6, 6)),
    ):
        for i, part in enumerate(("scoring", "choosing")):
            s, size = f"{part} s", f"{part} MB one way"
            beside = "MB one way, beside the inputs' shares"
            targets += [
                at_most(name, s, both[i], f"seconds {part}", "must"),
                at_most(name, s, goals[i], f"seconds {part}", "goal"),
                at_most(name, size, mb[i], f"{part}, {beside}", "must"),
            ]
        targets.append(
            at_most(
                name,
                "bytes a comparison",
                a_comparison,
                "bytes a comparison, one way, what starts it included",
                "must",
            )
        )
    for engine in ("spu-cheetah", "spu-aby3"):
        name, words = f"{engine}, set", "of the seconds by rank"
        targets.append(at_most(name, "of rank's seconds", 3, words, "must"))
    return _linear_case("secure probe", shape, jobs, targets, 1 if quick else _ROUNDS)


def pool_case(*, quick: bool) -> Case[Samples]:
    """Score 200,000 × 384 samples with a linear probe, and choose 40,000 of them."""
    shape = n, keep, _ = (300, 60, 8) if quick else (200_000, 40_000, 384)
    jobs = []
    for engine in ("spu-aby3", "spu-cheetah"):
        job = Session(engine, "rank", n, keep)
        jobs.append((engine, job, functools.partial(_checked_pool, job)))
    seconds = "CPU seconds a party, from its start to its end"
    target = at_most("spu-aby3", "CPU s a party", 25, seconds, "must")
    return _linear_case("secure pool", shape, jobs, [target], 1)


def _checked_pool(job: Session, samples: Samples, result: Any) -> Mapping[str, float]:
    from mpc_bridge.engines import engine_of

    del samples
    ran, figures, clear = result
    a_party = ran.cpu_s / engine_of(job.engine).parties
    wrong = _misplaced(ran.rows, clear, job.keep)
    return {"CPU s a party": a_party, **figures, "misplaced": wrong}


def depth_case(*, quick: bool) -> Case[Samples]:
    """Measure a sample of twelve layers, with every row of all but the last."""
    sizes: dict[str, Any] = (TINY if quick else BLOCK) | {"layers": 12}
    few, many = 2, 4
    spec = Spec(12, 12, attention="quadratic", norm="polynomial", read="cls")
    manifest = proxy.manifest(spec, **sizes)
    return Case(
        name="secure depth",
        title=f"twelve layers on SPU: CLS row, 12 heads, hidden {sizes['hidden']}, "
        f"length {sizes['length']}; {many} samples less {few}, all roles on this "
        "machine",
        inputs=functools.partial(samples_for, manifest, many),
        tiny=functools.partial(samples_for, manifest, 2),
        work=few + many,
        unit="sample",
        contenders=[
            Contender(
                name="spu-aby3, quadratic",
                make=functools.partial(_layer, "spu-aby3", manifest, few, many),
                check=lambda _, found: found[1],
                limits={"misplaced": 0},
            )
        ],
        targets=[],
        rounds=1,
        threads=None,
    )


def layer_case(*, quick: bool) -> Case[Samples]:
    """Return the case of one layer, the CLS row: cost a sample, from two sizes."""
    sizes = TINY if quick else BLOCK
    few, many = (2, 4) if quick else (8, 24)
    specs = {
        "spu-aby3, quadratic": ("spu-aby3", "quadratic"),
        "spu-aby3, linear": ("spu-aby3", "linear"),
        "spu-cheetah, linear": ("spu-cheetah", "linear"),
    }
    contenders: list[Contender[Samples]] = []
    manifests: list[Manifest] = []
    for name, (engine, attention) in specs.items():
        spec = Spec(1, 12, attention=attention, norm="polynomial", read="cls")
        manifest = proxy.manifest(spec, **sizes)
        manifests.append(manifest)
        contenders.append(
            Contender(
                name=name,
                make=functools.partial(_layer, engine, manifest, few, many),
                check=lambda _, found: found[1],
                limits={"misplaced": 0},
            )
        )
    shown: Sequence[tuple[str, str, float, str, Any]] = (
        ("spu-aby3, quadratic", "KB one way", 1301, "KB one way a sample", "must"),
        ("spu-aby3, quadratic", "KB one way", 650, "KB one way a sample", "goal"),
        ("spu-aby3, quadratic", "CPU s", 0.5, "CPU seconds a sample", "must"),
        ("spu-aby3, quadratic", "CPU s", 0.15, "CPU seconds a sample", "goal"),
        ("spu-cheetah, linear", "KB one way", 5000, "KB one way a sample", "goal"),
        ("spu-cheetah, linear", "CPU s", 2, "CPU seconds a sample", "goal"),
    )
    targets: list[Target] = [] if quick else [at_most(*figure) for figure in shown]
    return Case(
        name="secure layer",
        title=f"a layer on SPU: CLS row, 12 heads, hidden {sizes['hidden']}, length "
        f"{sizes['length']}; {many} samples less {few}, all roles on this machine",
        inputs=functools.partial(samples_for, manifests[0], many),
        tiny=functools.partial(samples_for, manifests[0], 2),
        work=few + many,
        unit="sample",
        contenders=contenders,
        targets=targets,
        rounds=1,
        threads=None,
    )


def _layer(
    engine: str, manifest: Manifest, few: int, many: int, samples: Samples
) -> Callable[[], Any]:
    x, mask = samples
    cut = (x[:few], None if mask is None else mask[:few])
    folders = [_prepare(manifest, part) for part in (cut, samples)]

    def call() -> Any:
        ran, sizes, wrong = [], [], 0.0
        for (folder, clear), n in zip(folders, (few, many), strict=True):
            keep = n // 2
            outcome, figures = run(Session(engine, "rank", n, keep, few), folder)
            ran.append(outcome)
            sizes.append(figures["scoring MB one way"] + figures["inputs MB"])
            wrong += _misplaced(outcome.rows, clear, keep)
        figures = {
            "KB one way": 1e3 * (sizes[1] - sizes[0]) / (many - few),
            "CPU s": (ran[1].cpu_s - ran[0].cpu_s) / (many - few),
            "misplaced": wrong,
        }
        both = Ran(
            {},
            wall_s=ran[0].wall_s + ran[1].wall_s,
            cpu_s=ran[0].cpu_s + ran[1].cpu_s,
        )
        return both, figures

    for folder, _ in folders:
        weakref.finalize(call, shutil.rmtree, folder, ignore_errors=True)
    return call
