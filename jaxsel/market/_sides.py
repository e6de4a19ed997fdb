"""Both sides of a choice, the owner's samples and the hard ones, in one space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_finite, check_same_length
from jaxsel._inputs.frames import in_order, names_of
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel.neighbors import Metric
from jaxsel.retrieve import pseudo_labels

from ._request import Request
from ._schema import (
    as_labels,
    as_samples,
    as_vectors,
    encoded,
    kind_of,
    listed,
    misspelt,
)
from ._view import OwnerModel, Side


def both_sides(
    request: Request,
    x: npt.ArrayLike | None,
    y: npt.ArrayLike | None,
    features: npt.ArrayLike | None,
    model: OwnerModel,
    *,
    by_features: bool,
    metric: Metric,
) -> tuple[Side, Side]:
    """Check the owner's arrays, and return the owner's side and the hard samples'.

    Args:
        request: The trainer's request.
        x: The owner's samples.
        y: Their labels; if None and the request has labels, each sample gets the label
            of the nearest hard sample.
        features: Features in the request's space.
        model: Computes the features if `features` is None.
        by_features: Whether features are needed for the choice.
        metric: Distance between features.
    """
    x = encoded("x", x, request.encoder)
    samples = None if x is None else as_samples("x", x, gaps=request.gaps)
    given_features = None if features is None else as_vectors("features", features)
    labels = None if y is None else as_labels("y", y)
    _check_form(request, samples)
    if samples is not None:
        samples = in_order("x", samples, names_of(x), request.schema.columns)
        if request.schema.categories is not None:
            request.schema.check_samples("x", samples, gaps=True)
    arrays = {"x": samples, "features": given_features, "y": labels}
    present = [(name, array) for name, array in arrays.items() if array is not None]
    for name, array in present:
        check_same_length(*present[0], name, array)

    if not present:
        raise ValueError("features must be given: the request asks for them")
    vectors = hard_vectors = None
    pseudo = labels is None and request.y is not None
    if by_features or pseudo or request.x is None:
        vectors, hard_vectors = _vectors(
            request, samples, given_features, model.features
        )
        if pseudo and request.y is not None:
            labels = pseudo_labels(vectors, hard_vectors, request.y, metric=metric)
    codes = hard_codes = None
    if labels is not None and request.y is not None:
        codes = request.schema.encode("y", labels)
        _check_classes(labels, codes, np.asarray(request.schema.classes))
        hard_codes = request.schema.encode("y of the request", request.y)
    return (
        Side(x=samples, y=labels, codes=codes, vectors=vectors),
        Side(x=request.x, y=request.y, codes=hard_codes, vectors=hard_vectors),
    )


def _check_classes(labels: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> None:
    """Raise if no label is a class because of spelling; warn if some are not.

    Raises:
        ValueError: If none is, and one differs from a class in case or blanks only.
    """
    other = misspelt(labels, classes)
    if not len(other):
        return
    why = "differ from them in case or blanks only: write them as the request does"
    if (codes < 0).all():
        raise ValueError(
            f"y must hold classes of the request, {listed(classes)}, but has only "
            f"{listed(labels)}, which {why}"
        )
    doubt(
        f"{int(np.isin(labels, other).sum())} of {len(labels)} labels "
        f"({listed(other)}) are none of the request's classes, so that their samples "
        f"are not sent, but {why}"
    )


def _check_form(request: Request, x: np.ndarray | None) -> None:
    shape, wanted = request.schema.sample_shape, request.schema.sample_dtype
    if shape is None or wanted is None:
        return
    if x is None:
        raise ValueError("x must be given: the request asks for samples")
    if x.shape[1:] != shape:
        raise ValueError(
            f"x must hold samples of shape {shape} as in the request, got {x.shape[1:]}"
        )
    kind = kind_of(x)
    fits = kind == wanted
    if "text" not in (kind, wanted):
        fits = np.can_cast(x.dtype, np.dtype(wanted), "same_kind")
    if not fits:
        raise TypeError(f"x must be of dtype {wanted} as in the request, got {kind}")


def _vectors(
    request: Request,
    x: np.ndarray | None,
    features: np.ndarray | None,
    encode: Callable[[Any], Any] | None,
) -> tuple[np.ndarray, np.ndarray]:
    if features is not None:
        if request.features is None:
            raise ValueError(
                "features must not be given: the request has none to compare them "
                "with; model.features serves both sides"
            )
        vectors, hard = features, request.features
    elif x is not None and encode is not None:
        vectors = as_vectors("model.features(x)", encode(x))
        if request.x is not None:
            hard = as_vectors("model.features(hard samples)", encode(request.x))
        else:
            hard = request.features
    else:
        vectors, hard = x, request.x
    if vectors is None or hard is None:
        raise ValueError("features must be given: the request shows features only")
    if vectors.dtype.kind == "U":
        raise ValueError("model must have features: texts as such have no distance")
    for name, array in (("x", vectors), ("x of the request", hard)):
        check_finite(name, array)
    vectors, hard = (a.reshape(len(a), -1).astype(np.float32) for a in (vectors, hard))
    if vectors.shape[1] != hard.shape[1]:
        raise ValueError(
            f"features must have {hard.shape[1]} columns as those of the hard samples, "
            f"got {vectors.shape[1]}"
        )
    return vectors, hard
