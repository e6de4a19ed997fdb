"""Matching against a slow reference, peers, and all sets there are."""

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref
from match_cases import K, N, P
from sklearn.linear_model import orthogonal_mp

import jaxsel
from jaxsel import gradients, match
from jaxsel.gradients._factored import LayerFactors
from jaxsel.match import _by_rows

pytestmark = pytest.mark.every(3)

PENALISED = {"penalty": cases.psi(), "penalty_l2": 3.0}
each_ridge = pytest.mark.parametrize("l2", [0.0, 0.5])
each_width = pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])


@pytest.fixture(autouse=True, params=["compiled", "jax"])
def way(request, monkeypatch):
    """Match rows by the compiled operation, where it is at hand, and without it."""
    if request.param == "jax":
        monkeypatch.setattr(_by_rows, "_MOST", 0)
    return request.param


# The reference.


@pytest.mark.every(12)
@cases.each_score
@cases.each_sign
@each_ridge
@pytest.mark.parametrize(
    ("wide", "penalty"),
    [
        pytest.param(False, {}, id="f32"),
        pytest.param(True, {}, id="f64", marks=pytest.mark.slow),
        pytest.param(False, PENALISED, id="penalised-f32", marks=pytest.mark.slow),
        pytest.param(True, PENALISED, id="penalised-f64"),
    ],
)
def test_equals_the_reference(score, positive, l2, wide, penalty):
    a, b = cases.pool()
    options = {"score": score, "positive": positive, "l2": l2} | penalty
    expected = ref.omp(a, b, K, **options)
    found = cases.run(a, b, wide=wide, **options)
    assert found.weights.dtype == (np.float64 if wide else np.float32)
    cases.check_form(found, K, N)
    cases.check_same(found, expected, tolerance=1e-9 if wide else 1e-4)
    ridge = ref.ridge(N, l2, **penalty)
    cases.check_objective(found, a, b, ridge)


@cases.each_score
@cases.each_sign
@pytest.mark.parametrize("l2", [0.05, 0.5])
@pytest.mark.every(12)
def test_more_steps_than_dimensions(score, positive, l2):
    """Ten candidates in a space of four, until nothing is left to be done."""
    a, b = cases.embed(*cases.pool(10, 4))
    b[5] = 0.3  # out of reach
    expected = ref.omp(a, b, K, score=score, positive=positive, l2=l2)
    found = cases.run(a, b, wide=True, score=score, positive=positive, l2=l2)
    cases.check_form(found, K, N)
    cases.check_same(found, expected, tolerance=1e-6)


def test_fewer_steps_are_a_part_of_more():
    a, b = cases.pool()
    many = cases.run(a, b, l2=0.0, positive=False)
    few = cases.run(a, b, 5, l2=0.0, positive=False)
    cases.check_form(few, 5, N)
    np.testing.assert_array_equal(many.indices[:5], few.indices)
    np.testing.assert_allclose(many.objective[:5], few.objective, rtol=1e-4)


@pytest.mark.slow
def test_arrays_and_oracles_are_the_same_thing():
    rng = np.random.default_rng(0)
    features, errors = cases.normal(N, 4), cases.normal(N, 4)
    oracle = gradients.Factored((LayerFactors(errors, features),))
    written_out = np.concatenate(
        [np.einsum("nh,nc->nhc", features, errors).reshape(N, -1), errors], axis=1
    )
    assert written_out.shape == (N, P)
    weights = rng.exponential(size=N).astype(np.float32)
    one = match.omp(oracle, oracle.combine(jnp.asarray(weights)), K)
    two = cases.run(written_out, weights @ written_out)
    cases.same(one, two, tolerance=1e-3)
    cases.check_same(one, ref.omp(written_out, weights @ written_out, K))


# Peers.


@each_width
@pytest.mark.parametrize("score", ["omp", "nomp"])
def test_scikit_learn(score, wide):
    for seed in range(5):
        a, b = cases.pool(seed=seed)
        # The scores are the same for candidates of one length.
        a /= np.linalg.norm(a, axis=1, keepdims=True)
        mine = cases.run(a, b, wide=wide, l2=0.0, positive=False, score=score)
        against_scikit_learn(mine, a, b, K, tolerance=1e-9 if wide else 1e-4)


@pytest.mark.slow
def test_scikit_learn_with_more_candidates():
    a, b = cases.pool(300, 100)
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    mine = cases.run(a, b, 30, l2=0.0, positive=False)
    against_scikit_learn(mine, a, b, 30, tolerance=1e-4)


def against_scikit_learn(mine, a, b, k, *, tolerance):
    wide = a.T.astype(np.float64), b.astype(np.float64)
    theirs = orthogonal_mp(*wide, n_nonzero_coefs=k)
    spread = ref.spread(mine, len(a))
    assert int(mine.n_valid) == k
    assert set(np.flatnonzero(spread)) == set(np.flatnonzero(theirs))
    np.testing.assert_allclose(spread, theirs, atol=tolerance * np.abs(theirs).max())


# All sets there are. The objective after k steps is that of a budget of k.


@pytest.mark.every(27)
@pytest.mark.parametrize(("n", "p"), [(4, 3), (6, 4), (8, 8), (10, 5)])
@cases.each_score
@cases.each_sign
def test_no_better_than_the_best_set(n, p, score, positive):
    a, b = cases.pool(n, p)
    norm = float(b @ b)
    found = cases.run(*cases.embed(a, b), positive=positive, score=score)
    assert int(found.steps) >= 1
    for k in (1, 2, 3):
        best = ref.best_support(a, b, k, 0.5, positive=positive)
        after = float(found.objective[min(k, int(found.steps)) - 1])
        assert after >= best - 1e-5 * norm
        if k == 1 and score == "ols":
            np.testing.assert_allclose(after, best, atol=1e-5 * norm)


@cases.each_score
@cases.each_sign
def test_the_best_set_of_orthogonal_candidates(score, positive):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        a = np.linalg.qr(rng.normal(size=(9, 9)))[0][:8]
        b = rng.normal(size=9).astype(np.float32)
        options, ridge = {"l2": 0.5}, np.full(8, 0.5)
        if score == "ols":  # It alone knows of lengths and penalties.
            a = a * rng.uniform(0.5, 3, (8, 1))
            options |= PENALISED
            ridge = ref.ridge(N, 0.5, **PENALISED)[:8]
        found = cases.run(*cases.embed(a, b), score=score, positive=positive, **options)
        for k in (1, 2, 3):
            best = ref.best_support(a, b, k, ridge, positive=positive)
            after = found.objective[min(k, int(found.steps)) - 1]
            np.testing.assert_allclose(after, best, rtol=1e-4)


# What is known by hand.


@cases.each_score
@cases.each_sign
def test_three_orthonormal_atoms(score, positive):
    atoms = cases.embed(np.eye(3), [1.0, 0.5, 0.25])
    found = cases.run(*atoms, l2=0.5, score=score, positive=positive)
    assert int(found.n_valid) == 3
    np.testing.assert_array_equal(found.indices[:3], [0, 1, 2])
    np.testing.assert_allclose(found.weights[:3], [2 / 3, 1 / 3, 1 / 6], rtol=1e-6)
    # Each atom takes c² / 1.5 off.
    squares = np.array([1, 0.25, 0.0625])
    left = squares.sum() - np.cumsum(squares) / 1.5
    np.testing.assert_allclose(found.objective[:3], left, rtol=1e-5)


def test_scores_differ_as_they_should():
    # Long but askew; aligned but for a little; and aligned but short.
    problem = cases.embed([[10.0, 20], [1, 0.1], [0.1, 0]], [1.0, 0])

    def first(score, l2):
        one = cases.run(*problem, l2=l2, score=score)
        assert ref.omp(*problem, 1, l2=l2, score=score).picked == [one.indices[0]]
        return int(one.indices[0])

    assert first("omp", 1.0) == 0
    assert first("nomp", 1.0) == 2
    assert first("ols", 1e-6) == 2
    assert first("ols", 1.0) == 1  # 10² / 501, 1 / 2.01 and .01 / 1.01


def test_ties_go_to_the_lowest_index():
    found = cases.run(*cases.embed(np.eye(6)[[5, 3, 1, 3, 0]], np.ones(6)))
    np.testing.assert_array_equal(found.indices[:4], [0, 1, 2, 4])


@cases.each_score
def test_positive_avoids_what_points_away(score):
    a = np.array([[-1.0, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, -3]])
    problem = cases.embed(a, [2.0, 1, 1])
    found = cases.run(*problem, score=score)
    assert int(found.n_valid) == int(found.steps) == 1
    assert int(found.indices[0]) == 1
    free = cases.run(*problem, score=score, positive=False)
    spread = ref.spread(free, N)
    assert spread[0] < 0
    assert spread[3] < 0


def test_a_weight_that_returns_to_zero_is_dropped_and_counted():
    # The third comes first; the others together leave it nothing to do.
    a = np.array([[1.0, 0, 0], [0, 1, 0], [1.5, 1.4, 0.75]])
    problem = cases.embed(a, [1.0, 1, -0.2])
    expected = ref.omp(*problem, K, l2=1e-6)
    assert len(expected.kept) < len(expected.picked)
    found = cases.run(*problem, l2=1e-6, wide=True)
    cases.check_same(found, expected, tolerance=1e-5)
    assert int(found.n_valid) < int(found.steps)


@pytest.mark.left_out
def test_repr_tells_the_best_and_the_fit():
    a, b = cases.pool()
    found = cases.run(a, b)
    first = ", ".join(map(str, np.asarray(found.indices)[:5]))
    shown = repr(found)
    assert shown.startswith("Match(omp(")
    assert f"best=[{first}, ...], error={float(found.error):.4g})" in shown
    several = repr(cases.run(a, np.stack([b, -b])))
    assert several.startswith("Match(omp(")
    assert "best" not in several
    assert repr(gradients.dense(a)) == f"Dense(n={N})"


def test_tolerance_stops_it():
    a, b = cases.pool()
    whole = cases.run(a, b, l2=0.0, positive=False)
    norm = float(whole.target_norm)
    for tol in (0.8, 0.6, 0.5):
        found = cases.run(a, b, l2=0.0, positive=False, tol=tol)
        steps = int(found.steps)
        assert 0 < steps < K
        assert int(found.status) == 1
        assert "tolerance" in found.reasons
        # It stops as soon as it may, and not before.
        assert float(found.objective[steps - 1]) <= tol**2 * norm
        assert np.all(np.asarray(found.objective)[: steps - 1] > tol**2 * norm)
        np.testing.assert_array_equal(found.indices[:steps], whole.indices[:steps])


# The penalty.


def test_the_penalty_acts_on_the_choice():
    rng = np.random.default_rng(0)
    means = {score: [] for score in cases.SCORES}
    for seed in range(10):
        a, b = cases.pool(seed=seed)
        psi = rng.uniform(0, 1.6, N).astype(np.float32)
        options = {"penalty": psi, "penalty_l2": 200.0}
        for score in cases.SCORES:
            found = cases.run(a, b, score=score, **options)
            first = np.asarray(found.indices)[: min(5, int(found.n_valid))]
            means[score].append(psi[first].mean())
    # The population's mean is 0.8; the other scores know nothing of it to begin with.
    assert np.mean(means["ols"]) < 0.7 * 0.8
    assert np.mean(means["omp"]) > 0.85 * 0.8


@cases.each_sign
def test_a_penalty_of_zero_is_none(positive):
    a, b = cases.pool()
    none = cases.run(a, b, positive=positive)
    for options in (
        {"penalty": np.zeros(N)},
        {"penalty": cases.psi(), "penalty_l2": 0.0},
    ):
        cases.same(cases.run(a, b, positive=positive, **options), none)


def test_a_penalty_for_all_is_a_ridge():
    a, b = cases.pool()
    one = cases.run(a, b, l2=0.5, penalty=np.full(N, 0.5), penalty_l2=2.0)
    cases.same(one, cases.run(a, b, l2=1.0))


@pytest.mark.left_out
def test_steps_that_were_spent_on_weights_of_zero_are_told():
    """By the budget's end some of it is missing: that is not for want of candidates."""
    a, b = cases.tangled(seed=0)
    found = cases.run(a, b, l2=1e-3, wide=True)
    expected = ref.omp(a, b, K, l2=1e-3)
    lost = len(expected.picked) - len(expected.kept)
    assert found.reasons == "the budget is spent"
    assert int(found.dropped) == lost == K - int(found.n_valid) > 0
    # A larger budget takes the steps that are missing, and comes closer.
    more = cases.run(a, b, K + 10, l2=1e-3, wide=True)
    assert int(more.n_valid) >= int(found.n_valid)
    assert float(more.error) < float(found.error)
    # Without a candidate left it says so, whatever was dropped.
    done = cases.run(a, b, l2=1e-3, wide=True, valid=cases.only(*range(15, 19)))
    assert int(done.steps) < K
    assert "no candidate is left" in done.reasons


# A penalty that is a matrix (Eq. 2 of Mycroft).

FULL = np.abs(cases.normal(6, N))


def stacked(a, b, penalty_l2):
    """Return the same problem without a penalty: D stands behind the gradients."""
    rows = np.hstack([a, np.sqrt(penalty_l2) * FULL.T.astype(np.float64)])
    return rows.astype(np.float32), np.append(b, np.zeros(len(FULL), np.float32))


@cases.each_score
@cases.each_sign
@pytest.mark.left_out
def test_a_full_penalty_is_matched_behind_the_gradients(score, positive):
    a, b = cases.pool()
    options = {"score": score, "positive": positive, "l2": 0.1}
    found = cases.run(a, b, penalty=FULL, penalty_l2=0.3, **options)
    rows, goal = stacked(a, b, 0.3)
    cases.same(found, match.omp(rows, goal, K, **options), tolerance=1e-3)
    expected = ref.omp(rows, goal, K, **options)
    cases.check_same(found, expected, tolerance=1e-4)
    without = cases.run(a, b, **options)
    assert found.indices.tolist() != without.indices.tolist()
    # The objective by its definition.
    w = ref.spread(found, N)
    value = ref.objective(a, b, w, np.full(N, 0.1)) + 0.3 * np.sum((FULL @ w) ** 2)
    np.testing.assert_allclose(cases.last(found), value, rtol=1e-4)
    assert "penalty of 6 rows" in found.method


@pytest.mark.left_out
def test_a_diagonal_matrix_is_a_penalty_of_each_candidate():
    a, b = cases.pool()
    psi = cases.psi()
    for score in ("omp", "ols"):
        options = {"score": score, "penalty_l2": 3.0}
        one = cases.run(a, b, penalty=np.diag(psi), **options)
        two = cases.run(a, b, penalty=psi, **options)
        cases.same(one, two, tolerance=1e-4)


def _load(rows):
    return gradients.factored(cases.normal(N, 5)[rows], cases.normal(N, 4)[rows])


@pytest.mark.left_out
def test_a_full_penalty_with_several_targets():
    oracle = _load(np.arange(N))
    goal = oracle.combine(jnp.asarray(np.abs(cases.normal(N))))
    options = {"penalty": FULL, "penalty_l2": 0.3}
    expected = match.omp(oracle, goal, K, **options)
    pair = tuple(jnp.stack([leaf, 2 * leaf]) for leaf in goal)
    both = match.omp(oracle, pair, K, **options)
    cases.same(both[0], expected, tolerance=1e-4)
    np.testing.assert_allclose(both[1].weights, 2 * both[0].weights, rtol=1e-3)
    assert len(expected) > 3


@pytest.mark.slow
def test_a_full_penalty_of_candidates_in_files_and_with_a_bar():
    oracle = _load(np.arange(N))
    goal = oracle.combine(jnp.asarray(np.abs(cases.normal(N))))
    options = {"penalty": FULL, "penalty_l2": 0.3}
    expected = match.omp(oracle, goal, K, **options)
    stream = gradients.streamed(_load, N, chunk_size=7)
    cases.same(match.omp(stream, goal, K, **options), expected, tolerance=1e-4)
    found = match.omp(oracle, goal, K, progress=True, **options)
    cases.same(found, expected, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jvp", "ghost", "projected"])
def test_a_full_penalty_with_oracles_of_a_loss(kind):
    """Arrays that all candidates share stay shared."""
    data = cases.normal(N, 4), cases.normal(N, 3)
    more = {"dim": 8, "key": jax.random.key(0)} if kind == "projected" else {}
    made = getattr(gradients, kind)(_loss, {"w": jnp.zeros((4, 3))}, data, **more)
    slow = (
        made.rows
        if more
        else gradients.per_sample(_loss, {"w": jnp.zeros((4, 3))}, data)
    )
    options = {"penalty": FULL, "penalty_l2": 0.3}
    found = match.omp(made, made.mean(), K, **options)
    goal = made.mean() if more else slow.mean()
    cases.same(found, match.omp(slow, goal, K, **options), tolerance=1e-3)
    assert len(found) > 3


def _loss(params, example):
    x, y = example
    return jnp.sum((x @ params["w"] - y) ** 2)


@pytest.mark.left_out
def test_a_full_penalty_in_float64_where_float32_would_round():
    """Candidates far from the origin are matched again, the penalty with them."""
    a, b = cases.pool()
    a, b = a + np.float32(300), b + np.float32(300)
    options = {"penalty": FULL, "penalty_l2": 1e-6, "l2": 1e-6}
    found = match.omp(a.astype(np.float64), b.astype(np.float64), 5, **options)
    rows, goal = stacked(a, b, 1e-6)
    expected = ref.omp(rows, goal, 5, l2=1e-6)
    assert found.indices.tolist() == [j for j, _ in expected.kept]


@pytest.mark.slow
def test_a_full_penalty_of_candidates_on_a_mesh():
    a, b = cases.pool()
    mesh = jaxsel.make_mesh()
    options = {"penalty": FULL, "penalty_l2": 0.3}
    expected = match.omp(a, b, K, **options)
    cases.same(match.omp(a, b, K, mesh=mesh, **options), expected, tolerance=1e-4)
    spread = jax.device_put(a, jax.NamedSharding(mesh, jax.P("data")))
    found = match.omp(spread, b, K, mesh=mesh, **options)
    cases.same(found, expected, tolerance=1e-4)
    hard, options = a[:5], {"distances": "all", "penalty_l2": 0.3}
    expected = match.func_feat(a, hard, a, hard, K, **options)
    found = match.func_feat(spread, hard, spread, hard, K, mesh=mesh, **options)
    cases.same(found, expected, tolerance=1e-4)
