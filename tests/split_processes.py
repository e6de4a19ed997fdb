"""Run by each of several processes: training features of which it has only a part.

Its arguments are a port, how many processes there are, which one this is, and a folder
for the results.
"""

import sys

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

import jaxsel

N, M, D = 48, 13, 4
CALLS = {
    "shapley": (jaxsel.knn_shapley, {"k": 3}),
    "loo": (jaxsel.knn_loo, {"k": 3}),
    "threshold": (jaxsel.threshold_knn_shapley, {"radius": 2.0}),
    "cosine": (jaxsel.knn_shapley, {"k": 3, "metric": "cosine", "ties": "average"}),
}


def arrays():
    """Return features far from the origin, which are near ties to float32."""
    rng = np.random.default_rng(0)
    x, x_val = (1000 + rng.normal(size=(n, D)).astype(np.float32) for n in (N, M))
    return x, rng.integers(0, 3, N), x_val, rng.integers(0, 3, M)


def on_one_device():
    """Return the values that every way of splitting must find."""
    return {
        name: np.asarray(call(*arrays(), **options).values)
        for name, (call, options) in CALLS.items()
    }


def main(port, count, process, folder):
    """Value points of which this process has one part in `count`."""
    count, process = int(count), int(process)
    jaxsel.init_multihost(f"localhost:{port}", count, process)
    kind = AxisType.Explicit
    mesh = jax.make_mesh((count, 2), ("rows", "columns"), axis_types=(kind, kind))
    x, y, x_val, y_val = arrays()
    mine = np.split(x, count)[process]
    rows = jax.NamedSharding(mesh, jax.P("rows"))
    x = jax.make_array_from_process_local_data(rows, mine)
    assert not x.is_fully_addressable
    found = {}
    for name, (call, options) in CALLS.items():
        options = options | {"mesh": mesh, "split": "training", "chunk_size": 8}
        for axis in ("rows", "columns"):  # between the processes, and within each
            values = call(x, y, x_val, y_val, axis=axis, **options).values
            found[f"{name} {axis}"] = values
        split = call(x, y, x_val, y_val, axis="rows", gather=False, **options).values
        assert split.sharding == rows
        found[f"{name} split"] = np.asarray(split.addressable_shards[0].data)
    wrong = np.array(mine)
    wrong[2, 1] = np.nan
    x = jax.make_array_from_process_local_data(rows, wrong)
    with pytest.raises(ValueError, match="x must be finite, but row 2 "):
        jaxsel.knn_shapley(x, y, x_val, y_val, mesh=mesh, axis="rows", split="training")
    np.savez(f"{folder}/{process}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
