"""Completion time in messages: rounds of training, and the filter's exchange."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from experiments._kit.scenes.networks import Net
from jaxsel.filter import count_losses, filter_server


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """A link between a client and the server; every client has one like it.

    Attributes:
        up: Bytes per second to the server.
        down: Bytes per second to the client.
        latency: Seconds for a message to arrive, one way.
    """

    up: float
    down: float
    latency: float

    def exchange(self, down: float, up: float) -> float:
        """Return the time of a message to a client and of its answer, in seconds.

        Args:
            down: Bytes to the client.
            up: Bytes of the answer; 0 if there is none.
        """
        legs = 1 + (up > 0)
        return legs * self.latency + down / self.down + up / self.up


LINKS = {
    "1 Mbit/s up, 10 down, 50 ms": Link(up=125e3, down=1.25e6, latency=0.05),
    "20 Mbit/s up, 100 down, 20 ms": Link(up=2.5e6, down=12.5e6, latency=0.02),
    "1 Gbit/s, 1 ms": Link(up=125e6, down=125e6, latency=0.001),
}
"""Links by name, the slowest first."""

LARGE = 4 * 6_603_710
"""Bytes of a CNN with two layers of 5×5 filters (32 and 64), 2048 hidden units and 62
classes on 28×28 pixels, the size that LEAF takes for FEMNIST, in 32 bits: counted."""


def model_bytes(net: Net) -> int:
    """Return the bytes of a network's parameters, as they are sent."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(net.params))


def exchanged(
    benchmark_losses: np.ndarray, losses: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return the bytes of each round of the filter with its verdict, `[rounds + 1, 2]`.

    Columns are bytes to a client and from it, packed; the largest client's in each
    round. The last row is the verdict, which is not answered.

    Args:
        benchmark_losses: The server's, `[m]`.
        losses: Losses of each client, by name.
    """
    server = filter_server(benchmark_losses, [*losses])
    sizes = []
    while (question := server.question) is not None:
        answers = [
            count_losses(question, losses[name], client=name) for name in server.clients
        ]
        most = max(len(answer.to_bytes()) for answer in answers)
        sizes.append((len(question.to_bytes()), most))
        server = server.receive(answers)
    return np.array([*sizes, (len(server.verdict.to_bytes()), 0)])


def training_seconds(link: Link, rounds: np.ndarray, size: float) -> np.ndarray:
    """Return the communication time of federated averaging, in seconds.

    In a round the model goes to the clients and comes back, all clients at once.

    Args:
        link: Every client's.
        rounds: Number of rounds, `[...]`.
        size: Bytes of the model.
    """
    return np.asarray(rounds) * link.exchange(size, size)


def filter_seconds(link: Link, messages: np.ndarray, size: float) -> float:
    """Return the communication time that filtering adds, in seconds.

    The benchmark's model goes to the clients before the first question.

    Args:
        link: Every client's.
        messages: Result of `exchanged`; rows without bytes are no messages.
        size: Bytes of the model.
    """
    asked = [link.exchange(down, up) for down, up in messages if down]
    return link.exchange(size, 0) + sum(asked)


def exchanged_bytes(messages: np.ndarray, size: float) -> np.ndarray:
    """Return the bytes that a client gets and sends for the filter, `[S]`.

    Args:
        messages: Results of `exchanged` by seed, `[S, rounds + 1, 2]`.
        size: Bytes of the benchmark's model, which goes to the clients first.
    """
    return size + messages.sum((1, 2))


def rounds_to(accuracy: np.ndarray, goal: np.ndarray, rounds: np.ndarray) -> np.ndarray:
    """Return the first evaluated rounds that reach a goal, `[S]`; inf if none does.

    Args:
        accuracy: `[S, T]`.
        goal: `[S]`.
        rounds: After which it was evaluated, `[T]`.
    """
    reached = accuracy >= goal[:, None]
    return np.where(reached.any(1), rounds[reached.argmax(1)], np.inf)


def saved(
    link: Link,
    without: np.ndarray,
    kept: np.ndarray,
    messages: np.ndarray,
    size: float,
    last: int,
) -> np.ndarray:
    """Return the communication time that filtering saves until a goal, `[S]`.

    Where training without a filter misses the goal, its time is that of all rounds, so
    that the saving is the least there can be. Where training with it misses the goal,
    nothing is known: NaN.

    Args:
        link: Every client's.
        without: Rounds to the goal without a filter, `[S]`; inf if missed.
        kept: With one, `[S]`; inf if missed.
        messages: Results of `exchanged` by seed, `[S, rounds + 1, 2]`.
        size: Bytes of the model.
        last: Number of rounds trained.
    """
    usual = training_seconds(link, np.minimum(without, last), size)
    extra = np.array([filter_seconds(link, of_seed, size) for of_seed in messages])
    ours = training_seconds(link, np.minimum(kept, last), size) + extra
    return np.where(np.isfinite(kept), usual - ours, np.nan)
