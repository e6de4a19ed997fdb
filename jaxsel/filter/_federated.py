"""Federated filtering with server and clients in one process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from ._messages import Counted, count_losses
from ._open_sum import open_sum
from ._secure import SecureClient
from ._server import FilterServer, filter_server

Sum: TypeAlias = Callable[[Sequence[Counted]], tuple[np.ndarray, Sequence[str]]]
"""From answers to the sum of their counts, and the clients that are in it."""


def federated_threshold(
    benchmark_losses: npt.ArrayLike | jax.Array,
    losses: Mapping[str, npt.ArrayLike],
    *,
    dtype: npt.DTypeLike = np.float32,
    secure: Sum | None = None,
    again: bool = False,
    max_losses: int | None = None,
) -> FilterServer:
    """Run server and clients in one process, until the threshold is known.

    Args:
        benchmark_losses: The server's losses, `[m]`.
        losses: Losses of each client, `[n_i]`, by name.
        dtype: Type that losses are rounded to.
        secure: How to sum counts without showing them, such as `secure_sum`; None to
            show them to the server.
        again: With `secure`, whether to go on when clients drop out between rounds,
            though that shows what they answered: see `FilterServer.receive_sum`.
        max_losses: Maximum number of losses of a client: see `filter_server`.

    Returns:
        The server in the end: `threshold`, `verdict`, and who was left out.

    Raises:
        ValueError: If losses are not finite, there is no client or no loss, a client
            has more than `max_losses`, or one drops out between rounds without `again`.
    """
    server = filter_server(
        benchmark_losses, [*losses], dtype=dtype, max_losses=max_losses
    )
    while (question := server.question) is not None:
        answers = [
            count_losses(
                question, losses[name], client=name, max_edges=len(question.edges)
            )
            for name in server.clients
        ]
        if secure is None:
            server = server.receive(answers)
        else:
            server = server.receive_sum(*secure(answers), again=again)
    return server


def secure_sum(
    answers: Sequence[Counted],
    *,
    needed: int | None = None,
    silent: Collection[str] = (),
) -> tuple[np.ndarray, list[str]]:
    """Sum counts by pairwise masks, all clients in one process.

    Args:
        answers: The clients' answers to one question.
        needed: How many must be left in the end; two thirds, rounded up, if None.
        silent: Clients that drop out once they have shared their keys.

    Returns:
        The sum of the others' counts, `[2 E + 1]` int64, and their names.

    Raises:
        ValueError: If fewer clients are left than needed, or no more than half of all
            are.
    """
    needed = max(2, -(-2 * len(answers) // 3)) if needed is None else needed
    clients = {answer.client: SecureClient(answer, needed) for answer in answers}
    keys = [client.keys() for client in clients.values()]
    shares = [client.share(keys) for client in clients.values()]
    remaining = [name for name in clients if name not in silent]
    masked = [clients[name].masked(shares) for name in remaining]
    revealed = [clients[name].reveal(remaining) for name in remaining]
    return open_sum(keys, shares, masked, revealed, needed), remaining
