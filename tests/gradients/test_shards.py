"""Oracles of examples that are split over devices: each device works on its own."""

import functools

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from jaxsel import gradients

N, D = 24, 7
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, 3, N)
PARAMS = {"w": RNG.normal(size=(D, 3)).astype(np.float32), "b": np.ones(3, np.float32)}
ORACLES = {
    "per_sample": gradients.per_sample,
    "ghost": gradients.ghost,
    "jvp": gradients.jvp,
    "count_sketch": functools.partial(
        gradients.projected, dim=8, key=jax.random.key(0)
    ),
    "rademacher": functools.partial(
        gradients.projected, dim=8, key=jax.random.key(0), kind="rademacher"
    ),
}


def loss(params, example):
    x, y = example
    scores = x @ params["w"] + params["b"]
    return jax.nn.logsumexp(scores) - scores[y]


def put(array, *spec):
    kind = AxisType.Explicit
    mesh = jax.make_mesh((2, 4), ("columns", "rows"), axis_types=(kind, kind))
    return jax.device_put(array, jax.NamedSharding(mesh, jax.P(*spec)))


def close(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("split", ["rows", ("columns", "rows")])
@pytest.mark.left_out
def test_products_are_those_of_one_device(name, split):
    one = ORACLES[name](loss, PARAMS, (X, Y), chunk_size=2)
    examples = put(X, split), Y  # one of them from this process
    many = ORACLES[name](loss, PARAMS, examples, chunk_size=2)
    for leaf in jax.tree.leaves(many.per_candidate()):
        assert leaf.sharding.spec[0] == split
    v = one.mean()
    close(many.mean(), v)
    close(many.diag(), one.diag())
    close(many.corr(v), one.corr(v))
    assert many.corr(v).sharding.spec[0] == split
    at = np.array([3, 23, 11])
    close(many.columns(at), one.columns(at))


def test_programs_hold_a_part_of_the_examples():
    """In chunks, too, which would be cut out of all examples without `shard_map`."""
    from jaxsel._inputs.parameters import split
    from jaxsel.gradients import _per_sample, _shards

    examples, shards = _shards.split_rows((put(X, "rows"), put(Y, "rows")))
    given = loss, split(PARAMS), examples, 2
    text = _per_sample._per_sample.lower(*given, shards).compile().as_text()
    assert "all-gather" not in text
    assert f"[{N}," not in text
    assert f"[{N // 4}," in text
    # The same without: it has all examples on every device.
    assert f"[{N}," in _per_sample._per_sample.lower(*given, None).compile().as_text()


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("kind", ["cross_entropy", "squared"])
def test_closed_forms(kind, columns):
    logits = RNG.normal(size=(N, columns)).astype(np.float32)
    labels = Y % max(columns, 2) if kind == "cross_entropy" else logits[:, 0] + 1
    if kind == "squared" and columns > 1:
        labels = logits[::-1]
    one = gradients.last_layer(logits, labels, X, loss=kind)
    for given in (put(labels, "rows"), labels):
        many = gradients.last_layer(
            put(logits, "rows"), given, put(X, "rows"), loss=kind
        )
        assert many.layers[0].deltas.sharding.spec == jax.P("rows")
        close(many, one)
    weight = RNG.normal(size=(D, columns)).astype(np.float32)
    options = {"weight": weight, "loss": kind}
    one = gradients.last_two_layers(logits, labels, X, X, **options)
    parts = (put(array, "rows") for array in (logits, labels, X, X))
    close(gradients.last_two_layers(*parts, **options), one)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (("rows",), r"features must be finite, but row 17 .* \(2 of 24 rows do\)"),
        ((None, None), "features must be finite, but row 17"),
    ],
)
def test_rows_that_are_not_finite(spec, message):
    bad = X.copy()
    bad[[17, 20], 1] = np.nan
    with pytest.raises(ValueError, match=message):
        gradients.factored(put(X, "rows"), put(bad, *spec))
    with pytest.raises(ValueError, match=r"errors must have shape \[n, d\]"):
        gradients.factored(put(Y, "rows"), X)
    with pytest.raises(ValueError, match="same length"):
        gradients.factored(X[:20], put(X, "rows"))
