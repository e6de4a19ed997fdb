"""EK-FAC: closed forms, an explicit reference, and the steps that it saves."""

import types

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from jaxsel import attribute
from jaxsel.attribute import _ekfac, _ekfac_influence, _gauss_newton_cg, _solutions
from jaxsel.attribute._ekfac_influence import ekfac_influence
from jaxsel.attribute._gauss_newton import chunks_of, gauss_newton
from jaxsel.attribute._gauss_newton_cg import gauss_newton_cg

KEY = jax.random.key(0)


def half(outputs, y):
    """Half the squared distance to the label's unit vector: its curvature is I."""
    return jnp.sum((outputs - jax.nn.one_hot(y, cases.CLASSES)) ** 2, 1) / 2


def recipe_of(apply, loss=None, shapes=()):
    pair = (lambda key, x: draws(dict(shapes))), apply
    return attribute.Recipe(pair, optax.sgd(0.1), epochs=1, batch_size=8, loss=loss)


def linear(params, x):
    return x @ params["w"] + params["b"][None]


LAYER = {"w": (cases.D, cases.CLASSES), "b": (cases.CLASSES,)}
LINEAR = recipe_of(linear, half, LAYER.items())
SOFTMAX = recipe_of(linear)
MLP = recipe_of(cases.apply)


BOTH = ekfac_influence, gauss_newton


def wide(recipe, params, arrays, damping=0.03, chunk_size=7, kernels=BOTH, **options):
    """Scores in float64, by EK-FAC and exactly."""
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, params)
        x, y, x_val, y_val = arrays
        arrays = jnp.float64(x), jnp.asarray(y), jnp.float64(x_val), jnp.asarray(y_val)
        run = jax.jit(
            lambda kernel, *arrays: kernel(
                recipe, *arrays, damping, chunk_size=chunk_size, **options
            ),
            static_argnums=0,
        )
        return [np.asarray(run(kernel, params, *arrays).scores) for kernel in kernels]


def draws(shapes, seed=3):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) / 2 for name, shape in shapes.items()}


LAYERS = {"w": (cases.D, 5), "b": (5,), "v": (5, cases.CLASSES)}


def test_one_linear_layer_and_least_squares_is_exact():
    """The matrix is the inputs' second moment times I, A ⊗ I."""
    approximate, exact = wide(LINEAR, draws(LAYER), cases.samples())
    np.testing.assert_allclose(approximate, exact, rtol=1e-9, atol=1e-13)


def test_one_layer_and_one_sample_is_exact():
    approximate, exact = wide(SOFTMAX, draws(LAYER), cases.samples(n=1))
    np.testing.assert_allclose(approximate, exact, rtol=1e-9, atol=1e-13)
    approximate, exact = wide(SOFTMAX, draws(LAYER), cases.samples())
    assert np.abs(approximate - exact).max() > 1e-3 * np.abs(exact).max()


def derivatives(params, x):
    """Inputs, and derivatives of the outputs by both layers' outputs, by hand."""
    hidden = np.tanh(x @ params["w"] + params["b"])
    slope = params["v"][None] * (1 - hidden**2)[:, :, None]  # [n, 5, K]
    logits = hidden @ params["v"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    inputs = np.concatenate([x, np.ones((len(x), 1))], 1), hidden
    return inputs, slope.swapaxes(1, 2), shares / shares.sum(1, keepdims=True)


def reference(params, x, y, x_val, y_val, damping):
    """Scores by Kronecker products written out, in NumPy: its own factors and order."""
    blocks, gradients, targets = [], [], []
    (inputs, slope, shares), n = derivatives(params, x), len(x)
    to_outputs = slope, np.broadcast_to(np.eye(cases.CLASSES), (n, 3, 3))
    curvature = [np.diag(p) - np.outer(p, p) for p in shares]
    roots = []
    for matrix in curvature:
        squares, vectors = np.linalg.eigh(matrix)
        roots.append((vectors * np.sqrt(np.maximum(squares, 0))).T)
    for a, back in zip(inputs, to_outputs, strict=True):
        d = np.array(roots) @ back  # [n, roots, out]
        pairs = [(a[s], d[s, r]) for s in range(n) for r in range(d.shape[1])]
        first = sum(e @ e * np.outer(v, v) for v, e in pairs)
        second = sum(v @ v * np.outer(e, e) for v, e in pairs)
        basis = np.kron(np.linalg.eigh(first)[1], np.linalg.eigh(second)[1])
        rows = np.array([np.kron(v, e) for v, e in pairs]) @ basis
        eigenvalues = (rows**2).sum(0) / n
        blocks.append(basis @ np.diag(eigenvalues + damping) @ basis.T)
        residual = shares - np.eye(cases.CLASSES)[y]
        delta = np.einsum("sk,sko->so", residual, back)
        gradients.append(np.einsum("si,so->sio", a, delta).reshape(n, -1))
    inputs, slope, shares = derivatives(params, x_val)
    residual = np.eye(cases.CLASSES)[y_val] - shares
    deltas = np.einsum("sk,sko->so", residual, slope), residual
    for a, delta in zip(inputs, deltas, strict=True):
        targets.append(np.einsum("si,so->sio", a, delta).reshape(len(x_val), -1))
    return -sum(
        target @ np.linalg.solve(block, gradient.T)
        for target, block, gradient in zip(targets, blocks, gradients, strict=True)
    ) / len(x)


@pytest.mark.parametrize("chunk_size", [7, 64])
@pytest.mark.every(2)
def test_an_explicit_reference(chunk_size):
    params, (x, y, x_val, y_val) = draws(LAYERS), cases.samples()
    arrays = x.astype(float), y, x_val.astype(float), y_val
    right = reference(params, *arrays, 0.03)
    options = {"chunk_size": chunk_size}
    approximate, exact = wide(MLP, params, cases.samples(), **options)
    np.testing.assert_allclose(approximate, right, rtol=1e-7, atol=1e-11)
    # An approximation: near the exact scores, and not equal.
    assert np.corrcoef(approximate.ravel(), exact.ravel())[0, 1] > 0.9
    assert np.abs(approximate - exact).max() > 1e-2 * np.abs(exact).max()


def convolution(params, x):
    image = x.reshape(-1, 4, 4, 1)
    for kernel, bias in (("k", "b"), ("l", "c")):
        image = jax.lax.conv_general_dilated(
            image,
            params[kernel],
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        image = jnp.tanh(image + params[bias][None, None, None])
    return image.reshape(len(x), -1) @ params["v"]


CONVOLUTION = {"k": (3, 3, 1, 3), "b": (3,), "l": (3, 3, 3, 3), "c": (3,), "v": (48, 3)}


def normed(params, x):
    """An embedding, a norm, one kernel twice, and one beside its transpose."""
    x = x @ params["e"] + params["table"][jnp.where(x[:, 0] > 0, 1, 0)]
    x = (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 0.1)
    x = x * params["scale"][None] + params["shift"][None]
    for _ in range(2):
        x = jnp.tanh(x @ params["w"] + params["b"][None])
    return jnp.tanh(x @ params["t"]) @ params["t"].T @ params["v"]


NORMED = {"e": (cases.D, 6), "table": (2, 6), "scale": (6,), "shift": (6,)}
NORMED |= {"w": (6, 6), "b": (6,), "t": (6, 3), "v": (6, cases.CLASSES)}


def matrix_of(recipe, params, x, y):
    """The Gauss-Newton matrix, written out."""
    flat, unravel = ravel_pytree(params)
    outputs = lambda flat: recipe.apply(unravel(flat), x)
    loss = lambda outputs, y: recipe.losses(outputs[None], y[None])[0]
    curvature = jax.vmap(jax.hessian(loss))(outputs(flat), y)
    slope = jax.jacobian(outputs)(flat)
    return jnp.einsum("skp,skl,slq->pq", slope, curvature, slope) / len(x)


def image_samples(scale=0.0, n=24):
    """Images of 16 pixels, of which some have other scales."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n + 4, 16)) * 10 ** rng.uniform(-scale, scale, 16)
    y = rng.integers(0, 3, n + 4)
    return np.float32(x[:n]), y[:n], np.float32(x[n:]), y[n:]


@pytest.mark.parametrize(
    ("apply", "shapes", "others"),
    [
        (normed, NORMED, {"table", "scale", "shift", "t"}),
        (convolution, CONVOLUTION, set()),
    ],
    ids=["normed", "convolution"],
)
@pytest.mark.every(2)
def test_blocks_keep_the_diagonal_in_their_bases(apply, shapes, others):
    """Exact are each block's trace, and the diagonal of what no layer has."""
    recipe = recipe_of(apply)
    x, y, *_ = cases.samples() if others else image_samples()
    with jax.enable_x64(True):
        params, x, y = jax.tree.map(jnp.asarray, (draws(shapes), x.astype(float), y))

        def of(params, x, y):
            approximate = _ekfac.ekfac(recipe, params, chunks_of(x, y, 7))
            size = ravel_pytree(params)[0].size
            inverse = approximate.solve(jnp.eye(size), 0.01)
            twice = approximate.solve(approximate.solve(jnp.eye(size), 0.01, 0.5), 0.01)
            cube = approximate.solve(jnp.eye(size), 0.01, 1.5)
            blocks = [*map(tuple, approximate.blocks)]
            parts = [m.size for m, *_ in blocks], approximate.others
            return inverse, twice - cube, approximate.diagonal, blocks, parts

        inverse, zero, diagonal, blocks, (_, mask) = jax.jit(of)(params, x, y)
        exact = jax.jit(lambda *a: matrix_of(recipe, *a))(params, x, y)
    assert np.abs(zero).max() < 1e-8 * np.abs(inverse).max() ** 1.5
    whole = np.linalg.inv(inverse) - 0.01 * np.eye(len(inverse))
    np.testing.assert_allclose(np.trace(whole), np.trace(exact), rtol=1e-6)
    names = np.concatenate([[k] * v.size for k, v in sorted(params.items())])
    assert {*names[np.asarray(mask) == 1]} == others
    np.testing.assert_array_equal(np.isin(names, [*others]), np.asarray(mask))
    for i in np.flatnonzero(mask):
        np.testing.assert_allclose(diagonal[i], exact[i, i], rtol=1e-9, atol=1e-13)
    assert len(blocks) == len({k for k in shapes if len(shapes[k]) > 1} - others)


def of_diagonal(recipe, params, chunks):
    """What conjugate gradients took before: the diagonal alone."""
    x, y, _ = (a.reshape(-1, *a.shape[2:]) for a in chunks)
    diagonal = jnp.diag(matrix_of(recipe, params, x, y))
    solve = lambda rows, damping, power: rows / (diagonal + damping)[None]
    return types.SimpleNamespace(solve=solve, convexity=jnp.zeros(()))


@pytest.mark.parametrize(
    ("apply", "shapes", "least"),
    [
        (cases.apply, {"w": (16, 5), "b": (5,), "v": (5, 3)}, 1.2),
        (convolution, CONVOLUTION, 1.5),
    ],
    ids=["mlp", "convolution"],
)
@pytest.mark.every(2)
@pytest.mark.left_out
def test_fewer_steps_on_raw_columns(monkeypatch, apply, shapes, least):
    recipe, arrays = recipe_of(apply), image_samples(1.0)
    params = jax.tree.map(jnp.float32, draws(shapes))
    exact = gauss_newton(recipe, params, *arrays, 1e-3).scores
    steps = []
    for kernel in (_ekfac.ekfac, of_diagonal):
        monkeypatch.setattr(_gauss_newton_cg, "ekfac", kernel)
        # A function of its own a kernel, or the first one's program runs again.
        solve = jax.jit(lambda *a: gauss_newton_cg(recipe, *a, 1e-3))
        solved = solve(params, *arrays)
        error = np.linalg.norm(solved.scores - exact) / np.linalg.norm(exact)
        assert error < 1e-2
        steps.append(int(solved.steps))
    assert steps[0] * least < steps[1], steps


def test_a_network_by_the_public_function():
    """Seeds, means, and the word in `method` that says what it is."""
    recipe, arrays = cases.recipe(), cases.samples()
    options = {"key": KEY, "seeds": 2, "damping": 0.03, "solver": "ekfac"}
    rows = attribute.network_influence(recipe, *arrays, reduce=None, **options)
    mean = attribute.network_influence(recipe, *arrays, **options)
    np.testing.assert_allclose(mean.values, rows.values.mean(0), rtol=1e-3, atol=1e-6)
    assert "solver=ekfac, approximate" in rows.method
    each = [recipe.train(jax.random.fold_in(KEY, s), *arrays[:2]) for s in range(2)]
    right = np.mean([reference(_float64(p), *arrays, 0.03) for p in each], 0)
    scale = np.abs(right).max()
    np.testing.assert_allclose(rows.values, right, atol=1e-4 * scale)


def _float64(params):
    return {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}


def test_raw_columns_are_in_float64():
    """Columns far from 0: float32 rounds the matrix by more than the damping."""
    rng = np.random.default_rng(2)
    x = np.float32(rng.normal(size=(30, cases.D)) + [3e3, 2e3, 0, 0])
    y = rng.integers(0, cases.CLASSES, 30)
    arrays, params = (x, y, x[:4], y[:4]), jax.tree.map(np.float32, draws(LAYER))
    exact, approximate = (
        attribute.network_influence(
            *(LINEAR, *arrays),
            params=[params],
            damping=0.01,
            reduce=None,
            solver=solver,
        ).values
        for solver in ("exact", "ekfac")
    )
    scale = np.abs(exact).max()
    np.testing.assert_allclose(approximate, exact, atol=1e-5 * scale)


@pytest.mark.left_out
@pytest.mark.parametrize(
    ("apply", "shapes"), [(normed, NORMED), (convolution, CONVOLUTION)]
)
def test_kernels_keep_types_and_ranks(apply, shapes):
    """The kernels promote nothing, under `vmap` over networks, and solve exactly."""
    arrays = cases.samples() if apply is normed else image_samples()
    recipe = recipe_of(apply)
    params = jax.tree.map(lambda a: jnp.float32(a)[None], draws(shapes))
    x, y, x_val, y_val = map(jnp.asarray, arrays)

    def run(kernel):
        return jax.jit(jax.vmap(lambda p: kernel(recipe, p, x, y, x_val, y_val, 0.01)))(
            params
        )

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        scores = [run(k).scores for k in (ekfac_influence, gauss_newton_cg)]
    assert [s.dtype for s in scores] == [jnp.float32] * 2
    exact = run(gauss_newton).scores
    error = np.linalg.norm(scores[1] - exact) / np.linalg.norm(exact)
    assert error < 1e-2


def test_networks_without_layers_have_the_diagonal():
    """Scores by H's diagonal alone, which needs no basis."""
    recipe = recipe_of(lambda scale, x: x[:, :3] * scale[None], half)
    scale = np.array([1.0, -0.5, 0.3])
    approximate, exact = wide(recipe, scale, cases.samples())
    np.testing.assert_allclose(approximate, exact, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("apply", "shapes", "n", "turned"),
    [
        (normed, NORMED, 3, True),
        (normed, NORMED, 49, False),
        (convolution, CONVOLUTION, 24, False),
    ],
    ids=["samples turned", "targets turned back", "positions"],
)
@pytest.mark.every(3)
def test_many_targets_score_as_few_do(monkeypatch, apply, shapes, n, turned):
    """In blocks of four, of which the last is filled up, in either basis."""
    x, y, *_ = cases.samples(n=60) if apply is normed else image_samples(n=60)
    arrays = x[:n], y[:n], x[n : n + 11], y[n : n + 11]
    options = {"kernels": [ekfac_influence]}
    (few,) = wide(recipe_of(apply), draws(shapes), arrays, **options)
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    monkeypatch.setattr(_ekfac_influence, "FEW", 10)
    monkeypatch.setattr(_solutions, "_room", lambda: 4 * 8 * size)
    sizes, turns = [], []

    def scores(pairs, output, x_val, y_val):
        sizes.append(len(y_val))
        turns.append(pairs.turns_samples)
        return original(pairs, output, x_val, y_val)

    original = _ekfac_influence._Pairs.scores
    monkeypatch.setattr(_ekfac_influence._Pairs, "scores", scores)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        (many,) = wide(recipe_of(apply), draws(shapes), arrays, **options)
    assert ({*sizes}, {*turns}) == ({4}, {turned})
    np.testing.assert_allclose(many, few, rtol=1e-9, atol=1e-12)
