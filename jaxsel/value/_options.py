"""The options that all KNN values share."""

import dataclasses
from typing import Literal, TypedDict

import jax
import numpy.typing as npt

from jaxsel._inputs.checks import shared_options
from jaxsel._results.types import Reduce
from jaxsel.neighbors import Metric

from ._distance_weights import DistanceWeights
from ._plan import Split

Ties = Literal["stable", "average"]
Method = Literal["exact", "hybrid"]


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
        mesh: Devices to split points over, from `jaxsel.make_mesh`, or any other mesh.
        axis: Which axis of the mesh to split over; its only one, or "data", if None.
            Devices along its other axes do the same work.
        split: Which points are split over the devices. "validation" (the default): each
            device holds all training features. "training": each holds its own n / p of
            them, and rows of distances to all of them go from device to device, 8 bytes
            a pair (12 with `error_bound`). x may then be larger than a device: an array
            of every process, or one split over the axis by
            `jax.make_array_from_process_local_data`, which stays where it is. Labels
            are on every device. Needs a mesh.
        gather: Whether every process gets the whole result (the default). If not, it
            stays on the devices, `[n]` split over the axis, of which n must be a
            multiple, and so that no process holds all of it. Needs a mesh, and "mean"
            or "max".
        owners: The owner of each training point, `[n]`, by labels of any kind. Values
            are then sums over the points of each owner, `[owners]`, with the standard
            errors of these sums; `Values.index` has the labels, by first appearance.
            Shapley values add up, so a sum is what the points of an owner are worth one
            by one; for owners as players who bring all their points at once see
            `jaxsel.value.knn_utility`. Not with `split="training"` or `gather=False`.
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
    split: Split
    gather: bool
    owners: npt.ArrayLike | None
    progress: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Options:
    """`KnnOptions` with the defaults of those that a call leaves out."""

    metric: Metric = "l2"
    ties: Ties = "stable"
    reduce: Reduce = "mean"
    method: Method = "exact"
    weights: DistanceWeights | None = None
    chunk_size: int | None = None
    mesh: jax.sharding.Mesh | None = None
    axis: str | None = None
    split: Split = "validation"
    gather: bool = True
    owners: npt.ArrayLike | None = None
    progress: bool = False


knn_value = shared_options(KnnOptions, vars(Options()))
"""Decorate a KNN value: it takes `KnnOptions`, and shows them in its signature."""
