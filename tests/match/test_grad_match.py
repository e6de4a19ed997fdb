"""Classes, minibatches, features, checkpoints, and the theorem."""

import dataclasses

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref
from match_cases import K, N, P

from jaxsel import gradients, match
from jaxsel.match import _func_feat, _grad_match
from jaxsel.match._func_feat import geometric_median

LABELS = np.where(np.arange(N) % 8 < 5, "cat", "dog")
HARD = np.where(np.arange(10) % 5 < 3, "cat", "dog")
BUDGETS = {"cat": 6, "dog": 4}


def hard_set(seed=0):
    a, b = cases.pool(seed=seed)
    return a, (b + 0.3 * cases.normal(10, P, seed=seed)).astype(np.float32)


def by_candidate(found):
    return {
        int(j): float(w)
        for j, w in zip(found.indices, found.weights, strict=True)
        if w != 0
    }


def agrees(found, expected, *, tolerance=1e-4):
    """Compare with the references of all classes, whatever the order among them."""
    kept = {j: w for one in expected.values() for j, w in one.kept}
    assert min(one.margin for one in expected.values()) > 1e-5
    have = by_candidate(found)
    assert sorted(have) == sorted(kept)
    assert int(found.n_valid) == len(kept)
    for j, weight in kept.items():
        np.testing.assert_allclose(have[j], weight, rtol=tolerance, atol=1e-5)
    # Within a class the order is that of choice.
    for one in expected.values():
        order = [j for j in np.asarray(found.indices).tolist() if j in dict(one.kept)]
        assert order[: len(one.kept)] == [j for j, _ in one.kept]


@pytest.mark.left_out
def test_without_labels_it_matches_the_mean():
    a, hard = hard_set()
    found = match.grad_match(a, hard, K)
    cases.check_form(found, K, N)
    cases.check_same(found, ref.omp(a, hard.mean(axis=0), K))


@pytest.mark.left_out
def test_each_class_is_matched_alone():
    a, hard = hard_set()
    found = match.grad_match(a, hard, K, labels=LABELS, hard_labels=HARD)
    expected = ref.grad_match(a, hard, BUDGETS, LABELS, HARD)
    cases.check_form(found, K, N)
    assert f"budget={K}" in found.method
    agrees(found, expected)
    # What is reported is the sum over the classes.
    ends = [one.objective[-1] for one in expected.values()]
    np.testing.assert_allclose(cases.last(found), sum(ends), rtol=1e-4)


@pytest.mark.parametrize(
    ("budget", "hard", "expected"),
    [
        (10, [6, 4], [6, 4]),
        (10, [1, 1, 1], [4, 3, 3]),  # what is left over goes to the first
        (7, [5, 2], [5, 2]),
        (20, [9, 1], [15, 5]),  # no class has more than its candidates
        (99, [1, 1], [15, 15]),
    ],
)
@pytest.mark.every(5)
def test_budgets_of_classes(budget, hard, expected):
    """In proportion to the hard samples, where every candidate is worth choosing."""
    classes = len(hard)
    labels = np.repeat(np.arange(classes), 15)
    hard_labels = np.repeat(np.arange(classes), hard)
    a = np.tile(np.eye(15, dtype=np.float32), (classes, 1))
    target = np.tile(np.linspace(1, 2, 15, dtype=np.float32), (sum(hard), 1))
    found = match.grad_match(a, target, budget, labels=labels, hard_labels=hard_labels)
    chosen = labels[np.asarray(found.indices)[: int(found.n_valid)]]
    assert np.bincount(chosen, minlength=classes).tolist() == expected


def test_classes_that_only_one_side_has():
    a, hard = hard_set()
    theirs = np.where(HARD == "dog", "wolf", HARD)
    found = match.grad_match(a, hard, 6, labels=LABELS, hard_labels=theirs)
    chosen = LABELS[np.asarray(found.indices)[: int(found.n_valid)]]
    assert set(chosen) == {"cat"}
    with pytest.raises(ValueError, match=r"hard_labels has no class"):
        match.grad_match(a, hard, 6, labels=LABELS, hard_labels=["wolf"] * 10)


def test_minibatches_are_matched_by_their_means():
    a, hard = hard_set()
    batches = a.reshape(K, N // K, P)
    found = match.grad_match(a, hard, 12, batch_size=N // K, l2=0.1)
    expected = ref.omp(batches.mean(axis=1), hard.mean(axis=0), 3, l2=0.1)
    rows = np.asarray(found.indices).reshape(-1, N // K)
    assert int(found.n_valid) == 12
    np.testing.assert_array_equal(rows[:, 0] // (N // K), [j for j, _ in expected.kept])
    np.testing.assert_array_equal(np.diff(rows, axis=1), 1)
    # Each sample has its share of the batch's weight: the sum is the same.
    total = np.asarray(found.weights) @ a[np.asarray(found.indices)]
    want = sum(w * batches[j].mean(axis=0) for j, w in expected.kept)
    np.testing.assert_allclose(total, want, rtol=1e-3, atol=1e-4)


def test_a_budget_below_the_size_of_a_batch():
    """The batch is as small: what is reported belongs to what is chosen."""
    a, hard = hard_set()
    found = match.grad_match(a, hard, 3, batch_size=5, l2=0.1)
    assert int(found.n_valid) == 3
    chosen, mean = np.asarray(found.indices), hard.mean(axis=0)
    left = np.asarray(found.weights) @ a[chosen] - mean
    ridge = 0.1 * float(found.weights.sum()) ** 2  # of the batch's weight
    np.testing.assert_allclose(cases.last(found), left @ left + ridge, rtol=1e-4)


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 3), 3), ((2, 3), 3), ((1, 0), 0), ((1, 2), 2)]
)
def test_the_gravest_reason_of_all_classes(codes, expected):
    one = match.omp(*cases.pool(), K)
    parts = [
        (np.arange(N), dataclasses.replace(one, status=jnp.int32(code)))
        for code in codes
    ]
    assert int(_grad_match._merged(parts, "").status) == expected


REFUSED = {
    "labels": ({"labels": LABELS}, r"hard_labels must be given"),
    "hard_labels": ({"hard_labels": HARD}, r"labels must be given"),
    "short": ({"labels": LABELS[:7], "hard_labels": HARD}, r"labels must.*\(7,\)"),
    "batch": ({"batch_size": 0}, r"batch_size must be at least 1, got 0"),
    "budget": ({"budget": 0}, r"budget must be at least 1, got 0"),
    "l2": ({"l2": -1}, r"l2 must be"),
    "target": ({"target": cases.normal(3, P + 1)}, r"target.*\(21,\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name):
    changed, message = REFUSED[name]
    a, hard = hard_set()
    given = {"candidates": a, "target": hard, "budget": K} | changed
    with pytest.raises(ValueError, match=message):
        match.grad_match(**given)


# Features.


def unit(x):
    x = np.asarray(x, np.float64)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_geometric_median_is_where_distances_sum_to_the_least():
    points = cases.normal(15, 3)
    median = np.asarray(geometric_median(points), np.float64)
    total = lambda at: np.linalg.norm(points - at, axis=1).sum()
    rng = np.random.default_rng(0)
    for scale in (1e-1, 1e-2):
        nearby = median + scale * rng.normal(size=(50, 3))
        assert min(map(total, nearby)) > total(median) - 1e-4
    # Not the mean: one point far away hardly moves it.
    moved = np.concatenate([points, [[1e3, 0, 0]]]).astype(np.float32)
    assert np.linalg.norm(geometric_median(moved) - median) < 1


def test_distance_of_features_from_the_median():
    x, x_hard = cases.normal(N, 4), cases.normal(10, 4)
    median = unit(geometric_median(unit(x_hard).astype(np.float32)))
    expected = np.linalg.norm(unit(x) - median, axis=1)
    np.testing.assert_allclose(match.median_distance(x, x_hard), expected, atol=1e-5)


@pytest.mark.left_out
def test_func_feat_is_matching_with_that_penalty():
    a, hard = hard_set()
    x, x_hard = cases.normal(N, 4), 2 + cases.normal(10, 4)
    found = match.func_feat(
        a, hard, x, x_hard, K, labels=LABELS, hard_labels=HARD, penalty_l2=2.0
    )
    expected = {}
    for label, budget in BUDGETS.items():
        rows, theirs = np.flatnonzero(label == LABELS), label == HARD
        psi = np.asarray(match.median_distance(x[rows], x_hard[theirs]))
        mean = hard[theirs].mean(axis=0)
        one = ref.omp(a[rows], mean, budget, score="ols", penalty=psi, penalty_l2=2.0)
        expected[label] = one._replace(picked=[int(rows[j]) for j in one.picked])
    agrees(found, expected)


@pytest.mark.left_out
def test_func_feat_has_the_penalty_that_it_says():
    a, hard = hard_set()
    x, x_hard = cases.normal(N, 4), 2 + cases.normal(10, 4)
    found = match.func_feat(a, hard, x, x_hard, K)
    cases.same(found, match.func_feat(a, hard, x, x_hard, K, penalty_l2=2.0))
    other = match.func_feat(a, hard, x, x_hard, K, penalty_l2=3.0)
    assert not np.array_equal(found.weights, other.weights)


def far(x, x_hard):
    """Return the distances of Eq. 2, `[m, n]`, each from a difference."""
    return np.linalg.norm(unit(x) - unit(x_hard)[:, None], axis=2)


@pytest.mark.parametrize("labels", [{}, {"labels": LABELS, "hard_labels": HARD}])
@pytest.mark.left_out
def test_func_feat_with_all_distances_is_matching_with_a_full_penalty(labels):
    a, hard = hard_set()
    x, x_hard = cases.normal(N, 4), 2 + cases.normal(10, 4)
    options = {"penalty_l2": 0.2, "score": "omp"} | labels
    found = match.func_feat(a, hard, x, x_hard, K, distances="all", **options)
    expected = match.grad_match(a, hard, K, penalty=far(x, x_hard), **options)
    cases.same(found, expected, tolerance=1e-4)
    median = match.func_feat(a, hard, x, x_hard, K, **options)
    assert found.indices.tolist() != median.indices.tolist()


@pytest.mark.left_out
def test_a_full_penalty_is_of_the_class():
    a, hard = hard_set()
    d = np.abs(cases.normal(10, N))
    options = {"labels": LABELS, "hard_labels": HARD, "penalty_l2": 0.2}
    found = match.grad_match(a, hard, K, penalty=d, **options)
    expected = {}
    for label, budget in BUDGETS.items():
        rows, theirs = np.flatnonzero(label == LABELS), np.flatnonzero(label == HARD)
        block = np.sqrt(0.2) * d[theirs][:, rows]
        goal = np.append(hard[theirs].mean(axis=0), np.zeros(len(theirs)))
        one = ref.omp(np.hstack([a[rows], block.T]), goal, budget)
        expected[label] = one._replace(picked=[int(rows[j]) for j in one.picked])
    agrees(found, expected)


def test_a_penalty_of_grad_match_is_refused_where_it_means_nothing():
    a, hard = hard_set()
    with pytest.raises(ValueError, match=r"penalty must .*\[10, 40\].*\(9, 40\)"):
        match.grad_match(a, hard, K, penalty=np.ones((9, N)))
    with pytest.raises(ValueError, match="penalty must be None with batch_size=4"):
        match.grad_match(a, hard, K, penalty=np.ones(N), batch_size=4)
    with pytest.raises(ValueError, match="distances must be one of.*'some'"):
        match.func_feat(a, hard, a, hard, K, distances="some")


@pytest.mark.left_out
def test_func_feat_chooses_what_is_near():
    means = {"omp": [], "ols": []}
    for seed in range(5):
        a, hard = hard_set(seed)
        x, x_hard = cases.normal(N, 4, seed=seed), 1 + cases.normal(10, 4, seed=seed)
        psi = np.asarray(match.median_distance(x, x_hard))
        for score, mean in means.items():
            found = match.func_feat(
                a, hard, x, x_hard, K, penalty_l2=200.0, score=score
            )
            chosen = np.asarray(found.indices)[: min(5, int(found.n_valid))]
            mean.append(psi[chosen].mean() / psi.mean())
    assert np.mean(means["ols"]) < 0.9
    assert np.mean(means["ols"]) < np.mean(means["omp"]) - 0.1


def test_without_labels_no_candidate_is_copied(monkeypatch):
    a, hard = hard_set()
    monkeypatch.setattr(_func_feat, "take", None)
    match.func_feat(a, hard, cases.normal(N, 4), cases.normal(10, 4), K)


def test_the_median_of_whole_numbers_is_refused():
    with pytest.raises(TypeError, match=r"points must be floating-point.*int"):
        geometric_median(np.arange(6).reshape(3, 2))


def test_features_are_checked():
    a, hard = hard_set()
    x, x_hard = cases.normal(N, 4), cases.normal(10, 4)
    with pytest.raises(ValueError, match=r"features must have shape.*\(39, 4\)"):
        match.func_feat(a, hard, x[:-1], x_hard, K)
    with pytest.raises(ValueError, match=r"hard_features must have.*\(10, 3\)"):
        match.func_feat(a, hard, x, x_hard[:, :3], K)


# Checkpoints.


def test_the_checkpoint_whose_matches_carry_over():
    checkpoints = []
    for seed, noise in enumerate([3.0, 0.1, 1.0]):
        a, b = cases.pool(seed=seed)
        hard = b + noise * cases.normal(10, P, seed=seed)
        checkpoints.append((a, hard.astype(np.float32)))
    choice = match.choose_checkpoint(checkpoints, K)
    assert choice.index == 1
    for error, (a, hard) in zip(choice.errors, checkpoints, strict=True):
        found = ref.omp(a, hard[::2].mean(axis=0), K)
        other = hard[1::2].mean(axis=0).astype(float)
        left = found.weights @ a[found.picked] - other
        np.testing.assert_allclose(error, left @ left / (other @ other), rtol=1e-3)
    small = [(np.float32(1e-3) * a, np.float32(1e-3) * b) for a, b in checkpoints]
    again = match.choose_checkpoint(small, K, l2=0.5e-6)
    same = match.choose_checkpoint(checkpoints, K, l2=0.5)
    np.testing.assert_allclose(again.errors, same.errors, rtol=1e-3)
    with pytest.raises(ValueError, match="checkpoints"):
        match.choose_checkpoint([], K)


# The theorem.


@pytest.mark.parametrize("penalised", [False, True])
def test_submodularity_by_definition(penalised):
    penalty = {"penalty": cases.psi(30), "penalty_l2": 2.0} if penalised else {}
    a, _ = cases.pool(30, 4)
    ridge = ref.ridge(30, 0.5, **penalty)
    found = match.submodularity(a, 5, l2=0.5, **penalty)
    np.testing.assert_allclose(
        found.gamma, ref.submodularity_bound(a, 5, ridge), rtol=1e-5
    )
    np.testing.assert_allclose(
        found.paper_gamma, ref.submodularity_bound_of_paper(a, 5, ridge), rtol=1e-5
    )
    np.testing.assert_allclose(found.gamma, found.concavity / found.smoothness)
    np.testing.assert_allclose(found.guarantee, 1 - np.exp(-found.gamma))
    assert 0 < found.gamma <= found.paper_gamma <= 1


def test_the_bound_holds_for_all_small_sets():
    for seed in range(5):
        a, b = cases.pool(6, 4, seed=seed)
        psi = cases.psi(6)
        ridge = ref.ridge(6, 0.5, psi, 2.0)
        bound = match.submodularity(a, 3, l2=0.5, penalty=psi, penalty_l2=2.0)
        ratio = ref.submodularity_ratio(a, b, 3, ridge)
        assert bound.gamma <= ratio + 1e-9
        # And what follows from it, for the greedy choice.
        best = b @ b - ref.best_support(a, b, 3, ridge, positive=False)
        for score in cases.SCORES:
            greedy = ref.omp(
                a, b, 3, positive=False, score=score, penalty=psi, penalty_l2=2.0
            )
            gained = b @ b - greedy.objective[-1]
            assert gained >= bound.guarantee * best - 1e-9


def test_no_ridge_no_guarantee():
    a, _ = cases.pool(6, 4)
    assert match.submodularity(a, 3, l2=0.0).guarantee == 0


# Candidates and targets that were projected.


def projected(examples, *, seed=0, dim=8, kind="count_sketch", wrt=None):
    params = {"a": np.ones(P, np.float32), "b": np.ones(P, np.float32)}
    return gradients.projected(
        of_two, params, examples, dim=dim, key=jax.random.key(seed), kind=kind, wrt=wrt
    )


def of_two(params, x):
    return params["a"] @ x + params["b"] @ x


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"seed": 1}, "key"),
        ({"kind": "rademacher"}, "kind"),
        ({"wrt": "a"}, "parameters"),
        ({"dim": 4, "seed": 1}, "key, dim"),
    ],
)
@pytest.mark.left_out
def test_projections_that_differ_are_refused(changed, what):
    a, hard = hard_set()
    candidates = projected(a)
    streamed = gradients.streamed(candidates.take, N, chunk_size=16)
    other = projected(hard, **changed)
    message = rf"target must be projected as the candidates are.* differ in {what}$"
    for pool in (candidates, streamed):
        for choose in (
            lambda pool: match.grad_match(pool, other, K),
            lambda pool: match.func_feat(pool, other, a, hard, K),
            lambda pool: match.choose_checkpoint([(pool, other)], K),
        ):
            with pytest.raises(ValueError, match=message):
                choose(pool)


@pytest.mark.slow
def test_projections_that_are_alike_are_matched():
    a, hard = hard_set()
    one, other = projected(a), projected(hard)
    found = match.grad_match(one, other, K)
    expected = match.grad_match(one.rows, other.rows, K)
    cases.same(found, expected)


@pytest.mark.left_out
def test_steps_that_are_lost_are_counted_over_classes_and_in_batches():
    a, hard = hard_set()
    a[20:] = a[:20] + 1e-3 * a[20:]
    found = match.grad_match(a, hard, K, labels=LABELS, hard_labels=HARD, l2=1e-3)
    assert int(found.dropped) == int(found.steps) - int(found.n_valid)
    batches = match.grad_match(a, hard, K, batch_size=2, l2=1e-3)
    assert int(batches.dropped) == int(batches.steps) - int(batches.n_valid) / 2
    # Of two classes each loses some, for one seed at least: they add up.
    for seed in (1, 5, 7):
        rng = np.random.default_rng(seed)
        a, hard = (np.abs(rng.normal(size=(n, 6))).astype("f4") for n in (40, 10))
        options = {"labels": LABELS, "hard_labels": HARD, "l2": 1e-4}
        found = match.grad_match(a, hard, 16, **options)
        assert int(found.dropped) == int(found.steps) - int(found.n_valid) > 0
