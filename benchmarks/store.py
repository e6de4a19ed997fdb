"""Size, speed and accuracy of a store of gradients: `python -m benchmarks.store`.

"Speed": a stack of MiniLM's shape, six layers of width 384 with twelve heads and 1,536
hidden units, without its norms' scales and its embeddings, on 32 random tokens a
sample: bytes a sample a layer, and CPU seconds of writing, of a query of 100 targets by
inner products, and of one by Gauss-Newton. "Query": the same questions to 100,000 rows,
the rows of 200 samples repeated, on a store that was read once.

"Accuracy": set-up A of `benchmarks.attribute`: linear datamodelling scores of the
store's inner products and Gauss-Newton, beside the same scores of gradients that were
not projected, in float64, and `network_influence`. "Agreement": Spearman's correlation
over samples, mean over targets, between inner products of the store and exact ones of
the stack.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel import attribute, gradients, tasks
from jaxsel.gradients import _store_files as files

from . import attribute as setups
from ._threads import limit, limited

WIDTH, HIDDEN, HEADS, LAYERS, TOKENS, CLASSES = 384, 1536, 12, 6, 32, 20
DAMPING = 0.1
KEY = jax.random.key
FORMS: dict[str, dict[str, Any]] = {
    "rank 1, 64 numbers": {"dim": 64, "rank": 1},
    "rank 1, 128 numbers": {"dim": 128, "rank": 1},
    "products, 64 numbers": {"dim": 64, "rank": None},
    "products, 128 numbers": {"dim": 128, "rank": None},
}


def stack(rng: np.random.Generator) -> dict[str, Any]:
    """Draw the stack's weights."""

    def kernel(inputs: int, outputs: int) -> np.ndarray:
        return (rng.normal(size=(inputs, outputs)) / inputs**0.5).astype(np.float32)

    sizes = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH))
    sizes |= {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    layers = {
        f"layer{i}": {name: kernel(*size) for name, size in sizes.items()}
        for i in range(LAYERS)
    }
    return {**layers, "head": kernel(WIDTH, CLASSES)}


def _norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)


def stack_loss(params: Any, example: Any) -> jax.Array:
    x, label = example
    for i in range(LAYERS):
        layer = params[f"layer{i}"]
        query, key, value = (
            (x @ layer[name]).reshape(TOKENS, HEADS, -1)
            for name in ("query", "key", "value")
        )
        alike = jnp.einsum("shd,thd->hst", query, key) / (WIDTH / HEADS) ** 0.5
        mixed = jnp.einsum("hst,thd->shd", jax.nn.softmax(alike), value)
        x = _norm(x + mixed.reshape(TOKENS, WIDTH) @ layer["out"])
        x = _norm(x + jax.nn.gelu(x @ layer["up"]) @ layer["down"])
    logits = x.mean(axis=0) @ params["head"]
    return -jax.nn.log_softmax(logits)[label]


def examples(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw samples of a few kinds each, so that gradients have something in common."""
    rng = np.random.default_rng(seed)
    kinds = np.random.default_rng(0).normal(size=(50, TOKENS, WIDTH))
    chosen = rng.integers(0, 50, n)
    x = kinds[chosen] + rng.normal(size=(n, TOKENS, WIDTH))
    labels = np.where(
        rng.random(n) < 0.5, chosen % CLASSES, rng.integers(0, CLASSES, n)
    )
    return x.astype(np.float32), labels


def speed(n: int, t: int, forms: Sequence[str]) -> None:
    params = stack(np.random.default_rng(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    pool, targets = examples(n, 1), examples(t, 2)
    print(f"stack of {size:,} parameters, {TOKENS} tokens, n = {n}, t = {t}")
    print("| form | bytes a sample a layer | write | targets | products | GN | again |")
    print("|---|---|---|---|---|---|---|")
    for name, form in ((name, FORMS[name]) for name in forms):
        with tempfile.TemporaryDirectory() as folder:
            store, written = timed(
                lambda folder=folder, form=form: gradients.write_store(
                    f"{folder}/store", stack_loss, params, pool, key=KEY(0), **form
                )
            )
            goal, projected = timed(
                lambda store=store: store.project(stack_loss, params, targets)
            )
            calls = [
                lambda store=store, goal=goal: store.scores(goal, reduce=None),
                *2
                * [
                    lambda store=store, goal=goal: store.scores(
                        goal, damping=DAMPING, reduce=None
                    )
                ],
            ]
            seconds = [written, projected, *(timed(call)[1] for call in calls)]
            per_layer = store.nbytes / n / len(store.layers)
            cells = " | ".join(f"{second:.1f}" for second in seconds)
            print(f"| {name} | {per_layer:.0f} | {cells} |", flush=True)


def query(n: int, t: int, forms: Sequence[str], written: int = 200) -> None:
    params = stack(np.random.default_rng(0))
    pool, targets = examples(written, 1), examples(t, 2)
    print(f"{n:,} rows of the stack, t = {t}; CPU seconds of a second question")
    print("| form | products | top 10 | products with the mean |\n|---|---|---|---|")
    for name, form in ((name, FORMS[name]) for name in forms):
        with tempfile.TemporaryDirectory() as folder:
            few = gradients.write_store(
                f"{folder}/few", stack_loss, params, pool, key=KEY(0), **form
            )
            goal = few.project(stack_loss, params, targets)
            store = gradients.open_store(tiled(few.folder, Path(folder, "many"), n))
            calls: list[Callable[[], Any]] = [
                lambda store=store, goal=goal: store.scores(goal, reduce=None).values,
                lambda store=store, goal=goal: store.top(goal, 10),
                lambda store=store, goal=goal: store.scores(goal).values,
            ]
            cells = [f"{min(timed(call)[1] for _ in range(4)):.1f}" for call in calls]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def tiled(few: Path, folder: Path, n: int, size: int = 10_000) -> Path:
    """Write a store of n rows that repeats the rows of another."""
    manifest = files.read_manifest(few)
    shards = range(manifest.n_shards)
    rows = np.concatenate([files.map_shard(few, manifest, i) for i in shards])
    rows = np.tile(rows, (-(-size // len(rows)), 1))[:size]
    manifest = dataclasses.replace(manifest, n=n, shard_size=size, shards=())
    folder.mkdir()
    for i in range(manifest.n_shards):
        part = manifest.rows(i)
        shard = rows[: part.stop - part.start]
        manifest = files.write_shard(folder, manifest, i, shard, "0" * 16)
    return folder


def agreement(n: int, t: int, forms: Sequence[str]) -> None:
    params = stack(np.random.default_rng(0))
    pool, targets = examples(n, 1), examples(t, 2)
    exact = np.concatenate(
        [
            np.asarray(
                gradients.ghost(stack_loss, params, part(pool, i, 50)).gram(
                    gradients.ghost(stack_loss, params, targets)
                )
            )
            for i in range(0, n, 50)
        ],
        axis=1,
    )
    for name, form in ((name, FORMS[name]) for name in forms):
        with tempfile.TemporaryDirectory() as folder:
            store = gradients.write_store(
                f"{folder}/store", stack_loss, params, pool, key=KEY(0), **form
            )
            goal = store.project(stack_loss, params, targets)
            scores = store.scores(goal, reduce=None).to_numpy()
        pairs = zip(scores, exact, strict=True)
        alike = np.mean(
            [
                np.corrcoef(*(row.argsort().argsort() for row in pair))[0, 1]
                for pair in pairs
            ]
        )
        print(f"{name}: agreement {alike:.3f} ({n} samples, {t} targets)", flush=True)


def part(tree: Any, start: int, size: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[start : start + size], tree)


def accuracy(forms: Sequence[str]) -> None:
    recipe, data = setups.recipe_of("A"), setups.digits()
    retrain, n = tasks.retrain_subsets, setups.TRAIN
    halves, kept = setups.subsets(n // 2), setups.subsets(round(n * 0.95))
    half = retrain(recipe, *data, key=KEY(0), subsets=halves, seeds=2)
    drop = retrain(recipe, *data, key=KEY(0), subsets=kept, seeds=1, same_seed=True)

    def line(name: str, scores: Any) -> None:
        cells = []
        for runs in (half, drop):
            score = tasks.lds(scores, runs, key=KEY(0))
            cells.append(f"{score.mean:.3f} ± {score.stderr_subsets:.3f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    def loss(params: Any, example: Any) -> jax.Array:
        x, y = example
        return recipe.losses(recipe.apply(params, x[None]), y[None])[0]

    x, y = map(jnp.asarray, data[:2])
    params = recipe.train(jax.random.fold_in(KEY(0), 0), x, y)
    network = _layers(params)
    print("| scores | half | drop |\n|---|---|---|")
    influence = attribute.network_influence(recipe, *data, key=KEY(0), reduce=None)
    line("`network_influence`", influence)
    exact = exact_scores(loss, params, data[:2], data[2:])
    for method, scores in exact.items():
        line(f"{method}, not projected, float64", scores)
    for name, form in ((name, FORMS[name]) for name in forms):
        for key in range(3):
            with tempfile.TemporaryDirectory() as folder:
                store = gradients.write_store(
                    *(f"{folder}/store", perceptron_loss, network, data[:2]),
                    key=KEY(key),
                    **form,
                )
                goal = store.project(perceptron_loss, network, data[2:])
                sizes = {layer.size for layer in store.layers}
                for method, damping in (("products", None), ("GN", DAMPING)):
                    scores = store.scores(goal, damping=damping, reduce=None)
                    line(f"{method}, {name} {sizes}, key {key}", scores)


def _layers(params: Any) -> Any:
    return [{"kernel": layer[:-1], "bias": layer[-1]} for layer in params]


def perceptron_loss(params: Any, example: Any) -> jax.Array:
    x, label = example
    first, second = params
    hidden = jax.nn.relu(x @ first["kernel"] + first["bias"])
    logits = hidden @ second["kernel"] + second["bias"]
    return -jax.nn.log_softmax(logits)[label]


def exact_scores(
    loss: Callable[..., jax.Array], params: Any, pool: Any, targets: Any
) -> dict[str, np.ndarray]:
    """Return inner products, and Gauss-Newton by layer, of gradients written out."""

    def rows(examples: Any) -> list[np.ndarray]:
        with jax.enable_x64(True):
            wide = [jnp.asarray(np.asarray(leaf), jnp.float64) for leaf in params]
            x, y = jnp.asarray(examples[0], jnp.float64), jnp.asarray(examples[1])
            leaves = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(wide, (x, y))
            return [np.asarray(leaf).reshape(len(leaf), -1) for leaf in leaves]

    pairs = [*zip(rows(targets), rows(pool), strict=True)]
    scores = {"products": sum(h @ g.T for h, g in pairs), "GN": 0.0}
    for h, g in pairs:
        square = g.T @ g / len(g)
        square += DAMPING * np.trace(square) / len(square) * np.eye(len(square))
        scores["GN"] = scores["GN"] + np.linalg.solve(square, h.T).T @ g.T / len(g)
    return scores


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Call, and return the result and CPU seconds."""
    start = time.process_time()
    result = jax.block_until_ready(call())
    return result, time.process_time() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Print the parts that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    add = parser.add_argument
    add("parts", nargs="*", help="some of speed, query, agreement, accuracy")
    add("--n", type=int, default=2000, help="samples (2000)")
    add("--form", action="append", choices=[*FORMS], help="only this form")
    args = parser.parse_args(argv)
    forms = args.form or [*FORMS]
    parts = args.parts or ["accuracy", "agreement", "speed", "query"]
    with limited():
        limit()
        for name in parts:
            if name == "accuracy":
                accuracy(forms)
            elif name == "agreement":
                agreement(min(args.n, 200), 20, forms)
            elif name == "query":
                query(100_000, 100, forms)
            else:
                speed(args.n, 100, forms)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
