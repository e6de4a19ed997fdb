"""Rows to fine-tune on, against choices by definition in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_finetuning as slow
from flax import nnx

from jaxsel import gradients, match, models
from jaxsel.models import Classifier
from jaxsel.retrieve import select_for_finetuning, target_coordinates
from jaxsel.retrieve._finetuning import _CHOOSERS
from jaxsel.retrieve._round_robin import round_robin

N, M, P = 120, 9, 30
each_chooser = pytest.mark.parametrize("chooser", _CHOOSERS)


def samples(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, P)), rng.normal(0.4, 1.0, size=(M, P))


def loss(params, example):
    x, y = example
    logits = jnp.matmul(x, params["kernel"], precision="highest") + params["bias"]
    return jax.nn.logsumexp(logits) - logits[y]


def examples(n, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 3, n)


def parameters():
    rng = np.random.default_rng(5)
    kernel, bias = rng.normal(size=(4, 3)), rng.normal(size=3)
    return {"kernel": kernel.astype(np.float32), "bias": bias.astype(np.float32)}


def explicit(part):
    return np.asarray(gradients.per_sample(loss, parameters(), part).gradients)


# Coordinates.


@pytest.mark.parametrize("rank", [1, 4, 100])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("chunk_size", [None, 7])
def test_coordinates_give_the_inner_products_within_the_subspace(
    rank, normalise, chunk_size
):
    pool, target = samples()
    result = target_coordinates(
        pool, target, rank=rank, normalise=normalise, chunk_size=chunk_size
    )
    rows, goal = slow.coordinates(pool, target, rank, normalise=normalise)
    assert result.candidates.shape == (N, min(rank, M))
    alike = result.candidates @ result.target.T
    np.testing.assert_allclose(alike, rows @ goal.T, atol=2e-5 * np.abs(alike).max())
    np.testing.assert_allclose(result.lengths, np.linalg.norm(pool, axis=1), rtol=1e-5)
    best, products = result.serves([3, 1])
    expected = (rows @ goal.T)[[3, 1]]
    assert best.tolist() == expected.argmax(1).tolist()
    np.testing.assert_allclose(products, expected.max(1), rtol=1e-4)


def test_raw_scales_and_float64():
    pool, target = samples()
    scales = 10.0 ** np.arange(-4, 5, 0.3)[:P]
    narrow = target_coordinates(pool * scales, target * scales, rank=5)
    with jax.enable_x64(True):
        wide = target_coordinates(pool * scales, target * scales, rank=5)
    assert wide.candidates.dtype == np.float64
    rows, goal = slow.coordinates(pool * scales, target * scales, 5)
    for result, atol in ((narrow, 1e-4), (wide, 1e-7)):
        alike = result.candidates @ result.target.T
        np.testing.assert_allclose(alike, rows @ goal.T, atol=atol)


@pytest.mark.parametrize("kind", ["pair", "function", "jvp", "oracle", "streamed"])
@pytest.mark.every(2)
def test_networks_give_the_gradients_of_their_examples(kind):
    pool, target, params = examples(40, 1), examples(6, 2), parameters()
    make = lambda part: gradients.per_sample(loss, params, part)
    expected = select_for_finetuning(explicit(pool), explicit(target), 10)
    if kind in ("oracle", "streamed"):
        oracle = make(pool)
        if kind == "streamed":
            load = lambda rows: make(jax.tree.map(lambda array: array[rows], pool))
            oracle = gradients.streamed(load, 40, chunk_size=16)
        result = select_for_finetuning(oracle, make(target), 10, chunk_size=16)
    else:
        directional = lambda part: gradients.jvp(loss, params, part)
        network = {"function": make, "jvp": directional}.get(kind, (loss, params))
        result = select_for_finetuning(pool, target, 10, network=network, chunk_size=16)
    assert list(result) == list(expected)


def test_lengths_count_only_without_normalising():
    pool, target = samples()
    longer = pool * np.random.default_rng(3).uniform(0.1, 10, size=(N, 1))
    alike = [list(select_for_finetuning(x, target, 30)) for x in (pool, longer)]
    assert alike[0] == alike[1]
    result = select_for_finetuning(longer, target, 30, normalise=False)
    expected = slow.round_robin(longer, target, 30, normalise=False)
    assert list(result) == list(expected) != alike[0]


# Choosers.


def test_round_robin_by_definition():
    pool, target = samples()
    for rank, budget in ((3, 40), (64, 40), (64, 4)):
        result = select_for_finetuning(pool, target, budget, rank=rank)
        expected = slow.round_robin(pool, target, budget, rank=rank)
        assert list(result) == list(expected)


def test_every_target_gets_its_share():
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(50, 3)), jnp.float32)
    target = jnp.asarray([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]], jnp.float32)
    chosen = round_robin(rows, target, 12).tolist()
    assert chosen == slow.turns(np.asarray(rows @ target.T, np.float64), 12)
    first = np.argsort(-np.asarray(rows)[:, 0], kind="stable")
    # Two target samples that are alike take from one list in turn.
    assert chosen[:2] == first[:2].tolist()


def test_mean_alignment_omp_and_herding_follow_the_mean():
    pool, target = samples()
    rows, goal = slow.coordinates(pool, target, 64)
    mean = goal.mean(0)
    useful = np.flatnonzero((rows @ goal.T).max(1) > 0)
    rows = rows[useful]
    best = select_for_finetuning(pool, target, 8, chooser="mean_alignment")
    assert list(best) == useful[np.argsort(-rows @ mean)[:8]].tolist()
    herded = select_for_finetuning(pool, target, 8, chooser="herding")
    chosen, total = [], np.zeros_like(mean)
    for step in range(8):
        scores = rows @ ((step + 1) * mean - total)
        scores[chosen] = -np.inf
        chosen.append(int(np.argmax(scores)))
        total += rows[chosen[-1]]
    assert list(herded) == useful[chosen].tolist()
    matched = select_for_finetuning(pool, target, 8, chooser="omp")
    longest = np.linalg.norm(rows, axis=1).max()
    expected = match.omp(rows / longest, mean, 8)
    assert list(matched) == useful[np.asarray(expected)].tolist()
    weights = np.asarray(expected.weights)
    np.testing.assert_allclose(matched.weights, weights / weights.mean(), rtol=1e-4)


def test_facility_location_covers_then_repeats():
    target = np.eye(3)[:2]
    pool = [[1.0, 0, 0.1], [1.0, 0, 0], [1.0, 0, 0.2], [0, 1.0, 0.9], [0, 0, 1.0]]
    rows = select_for_finetuning(np.array(pool), target, 5, chooser="facility_location")
    assert list(rows) == [1, 3, 0, 2]


@each_chooser
@pytest.mark.parametrize("budget", [1, 5, 60, 1000])
@pytest.mark.every(3)
def test_choices_are_distinct_and_weights_have_the_mean_1(chooser, budget):
    pool, target = samples()
    pool[17] = pool[16]
    result = select_for_finetuning(pool, target, budget, chooser=chooser, rank=5)
    rows = np.asarray(result)
    rest = slow.coordinates(pool, target, 5)
    useful = np.flatnonzero((rest[0] @ rest[1].T).max(1) > 1e-6)
    assert len({*rows.tolist()}) == len(rows) <= min(budget, len(useful))
    assert {*rows.tolist()} <= {*useful.tolist()}
    if chooser != "omp":
        assert len(rows) == min(budget, len(useful))
    assert np.all(np.asarray(result.weights) > 0)
    np.testing.assert_allclose(np.mean(result.weights), 1, rtol=1e-5)
    again = select_for_finetuning(pool, target, budget, chooser=chooser, rank=5)
    assert list(again) == list(result)


def test_omp_goes_on_beyond_the_rank():
    pool, target = samples()
    result = select_for_finetuning(pool, target, 30, chooser="omp", rank=2)
    assert len(result) == 30


@each_chooser
def test_a_copy_of_the_only_target_comes_first(chooser):
    pool, target = samples()
    pool[50] = 3 * target[0]
    assert select_for_finetuning(pool, target[:1], 5, chooser=chooser)[0] == 50


@each_chooser
def test_rows_that_raise_every_target_loss_are_left_out(chooser):
    target = np.array([[1.0, 0.0], [0.5, 0.5]])
    pool = np.array([[-1.0, -1.0], [1.0, 0.2], [0.0, 0.0], [-3.0, 0.0]])
    result = select_for_finetuning(pool, target, 4, chooser=chooser)
    assert list(result) == [1]
    with pytest.raises(ValueError, match="none of 2 has"):
        select_for_finetuning(pool[[0, 3]], target, 2, chooser=chooser)


@each_chooser
def test_target_samples_without_a_gradient_take_no_turn(chooser):
    pool, target = samples()
    padded = np.concatenate([np.zeros((2, P)), target[:1], np.zeros((3, P))])
    expected = select_for_finetuning(pool, target[:1], 6, chooser=chooser)
    result = select_for_finetuning(pool, padded, 6, chooser=chooser)
    assert list(result) == list(expected)


@each_chooser
@pytest.mark.every(2)
def test_strict_types(chooser):
    pool, target = (array.astype(np.float32) for array in samples())
    expected = list(select_for_finetuning(pool, target, 12, chooser=chooser))
    with jax.numpy_dtype_promotion("strict"):
        assert (
            list(select_for_finetuning(pool, target, 12, chooser=chooser)) == expected
        )
    with jax.enable_x64(True):
        assert (
            list(select_for_finetuning(pool, target, 12, chooser=chooser)) == expected
        )


def test_coordinates_serve_for_several_choices():
    pool, target = samples()
    kept = target_coordinates(pool, target, rank=5)
    for chooser in _CHOOSERS:
        again = select_for_finetuning(
            kept.candidates, kept.target, 20, chooser=chooser, normalise=False
        )
        expected = select_for_finetuning(pool, target, 20, chooser=chooser, rank=5)
        assert list(again) == list(expected)


# What is refused.


def test_gradients_that_are_not_finite_are_refused_by_row():
    pool, target = samples()
    pool[11, 2] = np.nan
    with pytest.raises(ValueError, match="candidates must be finite, but row 11"):
        select_for_finetuning(pool, target, 5)
    broken = examples(40, 1)
    broken[0][31] = np.inf
    network = (loss, parameters())
    with pytest.raises(ValueError, match="length, but that of row 31 has NaN"):
        select_for_finetuning(broken, examples(6, 2), 5, network=network, chunk_size=16)
    with pytest.raises(ValueError, match="target must have gradients.*row 31"):
        select_for_finetuning(examples(6, 2), broken, 5, network=network)
    pool[11] = 1e30
    with pytest.raises(ValueError, match="row 11 has a square beyond float32"):
        select_for_finetuning(pool, target, 5)


def test_bad_arguments():
    pool, target = samples()
    for options, message in [
        ({"chooser": "best"}, "chooser must be one of 'round_robin', 'omp'"),
        ({"rank": 0}, "rank must be at least 1, got 0"),
        ({"chunk_size": 0}, "chunk_size must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            select_for_finetuning(pool, target, 5, **options)
    with pytest.raises(ValueError, match="budget must be at least 1"):
        select_for_finetuning(pool, target, 0)
    with pytest.raises(ValueError, match="target must have a gradient other than 0"):
        select_for_finetuning(pool, 0 * target, 5)
    with pytest.raises(ValueError, match="target must have gradients of the cand"):
        select_for_finetuning(pool, target[:, :4], 5)
    factors = gradients.factored(pool[:, :2], pool[:, 2:])
    with pytest.raises(TypeError, match="target must be an oracle of the candidates'"):
        select_for_finetuning(factors, target, 5)
    with pytest.raises(TypeError, match="network must be a models.Target, a pair"):
        select_for_finetuning(pool, target, 5, network=3)
    with pytest.raises(TypeError, match="network must return an oracle"):
        select_for_finetuning(pool, target, 5, network=lambda part: part)


def test_projections_must_be_alike():
    pool, target = examples(20, 1), examples(6, 2)
    sketch = lambda part, seed: gradients.projected(
        loss, parameters(), part, dim=8, key=jax.random.key(seed)
    )
    select_for_finetuning(sketch(pool, 0), sketch(target, 0), 3)
    with pytest.raises(ValueError, match="these differ in key"):
        select_for_finetuning(sketch(pool, 0), sketch(target, 1), 3)


def test_reprs_and_frames():
    pool, target = samples()
    kept = target_coordinates(pool, target, rank=3)
    text = f"TargetCoordinates(n={N}, m={M}, 3 directions with "
    assert repr(kept).startswith(text)
    assert len(kept) == N
    frame = kept.to_pandas([4, 2])
    assert frame.index.tolist() == [4, 2]
    assert frame.target.tolist() == kept.serves([4, 2])[0].tolist()
    assert frame.length.tolist() == kept.lengths[[4, 2]].tolist()


def test_loaders_take_the_rows():
    grain = pytest.importorskip("grain")
    pool, target = samples()
    chosen = select_for_finetuning(pool, target, 5)
    rows = grain.MapDataset.source(list(chosen)).map(lambda row: pool[row])
    np.testing.assert_array_equal(list(rows), pool[np.asarray(chosen)])


# Pretrained models.


def tiny_target(between=None, *, n_classes=3):
    config = models.EncoderConfig(
        kind="text", layers=1, heads=2, hidden=8, intermediate=8, vocab=20, positions=6
    )
    classifier = Classifier(
        config, n_classes, read="mean", between=between, rngs=nnx.Rngs(0)
    )
    graphdef, params = nnx.split(classifier, nnx.Param)
    return models.Target(config=config, graphdef=graphdef, params=params, read="mean")


def labelled(n, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 20, (n, 6)), rng.integers(0, 3, n)


@pytest.mark.parametrize("between", [None, "tanh"])
@pytest.mark.every(2)
def test_a_target_model_gives_the_gradients_of_its_head(between):
    target = tiny_target(between)
    pool, goal = labelled(30, 1), labelled(5, 2)
    hidden, logits = target.head_input_and_logits(pool[0])
    np.testing.assert_allclose(logits, target.logits(pool[0]), atol=1e-6)
    head = nnx.merge(target.graphdef, target.params).head
    np.testing.assert_allclose(
        logits, hidden @ head.kernel[...] + head.bias[...], atol=1e-6
    )

    def rows(tokens, labels):
        hidden, logits = target.head_input_and_logits(tokens)
        errors = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        errors -= np.eye(3)[labels]
        inputs = np.pad(hidden, ((0, 0), (0, 1)), constant_values=1)
        return np.einsum("nc,nh->nch", errors, inputs).reshape(len(labels), -1)

    expected = slow.round_robin(rows(*pool), rows(*goal), 8)
    result = select_for_finetuning(pool, goal, 8, network=target, chunk_size=16)
    assert list(result) == list(expected)


def test_a_target_model_refuses_what_does_not_fit():
    pool, goal = labelled(30, 1), labelled(5, 2)
    with pytest.raises(TypeError, match="candidates must be a pair .inputs, labels"):
        select_for_finetuning(pool[0], goal, 8, network=tiny_target())
    with pytest.raises(ValueError, match="labels of target"):
        select_for_finetuning(pool, (goal[0], goal[1][:3]), 8, network=tiny_target())
    with pytest.raises(ValueError, match="has no head"):
        select_for_finetuning(pool, goal, 8, network=tiny_target(n_classes=None))
