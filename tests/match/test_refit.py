"""Non-negative weights are the best ones: SciPy, and the KKT conditions."""

import jax
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref
from match_cases import N

from jaxsel import gradients, match
from jaxsel.match import _compute, _host_loop, _pursue, _pursuit, _refit

pytestmark = pytest.mark.every(3)

POOLS = {"pool": cases.pool, "tangled": cases.tangled, "low_rank": cases.low_rank}
each_pool = pytest.mark.parametrize("kind", POOLS)
each_ridge = pytest.mark.parametrize("l2", [0.0, 1e-3, 0.5])


@pytest.mark.every(27)
@each_pool
@each_ridge
@cases.each_score
@cases.each_sign
def test_weights_are_scipys(kind, l2, score, positive):
    a, b = POOLS[kind]()
    found = cases.run(a, b, wide=True, l2=l2, score=score, positive=positive)
    spread = ref.spread(found, N)
    support = np.flatnonzero(spread)
    expected = np.zeros(N)
    expected[support] = ref.refit(a[support], b, l2, positive=positive)
    np.testing.assert_allclose(spread, expected, atol=1e-6 * np.abs(expected).max())
    if positive:
        cases.check_kkt(found, a, b, l2, among=support, tolerance=1e-9)


@each_pool
@each_ridge
@cases.each_score
@pytest.mark.every(27)
def test_left_to_run_it_solves_the_whole_problem(kind, l2, score):
    """No candidate is left that would help: these are the best weights of all."""
    if (kind, l2, score) == ("low_rank", 0.0, "ols"):
        pytest.skip("this score takes no candidate that depends on those chosen")
    a, b = POOLS[kind]()
    few = cases.only(*range(15, 25))
    found = cases.run(a, b, wide=True, l2=l2, score=score, valid=few)
    if int(found.steps) < few.sum():
        assert int(found.status) == 2
    best = ref.refit(a[few], b, l2, positive=True)
    least = ref.objective(a[few], b, best, np.full(few.sum(), l2))
    np.testing.assert_allclose(cases.last(found), least, atol=1e-9 * (b @ b))
    cases.check_kkt(found, a, b, l2, among=few, tolerance=1e-7)


@each_pool
@each_ridge
def test_kkt_in_float32(kind, l2):
    a, b = POOLS[kind]()
    found = cases.run(a, b, l2=l2)
    among = np.flatnonzero(ref.spread(found, N))
    cases.check_kkt(found, a, b, l2, among=among, tolerance=3e-5)


@each_pool
@pytest.mark.left_out
def test_kkt_of_128_choices_in_float32(kind, monkeypatch):
    """With LLVM's optimisations, as users run it: rounding is what this is about."""
    options = {"xla_backend_optimization_level": 3}
    compiled = jax.jit(
        match.pursue, static_argnames=_compute._STATIC, compiler_options=options
    )
    monkeypatch.setattr(_compute, "_pursue", compiled)
    a, b = POOLS[kind](400, 200)
    for l2 in (0.0, 1e-3, 0.5):
        found = cases.run(a, b, 128, l2=l2)
        cases.check_form(found, 128, 400)
        cases.check_objective(found, a, b, np.full(400, l2))
        spread = ref.spread(found, 400)
        support = np.flatnonzero(spread)
        if kind == "pool":
            assert len(support) > 64
        among = np.arange(400) if int(found.status) == 2 else support
        cases.check_kkt(found, a, b, l2, among=among, tolerance=3e-5)
        best = np.zeros(400)
        best[support] = ref.refit(a[support], b, l2, positive=True)
        ridge = np.full(400, l2)
        least = ref.objective(a, b, best, ridge)
        # Where candidates depend on each other, a ridge this small against their
        # lengths is near the rounding of products: 1.6e-6 at worst, 1.5e-10 elsewhere.
        slack = 1e-5 if kind == "low_rank" else 1e-9
        assert ref.objective(a, b, spread, ridge) <= least + slack * (b @ b)


def test_weights_that_go_back_to_zero_do_occur_and_would_not_help():
    dropped = 0
    for seed in range(10):
        a, b = cases.tangled(seed=seed)
        expected = ref.omp(a, b, cases.K, l2=1e-3)
        found = cases.run(a, b, wide=True, l2=1e-3)
        cases.check_same(found, expected, tolerance=1e-6)
        # Among all that were ever chosen, whatever their weight.
        cases.check_kkt(found, a, b, 1e-3, among=expected.picked, tolerance=1e-9)
        dropped += int(found.steps) - int(found.n_valid)
    assert dropped > 0


@pytest.mark.slow
def test_hundreds_of_choices_do_not_wear_the_weights_out():
    """Three times as many choices as dimensions: K is far from a multiple of 1."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 128)) / 2
    a = (rng.normal(size=(2000, 128)) + centres[rng.integers(10, size=2000)]).astype(
        "f"
    )
    b = (rng.normal(size=(200, 128)) + centres[rng.integers(3, size=200)]).mean(0)
    found = cases.run(a, b.astype("f"), 400)
    assert found.reasons == "the budget is spent"
    support = np.flatnonzero(ref.spread(found, 2000))
    assert len(support) > 300
    cases.check_kkt(found, a, b, 0.5, among=support, tolerance=3e-5)


@pytest.mark.left_out
def test_a_refresh_computes_the_tableau_afresh():
    """Whatever rounding has done to it: only K, and who is basic, are kept."""
    a, b = (array.astype(np.float64) for array in cases.pool(100, 80))
    size = 2 * _pursuit.FRESH
    gram, basic = a @ a.T + 0.5 * np.eye(100), np.arange(100) % 3 > 0
    state = _refit.empty(size, np.float32)
    state = state._replace(
        gram=state.gram.at[:100, :100].set(gram),
        target=state.target.at[:100].set(a @ b),
        basic=state.basic.at[:100].set(basic),
    )
    room = np.empty((size, 0), np.float32)
    pursuit = _pursuit.Pursuit(
        **dict.fromkeys(_pursuit.Pursuit._fields, room) | {"refit": state},
    )._replace(indices=np.zeros(size, np.int32))
    fresh = _pursuit.refresh(pursuit).refit
    exact = np.zeros(100)
    exact[basic] = np.linalg.solve(gram[np.ix_(basic, basic)], (a @ b)[basic])
    np.testing.assert_allclose(fresh.weights[:100], exact, rtol=1e-3, atol=1e-5)
    # Another atom finds its place with it: its distance from the span of the basic.
    new = np.append(a[~basic][0], 0.0) * 2
    column = np.zeros(size, np.float32)
    column[:100] = a @ new[:-1]
    _, pivot = _refit.add(fresh, np.int32(100), column, np.float32(900), np.float32(1))
    inverse = np.linalg.inv(gram[np.ix_(basic, basic)])
    left = 900 - column[:100][basic] @ inverse @ column[:100][basic]
    np.testing.assert_allclose(pivot, left, rtol=1e-3)
    # Up to the first refresh there is nothing to mend.
    few = pursuit._replace(indices=np.zeros(_pursuit.FRESH, np.int32))
    assert _pursuit.refresh(few) is few


@pytest.mark.parametrize(
    "many",
    [
        pytest.param(False, id="kernel"),
        pytest.param(True, id="streamed", marks=pytest.mark.slow),
    ],
)
def test_matching_refreshes_every_64_steps(many, monkeypatch):
    """And goes on with what it gets: a refresh that says zero is believed."""
    calls = []

    def spoil(state):
        calls.append(state.indices.shape[0])
        return _refresh(state)

    _refresh = _pursuit.refresh
    a, b = cases.pool(100, 90)
    if many:
        monkeypatch.setattr(_host_loop, "_refresh", spoil)
        oracle = gradients.streamed(
            lambda i: gradients.dense(a[i]), len(a), chunk_size=100
        )
        found = match.omp(oracle, b, 80, positive=False)
        assert int(found.steps) == 80
        assert len(calls) == 1  # before the 65th
    else:
        monkeypatch.setattr(_pursue, "refresh", spoil)
        jax.eval_shape(
            lambda a, b: match.pursue(gradients.Dense(a), b, budget=80), a, b
        )
        assert calls == [_pursuit.FRESH, 80]  # traced once for each room


def test_an_indefinite_matrix_does_not_keep_it_for_ever(steps_of):
    """Rounding may make K so: then each exchange undoes the one before."""
    steps, number = steps_of(_refit), np.float32
    state = _refit.empty(1, number)
    state, _ = _refit.add(state, 0, np.zeros(1, number), number(-1), number(1))
    found = _refit.non_negative(state)
    assert steps == [8 * 1 + 64]
    assert found.weights.tolist() == [0]


def test_exchanges_of_all_at_once_give_way_where_they_go_in_circles():
    """Where each step exchanges all three or two, the first state comes back."""
    gram = np.array([[21, 15, -8], [15, 11, -6], [-8, -6, 4]], np.float32)
    target = np.array([2, 6, -5], np.float32)
    state = _refit.empty(3, np.float32)._replace(
        gram=gram, target=target, tableau=gram, values=-target
    )
    found = jax.jit(_refit.non_negative)(state)
    np.testing.assert_allclose(found.weights, [0, 6 / 11, 0], rtol=1e-4)
