"""The options that all KNN values share."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypedDict, get_type_hints

import jax

from jaxsel._mesh import whole
from jaxsel._types import Reduce, Values
from jaxsel.neighbors import Metric

from ._distance_weights import DistanceWeights

Ties = Literal["stable", "average"]
Method = Literal["exact", "hybrid"]
_P = ParamSpec("_P")


class KnnOptions(TypedDict, total=False):
    """Keyword arguments that all KNN values take, with the defaults in brackets.

    Attributes:
        metric: "l2" (Euclidean; the default) or "cosine" (1 - cosine; zero rows are at
            distance 1).
        ties: "stable" (the default) orders tied points by index; "average" gives each
            the mean over all orders of the tied points, so that duplicates get equal
            values.
        reduce: "mean" (the default) over validation points, with its standard error;
            "max" over them (max-KNN-Shapley: foreign samples help no validation point,
            so even their maximum is low); None returns `[m, n]`.
        method: "exact" (the default), or "hybrid": the nearest 256 points exactly, the
            others by bands of distance. "hybrid" needs no sort, and returns
            `error_bound`, which always holds. It is faster only without the compiled
            operations; with them, the exact method is used, which costs less.
        weights: Optional function from distances to weights that multiply the gains
            (they are not normalised), written with jax.numpy. It is traced at each
            call, so it can read from an object that changes. It is compiled once for
            each computation; captured Python floats are part of the computation,
            captured JAX arrays are not.
        chunk_size: Validation points at a time; chosen from n by default. It sets speed
            and memory, not results (up to points that nearly tie).
        mesh: Devices to split the validation points over, from `jaxsel.make_mesh`, or
            any other mesh.
        axis: Which axis of the mesh to split over; its only one, or "data", if None.
            Devices along its other axes do the same work.
        gather: Whether every process gets the whole result (the default). If not, it
            stays on the devices, `[n]` split over the axis, of which n must be a
            multiple, and so that no process holds all of it. Needs a mesh, and "mean"
            or "max".
        progress: Whether to show a progress bar; not by default.
    """

    metric: Metric
    ties: Ties
    reduce: Reduce
    method: Method
    weights: DistanceWeights | None
    chunk_size: int | None
    mesh: jax.sharding.Mesh | None
    axis: str | None
    gather: bool
    progress: bool


DEFAULTS: KnnOptions = {
    "metric": "l2",
    "ties": "stable",
    "reduce": "mean",
    "method": "exact",
    "weights": None,
    "chunk_size": None,
    "mesh": None,
    "axis": None,
    "gather": True,
    "progress": False,
}


def with_defaults(function: Callable[_P, Values]) -> Callable[_P, Values]:
    """Fill in the options that a call leaves out, and show all in the signature."""
    signature = inspect.signature(function)
    own = list(signature.parameters.values())[:-1]  # the last one is **options
    types = get_type_hints(KnnOptions)
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=types[name]
        )
        for name, value in DEFAULTS.items()
    ]
    keywords = [p.name for p in own + shared if p.kind is p.KEYWORD_ONLY]
    names = {*keywords, *signature.parameters}

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Values:
        if unknown := [name for name in kwargs if name not in names]:
            raise TypeError(
                f"{function.__name__}() got an unexpected keyword argument "
                f"{unknown[0]!r}; its options are {', '.join(keywords)}"
            )
        options: dict[str, Any] = {
            **DEFAULTS,
            **{k: whole(v) for k, v in kwargs.items()},
        }
        given = [whole(value) for value in args]
        return function(*given, **options)  # pyright: ignore[reportCallIssue]

    vars(call)["__signature__"] = signature.replace(parameters=own + shared)
    return call
