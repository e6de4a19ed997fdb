"""Every oracle, on every framework, against explicit per-sample gradients."""

import gradient_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import gradients
from jaxsel.gradients._projected import _count_sketch

pytestmark = pytest.mark.every(3)

EXACT = {
    "dense": gradients.per_sample,
    "jvp": gradients.jvp,
    "ghost": gradients.ghost,
}
each_exact = pytest.mark.parametrize("kind", EXACT)
each_framework = pytest.mark.parametrize("framework", cases.FRAMEWORKS)
each_sketch = pytest.mark.parametrize("sketch", ["count_sketch", "rademacher"])


@pytest.fixture(scope="module")
def expected():
    model = cases.plain()
    return cases.rows(model.loss, model.params, model.examples)


@each_exact
def test_products_are_those_of_jax_grad(kind, expected):
    model = cases.plain()
    cases.check_all(EXACT[kind](*_fields(model)), expected)


@each_exact
@each_framework
@pytest.mark.every(8)
def test_frameworks_agree_and_the_second_call_traces_nothing(kind, framework, expected):
    model = cases.FRAMEWORKS[framework]()
    cases.check(EXACT[kind](*_fields(model)), expected)
    x, y = model.examples
    with jax.no_tracing(True):
        other = EXACT[kind](model.loss, model.params, (x[::-1].copy(), y[::-1].copy()))
        cases.check(other, expected[::-1])


@each_exact
def test_float64(kind, expected):
    model = cases.plain()
    with jax.enable_x64(True):
        wide = cases.widen((model.params, model.examples))
        oracle = EXACT[kind](model.loss, *wide)
        assert oracle.dtype == np.float64
        cases.check(oracle, expected, tolerance=1e-12)


@each_exact
@pytest.mark.parametrize("chunk_size", [2, 100])
def test_chunks_change_nothing(kind, chunk_size, expected):
    oracle = EXACT[kind](*_fields(cases.plain()), chunk_size=chunk_size)
    cases.check(oracle, expected)


@each_exact
def test_oracles_are_arguments_of_jit(kind):
    oracle = EXACT[kind](*_fields(cases.plain()))
    together = jax.jit(lambda oracle, j: (oracle.corr(oracle.mean()), oracle.column(j)))
    corr, column = together(oracle, 3)
    np.testing.assert_allclose(corr, oracle.corr(oracle.mean()), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(column, oracle.column(3), rtol=1e-5, atol=1e-6)


def _groups():
    rows = np.array([[5, 1], [7, 7], [0, 2], [3, 4], [6, 0]])
    shares = np.linspace(-1, 1.5, rows.size, dtype=np.float32).reshape(rows.shape)
    return jnp.asarray(rows), jnp.asarray(shares)


@pytest.mark.parametrize("kind", ["dense", "ghost"])
def test_groups_are_weighted_sums(kind, expected):
    rows, shares = _groups()
    sums = np.einsum("gs,gsp->gp", shares, expected[rows])
    cases.check(EXACT[kind](*_fields(cases.plain())).group(rows, shares), sums)


@each_sketch
def test_groups_of_projections_are_projections_of_groups(sketch):
    options = {"dim": 6, "key": jax.random.key(0), "kind": sketch}
    oracle = gradients.projected(*_fields(cases.plain()), **options)
    rows, shares = _groups()
    sums = np.einsum("gs,gsp->gp", shares, np.asarray(oracle.rows)[rows])
    grouped = oracle.group(rows, shares)
    cases.check(grouped, sums)
    oracle.check_alike(grouped)


def test_gradients_that_are_not_known_one_by_one_have_no_groups():
    oracle = gradients.jvp(*_fields(cases.plain()))
    with pytest.raises(TypeError, match="batch_size needs gradients .* got Jvp"):
        oracle.group(*_groups())


def dict_loss(params, example):
    return cases.plain_loss(params, (example["x"], example["y"]))


@each_exact
def test_examples_are_any_pytree(kind, expected):
    model = cases.plain()
    named = dict(zip("xy", model.examples, strict=True))
    oracle = EXACT[kind](dict_loss, model.params, named)
    np.testing.assert_allclose(oracle.diag(), np.sum(expected**2, axis=1), rtol=1e-4)


# Which parameters count.

SELECTIONS = {
    "layer": ("dense2/*", ["dense2/kernel", "dense2/bias"]),
    "kernels": ("*/kernel", ["dense1/kernel", "dense2/kernel"]),
    "two": (["dense1/kernel", "*2/bias"], ["dense1/kernel", "dense2/bias"]),
    "shape": (lambda path, leaf: leaf.ndim == 1, ["dense1/bias", "dense2/bias"]),
    "path": (lambda path, leaf: path == "dense1/bias", ["dense1/bias"]),
}


@pytest.mark.every(12)
@each_exact
@pytest.mark.parametrize("selection", SELECTIONS)
def test_only_the_selected_parameters_count(kind, selection):
    wrt, paths = SELECTIONS[selection]
    model = cases.plain()

    def loss(chosen, example):
        params = jax.tree.map(jnp.asarray, model.params)
        for path, leaf in chosen.items():
            layer, name = path.split("/")
            params[layer] = params[layer] | {name: leaf}
        return cases.plain_loss(params, example)

    chosen = {
        path: model.params[layer][name]
        for path in paths
        for layer, name in [path.split("/")]
    }
    expected = cases.rows(loss, chosen, model.examples)
    cases.check(EXACT[kind](*_fields(model), wrt=wrt), expected)


@each_exact
@pytest.mark.parametrize("framework", ["nnx-module", "equinox", "linen"])
def test_selection_in_frameworks(kind, framework):
    plain, model = cases.plain(), cases.FRAMEWORKS[framework]()
    two = lambda path, leaf: leaf.shape in ((cases.HIDDEN, 3), (3, cases.HIDDEN))
    expected = gradients.per_sample(*_fields(plain), wrt="dense2/kernel")
    actual = EXACT[kind](*_fields(model), wrt=two)
    np.testing.assert_allclose(actual.diag(), expected.diag(), rtol=1e-5)


def _fields(model):
    return model.loss, model.params, model.examples


@each_exact
def test_selecting_nothing_lists_what_there_is(kind):
    model = cases.plain()
    for wrt in ("dense3/*", [], lambda path, leaf: False):
        with pytest.raises(ValueError, match=r"wrt\b.*(.|\n)*dense1/kernel"):
            EXACT[kind](*_fields(model), wrt=wrt)


# The forms of gradients that users meet.


def test_per_sample_holds_the_gradients_themselves(expected):
    model = cases.plain()
    oracle = gradients.per_sample(*_fields(model))
    assert isinstance(oracle, gradients.Dense)
    # The same order as the leaves of the pytree.
    np.testing.assert_allclose(oracle.gradients, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.left_out
def test_jvp_combines_to_the_form_of_the_parameters():
    model = cases.plain()
    oracle = gradients.jvp(*_fields(model))
    weights = jnp.linspace(-1, 2, cases.N)
    batched = jax.vmap(model.loss, in_axes=(None, 0))
    total = lambda params: weights @ batched(params, model.examples)
    want = jax.tree.leaves(jax.grad(total)(model.params))
    have = jax.tree.leaves(oracle.combine(weights))
    for a, b in zip(have, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


# Sketches.


def sketched(sketch, *, dim=8, seed=0, **options):
    model = cases.plain()
    return gradients.projected(
        *_fields(model), dim=dim, key=jax.random.key(seed), kind=sketch, **options
    )


@each_sketch
@pytest.mark.left_out
def test_sketches_are_unbiased(sketch, expected):
    gram = expected @ expected.T
    draws = np.stack(
        [
            np.asarray(oracle.gram(oracle))
            for oracle in (sketched(sketch, seed=seed) for seed in range(120))
        ]
    ).astype(np.float64)
    stderr = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert (stderr > 0).any()
    assert np.all(np.abs(draws.mean(axis=0) - gram) <= 5 * stderr + 1e-4)


@each_sketch
@pytest.mark.left_out
def test_wider_sketches_err_less(sketch, expected):
    gram = expected @ expected.T
    off = ~np.eye(len(gram), dtype=bool)

    def error(dim):
        errors = [
            np.asarray(oracle.gram(oracle) - gram)[off]
            for oracle in (sketched(sketch, dim=dim, seed=seed) for seed in range(30))
        ]
        return np.sqrt(np.mean(np.square(errors)))

    assert error(32) < 0.5 * error(4)


@pytest.mark.left_out
def test_a_count_sketch_turns_each_block():
    """What stands at one place of two blocks must not always meet in one column."""
    dim, blocks = 16, 12
    project = _count_sketch(jax.random.key(0), blocks * dim, dim, jnp.float32)
    columns = np.asarray(project(jnp.eye(blocks * dim)[::dim]))
    assert np.count_nonzero(columns, axis=1).tolist() == [1] * blocks
    assert len({*np.abs(columns).argmax(axis=1).tolist()}) > blocks // 2


@each_sketch
@pytest.mark.left_out
def test_a_sketch_is_a_linear_map(sketch):
    oracle = sketched(sketch)
    sketch_of = np.asarray(oracle.gram(oracle), np.float64)
    # Its products are those of the sketched vectors, whatever these are.
    vectors = np.stack([oracle.combine(row) for row in jnp.eye(cases.N)])
    assert vectors.shape == (cases.N, 8)
    cases.check_all(oracle, vectors.astype(np.float64), gram=sketch_of)


@each_sketch
def test_sketches_of_gradients_in_parameter_form(sketch):
    model = cases.plain()
    oracle, jvp = sketched(sketch), gradients.jvp(*_fields(model))
    weights = jnp.linspace(-1, 2, cases.N)
    combined = jvp.combine(weights)
    np.testing.assert_allclose(
        oracle.corr(combined),
        oracle.corr(oracle.combine(weights)),
        rtol=1e-4,
        atol=1e-4,
    )


@each_sketch
@pytest.mark.left_out
def test_sketches_depend_on_the_key_only(sketch):
    one = sketched(sketch)
    gram = np.asarray(one.gram(one))
    same = sketched(sketch, chunk_size=2)
    np.testing.assert_allclose(same.gram(same), gram, rtol=1e-5, atol=1e-6)
    of_one = same.gram(one.take(jnp.arange(3)))
    np.testing.assert_allclose(of_one, gram[:3], rtol=1e-5, atol=1e-6)
    other = sketched(sketch, seed=1)
    assert np.abs(np.asarray(other.gram(other)) - gram).max() > 1e-2


@pytest.mark.parametrize("framework", ["nnx-module", "equinox"])
@each_sketch
@pytest.mark.left_out
def test_sketches_in_frameworks(sketch, framework):
    model = cases.FRAMEWORKS[framework]()
    make = lambda examples: gradients.projected(
        model.loss,
        model.params,
        examples,
        dim=256,
        key=jax.random.key(0),
        kind=sketch,
    )
    oracle = make(model.examples)
    exact = gradients.per_sample(*_fields(model))
    # Six times the standard deviation of a squared length, sqrt(2 / dim), and more.
    np.testing.assert_allclose(oracle.diag(), exact.diag(), rtol=0.55)
    x, y = model.examples
    with jax.no_tracing(True):
        other = make((x[::-1].copy(), y[::-1].copy()))
    np.testing.assert_allclose(other.rows, oracle.rows[::-1], rtol=1e-4, atol=1e-5)


@each_sketch
@pytest.mark.left_out
def test_gradients_of_one_sign_are_sketched_without_bias(sketch):
    """Without signs, the products of entries above zero would all add up."""
    x, dim = np.abs(cases.normal(6, 64)), 8
    # The gradient of each product is the example itself.
    dot = lambda w, x: w @ x
    make = lambda seed: gradients.projected(
        dot, np.ones(64, np.float32), x, dim=dim, key=jax.random.key(seed), kind=sketch
    )
    draws = np.stack([np.asarray(o.gram(o)) for o in map(make, range(120))])
    stderr = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - x @ x.T) <= 5 * stderr)
    lengths = np.linalg.norm(x, axis=1)
    # A product's standard deviation is at most sqrt(2 / dim) of the lengths'.
    most = 1.25 * np.sqrt(2 / dim) * np.outer(lengths, lengths)
    assert np.all(draws.std(axis=0, ddof=1) <= most)
