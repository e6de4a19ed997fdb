"""The part of the one who asks in a valuation across owners, and all in one process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import (
    caller_level,
    check_count,
    check_features,
    check_positive,
)
from jaxsel._inputs.frames import names_of
from jaxsel._results.types import Values
from jaxsel.filter import Counted, Keys, Revealed, Shares, open_sum
from jaxsel.market._schema import Schema, as_labels, kind_of
from jaxsel.neighbors import Metric

from ._privacy import noise_variance
from ._valuation import FEWEST, CountSums, Valuation
from ._value_owner import ValueOwner

_HALF = 1 << 31


def ask_values(
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    radius: float,
    owners: Sequence[str],
    epsilon: float | None = None,
    delta: float = 1e-6,
    colluding: int = 1,
    needed: int | None = None,
    metric: Metric = "l2",
    classes: Sequence[int] | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    max_points: int | None = None,
    allow_two: bool = False,
) -> Valuation:
    """Ask owners to value their points among the points of all owners.

    Each owner gets the threshold KNN-Shapley values of its own points
    (`jaxsel.threshold_knn_shapley`), exactly as if all points lay in one place, or with
    noise. Nobody sees more of the others than sums: for each validation point, how many
    points of all owners lie within the radius with its label, and with another one.

    Args:
        x_val: Validation points, `[m, d]`, of numbers. All owners see them.
        y_val: Their labels, `[m]`. All owners see them.
        radius: Radius of the balls around them, a distance (not squared).
        owners: Names of the owners that take part.
        epsilon: How private the sums must be, above 0: see `privacy_epsilon`. Of one
            valuation, that is: what an owner's points take part in adds up. None for
            exact sums, which have no such guarantee.
        delta: The delta of differential privacy.
        colluding: How many owners may pool their knowledge with one another and with
            the one who asks, with enough noise of the others left. At least 1: each
            owner knows its own noise.
        needed: How many owners must be left in the end, more than half. If None, two
            thirds, rounded up, and 3 at least. The noise is enough even if no more are
            left.
        metric: Distance.
        classes: All possible labels; the labels in `y_val` if None. Owners' labels
            must be among them.
        columns: Names of the columns; if None, the columns of `x_val` where it is a
            data frame.
        max_points: How many points an owner may have: the more, the further a single
            owner can move the sums. If None, what the ring of 32 bits allows.
        allow_two: Whether sums of two owners are allowed. Each of the two sees the
            other's counts in them.

    Returns:
        The message to send to all owners.

    Raises:
        ImportError: If `epsilon` is given, and dp-accounting is not installed.
        TypeError: If arrays are of types that files can't hold.
        ValueError: If an argument is out of range, or fewer than three owners would be
            left and `allow_two` is not set.

    Warns:
        UserWarning: If the sums may be of two owners only.

    References:
        Wang, Zhu, Wang, Jia and Mittal, Threshold KNN-Shapley, NeurIPS 2023, the
        private variant. There one server has all data and adds the noise. Counts of
        matching and other points, rather than of matching ones and all, halve the
        variance.
    """
    names = tuple(owners)
    if needed is None:
        needed = max(-(-2 * len(names) // 3), min(FEWEST, len(names)))
    if check_count("needed", needed) < FEWEST:
        about = f"needed = {needed} of {len(names)} owners"
        if not allow_two:
            raise ValueError(
                f"needed must be {FEWEST} or more, got {about}: with two, each sees "
                "the other's counts in the sums; set allow_two=True to accept that"
            )
        warnings.warn(
            f"{about}: with two, each sees the other's counts in the sums",
            UserWarning,
            stacklevel=caller_level(),
        )
    if check_count("colluding", colluding) >= needed:
        raise ValueError(f"colluding must be below needed = {needed}, got {colluding}")
    points = np.asarray(check_features("x_val", x_val))
    labels = as_labels("y_val", y_val)
    variance = 0
    if epsilon is not None:
        honest = needed - colluding
        variance = noise_variance(epsilon, len(points), delta=delta, honest=honest)
    if max_points is None:
        max_points = max(1, (1 << 29) // max(1, len(names)))
    columns = names_of(x_val) if columns is None else columns
    known = labels if classes is None else as_labels("classes", classes)
    return Valuation(
        id=os.urandom(16).hex(),
        owners=names,
        needed=needed,
        colluding=colluding,
        max_points=max_points,
        metric=metric,
        variance=variance,
        schema=Schema(
            sample_shape=points.shape[1:],
            sample_dtype=kind_of(points),
            columns=None if columns is None else tuple(columns),
            classes=tuple(np.unique(known).tolist()),
        ),
        x=points,
        y=labels,
        radius=np.array([check_positive("radius", radius, zero=True)], np.float64),
        delta=np.array([delta], np.float64),
    )


def sum_counts(
    valuation: Valuation,
    keys: Iterable[Keys],
    shares: Iterable[Shares],
    masked: Sequence[Counted],
    revealed: Iterable[Revealed],
) -> CountSums:
    """Take the masks off the sums of the owners' counts.

    Args:
        valuation: The valuation.
        keys: Keys that were passed to all owners.
        shares: Shares of the owners that sent them.
        masked: Masked counts of the survivors that owners were told.
        revealed: Shares that the survivors revealed.

    Returns:
        The message to send to all owners.

    Raises:
        ValueError: As `jaxsel.filter.open_sum`, which says whose message is wrong; if
            they are of another valuation; or if the sums are not possible: then nobody
            can tell whose counts are wrong.
    """
    alive = valuation.survivors(masked)
    total = open_sum(keys, shares, masked, revealed, valuation.needed)
    # Sums with noise may be negative, which is large modulo 2^32.
    signed = (total + _HALF) % (2 * _HALF) - _HALF
    sums = CountSums(
        task=valuation.task, owners=alive.owners, sums=signed.reshape(-1, 2)
    )
    sums.check(valuation)
    return sums


def private_values(
    valuation: Valuation,
    data: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    min_owners: int = FEWEST,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    silent: Collection[str] = (),
) -> tuple[dict[str, Values], CountSums]:
    """Run a valuation with all owners in one process, to try it.

    Args:
        valuation: The valuation.
        data: Points `[n_i, d]` and labels `[n_i]` of each owner, by name.
        min_owners: Every owner's limit: see `ValueOwner`.
        max_epsilon: As `min_owners`; None accepts any.
        max_delta: As `min_owners`.
        silent: Owners that drop out once they have shared their keys.

    Returns:
        The values of each owner's points, those that dropped out included, by name; and
        the sums.

    Raises:
        TypeError: As `ValueOwner`.
        ValueError: As `ValueOwner`, `ValueOwner.values` and `sum_counts`.
    """
    owners = {
        name: ValueOwner(
            valuation,
            *points,
            owner=name,
            min_owners=min_owners,
            max_epsilon=max_epsilon,
            max_delta=max_delta,
        )
        for name, points in data.items()
    }
    keys = [owner.keys() for owner in owners.values()]
    shares = [owner.share(keys) for owner in owners.values()]
    remaining = [name for name in owners if name not in silent]
    masked = [owners[name].masked(shares) for name in remaining]
    survivors = valuation.survivors(masked)
    revealed = [owners[name].reveal(survivors) for name in remaining]
    sums = sum_counts(valuation, keys, shares, masked, revealed)
    return {n: owners[n].values(sums, *data[n]) for n in owners}, sums
