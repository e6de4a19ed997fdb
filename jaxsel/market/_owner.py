"""The owner's side: choose samples to send, within the owner's limits."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel.match import Match
from jaxsel.neighbors import Metric

from ._answer import Answer
from ._methods import METHODS, Choice, Method
from ._request import Request
from ._schema import check_rows, listed
from ._sides import both_sides
from ._view import OwnerModel, Side


def answer(
    request: Request,
    x: npt.ArrayLike | None = None,
    y: npt.ArrayLike | None = None,
    *,
    owner: str,
    features: npt.ArrayLike | None = None,
    model: OwnerModel | None = None,
    method: str | None = None,
    metric: Metric = "cosine",
    max_samples: int | None = None,
    max_share: float = 0.5,
    allow_all: bool = False,
    key: jax.Array | None = None,
) -> Answer:
    """Choose the samples that a request asks for, within the owner's own limits.

    If the hard samples have labels, only samples of their classes are chosen. Methods:

    - "retrieve": samples that look like the hard ones
      (`jaxsel.retrieve.retrieve_nearest`);
    - "grad_match": samples whose gradients in the owner's model match those of the hard
      ones (`jaxsel.match.grad_match`); needs `model.oracle`, and labels in the request;
    - "func_feat": both at once (`jaxsel.match.func_feat`);
    - "binned": for tables, rows that fall into the same bins
      (`jaxsel.retrieve.retrieve_binned`);
    - "random": a random choice, as a baseline; needs `key`.

    Samples are compared by `features`, in the feature space of the request, if given;
    otherwise by those of `model.features`; otherwise as they are, flattened.

    Args:
        request: The trainer's request.
        x: The owner's samples, `[n, ...]`, of the shape that the request names.
        y: Their labels, `[n]`. If None, each gets the label of the nearest hard sample.
        owner: The owner's name.
        features: Features of the samples, `[n, d]`, in the request's feature space.
        model: The owner's oracle and features.
        method: Method of choice; the request's if None.
        metric: "cosine" or "l2", between features.
        max_samples: Maximum number of samples to send, whatever the budget; None for
            no maximum.
        max_share: The largest share of the samples to send, above 0 and up to 1. It is
            rounded down, but to at least one sample, and at least one sample is not
            sent. An answer that reaches one of these limits has the status "capped".
        allow_all: Whether all of the owner's samples may be sent, if the budget and
            `max_samples` allow; `max_share` then does not apply.
        key: Key of the random choice; needed by the method "random" only.

    Returns:
        An `Answer` of at most `request.budget` samples. Its reason says no more than is
        known: where gradients were matched, why the match stopped.

    Raises:
        TypeError: If the samples are not of the kind that the request asks for.
        ValueError: If arrays have other shapes or lengths, hold NaN or infinity, or the
            method needs something that is not given. If the columns of a data frame
            have other names than those of the request; in another order they are
            brought into the request's. If a limit is out of range.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation, Algorithm 1
        and section 5. "random" draws from the classes of the hard samples, as the
        paper's baseline does.
    """
    name = request.method if method is None else method
    check_choice("method", name, tuple(METHODS))
    method_used = METHODS[name]
    model = OwnerModel() if model is None else model
    method_used.check(name, request.x, request.y, model, key)
    owned, hard = both_sides(
        request,
        x,
        y,
        features,
        model,
        by_features=method_used.features,
        metric=metric,
    )
    limit = _own_limit(len(owned), max_samples, max_share, allow_all)
    rows = _rows_asked(owned, hard)
    choice = Choice(
        schema=request.schema,
        candidates=owned,
        hard=hard,
        budget=min(request.budget, limit.most, len(rows)),
        model=model,
        metric=metric,
        key=key,
    )
    chosen = _chosen(method_used, choice, rows)
    status, reason = _outcome(request, choice, chosen, limit)
    x_sent, vectors_sent = owned.x, None
    if request.schema.sample_shape is None:
        x_sent, vectors_sent = None, owned.vectors
    return Answer(
        request_id=request.id,
        owner=owner,
        method=name,
        status=status,
        reason=reason,
        weights=chosen.weights,
        x=None if x_sent is None else _cast(request, x_sent[chosen.rows]),
        features=None if vectors_sent is None else vectors_sent[chosen.rows],
        y=None if owned.y is None else owned.y[chosen.rows],
        pseudo_labels=y is None and owned.y is not None,
    )


class _Limit(NamedTuple):
    """Maximum number of samples that an owner sends, and the reason for it."""

    most: int
    reason: str


def _own_limit(
    n: int, max_samples: int | None, max_share: float, allow_all: bool
) -> _Limit:
    """Return the owner's limit on sending some of its n samples."""
    share = check_positive("max_share", max_share)
    if share > 1:
        raise ValueError(f"max_share must be at most 1, got {max_share}")
    limit = _Limit(n - 1, "one more would be all of the owner's data")
    part = max(1, math.floor(share * n + 1e-9))
    if part < limit.most:
        limit = _Limit(part, f"the owner sends {share:.4g} of its samples at most")
    if allow_all:
        limit = limit._replace(most=n)
    if max_samples is not None and check_count("max_samples", max_samples) < limit.most:
        return _Limit(max_samples, f"the owner sends {max_samples} samples at most")
    return limit


def _rows_asked(owned: Side, hard: Side) -> np.ndarray:
    """Return the rows of the owner's samples of the hard samples' classes."""
    if owned.codes is None or hard.codes is None:
        return np.arange(len(owned))
    return np.flatnonzero(np.isin(owned.codes, hard.codes))


class _Chosen(NamedTuple):
    """Rows of the owner's samples, weights, and the reason why a match stopped."""

    rows: np.ndarray
    weights: np.ndarray
    stopped: str


def _chosen(method: Method, choice: Choice, rows: np.ndarray) -> _Chosen:
    """Choose among these rows of the candidates."""
    if not choice.budget:
        return _Chosen(rows[:0], np.ones(0, np.float32), "")
    owned = choice.candidates
    if method.keeps_classes:
        rows = np.arange(len(owned))
    if len(rows) < len(owned):
        choice = dataclasses.replace(choice, candidates=owned.take(rows))
    selection = method.choose(choice)
    size = int(selection.n_valid)
    return _Chosen(
        rows[np.asarray(selection.indices)[:size]],
        np.asarray(selection.weights, np.float32)[:size],
        f": {selection.reasons}" if isinstance(selection, Match) else "",
    )


def _outcome(
    request: Request, choice: Choice, chosen: _Chosen, limit: _Limit
) -> tuple[str, str]:
    """Return the status of an answer, and the reason for it."""
    size, owned = len(chosen.rows), choice.candidates
    if size == request.budget:
        return "complete", ""
    if size < choice.budget:
        weighed = f"{size} of {choice.budget} samples have a weight"
        return "short", weighed + chosen.stopped
    if size == limit.most < len(owned):
        return "capped", limit.reason
    if owned.codes is None or request.y is None:
        return "short", "there are no more samples"
    classes = "" if size else f", {listed(request.y)}"
    return "short", f"there are no more samples of the classes asked{classes}"


def refuse(request: Request, *, owner: str, reason: str) -> Answer:
    """Decline a request, with an answer that holds no samples.

    Args:
        request: The trainer's request.
        owner: The owner's name.
        reason: Why, on one line.

    Returns:
        The answer to send.
    """
    schema = request.schema
    x = features = None
    if schema.sample_shape is None:
        features = np.empty((0, schema.n_features or 0), np.float32)
    else:
        kind = "<U1" if schema.sample_dtype == "text" else schema.sample_dtype
        x = np.empty((0, *schema.sample_shape), kind)
    return Answer(
        request_id=request.id,
        owner=owner,
        method=request.method,
        status="refused",
        reason=reason,
        weights=np.ones(0, np.float32),
        x=x,
        features=features,
        y=None if request.y is None else request.y[:0],
    )


def _cast(request: Request, x: np.ndarray) -> np.ndarray:
    """Return samples in the type that the request names, if they fit."""
    if request.schema.sample_dtype == "text":
        return x
    with np.errstate(over="ignore"):
        cast = x.astype(np.dtype(request.schema.sample_dtype))
    check_rows("x in the request's dtype", cast, gaps=request.gaps)
    if cast.dtype.kind in "iu" and not np.array_equal(cast, x):
        raise ValueError(
            f"x must fit into {cast.dtype} as in the request, got values from "
            f"{x.min()} to {x.max()}"
        )
    return cast
