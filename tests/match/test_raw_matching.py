"""Choices among raw tables: equal to float64 references, or told."""

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref

from jaxsel import gradients, match
from jaxsel.gradients._factored import LayerFactors
from jaxsel.match import _by_rows
from jaxsel.match._omp import first_stage
from jaxsel.match._types import PRECISION, REASONS, TOLERANCE

N, P, K = 60, 6, 8


@pytest.fixture(autouse=True, params=["compiled", "jax"])
def way(request, monkeypatch):
    """Match rows by the compiled operation, where it is at hand, and without it."""
    if request.param == "jax":
        monkeypatch.setattr(_by_rows, "_MOST", 0)
    return request.param


in_jax = pytest.mark.parametrize("way", ["jax"], indirect=True)


def table(name):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N, P))
    scales = np.array([1, 1e3, 1e-3, 1e2, 1e5, 1e-2])
    return {
        "offset 1e4": x + 1e4,
        "offset 1e6": x + 1e6,
        "times 1e6": x * 1e6,
        "times 1e-6": x * 1e-6,
        "unlike scales": x * scales,
        "constant column": np.where(np.arange(P) == 2, 12345.678, x),
        "copies": np.repeat(x[: N // 3], 3, axis=0) + 1e4,
        "clusters": 0.01 * x + 1e3 * rng.normal(size=(4, P))[rng.integers(0, 4, N)],
        "outlier": np.where(np.arange(N)[:, None] == 5, 1e5, x),
        "timestamps": x + 1.7e9 * (np.arange(P) == 4),
    }[name]


each_table = pytest.mark.parametrize(
    "name",
    [
        "offset 1e4",
        "offset 1e6",
        *(
            pytest.param(name, marks=pytest.mark.left_out)
            for name in (
                "times 1e6",
                "times 1e-6",
                "constant column",
                "copies",
                "outlier",
            )
        ),
        "unlike scales",
        "clusters",
        "timestamps",
    ],
)


def _distances(x):
    return np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))


@each_table
@pytest.mark.every(5)
def test_facility_location_of_raw_tables(name):
    x = table(name)
    medoids, sizes = ref.facility_location(x, K)
    found = match.facility_location(x, K)
    near = _distances(x)
    # The objective, for copies of one row are chosen by chance.
    got, best = (near[:, at].min(1).sum() for at in (np.asarray(found), medoids))
    assert got == pytest.approx(best, rel=1e-9)
    assert found.weights.dtype == np.float32
    assert float(found.weights.sum()) == N
    if name not in ("copies", "outlier"):
        assert np.asarray(found).tolist() == list(medoids)
        np.testing.assert_array_equal(found.weights, sizes)


def _volume(x, at, l2):
    chosen = x[np.asarray(at)]
    return np.linalg.slogdet(np.eye(P) + chosen.T @ chosen / l2)[1]


def _log_det(x, k, l2):
    """Choose by the remainders of rows, which do not cancel as those of products do."""
    rest, chosen = x.astype(np.longdouble), []
    for _ in range(k):
        left = (rest**2).sum(1)
        left[chosen] = -1
        j = int(np.argmax(left))
        chosen.append(j)
        shrink = (1 - np.sqrt(l2 / (l2 + left[j]))) / left[j]
        rest = rest - shrink * np.outer(rest @ rest[j], rest[j])
    return chosen


@each_table
def test_log_det_of_raw_tables(name):
    x = table(name)
    best = _log_det(x, K, 0.5)
    found = match.log_det(x, K)
    assert len(found) == K
    assert _volume(x, found, 0.5) == pytest.approx(_volume(x, best, 0.5), rel=1e-9)
    if name != "copies":
        assert np.asarray(found).tolist() == best


def test_log_det_says_why_it_chose_fewer():
    x = table("offset 1e6")
    with pytest.warns(UserWarning, match=r"chose 6 of 8 candidates.*span.*l2"):
        found = match.log_det(x, K, l2=0.0)
    assert np.asarray(found).tolist() == _log_det(x, P, 0.0)


@each_table
@pytest.mark.left_out
def test_herding_of_raw_tables(name):
    x = table(name)
    mean = x.mean(axis=0)
    total, best = np.zeros(P), []
    for t in range(K):
        scores = x @ ((t + 1) * mean - total)
        scores[best] = -np.inf
        best.append(int(np.argmax(scores)))
        total += x[best[-1]]
    found = np.asarray(match.herding(x, mean, K))
    got, wanted = (np.linalg.norm(x[at].mean(0) - mean) for at in (found, best))
    if name in ("offset 1e4", "offset 1e6", "unlike scales", "timestamps"):
        assert found.tolist() == best
    assert got <= wanted * (1 + 1e-6)


@pytest.mark.parametrize("score", cases.SCORES)
@pytest.mark.left_out
def test_omp_of_an_offset_goes_on_past_float32(score):
    x = table("offset 1e4")
    b = x.mean(axis=0)
    best = ref.omp(x, b, 3, score=score)
    found = match.omp(x, b, 3, score=score)
    assert found.weights.dtype == found.objective.dtype == np.float32
    # Products of 1e9 keep 7 digits of float64, so that later choices may be others.
    # In float32 the first one may be, and is the last: 20 to 70 times the objective.
    assert np.asarray(found)[0] == best.picked[0]
    weights = np.asarray(found.weights, np.float64)
    rest = weights @ x[np.asarray(found)] - b
    objective = rest @ rest + 0.5 * weights @ weights
    assert objective < 2 * best.objective[-1]


def test_oracles_of_networks_warn_where_rounding_decides():
    def loss(params, example):
        return params @ example

    x = table("offset 1e6").astype(np.float32)
    oracle = gradients.jvp(loss, np.zeros(P, np.float32), x)
    with pytest.warns(UserWarning, match="rounding decides"):
        match.facility_location(oracle, 3)


def _unlike(seed):
    """Return candidates and a target whose columns differ in scale, or lie off zero."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 4))
    if seed % 2:
        x += 30 * rng.normal(size=4)
    else:
        x *= 10 ** rng.uniform(-2, 2, 4)
    return x[10:], x[:10].mean(axis=0)


@pytest.mark.parametrize("options", [{}, {"score": "ols"}, {"positive": False}])
@pytest.mark.parametrize("seed", [2, 3, 8, 9, 15])
@pytest.mark.every(6)
def test_matching_of_unlike_scales_and_offsets_is_that_in_float64(seed, options):
    pool, target = _unlike(seed)
    choice = match.omp(pool, target, K, **options)
    with jax.enable_x64(True):
        expected = match.omp(pool, target, K, **options)
    assert list(choice) == list(expected)
    most = np.abs(np.asarray(expected.weights)).max()
    np.testing.assert_allclose(choice.weights, expected.weights, atol=1e-3 * most)


@in_jax
@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.every(2)
def test_files_and_bars_continue_in_float64_too(progress):
    pool, target = _unlike(3)
    oracle = gradients.dense(pool)
    if not progress:
        load = lambda rows: gradients.dense(pool[rows])
        oracle = gradients.streamed(load, len(pool), chunk_size=20)
    choice = match.omp(oracle, target, K, progress=progress)
    with jax.enable_x64(True):
        expected = match.omp(pool, target, K)
    assert list(choice) == list(expected)


@pytest.mark.parametrize("seed", [50, 72, 79, 173])
def test_a_ridge_on_columns_of_unlike_scales_is_not_lost(seed):
    """Float32 passed over candidates as dependent, or set weights to zero, unsaid."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(64, 12)) * 10 ** rng.uniform(-2, 2, 12)
    pool, target = x[10:], x[:10].mean(axis=0)
    best = ref.omp(pool, target, K)
    choice = np.asarray(best.picked)[best.weights > 0]
    assert list(match.omp(pool, target, K)) == list(choice)


def test_doubtful_choices_are_marked():
    x, b = _unlike(3)
    pool, target = gradients.dense(x.astype(np.float32)), b.astype(np.float32)
    assert match.pursue(pool, target, budget=K).rounded
    plain = gradients.dense(cases.pool()[0])
    assert not match.pursue(plain, cases.pool()[1], budget=K).rounded


def test_a_strict_match_stops_at_the_first_doubt():
    x, b = _unlike(3)
    pool, target = gradients.dense(x.astype(np.float32)), b.astype(np.float32)
    strict = match.pursue(pool, target, budget=K, strict=True)
    assert strict.rounded
    assert strict.reasons == REASONS[PRECISION]
    assert len(strict) < int(strict.steps) < K


@in_jax
@pytest.mark.parametrize(("tol", "reason"), [(1e-3, TOLERANCE), (9e-4, PRECISION)])
def test_a_tolerance_of_float32_is_reached_in_float32(tol, reason):
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(500, 16)).astype(np.float32)
    target = pool[:3].sum(axis=0)
    options = {"l2": 0.0, "positive": False, "tol": tol, "strict": True}
    strict = match.pursue(gradients.dense(pool), target, budget=64, **options)
    assert strict.reasons == REASONS[reason]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.every(4)
def test_gradients_of_layers_that_nearly_agree_are_matched_in_float64(layers):
    rng = np.random.default_rng(0)
    deltas = rng.normal(size=(40, 3))
    inputs = 1e4 + rng.normal(size=(40, 5))
    factors = LayerFactors(jnp.asarray(deltas), jnp.asarray(inputs), bias=False)
    pool = gradients.Factored((factors,) * layers)
    rows = np.einsum("ij,ik->ikj", deltas, inputs).reshape(40, -1)
    rows = np.tile(rows.astype(np.float64), layers)
    mean = pool.mean()
    for target in (mean, tuple(map(np.asarray, mean))):
        flat = np.concatenate([np.ravel(part) for part in target])
        chosen = match.omp(pool, target, 4)
        exact = match.omp(rows, flat.astype(np.float64), 4)
        assert chosen.indices.tolist() == exact.indices.tolist()
        match.herding(pool, target, 4)
    chosen = match.func_feat(pool, pool.take(np.arange(3)), inputs, inputs[:3], 4)
    assert int(chosen.n_valid)


@in_jax
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("score", cases.SCORES)
@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.every(12)
def test_matches_continue_in_float64_from_choices_in_float32(form, score, positive):
    a, b = cases.pool(300, 120)
    options = {"l2": 0.1, "score": score, "positive": positive}

    def pursue(a, b, **more):
        pool = gradients.dense(a)
        if form == "columns":
            pool = gradients.factored(a[:, :60], a[:, 60:62])
            b = pool.combine(b[:1].repeat(300))
        return jax.jit(lambda: match.pursue(pool, b, **options, **more))()

    first = pursue(a, b, budget=8 if positive else 66)
    assert first.dropped == 0
    begun = first_stage(first)
    with jax.enable_x64(True):
        whole = pursue(a.astype(float), b.astype(float), budget=100)
        again = pursue(a.astype(float), b.astype(float), budget=100, begun=begun)
    assert list(again) == list(whole)
    np.testing.assert_allclose(again.weights, whole.weights, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(again.objective[-1], whole.objective[-1], rtol=1e-9)
