"""SOURCE by its definition, in NumPy and SciPy and in float64."""

import attribution_cases as cases
import jax
import numpy as np
import scipy.linalg
from jax.flatten_util import ravel_pytree


def expm_and_integral(matrix):
    """exp(-A) and the integral of exp(-s A) over s from 0 to 1, of any square A.

    Both are blocks of one exponential (Van Loan 1978): no inverse, no eigenvectors.
    """
    size = len(matrix)
    zeros, eye = np.zeros((size, size)), np.eye(size)
    whole = scipy.linalg.expm(np.block([[-matrix, eye], [zeros, zeros]]))
    return whole[:size, :size], whole[:size, size:]


def gradients_and_matrix(recipe, params, x, y):
    """Gradients of losses, `[n, P]`, and the mean Gauss-Newton matrix, `[P, P]`."""
    flat, unravel = ravel_pytree(params)
    outputs = lambda flat: recipe.apply(unravel(flat), x)
    values = outputs(flat)
    slopes = np.asarray(jax.jacobian(outputs)(flat))
    loss = lambda values, y: recipe.losses(values[None], y[None])[0]
    curved = np.asarray(jax.vmap(jax.hessian(loss))(values, y))
    first = np.asarray(jax.vmap(jax.grad(loss))(values, y))
    gradients = np.einsum("nk,nkp->np", first, slopes)
    return gradients, np.einsum("nkp,nkl,nlq->pq", slopes, curved, slopes) / len(x)


def kronecker_matrix(networks, x, y):
    """The EK-FAC approximation of `cases.apply`'s matrix, Kronecker products and all.

    The parameters are in the order of `ravel_pytree`: b, v, w.
    """
    count = len(networks)
    parts = [layers_of(params, x) for params in networks]
    blocks = []
    for layer in range(2):
        pairs = [pair for part in parts for pair in part[layer]]
        first = sum(e @ e * np.outer(v, v) for v, e in pairs)
        second = sum(v @ v * np.outer(e, e) for v, e in pairs)
        basis = np.kron(np.linalg.eigh(first)[1], np.linalg.eigh(second)[1])
        rows = np.array([np.kron(v, e) for v, e in pairs]) @ basis
        blocks.append(basis * ((rows**2).sum(0) / len(x) / count) @ basis.T)
    whole = scipy.linalg.block_diag(*blocks)
    # The first block is of the rows of w, and then b.
    sizes = {k: np.size(networks[0][k]) for k in ("w", "b", "v")}
    places = np.split(np.arange(len(whole)), np.cumsum([*sizes.values()])[:-1])
    order = np.concatenate([places[i] for i in (1, 2, 0)])
    return whole[np.ix_(order, order)]


def layers_of(params, x):
    """Pairs of inputs and deltas of each root and sample, for both layers."""
    params = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    hidden = np.tanh(x @ params["w"] + params["b"])
    logits = hidden @ params["v"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares = shares / shares.sum(1, keepdims=True)
    first, second = [], []
    for row, inner, p in zip(x, hidden, shares, strict=True):
        squares, vectors = np.linalg.eigh(np.diag(p) - np.outer(p, p))
        for root in (vectors * np.sqrt(np.maximum(squares, 0))).T:
            first.append((np.append(row, 1), (params["v"] @ root) * (1 - inner**2)))
            second.append((inner, root))
    return first, second


def source(
    recipe,
    segments,
    x,
    y,
    x_val,
    y_val,
    times,
    decays,
    output="loss",
    matrix_of=None,
):
    """Scores `[t, n]`, segment by segment, each a list of networks, forward in time.

    The change of the final parameters per weight of a sample is carried through the
    segments: one is shrunk by exp(-A), then adds its own response.
    """
    segments = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, float), segments)
    size = ravel_pytree(segments[0][0])[0].size
    change = np.zeros((size, len(x)))
    for networks, time, decay in zip(segments, times, decays, strict=True):
        pairs = [gradients_and_matrix(recipe, p, x, y) for p in networks]
        gradients, matrix = (np.mean(parts, 0) for parts in zip(*pairs, strict=True))
        if matrix_of is not None:
            matrix = matrix_of(networks, x, y)
        shrinks, integral = expm_and_integral(time * matrix + decay * np.eye(size))
        change = shrinks @ change - time * integral @ gradients.T / len(x)
    flat, unravel = ravel_pytree(segments[-1][-1])
    measured = lambda f: recipe.measure(output, recipe.apply(unravel(f), x_val), y_val)
    return np.asarray(jax.jacobian(measured)(flat)) @ change


def checkpoints(recipe, key, x, y, segments, count):
    """Networks of each segment, by a plain loop, after equal numbers of steps."""
    plan = recipe.plan(key, x)
    params, state = plan.params, recipe.optimizer.init(plan.params)
    steps = len(plan.rows)
    stops = [steps * i // count for i in range(1, count + 1)]
    networks, take = [], jax.jit(recipe.step)
    for step in range(steps):
        params, state = take(params, state, x, y, plan.rows[step], plan.shares[step])
        networks += [params] * stops.count(step + 1)
    width = count // segments
    return [networks[i : i + width] for i in range(0, count, width)]


def times(recipe, momentum, segments, count, rate=0.1, n=cases.N):
    """Sums over a segment's steps of all that a gradient moves until the end."""
    steps = recipe.steps(n)
    ends = [steps * (i * (count // segments)) // count for i in range(segments + 1)]
    moved = rate * (1 - momentum ** (steps - np.arange(steps))) / (1 - momentum)
    return [moved[a:b].sum() for a, b in zip(ends, ends[1:], strict=False)]
