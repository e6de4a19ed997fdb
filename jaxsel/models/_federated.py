"""Federated averaging: clients train on their own samples, and a server averages."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from flax import nnx

from jaxsel._devices.mesh import along, gather, n_shards, replicate, shard
from jaxsel._inputs.checks import as_array, check_count, check_finite, check_same_length
from jaxsel._results.types import Values
from jaxsel._runs.checkpoints import Checkpoints, program_digest, run_digest
from jaxsel._runs.progress import track

from ._federated_round import as_fraction, federated_round
from ._finetune import CrossEntropy
from ._fit import Params, check_classes, pad_rows


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FederatedRun:
    """Result of federated training.

    Attributes:
        params: Parameters after the last round.
        rounds: `[T]`: the rounds after which they were evaluated.
        scores: `[T]`: the results of `evaluate` then.
        values: The value of each client, `[C]`, with the standard error over targets,
            if `fed_avg` had targets; else None.
    """

    params: Params
    rounds: np.ndarray
    scores: np.ndarray
    values: Values | None = None

    def __repr__(self) -> str:
        if not len(self.scores):
            return "FederatedRun(not evaluated)"
        return (
            f"FederatedRun({self.rounds[-1]} rounds, last score {self.scores[-1]:.4g}, "
            f"best {np.max(self.scores):.4g})"
        )

    def rounds_to(self, score: float) -> int | None:
        """Return the first evaluated round that reached a score; None if none did."""
        reached = np.flatnonzero(self.scores >= score)
        return int(self.rounds[reached[0]]) if reached.size else None


_round = jax.jit(
    federated_round,
    static_argnames=(
        "graphdef",
        "optimizer",
        "local_steps",
        "batch_share",
        "batch_size",
    ),
)


def fed_avg(
    graphdef: nnx.GraphDef,
    params: Params,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    clients: npt.ArrayLike,
    *,
    key: jax.Array,
    rounds: int = 50,
    local_steps: int = 10,
    batch_share: float = 0.08,
    optimizer: optax.GradientTransformation | None = None,
    server: optax.GradientTransformation | None = None,
    clients_per_round: int | None = None,
    targets: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    evaluate: Callable[[Params], float] | None = None,
    evaluate_every: int = 1,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> FederatedRun:
    """Train a classifier by federated averaging, all clients in one process.

    In each round every client takes steps on minibatches of its own samples, drawn with
    replacement and sized as a share of them, and the server averages the results,
    weighted by the numbers of samples. Clients train side by side under `vmap`. For
    what real deployments need besides (stragglers, other algorithms), take a federated
    library like Flower.

    Args:
        graphdef: Static part of the model, from `nnx.split(model, nnx.Param)`.
        params: Parameters to start from.
        x: Samples of all clients, `[n, ...]`.
        y: Their classes, `[n]`.
        clients: Client of each sample, `[n]` integers; -1 for samples to leave out.
        key: Draws the minibatches, and the clients that take part.
        rounds: Number of rounds.
        local_steps: Steps of each client in a round.
        batch_share: Share of a client's samples in a minibatch, rounded up.
        optimizer: The clients' optimizer, anew in each round; SGD with step 0.1 if
            None. Pass the same one to several runs: each is compiled once.
        server: How the server goes from the old parameters towards the clients' mean:
            an optimizer whose gradient is the old ones less the mean. Its state lasts
            over the rounds, so that it may have a schedule, or momentum. The mean
            itself if None.
        clients_per_round: Number of clients in a round, drawn at random; all if None.
        targets: Validation examples `[m, ...]` and their classes `[m]`, by which to
            value the clients; None values none. Needs `server=None`. Costs two backward
            passes over them in each round, and two forward ones for each client.
        evaluate: From parameters to a score, larger is better; none if None.
        evaluate_every: Rounds between two evaluations; the last is always evaluated.
        mesh: Devices that share the clients, as `make_mesh` returns them, or None.
        axis: Which axis of the mesh; its only one, or "data", if None.
        checkpoint: Folder in which to keep the state after each evaluation. A killed
            run resumes from it; another model, data, optimizers or settings are
            refused; `evaluate` may be another.
        progress: Whether to show a bar.

    Returns:
        The parameters, the scores by rounds, and with targets the value of each client
        in nats. In a round the clients share in the fall of a target's loss from the
        old parameters to their mean: each gets the derivative along its own update,
        times its weight, averaged over the way (Aumann and Shapley). The shares sum to
        the fall, and for losses that are quadratic on the way they are the Shapley
        values of the round's game, in which an absent client leaves its part of the
        update out. Values are their sums over rounds, of which a client without a part
        gets nothing: those of this run.

    Raises:
        TypeError: If a count is no whole number.
        ValueError: If arrays differ in length or are not finite, no sample is left, a
            label has no class in the model, a number lies out of range, or `checkpoint`
            holds another run.

    References:
        McMahan et al., AISTATS 2017; with `server`: Reddi et al., Adaptive Federated
        Optimization, ICLR 2021, Algorithm 1. With `targets`: R. J. Aumann and L. S.
        Shapley, Values of non-atomic games, Princeton 1974; the game of each round is
        that of T. Wang, J. Rausch, C. Zhang, R. Jia and D. Song, A principled approach
        to data valuation for federated learning, 2020, section 3.
    """
    samples, labels, owner = (
        np.asarray(as_array(name, value))
        for name, value in (("x", x), ("y", y), ("clients", clients))
    )
    check_same_length("x", samples, "y", labels)
    check_same_length("x", samples, "clients", owner)
    check_finite("x", samples)
    mesh = along(mesh, axis)
    for name, count in (
        ("rounds", rounds),
        ("local_steps", local_steps),
        ("evaluate_every", evaluate_every),
    ):
        check_count(name, count)
    if not 0 < batch_share <= 1:
        raise ValueError(f"batch_share must lie in (0, 1], got {batch_share}")
    names, rows, sizes = _client_rows(owner)
    check_classes(graphdef, params, samples, labels)
    judged = None if targets is None else _targets(graphdef, params, targets, server)
    fallen = np.zeros((len(sizes), 0 if judged is None else len(judged[1])))
    taken = len(sizes)
    if clients_per_round is not None:
        taken = check_count("clients_per_round", clients_per_round)
        if taken > len(sizes):
            raise ValueError(
                f"clients_per_round must be at most the {len(sizes)} clients that have "
                f"samples, got {taken}"
            )
    step = functools.partial(
        _round,
        graphdef,
        optimizer=_SGD if optimizer is None else optimizer,
        local_steps=local_steps,
        batch_share=batch_share,
        batch_size=_rounded(
            math.ceil(as_fraction(batch_share) * int(sizes.max())), _LANES
        ),
    )
    server = optax.sgd(1.0) if server is None else server
    begun, state, saved = 0, server.init(params), None
    scores = np.full(rounds, np.nan)
    if checkpoint is not None:
        settings = {
            "rounds": rounds,
            "local_steps": local_steps,
            "batch_share": batch_share,
            "clients_per_round": taken,
            "evaluate_every": evaluate_every,
            "programs": _programs(
                graphdef,
                params,
                samples[:1],
                labels[:1],
                step.keywords["optimizer"],
                server,
            ),
        }
        data = params, samples, labels, owner, jax.random.key_data(key)
        data = data if judged is None else (*data, judged)
        saved = Checkpoints(checkpoint, run_digest(settings, *data))
        fresh = (params, state, scores), None if judged is None else fallen
        begun, ((params, state, scores), kept) = saved.load(fresh)
        fallen = fallen if kept is None else np.array(kept)
    data = replicate(
        (pad_rows(samples.astype(np.float32)), pad_rows(labels.astype(np.int32))), mesh
    )
    params, state, judged = replicate((params, state, judged), mesh)
    everyone = chosen = np.arange(len(sizes))
    part = shard(_padded(rows, sizes, mesh), mesh)
    for i in track(range(begun, rounds), progress=progress, label="Rounds"):
        round_key = jax.random.fold_in(key, i)
        if taken < len(sizes):
            chosen = np.asarray(jax.random.permutation(round_key, everyone))[:taken]
            part = shard(_padded(rows[chosen], sizes[chosen], mesh), mesh)
        mean = step(
            params, *data, *part, jax.random.fold_in(round_key, 1), targets=judged
        )
        if judged is not None:
            mean, fall = mean
            fallen[chosen] += np.asarray(gather(fall), np.float64)[:taken]
        # The pseudo-gradient of Reddi et al.: descent by 1 leads to the clients' mean.
        backwards = jax.tree.map(jnp.subtract, params, mean)
        updates, state = server.update(backwards, state, params)
        params = optax.apply_updates(params, updates)
        last = i + 1 == rounds
        if last or (i + 1) % evaluate_every == 0:
            if evaluate is not None:
                scores[i] = evaluate(gather(params))
            if saved is not None:
                shares = None if judged is None else fallen
                saved.save(i + 1, (gather((params, state)) + (scores,), shares))
    counted = np.arange(1, rounds + 1)
    done = np.flatnonzero((counted % evaluate_every == 0) | (counted == rounds))
    if evaluate is None:
        done = done[:0]
    return FederatedRun(
        params=gather(params),
        rounds=done + 1,
        scores=scores[done],
        values=None if judged is None else _values(fallen, names, rounds),
    )


def _targets(
    graphdef: nnx.GraphDef,
    params: Params,
    targets: tuple[npt.ArrayLike, npt.ArrayLike],
    server: optax.GradientTransformation | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Check targets, and that the mean of clients' updates is the server's."""
    if server is not None:
        raise ValueError(
            "targets must be None with a server optimizer, whose updates have parts of "
            f"earlier rounds in them, got {server!r}"
        )
    if not isinstance(targets, tuple) or len(targets) != 2:
        raise TypeError(f"targets must be a pair (x_val, y_val), got {type(targets)}")
    x, y = (np.asarray(as_array("targets", part)) for part in targets)
    check_same_length("targets[0]", x, "targets[1]", y)
    check_finite("targets[0]", x)
    if not len(y):
        raise ValueError("targets must have an example, got none")
    check_classes(graphdef, params, x, y)
    return x.astype(np.float32), y.astype(np.int32)


def _values(fallen: np.ndarray, names: np.ndarray, rounds: int) -> Values:
    """Return the clients' values from their shares by target, `[C, m]`."""
    mean = fallen.mean(axis=1)
    if not np.isfinite(mean).all():
        raise ValueError(
            "targets must have finite losses along the rounds, but those of some are "
            "NaN or infinite: lower the learning rate of optimizer"
        )
    return Values(
        values=jnp.asarray(mean, jnp.float32),
        m2=jnp.asarray(((fallen - mean[:, None]) ** 2).sum(1), jnp.float32),
        count=jnp.asarray(fallen.shape[1], jnp.int32),
        method=f"fed_avg(rounds={rounds})",
        index=tuple(names.tolist()),
    )


def _programs(
    graphdef: nnx.GraphDef,
    params: Params,
    x: np.ndarray,
    y: np.ndarray,
    *optimizers: optax.GradientTransformation,
) -> list[str]:
    """Return digests of the loss and the optimizers' updates."""

    def update(optimizer: optax.GradientTransformation) -> str:
        def first(params: Params) -> Any:
            return optimizer.update(params, optimizer.init(params), params)

        return program_digest(first, params)

    rows = x.astype(np.float32), y.astype(np.int32)
    loss = program_digest(CrossEntropy(graphdef), params, *rows)
    return [loss, *map(update, optimizers)]


_SGD = optax.sgd(0.1)
_LANES = 4  # clients, and samples of a minibatch, are padded to multiples of this


def _client_rows(clients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the clients' numbers `[C]`, samples `[C, R]`, padded with 0, and sizes."""
    if clients.ndim != 1 or clients.dtype.kind not in "iu":
        raise ValueError(f"clients must be whole numbers [n], got {clients.dtype}")
    if clients.size and clients.min() < -1:
        raise ValueError(f"clients must be -1 or more, got {clients.min()}")
    order = np.argsort(clients, kind="stable")
    order = order[clients[order] >= 0]
    if not len(order):
        raise ValueError("clients must have a sample that is not left out")
    names, sizes = np.unique(clients[order], return_counts=True)
    rows = np.zeros((len(sizes), sizes.max()), np.int32)
    # Row-major assignment fills the clients in the order of the sorted samples.
    rows[np.arange(sizes.max()) < sizes[:, None]] = order
    return names, rows, sizes.astype(np.int32)


def _padded(
    rows: np.ndarray, sizes: np.ndarray, mesh: jax.sharding.Mesh | None
) -> tuple[np.ndarray, np.ndarray]:
    """Append clients without samples until the devices share them evenly.

    With that, and the other paddings, one compiled program serves many partitions.
    """
    few = math.lcm(_LANES, n_shards(mesh))
    missing = _rounded(len(sizes), few) - len(sizes)
    wider = (1 << (rows.shape[1] - 1).bit_length()) - rows.shape[1]
    return np.pad(rows, ((0, missing), (0, wider))), np.pad(sizes, (0, missing))


def _rounded(n: int, to: int) -> int:
    """Return the least multiple of `to` from n on."""
    return -(-n // to) * to
