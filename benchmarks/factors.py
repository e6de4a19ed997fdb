"""EK-FAC factors and scores of an encoder beside kronfluence's, in turns.

`python -m benchmarks.factors --layers 1` draws encoder layers of MiniLM's shape, width
384 with twelve heads and 1,536 hidden units, without norms' scales and biases, and a
head of two classes, on random tokens, 32 a sample. Both sides fit factors to all
samples and score all pairs with the targets, in float32, with the same weights and
damping, in batches of 16. Ours follows the exact curvature of two classes, kronfluence
one label a sample that it draws from the network: as many passes.

Spearman's correlation between both sides' scores is printed first, then medians of CPU
and wall seconds in turns, the first call of each left out, and the smaller ratio.
Needs `pip install --no-deps kronfluence==1.0.1 accelerate einconv`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsel import attribute

from ._threads import limit, limited
from .store import HEADS, HIDDEN, TOKENS, WIDTH

CLASSES, DAMPING, BATCH = 2, 1e-2, 16
QUERIES = 500  # of kronfluence, whose gradients are in memory at once
SHAPES = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH)) | {
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
}


def draw(layers: int) -> dict[str, Any]:
    """Draw the weights, `[in, out]` each."""
    rng = np.random.default_rng(0)

    def kernel(inputs: int, outputs: int) -> np.ndarray:
        return (rng.normal(size=(inputs, outputs)) / inputs**0.5).astype(np.float32)

    stack = {
        f"layer{i}": {name: kernel(*shape) for name, shape in SHAPES.items()}
        for i in range(layers)
    }
    return {**stack, "head": kernel(WIDTH, CLASSES)}


def draw_samples(n: int, t: int) -> tuple[np.ndarray, ...]:
    """Draw training samples `[n, 32, 384]` and targets, each with labels."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n + t, TOKENS, WIDTH)).astype(np.float32)
    y = rng.integers(0, CLASSES, len(x))
    return x[:n], y[:n], x[n:], y[n:]


def encoder(params: Any, x: Any, backend: Any) -> Any:
    """Return logits of one or more samples, `[..., 32, 384]`, by JAX or torch."""
    for name in sorted(set(params) - {"head"}):
        layer = params[name]
        parts = (layer[part](x) for part in ("query", "key", "value"))
        split = (*x.shape[:-1], HEADS, WIDTH // HEADS)
        query, key, value = (part.reshape(split) for part in parts)
        alike = backend.einsum("...shd,...thd->...hst", query, key)
        weights = backend.softmax(alike / (WIDTH / HEADS) ** 0.5, -1)
        mixed = backend.einsum("...hst,...thd->...shd", weights, value)
        x = _norm(x + layer["out"](mixed.reshape(x.shape)))
        x = _norm(x + layer["down"](backend.gelu(layer["up"](x))))
    return params["head"](x.mean(-2))


def _norm(x: Any) -> Any:
    centred = x - x.mean(-1)[..., None]
    return centred / ((centred**2).mean(-1)[..., None] + 1e-6) ** 0.5


class _Jax:
    einsum = staticmethod(jnp.einsum)
    softmax = staticmethod(jax.nn.softmax)
    gelu = staticmethod(functools.partial(jax.nn.gelu, approximate=False))


def ours(weights: Any, samples: Sequence[np.ndarray]) -> Callable[[], np.ndarray]:
    """Return a call that computes scores `[t, n]` anew."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        layers = jax.tree.map(lambda w: functools.partial(jnp.matmul, b=w), params)
        return encoder(layers, x, _Jax)

    recipe = attribute.Recipe(
        ((lambda key, x: weights), apply), optax.sgd(0.1), epochs=1, batch_size=1
    )

    def call() -> np.ndarray:
        values = attribute.network_influence(
            recipe,
            *samples,
            params=[weights],
            solver="ekfac",
            damping=DAMPING,
            reduce=None,
            chunk_size=BATCH,
        )
        return np.asarray(values.values)

    return call


def theirs(weights: Any, samples: Sequence[np.ndarray]) -> Callable[[], np.ndarray]:
    """Return a call that computes kronfluence's scores `[t, n]` anew."""
    import torch
    from torch.nn import functional
    from torch.utils.data import TensorDataset

    kronfluence: Any = importlib.import_module("kronfluence")
    arguments: Any = importlib.import_module("kronfluence.arguments")

    class Backend:
        einsum, softmax, gelu = torch.einsum, torch.softmax, functional.gelu

    def linear(weight: np.ndarray) -> Any:
        layer = torch.nn.Linear(*weight.shape, bias=False)
        layer.weight.data = torch.as_tensor(np.array(weight.T))
        return layer

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = {name: part for name, part in weights.items() if name != "head"}
            self.layers = torch.nn.ModuleDict(
                {
                    name: torch.nn.ModuleDict({k: linear(w) for k, w in part.items()})
                    for name, part in layers.items()
                }
            )
            self.head = linear(weights["head"])

        def forward(self, x: Any) -> Any:
            return encoder({**dict(self.layers.items()), "head": self.head}, x, Backend)

    class Task(kronfluence.task.Task):
        def compute_train_loss(self, batch: Any, model: Any, sample: bool = False):
            logits, labels = model(batch[0]), batch[1]
            if sample:
                drawn = torch.multinomial(torch.softmax(logits.detach(), -1), 1)
                labels = drawn.flatten()
            return functional.cross_entropy(logits, labels, reduction="sum")

        def compute_measurement(self, batch: Any, model: Any):
            return self.compute_train_loss(batch, model)

    task, cpu = Task(), not torch.cuda.is_available()
    model = kronfluence.prepare_model(Encoder(), task)
    x, y, x_val, y_val = map(torch.as_tensor, samples)

    def call() -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            analyzer = kronfluence.Analyzer(
                "a", model, task, cpu=cpu, disable_tqdm=True, output_dir=folder
            )
            train, targets = TensorDataset(x, y), TensorDataset(x_val, y_val)
            analyzer.fit_all_factors("f", train, per_device_batch_size=BATCH)
            analyzer.compute_pairwise_scores(
                "s",
                "f",
                targets,
                train,
                per_device_query_batch_size=min(len(y_val), QUERIES),
                per_device_train_batch_size=BATCH,
                score_args=arguments.ScoreArguments(damping_factor=DAMPING),
            )
            scores = analyzer.load_pairwise_scores("s")["all_modules"]
            return scores.numpy()

    return call


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison; return 1 if ours is not 1.5 times as fast."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.factors")
    add = parser.add_argument
    add("--layers", type=int, default=1, help="of the encoder (1; MiniLM has 6)")
    add("--n", type=int, default=128, help="samples (128)")
    add("--t", type=int, default=64, help="targets (64)")
    add("--rounds", type=int, default=3, help="calls of each that are timed (3)")
    args = parser.parse_args(argv)
    weights, arrays = draw(args.layers), draw_samples(args.n, args.t)
    with limited():
        calls = ours(weights, arrays), theirs(weights, arrays)
        limit()
        scores = [call() for call in calls]
        ranks = [s.argsort(axis=1).argsort(axis=1) for s in scores]
        alike = [np.corrcoef(*rows)[0, 1] for rows in zip(*ranks, strict=True)]
        print(f"agreement of the scores: {np.mean(alike):.3f}", flush=True)
        rounds: list[list[tuple[float, float]]] = []
        for _ in range(args.rounds):
            rounds.append([_timed(call) for call in calls])
            print(f"CPU and wall seconds of both: {rounds[-1]}", flush=True)
    medians = np.median(np.array(rounds), axis=0)  # [sides, clocks]
    ratio = float((medians[1] / medians[0]).min())
    for name, (cpu, wall) in zip(("jaxsel", "kronfluence"), medians, strict=True):
        print(f"{name}: {cpu:.2f} CPU s, {wall:.2f} s")
    print(f"{args.n} × {args.t}, {args.layers} layers: {ratio:.2f} times as fast")
    return int(ratio < 1.5)


def _timed(call: Callable[[], Any]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - cpu, time.perf_counter() - wall


if __name__ == "__main__":
    raise SystemExit(main())
