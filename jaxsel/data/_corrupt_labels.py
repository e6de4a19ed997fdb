"""Wrong labels: flipped at random, flipped by class, or permuted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ._corrupt import check_labels, choose_rows, count_of, is_known


def flip_labels(
    key: jax.Array,
    y: npt.ArrayLike | jax.Array,
    rate: float | jax.Array,
    *,
    n_classes: int,
    transition: npt.ArrayLike | jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Give a share of the rows another class.

    Exactly `round(rate * n)` rows are chosen, any of them alike. Without `transition`
    each gets one of the other `n_classes - 1` classes, all equally likely.

    Args:
        key: Random key.
        y: Labels `[n]`, whole numbers in 0..n_classes - 1.
        rate: Share of rows to choose, in 0..1.
        n_classes: Number of classes, at least 2.
        transition: Optional `[n_classes, n_classes]`: row c holds the probabilities of
            the new class of a chosen row of class c. Where the diagonal is not zero,
            that share of the chosen rows keeps its label; with `rate=1` and a diagonal
            this is the noise matrix of the literature.

    Returns:
        The new labels, and a mask `[n]` of the rows whose label is now wrong.

    Raises:
        ValueError: If there is only one class, a label or the rate is out of range, or
            a row of `transition` isn't a distribution.
        TypeError: If labels aren't whole numbers.
    """
    labels = jnp.asarray(y)
    if n_classes < 2:
        raise ValueError(
            f"n_classes must be at least 2: there is no other class to flip to, "
            f"got {n_classes}"
        )
    check_labels(labels, n_classes)
    rows = None if transition is None else _check_transition(transition, n_classes)
    return _flip(key, labels, count_of(len(labels), rate), n_classes, rows)


def permute_labels(
    key: jax.Array, y: npt.ArrayLike | jax.Array, rate: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Permute the labels of a share of the rows among themselves.

    Exactly `round(rate * n)` rows are chosen, any of them alike, and their labels are
    passed on along one random cycle, so that each row gets the label of another. How
    often each class occurs does not change. A row may get its own class from a
    neighbour of that class: about the sum of squared class shares of them do.

    Args:
        key: Random key.
        y: Labels `[n]`.
        rate: Share of rows to choose, in 0..1.

    Returns:
        The new labels, and a mask `[n]` of the rows whose label is now wrong.

    Raises:
        ValueError: If the rate is out of range.
        TypeError: If labels aren't whole numbers.
    """
    labels = jnp.asarray(y)
    check_labels(labels, None)
    return _permute(key, labels, count_of(len(labels), rate))


@jax.jit
def _flip(
    key: jax.Array,
    labels: jax.Array,
    count: int | jax.Array,
    n_classes: int | jax.Array,
    transition: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    key_rows, key_class = jax.random.split(key)
    chosen = choose_rows(key_rows, len(labels), count)
    if transition is None:
        step = jax.random.randint(key_class, labels.shape, 1, n_classes)
        # In int32: the sum may not fit into small integers.
        other = (labels.astype(jnp.int32) + step) % n_classes
    else:
        other = jax.random.categorical(key_class, jnp.log(transition[labels]))
    new = jnp.where(chosen, other.astype(labels.dtype), labels)
    return new, new != labels


@jax.jit
def _permute(
    key: jax.Array, labels: jax.Array, count: int | jax.Array
) -> tuple[jax.Array, jax.Array]:
    n = len(labels)
    row_at = jax.random.permutation(key, n)  # rows at the first places are chosen
    place = jnp.arange(n)
    # Chosen rows form one cycle: each takes the next one's label, the last the first's.
    follower = jnp.where(place + 1 < count, place + 1, 0)
    source = row_at[jnp.where(place < count, follower, place)]
    new = labels.at[row_at].set(labels[source])
    return new, new != labels


def _check_transition(
    transition: npt.ArrayLike | jax.Array, n_classes: int
) -> jax.Array:
    matrix = jnp.asarray(transition)
    if matrix.shape != (n_classes, n_classes):
        raise ValueError(
            f"transition must have shape {(n_classes, n_classes)}, got {matrix.shape}"
        )
    if not is_known(matrix):
        return matrix
    host = np.asarray(matrix, np.float64)
    good = (host >= 0).all(axis=1) & (np.abs(host.sum(axis=1) - 1) < 1e-5)
    if not good.all():
        row = np.flatnonzero(~good)[0]
        raise ValueError(
            "each row of transition must hold probabilities that sum to 1, but row "
            f"{row} is {host[row].tolist()}"
        )
    return matrix
