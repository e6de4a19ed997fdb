"""The pure kernels, in one place: each one runs inside jit and vmap.

`test_kernels.py` tests every kernel listed here, and lowers it to platforms that this
machine does not have.
"""

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import kernels_retraining as retraining
import numpy as np

from jaxsel import (
    attribute,
    filter,
    gradients,
    match,
    neighbors,
    proxy,
    retrieve,
    value,
)
from jaxsel.gradients._factored import LayerFactors
from jaxsel.labels._kernels import confident_counts, label_quality
from jaxsel.labels._quality import QUALITIES
from jaxsel.market._design._frank_wolfe import frank_wolfe_design
from jaxsel.match._func_feat import geometric_median
from jaxsel.proxy._forward import proxy_logits, proxy_scores
from jaxsel.proxy._probe import Probe
from jaxsel.proxy.families import attention_emulator
from jaxsel.retrieve._binning import fewest_mismatches
from jaxsel.retrieve._round_robin import round_robin
from jaxsel.value._hard_label import weighted_shapley
from jaxsel.value._hybrid import semivalue_hybrid
from jaxsel.value._mixture_kernel import mixture_left_out, mixture_posterior
from jaxsel.value._regression import regression_shapley, regression_table
from jaxsel.value._semivalue import semivalue_tied, semivalue_top
from jaxsel.value._threshold_kernel import (
    counted_shapley,
    harmonic_numbers,
    threshold_shapley,
)
from jaxsel.value._weights import loo_weights

PRIVATE = {
    "attribute._gauss_newton": ("gauss_newton",),
    "attribute._gauss_newton_cg": ("gauss_newton_cg",),
    "attribute._metagradient": ("weight_derivative",),
    "attribute._tracin": ("tracin_term",),
    "labels._kernels": ("confident_counts", "label_quality"),
    "market._design._frank_wolfe": ("frank_wolfe_design",),
    "match._func_feat": ("geometric_median",),
    "proxy._forward": ("proxy_logits", "proxy_scores"),
    "retrieve._binning": ("fewest_mismatches",),
    "retrieve._round_robin": ("round_robin",),
    "value._hard_label": ("weighted_shapley",),
    "value._hybrid": ("semivalue_hybrid",),
    "value._regression": ("regression_shapley",),
    "value._semivalue": ("semivalue_tied", "semivalue_top"),
    "value._threshold_kernel": ("counted_shapley", "threshold_shapley"),
    "value._utility": ("evaluate",),
}
"""Modules and their private kernels, whose shapes are checked as well."""

N, D, K = 40, 3, 5
TABLES = Path(__file__).parents[1] / "docs" / "kernels.md"


def documented() -> list[tuple[str, str]]:
    """Return the kernels in the tables of docs/kernels.md: their rooms and names."""
    found = []
    for line in TABLES.read_text().split("\n## ")[0].splitlines():
        if line.startswith("| `"):
            room = ""
            # A name without its room is of the room before it.
            for own, name in re.findall(r"`(?:(\w+)\.)?(\w+)", line.split(" | ")[0]):
                room = own or room
                found.append((room, name))
    return found


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A pure function of arrays, and arrays to call it with.

    Attributes:
        name: What the tests call it.
        function: The kernel, with all else that it needs already given.
        arguments: From a NumPy generator to the arrays of one call.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], tuple[np.ndarray, ...]]


def _distances(rng):
    # Whole numbers, so that some tie.
    return rng.integers(0, 30, N).astype(np.float32)


def _matches(rng):
    return _distances(rng), rng.integers(0, 2, N).astype(np.float32)


def _counts(rng):
    near, gains = _matches(rng)
    return near < 9, gains, np.int32(N + 5), np.float32(12)


def _votes(rng):
    return _distances(rng), rng.integers(-3, 4, N).astype(np.int32)


def _step_of_training(rng):
    x = rng.normal(size=(N, D)).astype(np.float32)
    weights = rng.normal(size=(D, 2)).astype(np.float32)
    return weights, x, rng.normal(size=(K, D)).astype(np.float32)


def _square(weights, x):
    """A loss whose product asks for all digits."""
    out = jnp.matmul(x, weights, precision="highest")
    return jnp.sum(jnp.tanh(out) ** 2)


def _in_run_step(weights, x, targets, order=1):
    return attribute.in_run_step(_square, weights, x, targets, step=0.1, order=order)


def _mixtures(rng):
    scales = np.array([-1.0, -0.5], np.float32)
    mixtures = rng.dirichlet(np.ones(D), 8).astype(np.float32)
    return mixtures, rng.normal(size=8).astype(np.float32), scales


def _mixtures_of_process(rng):
    mixtures, metrics, _ = _mixtures(rng)
    return mixtures, metrics, np.array([*[-1.0] * D, -0.3, 0, 0, -1], np.float32)


def _and_points(rng, runs):
    return *runs(rng), rng.dirichlet(np.ones(D), 4).astype(np.float32)


def _targets(rng):
    return _distances(rng), rng.normal(size=N).astype(np.float32), np.float32(0.5)


def _points(rng):
    shapes = (N, D), (4, D)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def _gradients(rng):
    rows = rng.normal(size=(12, D)).astype(np.float32)
    return rows, rows[:K].sum(0)


def _factors(rng):
    errors, features = (rng.normal(size=(12, n)).astype(np.float32) for n in (2, D))
    return errors, features, features.T[:, :K] @ errors[:K]


_compiled = jax.jit(
    match.pursue, static_argnames=("budget", "positive", "score", "many")
)


def _pursue(rows, target):
    return _compiled(gradients.Dense(rows), target, budget=3)


def _pursue_factored(errors, features, target):
    oracle = gradients.Factored((LayerFactors(errors, features, False),))
    options = {"positive": False, "score": "ols", "many": 2}
    options["valid"] = np.arange(len(errors)) != 1
    return _compiled(oracle, (target,), budget=3, l2=0.1, **options)


def _near(rng):
    return np.sort(rng.random((4, K)), axis=1).astype(np.float32), np.stack(
        [rng.permutation(12)[:K] for _ in range(4)]
    ).astype(np.int32)


def _products(rng):
    rows = rng.normal(size=(5, N)).astype(np.float32)
    return (rows @ rows.T,)


def _codes(rng):
    return tuple(rng.integers(0, 3, (n, D)).astype(np.uint8) for n in (N, 4))


def _merge_nearest(features, queries, metric):
    none = retrieve.empty_nearest(len(queries), K)
    allowed = np.arange(len(features)) % 3 > 0
    return retrieve.merge_nearest(none, features, queries, 0, allowed, metric=metric)


def _labelled(rng):
    probs = rng.dirichlet(np.ones(K), N).astype(np.float32)
    return probs, rng.integers(0, K, N).astype(np.int32)


_TABLE = value.rank_table(value.shapley_weights(N, K))
_LOO = value.rank_table(loo_weights(N, K))


def _worth(rng):
    x = _points(rng)[0]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return rng.uniform(0.1, 1, N).astype(np.float32), x


def _mlp(x):
    w = np.ones((D, 2), np.float32)
    return proxy.mlp({"w1": w, "b1": w[0], "w2": w.T, "b2": w[:, 0]}, x)


_HEADS, _WIDTH, _ROWS = 2, 4, 5
_MANIFEST = proxy.manifest(
    proxy.Spec(2, _HEADS, norm="exact", read="mean"),
    layers=2,
    heads=_HEADS,
    head_width=_WIDTH // _HEADS,
    hidden=_WIDTH,
    length=_ROWS,
    n_classes=2,
)


def _embedded(rng):
    x = rng.normal(size=(6, _ROWS, _WIDTH)).astype(np.float32)
    return x, (np.arange(_ROWS) < rng.integers(1, 6, (6, 1))).astype(np.float32)


def _proxy_parameters():
    """Random weights, and an attention fitted to random scores."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    attention = attention_emulator(_MANIFEST.layers[0].attention.entry())
    scores, mask = draw(8, _HEADS, _ROWS, _ROWS), np.ones((8, _ROWS), np.float32)
    names = ("query", "key", "value", "out")
    layer = {name: (draw(_WIDTH, _WIDTH), draw(_WIDTH)) for name in names}
    layer["attention"] = attention.fit(scores, mask)
    layer["norm"] = {"gamma": draw(_WIDTH), "beta": draw(_WIDTH), "emulator": {}}
    head = Probe((draw(_WIDTH, 2),), (draw(2),))
    return {"layers": [layer] * 2, "head": head, "offset": draw(2), "score": {}}


def _proxy_logits(x, mask):
    return proxy_logits(_PROXY, x, mask, manifest=_MANIFEST)


def _proxy_scores(logits):
    return proxy_scores(_PROXY, logits[..., :2], manifest=_MANIFEST)


_PROXY = _proxy_parameters()

KERNELS = [
    Kernel("distances-l2", neighbors.distances, _points),
    Kernel("distances-cosine", partial(neighbors.distances, metric="cosine"), _points),
    Kernel("normalise", neighbors.normalise, lambda rng: _points(rng)[:1]),
    Kernel("squared_norms", neighbors.squared_norms, lambda rng: _points(rng)[:1]),
    Kernel("argsort", neighbors.argsort, lambda rng: (_distances(rng),)),
    Kernel("top_k", partial(neighbors.top_k, k=K), lambda rng: (_distances(rng),)),
    Kernel(
        "unsort",
        neighbors.unsort,
        lambda rng: (rng.permutation(N).astype(np.int32), _distances(rng)),
    ),
    Kernel("semivalue", partial(value.semivalue, table=_TABLE), _matches),
    Kernel("semivalue_tied", partial(semivalue_tied, table=_TABLE), _matches),
    Kernel(
        "semivalue_top",
        partial(semivalue_top, weight=_LOO.weight[: K + 1], drop=_LOO.drop[: K + 1]),
        _matches,
    ),
    Kernel(
        "semivalue_hybrid",
        partial(semivalue_hybrid, table=_TABLE, head=8, levels=16),
        _matches,
    ),
    Kernel(
        "threshold_shapley",
        partial(
            threshold_shapley,
            radius=9.0,
            harmonic=harmonic_numbers(N),
            prior=0.5,
        ),
        _matches,
    ),
    Kernel("counted_shapley", partial(counted_shapley, prior=0.5), _counts),
    Kernel("weighted_shapley", partial(weighted_shapley, k=K, levels=3), _votes),
    Kernel(
        "regression_shapley",
        partial(regression_shapley, table=regression_table(N, K)),
        _targets,
    ),
    Kernel("pursue", _pursue, _gradients),
    Kernel("pursue-factored", _pursue_factored, _factors),
    Kernel(
        "frank_wolfe_design",
        partial(frank_wolfe_design, steps=5),
        lambda rng: (_points(rng)[0], np.eye(D, dtype=np.float32), np.float32(0)),
    ),
    Kernel("geometric_median", geometric_median, lambda rng: _points(rng)[:1]),
    Kernel("median_distance", match.median_distance, _points),
    Kernel("coverage", partial(retrieve.coverage, budget=8), _near),
    Kernel("round_robin", partial(round_robin, budget=8), _points),
    Kernel("target_subspace", partial(gradients.target_subspace, rank=3), _products),
    Kernel("merge_nearest-l2", partial(_merge_nearest, metric="l2"), _points),
    Kernel("merge_nearest-cosine", partial(_merge_nearest, metric="cosine"), _points),
    Kernel("fewest_mismatches", fewest_mismatches, _codes),
    Kernel("ks_threshold", filter.ks_threshold, lambda rng: _matches(rng)[::-1]),
    Kernel("confident_counts", confident_counts, _labelled),
    *(
        Kernel(
            f"label_quality-{method}",
            partial(label_quality, method=method),
            _labelled,
        )
        for method in QUALITIES
    ),
    Kernel("score", proxy.score, lambda rng: _points(rng)[:1]),
    Kernel("mlp", _mlp, lambda rng: _points(rng)[:1]),
    Kernel("diverse", partial(proxy.diverse, strength=2.0, budget=8), _worth),
    Kernel("proxy_logits", _proxy_logits, _embedded),
    Kernel("proxy_scores", _proxy_scores, lambda rng: _points(rng)[:1]),
    *(
        Kernel(f"mixture_{name}-{model}", partial(function, model=model), arguments)
        for model, runs in (("quadratic", _mixtures), ("gp", _mixtures_of_process))
        for name, function, arguments in (
            ("left_out", mixture_left_out, runs),
            ("posterior", mixture_posterior, partial(_and_points, runs=runs)),
        )
    ),
    Kernel("in_run_step", _in_run_step, _step_of_training),
    Kernel("in_run_step-second", partial(_in_run_step, order=2), _step_of_training),
    *(Kernel(*call) for call in retraining.KERNELS),
]
