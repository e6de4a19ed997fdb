"""Run by each of several processes: candidates of which it has only a part.

Its arguments are a port, how many processes there are, which one this is, and a folder
for the results.
"""

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType

import jaxsel
from jaxsel import filter as filters, gradients, match

N, P, C, K = 48, 7, 3, 6
_rng = np.random.default_rng(0)
X, LOGITS = (_rng.normal(size=(N, d)).astype(np.float32) for d in (P, C))
Y = _rng.integers(0, C, N)
TARGET = X[:5].sum(0)
PARAMS = {"w": _rng.normal(size=(P, C)).astype(np.float32)}
HARD = slice(0, 16)


def loss(params, example):
    x, y = example
    return jax.nn.logsumexp(x @ params["w"]) - (x @ params["w"])[y]


def results(part, few, *, all_of_them=True, **options):
    """Call functions with arrays of which each process has a `part`.

    Args:
        part: From an array `[n, ...]` to one of all processes.
        few: The same, in another layout, of a length that they share unevenly.
        all_of_them: Whether to call all, or three.
        options: A mesh and an axis.
    """
    x, y = part(X), part(Y)
    hard = part(X[HARD])
    valid = np.arange(N) % 5 > 0
    found = {
        "omp": match.omp(x, TARGET, K, valid=valid, **options),
        "classes": match.grad_match(
            x, hard, 9, labels=y, hard_labels=part(Y[HARD]), **options
        ),
    }
    losses = filters.sample_losses(loss, PARAMS, (x, y), chunk_size=8, **options)
    if all_of_them:
        layer = gradients.last_layer(part(LOGITS), y, x)
        psi = X[:, 0] ** 2
        found |= {
            "ols": match.omp(x, TARGET, K, score="ols", penalty=psi, **options),
            "targets": match.omp(x, np.stack([TARGET, X[1]]), K, **options),
            "uneven": match.omp(few(X[:42]), TARGET, K, **options),
            "layer": match.omp(layer, layer.mean(), K, **options),
            "batches": match.grad_match(layer, layer, 9, batch_size=5, **options),
            "batches of classes": match.grad_match(
                x, hard, 9, labels=y, hard_labels=Y[HARD], batch_size=2, **options
            ),
            "features": match.func_feat(x, hard, x, hard, K, **options),
            "herding": match.herding(layer, layer.mean(), K, **options),
            "log_det": match.log_det(few(X[:42]), K, **options),
            "facility": match.facility_location(x, K, **options),
            "influence": match.influence_topk(x, TARGET, K, **options),
        }
    found = {name: (f.indices, f.weights) for name, f in found.items()}
    found["losses"] = losses
    if all_of_them:
        pairs = [(x, hard), (layer, layer)]
        found["checkpoints"] = match.choose_checkpoint(pairs, K, **options).errors
    if all_of_them:
        found |= _from_losses(x, y, few, **options)
    return {
        f"{name} {place}": np.asarray(leaf)
        for name, each in found.items()
        for place, leaf in enumerate(jax.tree.leaves(each))
    }


def _from_losses(x, y, few, **options):
    found = {}
    key = jax.random.key(0)
    for name, make in (
        ("jvp", gradients.jvp),
        ("ghost", gradients.ghost),
        ("projected", lambda *a, **k: gradients.projected(*a, dim=4, key=key, **k)),
    ):
        oracle = make(loss, PARAMS, (x, y), chunk_size=2)
        goal = oracle.mean()
        chosen = match.omp(oracle, goal, K, **options)
        found[name] = (jax.tree.leaves(goal), chosen.indices, chosen.weights)
    found["uneven losses"] = filters.sample_losses(
        loss, PARAMS, (few(X[:42]), Y[:42]), chunk_size=8, **options
    )
    return found


def refusals(part, **options):
    """Return errors about rows that the last process has."""
    bad, wrong = X.copy(), Y.copy()
    bad[N - 3] = np.nan
    wrong[N - 2] = C
    long = X.copy()
    long[N - 4] *= 1e25
    texts = []
    for call in (
        lambda: match.omp(part(bad), TARGET, K, **options),
        lambda: match.omp(part(long), TARGET, K, **options),
        lambda: match.func_feat(part(X), part(X), part(bad), X, K, **options),
        lambda: gradients.last_layer(part(LOGITS), part(wrong), part(X)),
        lambda: filters.sample_losses(loss, PARAMS, (part(bad), part(Y)), **options),
    ):
        try:
            call()
        except ValueError as error:
            texts.append(str(error))
    return np.array(texts)


def main(port, processes, process, folder):
    processes, process = int(processes), int(process)
    jaxsel.init_multihost(f"localhost:{port}", processes, process)
    kind = AxisType.Explicit
    mesh = jax.make_mesh((processes, 2), ("rows", "columns"), axis_types=(kind, kind))
    rows = jax.NamedSharding(mesh, jax.P("rows"))
    real = multihost_utils.process_allgather

    def refuse(tree, *args, **options):
        for leaf in jax.tree.leaves(tree):
            # One number for each may come, and the features of hard samples.
            fine = leaf.ndim < 2 or len(leaf) <= HARD.stop
            assert fine, "candidates must stay"
        return real(tree, *args, **options)

    multihost_utils.process_allgather = refuse

    def part(array):
        own = np.split(array, processes)[process]
        found = jax.make_array_from_process_local_data(rows, own)
        assert not found.is_fully_addressable
        return found

    def few(array):
        # Halves on the second axis: processes have both.
        halves = jax.NamedSharding(mesh, jax.P("columns"))
        return jax.make_array_from_process_local_data(halves, array, array.shape)

    found = {}
    for axis in ("rows", "columns"):
        options = {"mesh": mesh, "axis": axis}
        of_axis = results(part, few, all_of_them=axis == "rows", **options)
        found |= {f"{axis} {name}": array for name, array in of_axis.items()}
    found["refusals"] = refusals(part, **options)
    split = filters.sample_losses(
        loss, PARAMS, (part(X), Y), mesh=mesh, axis="rows", gather=False
    )
    assert split.sharding == rows
    found["split"] = np.asarray(split.addressable_shards[0].data)
    multihost_utils.process_allgather = real
    # Without a mesh every process gets all, and says the same.
    log = match.log_det(gradients.Dense(part(X)), K)
    found["no mesh"] = np.asarray(log.indices)
    np.savez(f"{folder}/{process}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
