"""Ex vivo training: what it learns, where it learns it from, and that it repeats."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from jaxsel import proxy
from jaxsel.proxy._exvivo import train_mlps
from jaxsel.proxy._mlp import Nonlinearity, hold_out
from jaxsel.proxy.families._attention_mlp import observe_attention
from jaxsel.proxy.families._norm_mlp import MLPNorm
from jaxsel.proxy.families._score_mlp import MLPEntropy

L, POINTS = 4, 128_000


def softmax_rows(seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(600, L)).astype("f") + np.arange(L, dtype="f") / 4
    return rows, np.arange(L) < rng.integers(2, L + 1, 600)[:, None]


def operations():
    rng = np.random.default_rng(1)
    return [
        Nonlinearity.observe("softmax", *softmax_rows()),
        Nonlinearity.observe("rsqrt", rng.gamma(20, 0.02, 500)),
        Nonlinearity.observe("softmax", *softmax_rows(2)),
        Nonlinearity.observe("rsqrt", rng.gamma(20, 0.05, 300), eps=1e-3),
        Nonlinearity.observe("entropy", rng.normal(size=(400, 2)) * 2),
    ]


def run(operations, source, points, seed=0):
    return train_mlps(
        operations,
        (2, 8),
        key=jax.random.key(seed),
        seeds=2,
        source=source,
        n_points=points,
        batch_size=256,
    )


@functools.cache
def trained(source, points=POINTS):
    return run(operations(), source, points)


@pytest.mark.every(3)
@pytest.mark.parametrize("source", ["rows", "gaussian", "both"])
def test_mlps_learn_their_operation(source):
    found = trained(source)
    for operation, by_width in zip(operations(), found, strict=True):
        assert list(by_width) == [2, 8]
        least = {"softmax": 0.7, "rsqrt": 0.98, "entropy": 0.9}[operation.kind]
        assert by_width[8].r2.shape == (2,)
        assert by_width[8].r2.max() > least
        shapes = {k: v.shape for k, v in by_width[2].params.items()}
        width, out = len(operation.mean), L if operation.kind == "softmax" else 1
        assert shapes == {
            "w1": (2, width, 2),
            "b1": (2, 2),
            "w2": (2, 2, out),
            "b2": (2, out),
        }


def test_the_folded_weights_take_plain_inputs():
    """R² of the returned weights on fresh rows is what was reported."""
    found = trained("rows")
    rows, masks = softmax_rows(seed=9)
    x, m = jnp.asarray(rows), jnp.asarray(masks, jnp.float32)
    y = softmax(np.where(masks, rows, -np.inf), axis=1)
    error = np.asarray(proxy.mlp(found[0][8].best(), x * m) * m) - y
    r2 = 1 - np.sum(error**2) / np.sum((y - y.mean(0)) ** 2)
    assert abs(r2 - found[0][8].r2.max()) < 0.05
    v = np.random.default_rng(3).gamma(20, 0.05, 200).astype("f")
    norm = MLPNorm(8, eps=1e-3)
    root = norm.apply(found[3][8].best(), jnp.asarray(v))
    assert np.mean(np.abs(np.asarray(root) * np.sqrt(v + 1e-3) - 1)) < 0.02


@pytest.mark.left_out
def test_the_entropy_mlp_ranks_as_entropy_does():
    z = jnp.asarray(np.random.default_rng(5).normal(size=(300, 2)) * 2, jnp.float32)
    params = trained("both")[4][8].best()
    estimated = MLPEntropy(8).apply(params, z)
    assert proxy.check_monotonicity(estimated, proxy.entropy(z)) > 0.9


@pytest.mark.parametrize(("classes", "least"), [(2, 0.99), (3, 0.9)])
@pytest.mark.every(2)
def test_an_entropy_of_clear_classes_is_imitated(classes, least):
    """Adam alone ends at .75 and .58, of samples that it has not learned from."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, classes)) * 3
    rows, fresh = z[:500], jnp.asarray(z[500:], jnp.float32)
    operation = Nonlinearity.observe("entropy", rows)
    (mlps,) = train_mlps([operation], [16], key=jax.random.key(0), n_points=100_000)
    imitated = MLPEntropy(16).apply(mlps[16].best(), fresh)
    exact = np.asarray(proxy.entropy(fresh))
    assert 1 - np.mean((imitated - exact) ** 2) / exact.var() > least


@pytest.mark.left_out
def test_operations_do_not_disturb_each_other():
    """Trained with others, in a group or beside it, an MLP is what it is alone."""
    (alone,) = run(operations()[:1], "rows", 1280)
    together = trained("rows", 1280)[0]
    for width in (2, 8):
        for name, value in alone[width].params.items():
            other = together[width].params[name]
            np.testing.assert_allclose(other, value, rtol=1e-3, atol=1e-4)


def test_it_repeats_and_depends_on_the_key():
    a, b, c = (run(operations(), "rows", 512, seed)[1][2].params for seed in (0, 0, 1))
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    assert not np.array_equal(a["w1"], c["w1"])


@pytest.mark.left_out
def test_a_family_fits_by_itself():
    v = np.random.default_rng(1).gamma(20, 0.02, 500)
    norm = MLPNorm(4)
    params = norm.fit(v, key=jax.random.key(0), n_points=100_000)
    error = np.asarray(norm.apply(params, jnp.asarray(v, jnp.float32))) * np.sqrt(v) - 1
    assert np.abs(error).mean() < 0.03


def test_observed_attention_leaves_padding_out():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(5, 3, L, L)).astype("f")
    mask = np.arange(L) < np.array([2, 4, 3, 4, 1])[:, None]
    found = observe_attention(scores, mask)
    assert found.rows is not None
    assert found.rows.shape == (3 * mask.sum(), L)
    few = observe_attention(scores, mask, limit=10)
    assert few.rows is not None
    assert few.rows.shape == (10, L)
    lengths = mask.sum(1)
    kept = np.concatenate([scores[i, :, :n, 0].ravel() for i, n in enumerate(lengths)])
    np.testing.assert_allclose(found.mean[0], kept.mean(), atol=1e-6)
    np.testing.assert_allclose(found.std[0], kept.std(), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Nonlinearity.observe("tanh", np.ones((3, 2))), "kind must be one"),  # pyright: ignore
        (lambda: Nonlinearity.observe("rsqrt", [0.1, -0.1]), "above zero, got -0.1"),
        (lambda: Nonlinearity.observe("entropy", [[np.nan, 1.0]]), "must be finite"),
        (
            lambda: Nonlinearity.observe("softmax", np.ones((3, 2)), np.ones((3, 3))),
            "shape of rows",
        ),
        (
            lambda: Nonlinearity.observe("softmax", np.ones((3, 2)), np.zeros((3, 2))),
            "at least one entry",
        ),
        (
            lambda: Nonlinearity.observe("entropy", np.ones((3, 2)), np.ones((3, 2))),
            "masks must be None",
        ),
        (lambda: train(operations=[]), "operations must not be empty"),
        (lambda: train(widths=(2, 2)), "widths must be distinct"),
        (lambda: train(source="real"), "source must be one"),
        (lambda: train(source="rows", operations=[bare()]), "has no rows"),
        (lambda: train(learning_rate=0.0), "learning_rate must be"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def bare():
    return Nonlinearity(kind="rsqrt", mean=np.ones(1), std=np.ones(1))


def train(*, widths=(2,), **options):
    options = {"operations": operations()[1:2], "key": jax.random.key(0)} | options
    return train_mlps(options.pop("operations"), widths, **options)


def test_a_result_that_never_varies_is_learned_without_a_warning():
    """A saturated softmax is constant: R² has no variance to divide by."""
    rows = np.tile(np.float32([-16, 16]), (50, 1))
    constant = Nonlinearity.observe("entropy", rows)
    (by_width,) = run([constant], "rows", 512)
    assert (by_width[2].r2 <= 1).all()
    assert by_width[2].r2.max() > 0.99  # it learns the constant


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.left_out
def test_r2_is_that_of_rows_that_were_not_learned_from(copies):
    """Sixty rows are learned by heart: what matters is others of the same kind."""
    rng = np.random.default_rng(5)
    sets = [2 * rng.normal(size=(60, 8)).astype("f") for _ in range(8)]
    seen = [
        Nonlinearity.observe("entropy", rng.permutation(np.tile(rows, (copies, 1))))
        for rows in sets
    ]
    found = run(seen, "rows", 200_000)
    x = 2 * rng.normal(size=(4000, 8)).astype("f")
    p = softmax(x, axis=1)
    y = -(p * np.log(p)).sum(1)
    told, fresh, learned = [], [], []
    for rows, by_width in zip(sets, found, strict=True):
        params = {name: value[0] for name, value in by_width[8].params.items()}
        error = np.asarray(proxy.mlp(params, x))[:, 0] - y
        fresh.append(1 - np.mean(error**2) / y.var())
        own = softmax(rows, axis=1)
        own = -(own * np.log(own)).sum(1)
        error = np.asarray(proxy.mlp(params, rows))[:, 0] - own
        learned.append(1 - np.mean(error**2) / own.var())
        told.append(by_width[8].r2[0])
    assert np.mean(learned) - np.mean(fresh) > 0.3
    noise = np.std(told) / len(told) ** 0.5
    assert abs(np.mean(told) - np.mean(fresh)) < 0.1 + 2 * noise
    assert np.mean(told) < np.mean(learned) - 0.2


@pytest.mark.left_out
def test_copies_are_held_out_together():
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(20, 3)).astype("f"), 5, axis=0)
    masks = rng.random((100, 3)) < 0.9
    masks[:, 0] = True
    for operation in (
        Nonlinearity.observe("softmax", rows, masks),
        Nonlinearity.observe("entropy", rows),
    ):
        learned, held = hold_out(operation, np.random.default_rng(1))
        assert len(learned.rows) + len(held.rows) == 100
        sides = []
        for part in (learned, held):
            shown = np.ones_like(part.rows) if part.masks is None else part.masks
            sides.append(
                {
                    (np.where(m, r, 0).tobytes(), m.tobytes())
                    for r, m in zip(part.rows, shown, strict=True)
                }
            )
        assert sides[1]
        assert not sides[0] & sides[1]
    few = Nonlinearity.observe("entropy", rows[:20])
    assert hold_out(few, np.random.default_rng(1)) == (few, few)
