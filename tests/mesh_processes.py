"""Run by each of two processes: arrays of which it has only a part.

Its arguments are a port, how many processes there are, which one this is, and a folder
for the results.
"""

import sys

import jax
import numpy as np
from jax.sharding import AxisType

import jaxsel
from jaxsel import retrieve


def main(port, count, process, folder):
    jaxsel.init_multihost(f"localhost:{port}", int(count), int(process))
    import mesh_cases as cases  # which computes something

    kind = AxisType.Explicit
    mesh = jax.make_mesh((2, 2), ("rows", "columns"), axis_types=(kind, kind))
    rows = jax.NamedSharding(mesh, jax.P("rows"))

    def part(array):
        """Return an array of which this process has one half."""
        half = np.split(array, 2)[int(process)]
        found = jax.make_array_from_process_local_data(rows, half)
        assert not found.is_fully_addressable
        return found

    x, y, x_val, y_val = map(part, cases.shared())
    found = {}
    for axis in ("rows", "columns"):  # between the processes, and within each
        options = {"mesh": mesh, "axis": axis}
        values = jaxsel.knn_shapley(x, y, x_val, y_val, k=3, chunk_size=4, **options)
        found[f"mean {axis}"] = values.values
        near = retrieve.nearest(x, x_val, 5, chunk_size=8, **options)
        found[f"nearest {axis}"] = near.indices
        near = retrieve.nearest(
            x, x_val, 5, labels=y, hard_labels=y_val, metric="l2", **options
        )
        found[f"of its class {axis}"] = near.indices
        chosen = jaxsel.retrieve_nearest(x, x_val, 9, **options)
        found[f"chosen {axis}"] = chosen.indices
        for name in cases.BY_PARTS:
            result = cases.by_parts(name, part, **options)
            for place, leaf in enumerate(jax.tree.leaves(result)):
                found[f"{name} {place} {axis}"] = leaf
    split = jaxsel.knn_shapley(
        x, y, x_val, y_val, k=3, mesh=mesh, axis="rows", gather=False
    )
    assert split.values.sharding == rows
    (mine,) = {shard.data.shape for shard in split.values.addressable_shards}
    assert mine == (cases.N // 2,)
    found["split"] = np.asarray(split.values.addressable_shards[0].data)
    np.savez(f"{folder}/{process}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
