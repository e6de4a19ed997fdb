"""Nearest neighbours: distances, the order by distance, and the nearest few."""

from ._distance import (
    METRICS as METRICS,
    Metric as Metric,
    distances as distances,
    normalise as normalise,
    prepare_features as prepare_features,
    squared_norms as squared_norms,
    to_length as to_length,
)
from ._exact import Exact as Exact
from ._order import (
    Sort as Sort,
    argsort as argsort,
    top_k as top_k,
    unsort as unsort,
)
