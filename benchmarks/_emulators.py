"""Inputs and peers of `bench_proxy`: operations to emulate, and rows of MiniLM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.proxy import mlp
from jaxsel.proxy._exvivo import train_mlps
from jaxsel.proxy._mlp import Nonlinearity
from jaxsel.proxy.families import Attention
from jaxsel.proxy.families._attention_exact import attention_r2
from jaxsel.proxy.families._attention_mlp import MLPAttention, observe_attention

WIDTHS, SEEDS, BATCH, RATE = (2, 8, 16), 3, 1024, 0.01
LAYERS, LENGTH = 3, 32


@dataclasses.dataclass(frozen=True)
class Job:
    """Seven operations, and how many samples each of their MLPs is to see."""

    operations: list[Nonlinearity]
    points: int

    @property
    def mlps(self) -> int:
        return len(self.operations) * len(WIDTHS) * SEEDS


def job(points: int) -> Job:
    """Return three layers' softmax and norm, and the entropy of two classes."""
    rng = np.random.default_rng(0)
    operations = []
    for layer in range(LAYERS):
        mean = rng.normal(0, 0.5, LENGTH).astype(np.float32)
        std = rng.uniform(0.7, 1.5, LENGTH).astype(np.float32)
        operations.append(Nonlinearity(kind="softmax", mean=mean, std=std))
        mean = np.array([0.3 * (layer + 1)], np.float32)
        nonlinearity = Nonlinearity(kind="rsqrt", mean=mean, std=mean / 5, low=0.05)
        operations.append(nonlinearity)
    two = np.zeros(2, np.float32), np.full(2, 1.5, np.float32)
    operations.append(Nonlinearity(kind="entropy", mean=two[0], std=two[1]))
    return Job(operations, points)


def ours(job: Job) -> Callable[[], Any]:
    """Train all MLPs by `train_mlps`; each call compiles anew."""

    def call():
        jax.clear_caches()
        fits = train_mlps(
            job.operations,
            WIDTHS,
            key=jax.random.key(0),
            seeds=SEEDS,
            source="gaussian",
            n_points=job.points,
            batch_size=BATCH,
            learning_rate=RATE,
        )
        return [{width: fit.params for width, fit in by.items()} for by in fits]

    return call


def torch_loop(job: Job, share: float) -> Callable[[], Any]:
    """Train one MLP after the other, as plain torch code does.

    Inputs and outputs are standardised as ours are. Samples are made beforehand, in
    blocks that all MLPs of an operation share, and their making is timed: kinder than
    a data set of 5.12 M rows on disk.
    """
    import torch

    def call():
        torch.set_num_threads(1)
        torch.manual_seed(0)
        steps = max(round(job.points * share / BATCH), 1)
        return [_torch_operation(torch, op, steps) for op in job.operations]

    return call


def _torch_operation(torch, operation: Nonlinearity, steps: int):
    mean, std = torch.tensor(operation.mean), torch.tensor(operation.std)

    def samples(n):
        x = torch.clamp_min(mean + std * torch.randn(n, len(mean)), operation.low)
        if operation.kind == "rsqrt":
            return x, torch.rsqrt(x + operation.eps)
        if operation.kind == "softmax":
            return x, torch.softmax(x, -1)
        log_p = torch.log_softmax(x, -1)
        return x, -(log_p.exp() * log_p).sum(-1, keepdim=True)

    x, y = samples(8192)
    x_mean, x_std, y_mean = x.mean(0), x.std(0), y.mean(0)
    y_std = (y - y_mean).pow(2).mean().sqrt()
    nets, optimisers = {}, {}
    for width in WIDTHS:
        for seed in range(SEEDS):
            net = torch.nn.Sequential(
                torch.nn.Linear(x.shape[1], width),
                torch.nn.ReLU(),
                torch.nn.Linear(width, y.shape[1]),
            )
            nets[width, seed] = net
            optimisers[width, seed] = torch.optim.Adam(net.parameters(), lr=RATE)
    block = 32
    for start in range(0, steps, block):
        batches = [samples(BATCH) for _ in range(min(block, steps - start))]
        batches = [((a - x_mean) / x_std, (b - y_mean) / y_std) for a, b in batches]
        for name, net in nets.items():
            optimiser = optimisers[name]
            for a, b in batches:
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(net(a), b).backward()
                optimiser.step()
    results = {}
    for width in WIDTHS:
        weights = {"w1": [], "b1": [], "w2": [], "b2": []}
        for seed in range(SEEDS):
            first, _, last = nets[width, seed]
            w1 = first.weight.T / x_std[:, None]
            weights["w1"].append(w1.detach().numpy())
            weights["b1"].append((first.bias - x_mean @ w1).detach().numpy())
            weights["w2"].append((last.weight.T * y_std).detach().numpy())
            weights["b2"].append((last.bias * y_std + y_mean).detach().numpy())
        results[width] = {name: np.stack(parts) for name, parts in weights.items()}
    return results


def unexplained(job: Job, result: Any) -> dict[str, float]:
    """Return the mean share of variance left by the widest MLPs, by operation."""
    parts: dict[str, list[float]] = {}
    rng = np.random.default_rng(1)
    for operation, by_width in zip(job.operations, result, strict=True):
        noise = rng.normal(size=(4096, len(operation.mean)))
        x = np.maximum(operation.mean + operation.std * noise, operation.low)
        y = _exact(operation, x)
        total = np.sum((y - y.mean(0)) ** 2)
        params = by_width[max(WIDTHS)]
        for seed in range(SEEDS):
            of_seed = {name: value[seed] for name, value in params.items()}
            error = np.asarray(mlp(of_seed, jnp.asarray(x, jnp.float32))) - y
            parts.setdefault(operation.kind, []).append(np.sum(error**2) / total)
    return {kind: float(np.mean(shares)) for kind, shares in parts.items()}


def _exact(operation: Nonlinearity, x: np.ndarray) -> np.ndarray:
    from scipy.special import entr, softmax

    if operation.kind == "rsqrt":
        return 1 / np.sqrt(x + operation.eps)
    p = softmax(x, axis=1)
    return p if operation.kind == "softmax" else entr(p).sum(1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Attention scores `[layers, n, heads, L, L]` and masks `[n, L]`, by use."""

    fit: tuple[np.ndarray, np.ndarray]
    held_out: tuple[np.ndarray, np.ndarray]


def minilm_rows(n: int = 300) -> Rows:
    """Return the scores of MiniLM's first layers on film reviews.

    Needs `jaxsel data prepare movie_polarity` and `jaxsel models prepare minilm`.
    """
    from flax import nnx

    from jaxsel.data import load
    from jaxsel.models import attention_scores, load_target, prepare_model, tokenize

    folder = prepare_model("minilm")
    target = load_target(folder)
    texts = load("movie_polarity").x
    chosen = np.random.default_rng(0).permutation(len(texts))[: 2 * n]
    tokens = tokenize([str(texts[i]) for i in chosen], folder, length=LENGTH)
    encoder: Any = nnx.merge(target.graphdef, target.params)
    encoder = getattr(encoder, "encoder", encoder)

    @jax.jit
    def scores(ids, mask):
        x, logits = encoder.embed(ids), []
        for layer in list(encoder.layers)[:LAYERS]:
            logits.append(attention_scores(layer, x, mask))
            x = layer(x, mask)
        return jnp.stack(logits)

    parts = [
        np.asarray(scores(tokens.ids[i : i + 50], tokens.mask[i : i + 50]))
        for i in range(0, 2 * n, 50)
    ]
    stacked, mask = np.concatenate(parts, 1), np.asarray(tokens.mask)
    return Rows((stacked[:, :n], mask[:n]), (stacked[:, n:], mask[n:]))


def random_rows(n: int, length: int) -> Rows:
    """Return scores of random queries and keys, the near ones higher."""
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, LAYERS, 2 * n, 4, length, 8)).astype(np.float32)
    near = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    scores = q @ k.swapaxes(-1, -2) / 8**0.5 - near.astype(np.float32) / 2
    mask = np.arange(length) < rng.integers(length // 2, length + 1, 2 * n)[:, None]
    return Rows((scores[:, :n], mask[:n]), (scores[:, n:], mask[n:]))


def fit(family: Attention, rows: Rows) -> Callable[[], Any]:
    """Fit one family to every layer."""
    scores, mask = rows.fit

    def call():
        key = jax.random.key(0)
        return [family.fit(layer, mask, key=key) for layer in scores]

    return call


def fit_mlp(family: MLPAttention, points: int, rows: Rows) -> Callable[[], Any]:
    """Train one MLP for every layer, all layers at once, on their own rows."""
    scores, mask = rows.fit
    operations = [observe_attention(layer, mask) for layer in scores]

    def call():
        fits = train_mlps(
            operations, [family.width], key=jax.random.key(0), n_points=points
        )
        return [by_width[family.width].best() for by_width in fits]

    return call


def held_out_r2(family: Attention, rows: Rows, params: Any) -> dict[str, float]:
    """Return R² against uniform attention by layer, and the mean."""
    scores, mask = rows.held_out
    r2 = {}
    for i, (layer, p) in enumerate(zip(scores, params, strict=True)):
        weights = jax.jit(family.apply)(p, layer, mask)
        r2[f"layer {i}"] = float(attention_r2(weights, layer, jnp.asarray(mask)))
    return r2 | {"mean": float(np.mean(list(r2.values())))}
