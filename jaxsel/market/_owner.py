"""The owner's side: choose samples to send, within the owner's limits."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._checks import check_choice, check_count, check_positive
from jaxsel._types import Selection
from jaxsel.match import Match, func_feat, grad_match
from jaxsel.neighbors import Metric
from jaxsel.retrieve import retrieve_binned, retrieve_nearest

from ._answer import Answer
from ._request import METHODS, Request
from ._schema import check_rows, listed
from ._sides import OwnerModel, Side, both_sides

_BY_FEATURES = ("retrieve", "func_feat")
_BY_GRADIENTS = ("grad_match", "func_feat")


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
    method = request.method if method is None else method
    model = OwnerModel() if model is None else model
    _check_method(method, request, model, key)
    owned, hard = both_sides(
        request,
        x,
        y,
        features,
        model,
        by_features=method in _BY_FEATURES,
        metric=metric,
    )
    n = len(owned)
    limit, why_limit = _own_limit(n, max_samples, max_share, allow_all)
    rows = np.arange(n)
    if owned.codes is not None and hard.codes is not None:
        rows = np.flatnonzero(np.isin(owned.codes, hard.codes))
    n_candidates = len(rows)
    budget = min(request.budget, limit, n_candidates)
    chosen, weights = rows[:0], np.ones(0, np.float32)
    stopped = ""
    if budget:
        # Retrieval passes over other classes by itself: no copy, and fewer programs.
        if method == "retrieve":
            rows = np.arange(n)
        candidates = owned if len(rows) == n else owned.take(rows)
        if method == "binned":
            table: Any = candidates.x  # there is one: `_check_method` saw to it
            categories = request.schema.categories
            hard_table: Any = hard.x
            selection = retrieve_binned(
                table, hard_table, budget, categorical=categories
            )
        else:
            selection = _choose(method, candidates, hard, budget, model, metric, key)
        size = int(selection.n_valid)
        chosen = rows[np.asarray(selection.indices)[:size]]
        weights = np.asarray(selection.weights, np.float32)[:size]
        if isinstance(selection, Match):
            stopped = f": {selection.reasons}"
    x_sent, vectors_sent = owned.x, None
    if request.schema.sample_shape is None:
        x_sent, vectors_sent = None, owned.vectors
    status, reason = "complete", ""
    if len(chosen) < request.budget:
        if len(chosen) < budget:
            status = "short"
            reason = f"{len(chosen)} of {budget} samples have a weight{stopped}"
        elif len(chosen) == limit < n:
            status, reason = "capped", why_limit
        else:
            status, reason = "short", "there are no more samples"
            if owned.codes is not None and request.y is not None:
                reason += " of the classes asked"
                if not len(chosen):
                    reason += f", {listed(request.y)}"
    return Answer(
        request_id=request.id,
        owner=owner,
        method=method,
        status=status,
        reason=reason,
        weights=weights,
        x=None if x_sent is None else _cast(request, x_sent[chosen]),
        features=None if vectors_sent is None else vectors_sent[chosen],
        y=None if owned.y is None else owned.y[chosen],
        pseudo_labels=y is None and owned.y is not None,
    )


def _own_limit(
    n: int, max_samples: int | None, max_share: float, allow_all: bool
) -> tuple[int, str]:
    """Return how many of n samples the owner would send at most, and why no more."""
    share = check_positive("max_share", max_share)
    if share > 1:
        raise ValueError(f"max_share must be at most 1, got {max_share}")
    limit, why = n - 1, "one more would be all of the owner's data"
    part = max(1, math.floor(share * n + 1e-9))
    if part < limit:
        limit, why = part, f"the owner sends {share:.4g} of its samples at most"
    if allow_all:
        limit = n
    if max_samples is not None and check_count("max_samples", max_samples) < limit:
        limit, why = max_samples, f"the owner sends {max_samples} samples at most"
    return limit, why


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


def _check_method(
    method: str, request: Request, model: OwnerModel, key: jax.Array | None
) -> None:
    check_choice("method", method, METHODS)
    if method == "random" and key is None:
        raise ValueError("key must be given where method is 'random', got None")
    if method == "binned" and (request.x is None or request.x.ndim != 2):
        raise ValueError("method must not be 'binned': the request shows no table")
    if method in _BY_GRADIENTS and request.y is None:
        raise ValueError(f"method must not be {method!r}: the request has no labels")
    if method in _BY_GRADIENTS and model.oracle is None:
        raise ValueError(
            f"model must have an oracle where method is {method!r}: give one, choose "
            "another method, or refuse"
        )


def _choose(
    method: str,
    owned: Side,
    hard: Side,
    budget: int,
    model: OwnerModel,
    metric: Metric,
    key: jax.Array | None,
) -> Selection:
    """Choose among the owner's samples by a method that `_check_method` let pass."""
    vectors: Any = owned.vectors  # present wherever a method needs them
    hard_vectors: Any = hard.vectors
    if method == "retrieve":
        return retrieve_nearest(
            vectors,
            hard_vectors,
            budget,
            labels=owned.codes,
            hard_labels=hard.codes,
            metric=metric,
        )
    if method == "random" and key is not None:
        return Selection(
            indices=jax.random.permutation(key, len(owned))[:budget],
            weights=jnp.ones(budget),
            n_valid=jnp.asarray(budget),
        )
    oracle: Any = model.oracle
    # Of one kind on both sides: samples, or features where the request shows no others.
    by_x = hard.x is not None
    candidates = oracle(owned.x if by_x else vectors, owned.y)
    target = oracle(hard.x if by_x else hard_vectors, hard.y)
    if method == "grad_match":
        return grad_match(
            candidates, target, budget, labels=owned.codes, hard_labels=hard.codes
        )
    return func_feat(
        candidates,
        target,
        vectors,
        hard_vectors,
        budget,
        labels=owned.codes,
        hard_labels=hard.codes,
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
