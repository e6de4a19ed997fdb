"""Gradient oracles: inner products of candidates' gradients, by several means."""

from ._dense import Dense as Dense, dense as dense
from ._factored import Factored as Factored
from ._followed import FollowedLayers as FollowedLayers
from ._ghost import ghost as ghost, grad_and_ghost as grad_and_ghost
from ._jvp import jvp as jvp
from ._last_layer import (
    factored as factored,
    last_layer as last_layer,
    last_two_layers as last_two_layers,
)
from ._oracle import (
    Gradient as Gradient,
    Oracle as Oracle,
    squared_norm as squared_norm,
)
from ._per_sample import per_sample as per_sample
from ._projected import Projected as Projected, projected as projected
from ._store import open_store as open_store
from ._store_write import write_store as write_store
from ._streamed import Streamed as Streamed, streamed as streamed
from ._subspace import target_subspace as target_subspace
