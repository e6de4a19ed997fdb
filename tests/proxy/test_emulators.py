"""Emulators of attention, norm and entropy: fits against NumPy's least squares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import entr, softmax
from scipy.stats import spearmanr

from jaxsel import proxy
from jaxsel.proxy.families import attention_emulator, entropy_emulator, norm_emulator
from jaxsel.proxy.families._attention_2quad import TwoQuadAttention
from jaxsel.proxy.families._attention_exact import SoftmaxAttention, attention_r2
from jaxsel.proxy.families._attention_mlp import MLPAttention
from jaxsel.proxy.families._attention_polynomial import PolynomialAttention
from jaxsel.proxy.families._attention_powers import PowerAttention
from jaxsel.proxy.families._attention_relu import ReLUAttention
from jaxsel.proxy.families._attention_uniform import UniformAttention
from jaxsel.proxy.families._norm_exact import ExactNorm
from jaxsel.proxy.families._norm_hinge import HingeNorm
from jaxsel.proxy.families._norm_mlp import MLPNorm
from jaxsel.proxy.families._norm_polynomial import PolynomialNorm
from jaxsel.proxy.families._norm_squared import SquaredNorm
from jaxsel.proxy.families._score_exact import ExactEntropy
from jaxsel.proxy.families._score_mlp import MLPEntropy
from jaxsel.proxy.families._score_square import SquareEntropy

N, HEADS, L = 20, 2, 6
ATTENTIONS = [
    SoftmaxAttention(),
    UniformAttention(),
    TwoQuadAttention(),
    PolynomialAttention(2),
    ReLUAttention(),
    *(
        PowerAttention(form, centre=centre, bias=bias)
        for form in ("linear", "quadratic", "cubic", "hinge")
        for centre in (False, True)
        for bias in (False, True)
    ),
]
SOME = [
    *ATTENTIONS[:5],
    PowerAttention("quadratic", bias=True),
    PowerAttention("hinge", centre=True, bias=True),
]
NORMS = [
    ExactNorm(),
    PolynomialNorm(1),
    PolynomialNorm(3),
    HingeNorm(2),
    SquaredNorm(),
]
ENTROPIES = [ExactEntropy(), SquareEntropy(), MLPEntropy(4)]
by_entry = pytest.mark.parametrize("family", ATTENTIONS, ids=lambda f: str(f.entry()))


def data(seed=0):
    rng = np.random.default_rng(seed)
    scores = 1.5 * rng.normal(size=(N, HEADS, L, L)) + 3 * np.eye(L)
    lengths = rng.integers(3, L + 1, N)
    lengths[:2] = L
    mask = np.arange(L) < lengths[:, None]
    return scores.astype("f"), mask


def exact(scores, mask):
    return softmax(np.where(mask[:, None, None, :], scores, -np.inf), axis=-1)


def counted(mask):
    return (
        mask[:, None, :, None] & mask[:, None, None, :] & np.ones((HEADS, 1, 1), bool)
    )


def variances(n=500, seed=0):
    return np.random.default_rng(seed).gamma(20, 0.02, n)


def through_a_manifest(role, family):
    """Return an emulator's entry as the other party reads it in a manifest."""
    options = {role: proxy.Emulator(**family.entry())}
    sizes = {"layers": 1, "heads": 1, "head_width": 4, "hidden": 4, "length": 8}
    described = proxy.manifest(proxy.Spec(1, 1, **options), **sizes, n_classes=2)
    read = proxy.Manifest.from_json(described.to_json())
    layer = read.layers[0]
    roles = {"attention": layer.attention, "norm": layer.norm}
    return {**roles, "secure": read.score.secure}[role].entry()


# Attention.


@by_entry
def test_attention_entries_come_back(family):
    assert attention_emulator(family.entry()) == family
    assert attention_emulator(through_a_manifest("attention", family)) == family


@pytest.mark.parametrize("family", SOME, ids=lambda f: str(f.entry()))
@pytest.mark.every(4)
def test_attention_gives_padding_no_weight(family):
    scores, mask = data()
    params = family.fit(scores, mask)
    apply = jax.jit(family.apply)
    weights = np.asarray(apply(params, scores, mask))
    assert weights.shape == scores.shape
    assert np.isfinite(weights).all()
    assert not weights[~np.broadcast_to(mask[:, None, None], weights.shape)].any()
    # What is under the mask has no influence either.
    other = np.where(mask[:, None, None], scores, 7).astype("f")
    moved = apply(params, other, mask)
    np.testing.assert_allclose(moved, weights, rtol=1e-5, atol=1e-6)
    full = apply(params, scores, np.ones_like(mask))
    np.testing.assert_allclose(apply(params, scores, None), full, rtol=1e-5, atol=1e-6)


def test_exact_attention_and_its_r2():
    scores, mask = data()
    found = SoftmaxAttention().apply({}, jnp.asarray(scores), jnp.asarray(mask))
    np.testing.assert_allclose(found, exact(scores, mask), atol=1e-6)
    even = mask[:, None, None] / mask.sum(1)[:, None, None, None]
    half = ((exact(scores, mask) + even) / 2).astype("f")
    for weights, expected in ((found, 1.0), (even + 0 * scores, 0.0), (half, 0.75)):
        r2 = attention_r2(jnp.asarray(weights, "f"), scores, jnp.asarray(mask))
        np.testing.assert_allclose(r2, expected, atol=1e-5)


def test_weights_over_a_sum():
    scores, mask = data()
    m = mask[:, None, None]
    square, taylor = (scores + 5) ** 2 * m, (1 + scores + scores**2 / 2) * m
    for family, expected in (
        (TwoQuadAttention(), square),
        (PolynomialAttention(2), taylor),
    ):
        found = family.apply({}, jnp.asarray(scores), jnp.asarray(mask))
        expected = expected / expected.sum(-1, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("form", "degree"), [("linear", 1), ("cubic", 3)])
def test_powers_are_the_least_squares(form, degree, centre):
    scores, mask = data()
    family = PowerAttention(form, centre=centre)
    found = family.fit(scores, mask)["coefficients"]
    share = mask[:, None, None] / mask.sum(1)[:, None, None, None]
    t = scores - centre * (scores * share).sum(-1, keepdims=True)
    kept = counted(mask)
    for head in range(HEADS):
        columns = np.stack([share * t**k for k in range(degree + 1)], -1)[:, head]
        y = exact(scores, mask)[:, head][kept[:, head]]
        expected = np.linalg.lstsq(columns[kept[:, head]], y, rcond=None)[0]
        np.testing.assert_allclose(found[head], expected, rtol=1e-3, atol=1e-4)


def test_a_hinge_is_at_the_best_knot():
    """No knot of the grid does better, by NumPy's least squares."""
    scores, mask = data()
    family = PowerAttention("hinge")
    params = family.fit(scores, mask)
    weights = np.asarray(family.apply(params, jnp.asarray(scores), jnp.asarray(mask)))
    share = mask[:, None, None] / mask.sum(1)[:, None, None, None]
    for head in range(HEADS):
        kept = counted(mask)[:, head]
        y = exact(scores, mask)[:, head][kept]
        s, u = scores[:, head][kept], (share + 0 * scores)[:, head][kept]
        spread = np.sqrt(np.mean(s**2))
        errors = []
        for knot in np.arange(-0.5, 4.1, 0.5) * spread:
            columns = np.stack([u, u * s, u * np.maximum(s - knot, 0)], -1)
            c = np.linalg.lstsq(columns, y, rcond=None)[0]
            errors.append(np.sum((columns @ c - y) ** 2))
        error = np.sum((weights[:, head][kept] - y) ** 2)
        np.testing.assert_allclose(error, min(errors), rtol=1e-4)


def test_a_table_is_the_mean_of_what_the_polynomial_leaves():
    """With many samples the shrinkage is gone: the joint least squares, per cell."""
    scores, mask = data()
    many = np.tile(scores, (50, 1, 1, 1)), np.tile(mask, (50, 1))
    family = PowerAttention("linear", bias=True)
    params = family.fit(*many)
    share = mask[:, None, None] / mask.sum(1)[:, None, None, None]
    kept = counted(mask)[:, 0]
    cells = np.broadcast_to(np.eye(L * L).reshape(L, L, -1), (N, L, L, L * L))
    columns = [(share * scores**k)[:, 0, ..., None] for k in range(2)]
    x = np.concatenate([*columns, cells], -1)[kept]
    y = exact(scores, mask)[:, 0][kept]
    best = np.sum((x @ np.linalg.lstsq(x, y, rcond=None)[0] - y) ** 2)
    weights = np.asarray(family.apply(params, jnp.asarray(scores), jnp.asarray(mask)))
    found = np.sum((weights[:, 0][kept] - y) ** 2)
    assert best <= found * (1 + 1e-4)
    assert found <= best * 1.01


def test_tables_help_where_attention_is_local():
    scores, mask = data()
    test, test_mask = map(jnp.asarray, data(seed=1))
    found = {}
    for bias in (False, True):
        family = PowerAttention("quadratic", centre=True, bias=bias)
        weights = family.apply(family.fit(scores, mask), test, test_mask)
        found[bias] = float(attention_r2(weights, test, test_mask))
    assert 0.3 < found[False] < found[True] < 1


def test_one_row_is_enough_where_only_the_first_is_read():
    scores, mask = data()
    family = PowerAttention(bias=True)
    params = family.fit(scores[:, :, :1], mask)
    assert params["bias"].shape == (HEADS, 1, L)
    first = jnp.asarray(scores[:, :, :1])
    assert family.apply(params, first, jnp.asarray(mask)).shape == first.shape


def test_few_samples_of_one_length_have_a_fit():
    scores, _ = data()
    family = PowerAttention("cubic", centre=True, bias=True)
    params = family.fit(scores[:2], np.ones((2, L), bool))
    assert all(np.isfinite(value).all() for value in params.values())


# Norm.


@pytest.mark.parametrize("family", [*NORMS, MLPNorm(3)], ids=str)
def test_norm_entries_come_back(family):
    assert norm_emulator(family.entry()) == family
    assert norm_emulator(family.entry(), eps=1e-5).eps == 1e-5
    assert norm_emulator(through_a_manifest("norm", family)) == family


@pytest.mark.parametrize("family", NORMS, ids=str)
def test_norms_are_near_the_root(family):
    v = variances()
    found = family.apply(family.fit(v), jnp.asarray(v.reshape(10, 50), "f"))
    assert found.shape == (10, 50)
    error = np.abs(np.asarray(found) * np.sqrt(v.reshape(10, 50)) - 1)
    assert error.mean() < 0.06


def test_norm_fits_are_the_least_squares_of_the_relative_error():
    v, eps = variances(), 1e-3
    root = np.sqrt(v + eps)
    knots = np.quantile(v, [1 / 3, 2 / 3])
    hinges = np.maximum(v[:, None] - knots, 0)
    for family, columns in (
        (PolynomialNorm(2, eps=eps), np.vander(v, 3)),
        (HingeNorm(2, eps=eps), np.column_stack([np.ones_like(v), v, hinges])),
    ):
        c = np.linalg.lstsq(columns * root[:, None], np.ones_like(v), rcond=None)[0]
        found = family.apply(family.fit(v), jnp.asarray(v, "f"))
        np.testing.assert_allclose(found, columns @ c, rtol=1e-4)


def test_a_squared_norm_fits_the_root_of_the_factor():
    v, eps = variances(), 1e-3
    fourth = (v + eps) ** 0.25
    columns = np.column_stack([np.ones_like(v), v])
    c = np.linalg.lstsq(columns * fourth[:, None], np.ones_like(v), rcond=None)[0]
    family = SquaredNorm(eps=eps)
    found = family.apply(family.fit(v), jnp.asarray(v, "f"))
    np.testing.assert_allclose(found, (columns @ c) ** 2, rtol=1e-4)


def test_a_squared_norm_of_equal_variances_is_the_tangent():
    family = SquaredNorm()
    for value in (1e-3, 0.4, 900.0):
        for noise in (0, 1e-15):
            v = value * (1 + noise * np.arange(9))
            c0, c = family.fit(v)["affine"]
            np.testing.assert_allclose((c0 + c * value) ** 2, value**-0.5, rtol=1e-5)
            np.testing.assert_allclose(-c * value / (c0 + c * value), 0.25, rtol=1e-4)


# Entropy.


@pytest.mark.parametrize("family", ENTROPIES, ids=str)
def test_entropy_entries_come_back(family):
    assert entropy_emulator(family.entry()) == family
    assert entropy_emulator(through_a_manifest("secure", family)) == family


def test_entropy_is_scipys():
    z = np.random.default_rng(0).normal(size=(7, 3, 4)).astype("f") * 3
    expected = entr(softmax(z, axis=-1)).sum(-1)
    np.testing.assert_allclose(proxy.entropy(jnp.asarray(z)), expected, atol=1e-5)
    sure = jnp.asarray([[0.0, -jnp.inf]])
    np.testing.assert_array_equal(proxy.entropy(sure), [0])


def test_the_square_ranks_as_entropy_does():
    z = np.random.default_rng(0).normal(size=(200, 2)).astype("f")
    square = SquareEntropy()
    found = square.apply(square.fit(z), jnp.asarray(z))
    assert proxy.monotonicity(found, proxy.entropy(jnp.asarray(z))) > 0.9999


def test_monotonicity_is_spearmans():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 10, 50).astype(float)
    b = a + rng.normal(size=50) * 3
    np.testing.assert_allclose(proxy.monotonicity(a, b), spearmanr(a, b).statistic)
    assert proxy.monotonicity(np.ones(5), np.arange(5)) == 0
    assert proxy.check_monotonicity(a, a) == pytest.approx(1)
    with pytest.raises(ValueError, match="Spearman -1.000"):
        proxy.check_monotonicity(-a, a)
    with pytest.raises(ValueError, match="Spearman 0.000"):
        proxy.check_monotonicity(np.ones(50), a)


# Refusals.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention_emulator({"family": "cosine"}), "family must be one"),
        (lambda: attention_emulator({"family": "mlp"}), "does not fit"),
        (lambda: attention_emulator({"family": "exact", "width": 2}), "fit"),
        (lambda: norm_emulator({"family": "none"}), "family must be one"),
        (lambda: entropy_emulator({"family": "hinge"}), "family must be one"),
        (lambda: PowerAttention("quartic"), "form must be one"),  # pyright: ignore
        (lambda: PolynomialAttention(3), "degree must be even, got 3"),
        (lambda: MLPAttention(0), "width must be at least 1"),
        (lambda: HingeNorm(0), "width must be at least 1"),
        (lambda: HingeNorm(2).fit([0.5, 0.0]), "variance must be finite"),
        (lambda: SquareEntropy().fit(np.zeros((4, 3))), "two classes"),
        (lambda: SquareEntropy().apply({}, jnp.zeros((4, 3))), "two classes"),
        (
            lambda: PowerAttention().fit(np.zeros((2, 3, 4)), np.ones((2, 4))),
            "shape",
        ),
        (
            lambda: PowerAttention().fit(np.zeros((2, 1, 4, 4)), np.ones((2, 3))),
            r"mask must have shape \(2, 4\)",
        ),
        (
            lambda: PowerAttention().fit(np.zeros((2, 1, 4, 4)), np.zeros((2, 4))),
            "at least one",
        ),
        (
            lambda: PowerAttention().fit(
                np.full((2, 1, 4, 4), np.nan), np.ones((2, 4))
            ),
            "scores must be finite",
        ),
        (lambda: proxy.monotonicity([1.0], [1.0]), "two or more"),
        (lambda: proxy.monotonicity([1.0, np.nan], [1.0, 2.0]), "1 NaN"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def fit(scores, mask):
    return PowerAttention().fit(scores, mask)


@pytest.mark.left_out
def test_apply_is_pure():
    """Inside jit and vmap, and differentiable with respect to scores and parameters."""
    scores, mask = data()
    family = PowerAttention("hinge", centre=True, bias=True)
    params = family.fit(scores, mask)

    def loss(params, s, m):
        return jnp.sum(family.apply(params, s, m) ** 2)

    each = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
    gradient = each(params, jnp.asarray(scores), jnp.asarray(mask))
    whole = jax.grad(loss)(params, jnp.asarray(scores), jnp.asarray(mask))
    for name, value in whole.items():
        np.testing.assert_allclose(gradient[name].sum(0), value, rtol=1e-3, atol=1e-4)
