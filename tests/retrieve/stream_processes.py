"""Run by each of several processes: rows of a source, of which it reads its own.

Its arguments are a port, how many processes there are, which one this is, and a folder
with the data and for the results.
"""

import sys

import numpy as np

import jaxsel
from jaxsel import retrieve
from jaxsel.data import open_rows
from jaxsel.retrieve import _retrieve


class Dies(Exception):
    pass


class Counted:
    """An array that remembers which rows were read, and can fail."""

    def __init__(self, x):
        self.x, self.shape, self.dtype = x, x.shape, x.dtype
        self.read, self.dies_at = [], None

    def __getitem__(self, rows):
        if self.dies_at is not None and len(self.read) >= self.dies_at:
            raise Dies
        self.read.append((rows.start, rows.stop))
        return self.x[rows]


def main(port, count, process, folder):
    count = int(count)
    jaxsel.init_multihost(f"localhost:{port}", count, int(process))
    given = np.load(f"{folder}/data.npz")
    x, y, hard, names = (given[name] for name in ("x", "y", "hard", "names"))
    mesh = jaxsel.make_mesh()
    assert mesh.size == 2 * count
    source = Counted(x)
    rows = open_rows(source, labels=y)
    found = {}
    labels = {"labels": rows.labels, "hard_labels": names}
    for what, more in (("all", {}), ("of its class", labels)):
        source.read.clear()
        near = retrieve.nearest(rows, hard, 9, chunk_size=16, mesh=mesh, **more)
        found[what] = near.indices
        found[f"{what}, distances"] = near.distances
        found[f"{what}, read"] = np.array(source.read)
    found["chosen"] = jaxsel.retrieve_nearest(rows, hard, 30, mesh=mesh).indices
    lists, _retrieve._LISTS = _retrieve._LISTS, 1  # the slower method, kept by all
    slower = {"mesh": mesh, "checkpoint": f"{folder}/by rank", "checkpoint_every": 3}
    found["by rank"] = jaxsel.retrieve_nearest(rows, hard, 30, **slower).indices
    _retrieve._LISTS = lists

    options = {"chunk_size": 16, "mesh": mesh, "checkpoint": f"{folder}/kept"}
    options["checkpoint_every"] = 2
    source.read.clear()
    source.dies_at = 10  # two reads a chunk: one for each device
    try:
        retrieve.nearest(rows, hard, 9, **options)
    except Dies:
        found["died"] = 1
    source.dies_at = None
    source.read.clear()
    found["resumed"] = retrieve.nearest(rows, hard, 9, **options).indices
    found["resumed, read"] = np.array(source.read)

    part = rows.shard()
    found["share"] = np.array([part.begin, part.end])
    np.savez(f"{folder}/{process}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
