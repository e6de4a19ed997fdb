"""Ex vivo training: every MLP of every non-linear operation, width and seed, at once.

An MLP emulator imitates one operation of the target: the softmax of a layer's
attention, the reciprocal root in a layer norm, the entropy of the logits. All of them
are trained in one loop. Operations of one shape form a group; in a group the batch is
drawn once a step and serves every width and seed, whose hidden units stand side by side
in one wide first layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal, TypeVar

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import fori_loop, grad, jit
from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._inputs.show import brief

from ._mlp import Kind, Nonlinearity, Params, hold_out
from ._refit import Arrays, Samples, best_of, by_width, refit

Source = Literal["rows", "gaussian", "both"]
SOURCES: tuple[Source, ...] = ("rows", "gaussian", "both")

_Batch = tuple[jax.Array, jax.Array | None]
"""Inputs `[m, in, batch]`, and their mask if they have one."""

_Array = TypeVar("_Array", np.ndarray, jax.Array)

# Rows beyond which a float32 draw, of 2^23 values, no longer tells them apart evenly.
_ONE_DRAW = 2**16
_PILOT = 8192  # samples that standardise inputs and outputs, and others measure R²


@brief
@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """The MLPs of one operation and one width, standardisation folded in.

    Attributes:
        params: Parameters of `mlp`, with a leading axis of seeds.
        r2: Share of the outputs' variance that is explained, on samples that training
            did not see, `[seeds]`: a fifth of the distinct observed rows, 2048 at most,
            or all where fewer than five differ, and synthesised ones by `source`.
            Outputs that do not vary count as of variance 1.
    """

    params: Params
    r2: np.ndarray

    def best(self) -> Params:
        """Return the parameters of the best seed."""
        return {
            name: value[int(self.r2.argmax())] for name, value in self.params.items()
        }


def train_mlps(
    operations: Sequence[Nonlinearity],
    widths: Sequence[int],
    *,
    key: jax.Array,
    seeds: int = 1,
    source: Source = "rows",
    n_points: int = 5_120_000,
    batch_size: int = 1024,
    learning_rate: float = 0.01,
) -> list[dict[int, Trained]]:
    """Train an MLP for each operation, width and seed, all in one loop.

    Inputs and outputs are standardised, the squared error is minimised by Adam with a
    cosine schedule, and the standardisation is folded into the weights. Nothing is
    stored: each step draws its batch by the key and the step's number. A fifth of the
    distinct rows, 2048 at most, is held out, to measure the MLPs' R². L-BFGS goes
    on with those of an entropy, in at most half a CPU second each, and is kept where it
    does better on the held-out rows.

    Memory: the rows, and a batch times all hidden units.

    Args:
        operations: Operations to imitate.
        widths: Hidden units of the MLPs; each operation gets all of them.
        key: For initial weights and batches.
        seeds: MLPs of each operation and width, which differ in their initial weights.
        source: "rows": batches of observed rows, with replacement; "gaussian": the
            paper's synthesised samples; "both": half and half.
        n_points: Samples that each MLP sees, rounded up to whole batches.
        batch_size: Samples in a step.
        learning_rate: Of Adam, at the start.

    Returns:
        For each operation, the trained MLPs by width.

    Raises:
        ValueError: If an operation has no rows and `source` asks for them, or an
            argument is out of range.

    References:
        SelectFormer (section 4.3) for the samples from N(mean, diag std²); rows that
        were observed imitate attention better (see `PowerAttention`).
    """
    operations = tuple(operations)
    if not operations:
        raise ValueError("operations must not be empty")
    if not widths or len(set(widths)) != len(widths):
        raise ValueError(f"widths must be distinct and at least one, got {widths}")
    widths = tuple(check_count("widths", width) for width in widths)
    check_choice("source", source, SOURCES)
    n_points = check_count("n_points", n_points)
    batch_size = check_count("batch_size", batch_size, minimum=2)
    learning_rate = check_positive("learning_rate", learning_rate)
    groups: dict[tuple[Kind, int, bool], list[int]] = {}
    for index, operation in enumerate(operations):
        if source != "gaussian" and operation.rows is None:
            raise ValueError(
                f"operations[{index}] has no rows, which source={source!r} needs"
            )
        shape = (operation.kind, len(operation.mean), operation.masks is not None)
        groups.setdefault(shape, []).append(index)
    setup = _Setup(
        kinds=tuple(shape[0] for shape in groups),
        inputs=tuple(shape[1] for shape in groups),
        widths=widths,
        seeds=check_count("seeds", seeds),
        source=source,
        batch=batch_size,
    )
    bits = np.asarray(jax.random.key_data(key)).ravel()
    # Hold-outs have a stream of their own: initial weights do not depend on them.
    host, apart = np.random.default_rng(bits), np.random.default_rng([*bits, 1])
    scales: list[Arrays] = []
    starts: list[Arrays] = []
    samples: list[tuple[np.ndarray, np.ndarray]] = []
    tests: list[Samples] = []
    taught: list[Nonlinearity] = []
    for operation in operations:
        to_learn = held_out = operation
        if source != "gaussian":
            to_learn, held_out = hold_out(operation, apart)
        taught.append(to_learn)
        tests.append(_pilot(held_out, apart, source))
        scale, x, y, _ = _pilot(to_learn, host, source)
        scales.append(scale)
        samples.append(
            ((x - scale["x"]) / scale["x_std"], (y - scale["y"]) / scale["y_std"])
        )
        starts.append(_initial(host, len(x), len(y), setup))
    members = list(groups.values())
    data: list[Params] = []
    params: list[Params] = []
    for group in members:
        stacked = _stack([taught[i] for i in group], source)
        data.append(_to_jax(stacked | _together([scales[i] for i in group])))
        params.append(_to_jax(_together([starts[i] for i in group])))
    steps = -(-n_points // batch_size)
    numbers = jnp.int32(steps), jnp.float32(learning_rate)
    trained: list[Arrays] = jax.device_get(_train(data, params, key, *numbers, setup))
    results: list[dict[int, Trained]] = [{} for _ in operations]
    for group, stacked in zip(members, trained, strict=True):
        for position, index in enumerate(group):
            mlps = {name: value[position] for name, value in stacked.items()}
            for width, adam in by_width(mlps, setup.parts()).items():
                ways = [adam]
                if operations[index].kind == "entropy":
                    ways.append(refit(adam, *samples[index]))
                folded, r2 = best_of(ways, scales[index], tests[index])
                results[index][width] = Trained(_to_jax(folded), r2)
    return results


def _to_jax(arrays: Arrays) -> Params:
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def _together(trees: Sequence[Arrays]) -> Arrays:
    names = trees[0]
    return {n: np.stack([t[n] for t in trees]).astype(np.float32) for n in names}


@dataclasses.dataclass(frozen=True)
class _Setup:
    """Everything that is fixed at compilation."""

    kinds: tuple[Kind, ...]
    inputs: tuple[int, ...]
    widths: tuple[int, ...]
    seeds: int
    source: Source
    batch: int

    @property
    def mlps(self) -> int:
        return len(self.widths) * self.seeds

    @property
    def units(self) -> int:
        return sum(self.widths) * self.seeds

    def parts(self) -> list[tuple[slice, slice, int]]:
        """Units, MLPs and width of each run of equal widths."""
        parts: list[tuple[slice, slice, int]] = []
        unit = 0
        for i, width in enumerate(self.widths):
            units = slice(unit, unit + width * self.seeds)
            parts.append((units, slice(i * self.seeds, (i + 1) * self.seeds), width))
            unit = units.stop
        return parts


def _stack(operations: Sequence[Nonlinearity], source: Source) -> Arrays:
    """Stack the operations of a group in front; repeat rows to one number."""
    columns = {
        "mean": np.stack([o.mean for o in operations])[..., None],
        "std": np.stack([o.std for o in operations])[..., None],
        "low": np.array([o.low for o in operations])[:, None, None],
        "eps": np.array([o.eps for o in operations])[:, None, None],
    }
    data: Arrays = {k: v.astype(np.float32) for k, v in columns.items()}
    arrays: dict[str, list[np.ndarray]] = {
        "rows": [o.rows for o in operations if o.rows is not None],
        "masks": [o.masks for o in operations if o.masks is not None],
    }
    if source == "gaussian":
        arrays["rows"] = []
    for name, parts in arrays.items():
        if parts:
            n = max(len(part) for part in parts)
            data[name] = np.stack([np.resize(a, (n, a.shape[1])) for a in parts])
            data["n"] = np.array([len(a) for a in parts], np.int32)[:, None]
    return data


def _draw(data: Sequence[Params], key: jax.Array, setup: _Setup) -> list[_Batch]:
    """Draw a batch for every group: inputs `[m, in, batch]`, and masks or None."""
    observed = _observed(setup.source, setup.batch)
    synthetic = setup.batch - observed
    key_noise, key_index = jax.random.split(key)
    noise = jax.random.normal(key_noise, (sum(setup.inputs), synthetic))
    noise = jnp.split(noise, np.cumsum(setup.inputs)[:-1])
    # One draw serves all operations: each scales it by its number of rows.
    draws = jax.random.uniform(key_index, (setup.batch,))
    batches: list[_Batch] = []
    for group, z in zip(data, noise, strict=True):
        x = jnp.maximum(group["mean"] + group["std"] * z, group["low"])
        mask = None
        if "n" in group:
            n = group["n"]
            if (
                max(group[name].shape[1] for name in ("rows", "masks") if name in group)
                > _ONE_DRAW
            ):
                index = jax.random.randint(key_index, (len(n), setup.batch), 0, n)
            else:
                index = (draws * n).astype(jnp.int32)  # [m, batch]
                # In float32 draws * n may round up to n.
                index = jnp.minimum(index, n - 1)
            if observed:
                rows = _take(group["rows"], index[:, :observed])
                x = jnp.concatenate([rows, x], -1)
            if "masks" in group:
                mask = _take(group["masks"], index).astype(jnp.float32)
        batches.append((x, mask))
    return batches


def _observed(source: Source, n: int) -> int:
    return {"rows": n, "gaussian": 0, "both": n // 2}[source]


def _take(rows: jax.Array, index: jax.Array) -> jax.Array:
    def take(rows: jax.Array, index: jax.Array) -> jax.Array:
        return rows[index]

    return jnp.swapaxes(jax.vmap(take)(rows, index), 1, 2)


def _target(
    kind: Kind, x: _Array, mask: _Array | None, eps: _Array | float, xp: ModuleType
) -> _Array:
    """Return the operation's results, `[m, out, batch]`, by JAX or by NumPy."""
    if kind == "rsqrt":
        return 1 / xp.sqrt(x + eps)
    if mask is not None:
        x = xp.where(mask > 0, x, -xp.inf)
    x = xp.subtract(x, x.max(1, keepdims=True))
    e: _Array = xp.exp(x)
    total = e.sum(1, keepdims=True)
    if kind == "softmax":
        return xp.divide(e, total)
    # The entropy: log sum e^x less the mean of x under the softmax.
    return xp.log(total) - (e * x).sum(1, keepdims=True) / total


def _loss(
    params: Params, x: jax.Array, y: jax.Array, mask: jax.Array | None, setup: _Setup
) -> jax.Array:
    """Return the mean squared error of each MLP, summed: they share no weight.

    Units come before samples, so that each run of equal widths is a free slice. Biases
    of the first layer are weights of an input that is 1: a product of two matrices is
    faster than one with a vector.
    """
    hidden = jax.nn.relu(jnp.einsum("mih,mib->mhb", params["w1"], x))
    w2, b2 = params["w2"], params["b2"][..., None]
    m, outputs, batch = y.shape
    if outputs == 1:
        # All MLPs in one product: its zeros cost less than many small ones would.
        owner = np.repeat(np.arange(setup.mlps), np.repeat(setup.widths, setup.seeds))
        membership = (owner == np.arange(setup.mlps)[:, None]).astype(np.float32)
        out = jnp.einsum("mkh,mhb->mkb", membership * w2[:, None, :, 0], hidden)
        return jnp.sum((out + b2[:, :, 0] - y) ** 2) / batch
    total = jnp.zeros(())
    for units, mlps, width in setup.parts():
        shape = (m, setup.seeds, width, -1)
        out = jnp.einsum(
            "mkdo,mkdb->mkob",
            w2[:, units].reshape(shape),
            hidden[:, units].reshape(shape),
        )
        error = out + b2[:, mlps] - y[:, None]
        error = error if mask is None else error * mask[:, None]
        total += jnp.sum(error**2)
    return total / (outputs * batch)


@jit(static_argnames="setup")
def _train(
    data: Sequence[Params],
    params: Sequence[Params],
    key: jax.Array,
    steps: jax.Array,
    learning_rate: jax.Array,
    setup: _Setup,
) -> list[Params]:
    import optax

    def loss(params: list[Params], batches: list[_Batch]) -> jax.Array:
        total = jnp.zeros(())
        for kind, group, p, (x, mask) in zip(
            setup.kinds, data, params, batches, strict=True
        ):
            y = _target(kind, x, mask, group["eps"], jnp)
            x = x if mask is None else x * mask
            x = (x - group["x"]) / group["x_std"]
            x = jnp.concatenate([x, jnp.ones_like(x[:, :1])], 1)
            y = (y - group["y"]) / group["y_std"]
            total += _loss(p, x, y, mask, setup)
        return total

    def rate(t: Any) -> jax.Array:
        return learning_rate * _cosine(t / steps)

    optimiser = optax.adam(rate)
    # One flat vector: the optimiser is a few operations, however many groups there are.
    start, unravel = jax.flatten_util.ravel_pytree(list(params))

    def step(t: jax.Array, carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        flat, state = carry
        batches = _draw(data, jax.random.fold_in(key, t), setup)

        def lost(params: list[Params]) -> jax.Array:
            return loss(params, batches)

        slopes = grad(lost)(unravel(flat))
        slope = jax.flatten_util.ravel_pytree(slopes)[0]
        updates, state = optimiser.update(slope, state)
        return jnp.asarray(optax.apply_updates(flat, updates)), state

    flat, _ = fori_loop(0, steps, step, (start, optimiser.init(start)))
    return unravel(flat)


def _cosine(progress: jax.Array) -> jax.Array:
    return 0.5 * (1 + jnp.cos(jnp.pi * progress))


# On the host, where small arrays need no compilation.


def _pilot(
    operation: Nonlinearity, rng: np.random.Generator, source: Source
) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return scales, samples of an operation `[in, n]`, its results, and masks."""
    observed = _observed(source, _PILOT)
    synthetic = rng.normal(size=(_PILOT - observed, len(operation.mean)))
    x = np.maximum(operation.mean + operation.std * synthetic, operation.low)
    mask = None
    among = operation.rows if operation.masks is None else operation.masks
    index = rng.integers(len(among) if among is not None else 1, size=_PILOT)
    if observed and operation.rows is not None:
        x = np.concatenate([operation.rows[index[:observed]], x])
    if operation.masks is not None:
        mask = operation.masks[index].T.astype(float)[None]
    x = x.T[None].astype(np.float64)
    y = _target(operation.kind, x, mask, operation.eps, np)
    x, y = (x if mask is None else x * mask)[0], y[0]
    deviation: np.ndarray = y - y.mean(-1, keepdims=True)
    scale = {
        "x": x.mean(-1, keepdims=True),
        "x_std": x.std(-1, keepdims=True),
        "y": y.mean(-1, keepdims=True),
        # One scale for all outputs: the error to minimise stays the plain one.
        "y_std": np.sqrt(np.mean(deviation**2))[None, None],
    }
    for name in ("x_std", "y_std"):  # constants get 1
        scale[name] = np.where(scale[name] > 1e-12, scale[name], 1.0)
    return scale, x, y, None if mask is None else mask[0]


def _initial(
    rng: np.random.Generator, inputs: int, outputs: int, setup: _Setup
) -> Arrays:
    """Return normal weights of unit gain."""
    fan = np.repeat(setup.widths, np.array(setup.widths) * setup.seeds)
    return {
        "w1": rng.normal(size=(inputs + 1, setup.units)) / inputs**0.5,
        "w2": rng.normal(size=(setup.units, outputs)) / np.sqrt(fan)[:, None],
        "b2": np.zeros((setup.mlps, outputs)),
    }
