"""Proxies with random weights for `bench_mpc`, run in secret and compared."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsel import proxy
from jaxsel.proxy import Manifest, Spec

from . import _mpc
from ._case import Case, Contender, Target
from ._mpc import Ran

BLOCK: dict[str, Any] = {
    "layers": 6,
    "heads": 12,
    "head_width": 32,
    "hidden": 384,
    "length": 128,
    "n_classes": 2,
}
TINY: dict[str, Any] = BLOCK | {"head_width": 4, "hidden": 8, "length": 8}
PAPER = Spec(1, 1, 2, attention="mlp", norm="mlp", read="mean", secure="mlp")
OURS = Spec(1, 1, attention="quadratic", norm="polynomial", read="mean")
EXACT = proxy.ablation(PAPER, "NoApprox")

EMULATED, LOGARITHM = 2e-3, 2e-2  # of the largest score; CrypTen's log is off by 2 %

Samples = tuple[np.ndarray, "np.ndarray | None"]


def side_by_side(
    read: str, heads: int, sizes: Mapping[str, Any]
) -> dict[str, Manifest]:
    """Return manifests to compare: all masked, of the folded plan, with one block."""
    exact = dataclasses.replace(EXACT, heads=heads)
    wide = dataclasses.replace(PAPER, heads=heads, hidden=16)
    ours = dataclasses.replace(OURS, heads=heads)
    specs = {
        "exact": exact,
        "MPCFormer's softmax": proxy.ablation(exact, "2Quad"),
        "Bolt's softmax": proxy.ablation(exact, "Bolt"),
        "the paper's, d = 16": wide,
        "the paper's, d = 2": dataclasses.replace(wide, hidden=2),
        "quadratic, hinge": dataclasses.replace(ours, norm="hinge"),
        "quadratic, polynomial": ours,
        "linear, polynomial": dataclasses.replace(ours, attention="linear"),
    }
    chosen = {k: dataclasses.replace(s, read=read) for k, s in specs.items()}
    return {k: proxy.manifest(s, **sizes) for k, s in chosen.items()}


@dataclasses.dataclass(frozen=True)
class Scoring:
    """A proxy with random weights: its run, and the expected result."""

    manifest: Manifest
    n: int
    batch: int
    keep: int | None = None
    measured: tuple[int, float] | None = None
    against: Manifest | None = None

    def make(self, samples: Samples) -> Callable[[], tuple[Ran, np.ndarray]]:
        import mpc_bridge
        from mpc_bridge.engines.crypten import ClearProxy  # imports CrypTen

        x, mask = samples
        arrays = random_arrays(self.manifest)
        if not self.manifest.head.width:  # logits a nat apart, as trained ones are
            logits = ClearProxy(self.manifest, arrays)(x, mask).numpy()
            apart = np.abs(logits[:, 1] - logits[:, 0]).mean()
            for name in ("head.0.weight", "head.0.bias", "offset"):
                arrays[name] /= apart
        model = proxy.Proxy.from_arrays(self.manifest, arrays)
        folder = _mpc.folder_for(proxy.with_bounds(model, x, mask), x, mask)
        clear = mpc_bridge.load(folder).scores(x, mask).numpy()
        job = _mpc.Score(folder, self.n, self.batch, self.keep)

        def call() -> tuple[Ran, np.ndarray]:
            return _mpc.run(job), clear

        # The files go with the call.
        weakref.finalize(call, shutil.rmtree, folder, ignore_errors=True)
        return call

    def check(
        self, samples: Samples, result: tuple[Ran, np.ndarray]
    ) -> Mapping[str, float]:
        del samples
        ran, clear = result
        rounds, size = ran.counts["forward"]
        counted = proxy.cost(self.manifest, self.n, batch_size=self.batch)
        figures = {
            "rounds": rounds / counted.batches,
            "KB one way": size / 2000 / self.n,
            "miscounted": abs(rounds - counted.rounds) + abs(size - counted.bytes),
            "error": np.abs(ran.result - clear).max() / np.abs(clear).max(),
        }
        if self.measured is not None:
            parts = zip(("rounds", "KB one way"), self.measured, strict=True)
            figures["off"] = max(abs(figures[name] / was - 1) for name, was in parts)
        if self.against is not None:
            other = proxy.cost(self.against, self.n, batch_size=self.batch)
            figures["of the paper's bytes"] = size / other.bytes
        if self.keep is not None:
            figures |= _chosen(ran, clear, self.keep)
        return figures

    def contender(self, name: str, *, peer: bool = False) -> Contender:
        score = self.manifest.score
        exact = score.secure.family == "exact" and score.kind != "margin"
        limits = {"miscounted": 0.0, "error": LOGARITHM if exact else EMULATED}
        if self.keep is not None:
            limits |= {"misplaced": 0.0, "of the bound": 1.0}
        return Contender(
            name=name,
            make=self.make,
            check=self.check,
            limits=limits,
            peer=peer,
        )


def _chosen(ran: Ran, clear: np.ndarray, k: int) -> dict[str, float]:
    """Return the figures of a choice; `misplaced` is against the opened scores."""
    rounds, size = ran.counts["choice"]
    bound = proxy.choice_cost(len(clear), k)
    best, wanted = (
        set(np.argsort(-scores, kind="stable")[:k].tolist())
        for scores in (ran.result, clear)
    )
    rows = set(ran.rows.tolist())
    return {
        "choice passes": ran.passes,
        "choice rounds": rounds,
        "choice KB one way": size / 2000,
        "of the bound": max(rounds / bound.rounds_bound, size / bound.bytes_bound),
        "misplaced": len(rows ^ best) / 2,
        "missed": len(wanted - rows),
    }


def random_arrays(manifest: Manifest, seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights of the size that trained ones have; norms divide by about one."""
    rng = np.random.default_rng(seed)
    length, arrays = manifest.inputs.length, {}
    for name, shape in proxy.array_shapes(manifest).items():
        last, a = name.rsplit(".")[-1], rng.normal(size=shape)
        if last in ("weight", "w1", "w2"):
            a /= np.sqrt(shape[0])
        elif last == "gamma":
            a = 1 + 0.2 * a
        else:
            a *= 0.2
        if "norm.emulator" in name:
            a *= 0.1
            if last in ("coefficients", "affine", "b2"):
                a[0] += 1
            elif last == "scale":
                a = 0.01 + np.abs(a)
        elif ".attention." in name and last in ("w2", "b2"):
            a = (0.3 * a + (last == "b2")) / length  # weights that sum to about one
        elif ".attention." in name:
            a *= 0.3
        arrays[name] = np.asarray(a, np.float32)
    return arrays


def samples_for(manifest: Manifest, n: int) -> Samples:
    """Return n random samples for a proxy, and their mask where they are padded."""
    rng, inputs = np.random.default_rng(1), manifest.inputs
    shape = (n, inputs.width)
    if inputs.kind != "features":
        shape = (n, inputs.length, inputs.width)
    x = rng.normal(size=shape).astype(np.float32)
    if not inputs.masked:
        return x, None
    tokens = rng.integers(inputs.length // 4, inputs.length + 1, size=(n, 1))
    return x, (np.arange(inputs.length) < tokens).astype(np.float32)


def scoring_case(
    name: str,
    title: str,
    rows: Mapping[str, Scoring],
    *,
    peer: str = "",
    targets: Sequence[Target] = (),
) -> Case[Samples]:
    """Return a case of proxies that all score the samples of the first."""
    first = next(iter(rows.values()))
    return Case(
        name=name,
        title=title,
        inputs=functools.partial(samples_for, first.manifest, first.n),
        tiny=functools.partial(samples_for, first.manifest, 1),
        work=first.n,
        unit="sample",
        contenders=[row.contender(k, peer=k == peer) for k, row in rows.items()],
        targets=targets,
        rounds=2,
    )
