"""Values of whole data sets, against enumeration with SciPy's solvers in float64."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from jaxsel import market
from jaxsel.market._datasets._subsets import match_masks, match_subsets


def draw(n=6, d=9, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, d)) + 0.4
    return vectors, vectors[: n // 2 + 1].mean(axis=0) + 0.5 * rng.normal(size=d)


def ridges(vectors, l2, counts=None):
    counts = np.ones(len(vectors)) if counts is None else np.asarray(counts)
    return l2 * np.mean(np.sum(vectors**2, axis=1)) * counts.mean() / counts


def plainly(vectors, target, ridge, members, constraint="nonnegative"):
    """Return utility and weights of one set of owners, by SciPy."""
    n, members = len(vectors), list(members)
    weights, length = np.zeros(n), target @ target
    if not members:
        return 0.0, weights
    rows = np.vstack([vectors[members].T, np.diag(np.sqrt(ridge[members]))])
    goal = np.append(target, np.zeros(len(members)))
    if constraint == "nonnegative":
        weights[members] = nnls(rows, goal)[0]
    else:

        def error(w):
            return np.sum((rows @ w - goal) ** 2) / length

        def slope(w):
            return 2 * rows.T @ (rows @ w - goal) / length

        start = np.full(len(members), 1 / len(members))
        bounds = [(0, 1)] * len(members)
        sums = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
        options = {"ftol": 1e-14, "maxiter": 1000}
        weights[members] = minimize(
            error, start, jac=slope, bounds=bounds, constraints=sums, options=options
        ).x
    error = np.sum((rows @ weights[members] - goal) ** 2)
    return 1 - error / length, weights


def enumerated(vectors, target, ridge, constraint="nonnegative"):
    """Return Shapley values by all orders' weights, and the utility of every set."""
    n, utility = len(vectors), {}
    for size in range(n + 1):
        for members in itertools.combinations(range(n), size):
            utility[members] = plainly(vectors, target, ridge, members, constraint)[0]
    values = np.zeros(n)
    for members, of in utility.items():
        for o in set(range(n)) - set(members):
            weight = 1 / (n * math.comb(n - 1, len(members)))
            values[o] += weight * (utility[tuple(sorted((*members, o)))] - of)
    return values, utility


@pytest.mark.parametrize("constraint", ["nonnegative", "simplex"])
@pytest.mark.parametrize("counts", [None, [5, 40, 10, 10, 20, 1]])
def test_values_and_weights_by_enumeration(constraint, counts):
    vectors, target = draw()
    l2 = 0.05
    result = market.value_datasets(
        vectors, target, counts=counts, l2=l2, constraint=constraint
    )
    ridge = ridges(vectors, l2, counts)
    values, utility = enumerated(vectors, target, ridge, constraint)
    tolerance = 1e-10 if constraint == "nonnegative" else 1e-6
    np.testing.assert_allclose(result.shapley, values, atol=tolerance)
    everyone = tuple(range(6))
    weights = plainly(vectors, target, ridge, everyone, constraint)[1]
    np.testing.assert_allclose(result.weights, weights, atol=tolerance * 1e3)
    assert result.matched == pytest.approx(utility[everyone], abs=tolerance)
    for o in everyone:
        without = tuple(i for i in everyone if i != o)
        assert result.alone[o] == pytest.approx(utility[(o,)], abs=tolerance)
        assert result.marginal[o] == pytest.approx(
            utility[everyone] - utility[without], abs=tolerance
        )
    assert result.shapley.sum() == pytest.approx(result.matched, abs=1e-12)
    assert result.stderr is None
    if constraint == "simplex":
        assert result.weights.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 14])
def test_both_kernels_and_scipy_agree(n):
    """Beyond 12 owners the kernel splits the subsets into parts."""
    vectors, target = draw(n, 10, seed=n)
    gram = vectors @ vectors.T + 0.1 * np.eye(n)
    with jax.enable_x64(True):
        gram, inner = jnp.asarray(gram), jnp.asarray(vectors @ target)
        match, support, weights = match_subsets(gram, inner, with_weights=True)
        chosen = np.unique(np.linspace(0, 2**n - 1, 40).astype(int))
        masks = (chosen[:, None] >> np.arange(n)) & 1 == 1
        some, some_weights = match_masks(gram, inner, jnp.asarray(masks))
    assert match.shape == (2**n,)
    assert weights.shape == (2**n, n)
    np.testing.assert_allclose(match[chosen], some, rtol=1e-11)
    read = np.asarray(weights)[np.asarray(support)[chosen]]
    np.testing.assert_allclose(read, some_weights, atol=1e-6)
    for row, mask in enumerate(masks):
        utility, right = plainly(vectors, target, np.full(n, 0.1), np.flatnonzero(mask))
        assert some[row] == pytest.approx(utility * (target @ target), rel=1e-10)
        np.testing.assert_allclose(some_weights[row], right, atol=1e-10)


def test_twenty_owners_are_exact():
    vectors, target = draw(20, 40)
    result = market.value_datasets(vectors, target)
    assert result.method.startswith("exact: 1048576 sets")
    assert result.shapley.sum() == pytest.approx(result.matched, abs=1e-12)
    ridge = ridges(vectors, 1e-3)
    utility, weights = plainly(vectors, target, ridge, range(20))
    assert result.matched == pytest.approx(utility, abs=1e-10)
    np.testing.assert_allclose(result.weights, weights, atol=1e-8)


def test_copies_share():
    vectors, target = draw(5)
    once = market.value_datasets(vectors, target, l2=1e-9)
    best = int(np.argmax(once.weights))
    copied = np.concatenate([vectors, vectors[[best, best]]])
    result = market.value_datasets(copied, target, l2=1e-9)
    copies, others = [best, 5, 6], [o for o in range(5) if o != best]
    assert result.groups == (tuple(copies),)
    assert result.undetermined == 2
    shares = result.shapley[copies]
    np.testing.assert_allclose(shares, shares[0], atol=1e-9)
    # The Shapley value of a copy is less than that of one, yet of all a little more.
    assert shares[0] < once.shapley[best] <= shares.sum() + 1e-8
    weights = result.weights[copies]
    np.testing.assert_allclose(weights, once.weights[best] / 3, rtol=1e-6)
    assert result.matched == pytest.approx(once.matched, abs=1e-8)
    # As one group, copies have together what one of them had alone, and equal parts.
    grouped = result.by_group
    np.testing.assert_allclose(grouped[copies], once.shapley[best] / 3, atol=1e-8)
    np.testing.assert_allclose(grouped[others], once.shapley[others], atol=1e-8)
    assert result.bought[copies].sum() == 1
    assert result.gains[copies].max() < 1e-8
    # Alignment would pay each copy in full.
    assert (vectors @ target)[best] > 0


def test_copies_of_unlike_size_share_by_their_counts():
    vectors = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    result = market.value_datasets(vectors, [2.0, 1.0], counts=[30, 10, 5], l2=1e-6)
    assert result.weights[0] == pytest.approx(3 * result.weights[1], rel=1e-6)
    assert result.weights[:2].sum() == pytest.approx(1, abs=1e-4)


def test_owners_that_share_nothing_have_their_own_parts():
    """Of orthogonal vectors each matches its own square of the target."""
    result = market.value_datasets(np.eye(4), [3.0, 0.0, -1.0, 4.0], l2=1e-9)
    np.testing.assert_allclose(result.shapley, [9 / 26, 0, 0, 16 / 26], atol=1e-8)
    assert result.matched == pytest.approx(25 / 26)


def test_a_zero_vector_is_worth_nothing():
    vectors, target = draw(5)
    vectors[2] = 0
    result = market.value_datasets(vectors, target)
    for array in (result.shapley, result.weights, result.alone, result.marginal):
        assert array[2] == pytest.approx(0, abs=1e-12)
    assert not result.bought[2]
    assert (result.cosines[2] == 0).all()


def test_one_owner_and_a_copy_of_the_target():
    result = market.value_datasets([[2.0, 1.0]], [2.0, 1.0], l2=1e-6)
    assert result.shapley[0] == result.matched == pytest.approx(1, abs=2e-6)
    assert result.weights[0] == pytest.approx(1, abs=2e-6)
    assert result.bought.all()
    assert "1 owner matches 100.0%" in result.summary[0]
    opposed = market.value_datasets([[-2.0, -1.0]], [2.0, 1.0])
    assert opposed.matched == 0
    assert not opposed.bought.any()
    assert opposed.next_owner is None


@pytest.mark.parametrize("scale", [1e-30, 1e12])
def test_raw_scales(scale):
    """Lengths cancel, and columns of unlike units lose no digits to float32."""
    vectors, target = draw(5)
    units = np.geomspace(1e-3, 1e3, 9)
    result = market.value_datasets(vectors * units, target * units)
    scaled = market.value_datasets(vectors * units * scale, target * units * scale)
    np.testing.assert_allclose(scaled.shapley, result.shapley, rtol=1e-9, atol=1e-12)
    ridge = ridges(vectors * units, 1e-3)
    values, _ = enumerated(vectors * units, target * units, ridge)
    np.testing.assert_allclose(result.shapley, values, atol=1e-10)


@pytest.mark.parametrize("constraint", ["nonnegative", "simplex"])
def test_an_offset_loses_no_digits(constraint):
    """At 1e6 from the origin float32 would have no digit of the differences left."""
    vectors, target = draw(5)
    offset = 1e6
    result = market.value_datasets(
        vectors + offset, target + offset, constraint=constraint, l2=1e-13
    )
    if constraint == "simplex":  # errors do not change, but the unit and the ridge do
        assert result.weights.sum() == pytest.approx(1, abs=1e-12)
        rows = ridges(vectors + offset, 1e-13)
        near = plainly(vectors, target, rows, range(5), "simplex")[1]
        np.testing.assert_allclose(result.weights, near, atol=1e-4)
    else:
        values, _ = enumerated(
            vectors + offset, target + offset, ridges(vectors + offset, 1e-13)
        )
        np.testing.assert_allclose(result.shapley, values, atol=1e-9)


def test_vectors_by_class_are_matched_together():
    rng = np.random.default_rng(3)
    vectors, target = rng.normal(size=(4, 3, 5)), rng.normal(size=(7, 3, 5))
    by_class = market.value_datasets(vectors, target)
    flat = market.value_datasets(vectors.reshape(4, 15), target.reshape(7, 15))
    np.testing.assert_array_equal(by_class.shapley, flat.shapley)
    np.testing.assert_array_equal(by_class.stderr, flat.stderr)
    one = market.value_datasets(vectors, target.mean(axis=0))
    np.testing.assert_allclose(one.shapley, flat.shapley, atol=1e-12)


@pytest.mark.parametrize("constraint", ["nonnegative", "simplex"])
def test_errors_are_those_of_a_jackknife(constraint):
    """The delta method's and the jackknife's errors agree where targets are many."""
    rng = np.random.default_rng(4)
    vectors, target = draw(4)
    targets = target + rng.normal(size=(400, 9))
    result = market.value_datasets(vectors, targets, constraint=constraint, l2=0.1)
    left = [
        market.value_datasets(
            vectors,
            np.delete(targets, i, axis=0).mean(axis=0),
            constraint=constraint,
            l2=0.1,
        ).shapley
        for i in range(0, 400, 4)
    ]
    jackknife = np.std(left, axis=0) * 399 / 20
    np.testing.assert_allclose(result.stderr, jackknife, rtol=0.25)


def test_errors_cover_the_value_of_the_whole_population():
    rng = np.random.default_rng(5)
    vectors, target = draw(4)
    exact = market.value_datasets(vectors, target, l2=0.1).shapley
    hits = []
    for _ in range(60):
        targets = target + rng.normal(size=(200, 9))
        result = market.value_datasets(vectors, targets, l2=0.1)
        hits.append(np.abs(result.shapley - exact) <= 1.96 * result.stderr)
    assert 0.88 <= np.mean(hits) <= 0.99


def best_set(utility, prices, budget, tol):
    """Return the cheapest set within `tol` of the best within the budget."""
    able = {m: sum(prices[o] for o in m) for m in utility}
    able = {m: cost for m, cost in able.items() if cost <= budget * (1 + 1e-12)}
    best = max(utility[m] for m in able)
    near = [m for m in able if utility[m] >= (1 - tol) * best - 1e-12]
    least = min(able[m] for m in near)
    return max((m for m in near if able[m] <= least + 1e-12), key=utility.get)


@pytest.mark.parametrize("budget", [None, 0.9, 3.0, 7.5])
@pytest.mark.parametrize("tol", [0.0, 0.05])
def test_a_purchase_is_the_best_of_all_sets(budget, tol):
    vectors, target = draw(7, 9, seed=6)
    prices = np.array([1.0, 0.5, 2.5, 0.9, 3.0, 0.0, 1.7])
    result = market.value_datasets(
        vectors, target, prices=prices, budget=budget, tol=tol
    )
    _, utility = enumerated(vectors, target, ridges(vectors, 1e-3))
    right = best_set(utility, prices, prices.sum() if budget is None else budget, tol)
    assert tuple(np.flatnonzero(result.bought)) == right
    assert result.matched_bought == pytest.approx(utility[right], abs=1e-10)
    assert result.cost == pytest.approx(prices[list(right)].sum())
    for o in range(7):
        more = tuple(sorted({*right, o}))
        gain = utility[more] - utility[right]
        assert result.gains[o] == pytest.approx(gain, abs=1e-10)
    if result.next_owner is not None:
        assert result.next_owner == np.argmax(result.gains)


def test_many_owners_are_sampled_and_bought_greedily():
    rng = np.random.default_rng(7)
    vectors, _ = draw(24, 12, seed=7)
    target = vectors[:6].mean(axis=0)
    key = jax.random.key(0)
    result = market.value_datasets(vectors, target, key=key, trainings=100, budget=4.0)
    assert result.shapley.sum() == pytest.approx(result.matched, abs=1e-4)
    assert result.by_group is None
    assert result.method.endswith("purchase: greedy")
    assert 1 <= result.cost <= 4
    ridge = ridges(vectors, 1e-3)
    bought = plainly(vectors, target, ridge, np.flatnonzero(result.bought))[0]
    assert result.matched_bought == pytest.approx(bought, abs=1e-10)
    drawn = [
        plainly(vectors, target, ridge, rng.permutation(24)[:4])[0] for _ in range(200)
    ]
    assert result.matched_bought >= np.quantile(drawn, 0.98)
    # Nothing that it holds can be left out, as all are within the budget.
    whole = market.value_datasets(vectors, target, key=key, trainings=100)
    enough = 0.99 * whole.matched
    assert whole.matched_bought >= enough
    for o in np.flatnonzero(whole.bought):
        fewer = np.flatnonzero(whole.bought & (np.arange(24) != o))
        assert plainly(vectors, target, ridge, fewer)[0] < enough


@pytest.mark.slow
def test_sampled_values_and_errors_beside_exact_ones():
    """Of twenty owners, with four zero vectors beside, all sets are known."""
    rng = np.random.default_rng(7)
    vectors, _ = draw(20, 12, seed=7)
    targets = vectors[:6].mean(axis=0) + 0.3 * rng.normal(size=(30, 12))
    exact = market.value_datasets(vectors, targets)
    padded = np.concatenate([vectors, np.zeros((4, 12))])
    result = market.value_datasets(
        padded, targets, key=jax.random.key(0), trainings=600, l2=1.2e-3
    )
    apart = np.abs(result.shapley[:20] - exact.shapley)
    assert (apart <= 4 * result.stderr[:20] + 1e-3).all()
    assert 0.8 <= np.median(result.stderr[:20] / exact.stderr) <= 2


def test_curvature_is_a_change_of_coordinates():
    rng = np.random.default_rng(8)
    vectors, target = draw(5)
    root = rng.normal(size=(9, 9)) / 3
    curvature = root @ root.T + 0.1 * np.eye(9)
    result = market.value_datasets(vectors, target, curvature=curvature)
    values, vectors_ = np.linalg.eigh(curvature)
    inverse_root = vectors_ / np.sqrt(values)
    plain = market.value_datasets(vectors @ inverse_root, target @ inverse_root)
    np.testing.assert_allclose(result.shapley, plain.shapley, atol=1e-9)
    # The share of the fall of a quadratic loss by the best step along one gradient.
    newton = np.linalg.solve(curvature, vectors[0])
    best = max(0, target @ newton) ** 2 / (vectors[0] @ newton)
    fall = best / (target @ np.linalg.solve(curvature, target))
    alone = market.value_datasets(vectors, target, curvature=curvature, l2=1e-9).alone
    assert alone[0] == pytest.approx(fall, abs=1e-7)


def test_as_text_and_as_a_table():
    pandas = pytest.importorskip("pandas", reason="comes with an extra")
    vectors, target = draw(6)
    names = ["a very long name of an owner " + c for c in "abcdef"]
    result = market.value_datasets(
        np.concatenate([vectors, vectors[:1]]), target, owners=[*names, "<copy>"]
    )
    assert len(repr(result)) <= 300
    assert repr(result).startswith("DatasetValues(7 owners match ")
    assert len(result) == 7
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert (np.diff(frame["shapley"]) <= 0).all()
    assert frame.loc["<copy>", "group"] == frame.loc[names[0], "group"] == 0
    assert "stderr" not in frame
    html = result._repr_html_()
    assert "&lt;copy&gt;" in html
    assert "<copy>" not in html
    assert "Nearly parallel" in html
    assert any("decided by the ridge" in line for line in result.summary)


GOOD = {"vectors": np.eye(3), "target": np.ones(3)}
BAD = [
    ({"vectors": np.ones(3)}, r"vectors must have shape \[n, d\]"),
    ({"vectors": np.ones((0, 3))}, r"vectors must have shape \[n, d\]"),
    ({"vectors": np.full((3, 3), np.nan)}, "vectors must be finite, but row 0"),
    ({"vectors": np.zeros((3, 3))}, "vectors must not all be zero"),
    ({"vectors": np.full((3, 3), 1e200)}, "squared lengths must lie within float64"),
    ({"target": np.ones(4)}, r"target must have shape \(3\), .* got \(4,\)"),
    ({"target": np.ones((0, 3))}, "target must have shape"),
    ({"target": np.ones((2, 2, 3))}, "target must have shape"),
    ({"target": np.zeros(3)}, "target must not be zero"),
    ({"target": [1.0, np.inf, 0.0]}, "target must be finite"),
    ({"counts": [1, 2]}, r"counts must have shape \(3,\), one an owner, got \(2,\)"),
    ({"counts": [1, 0, 2]}, "counts must be above 0, got 0 of owner 1"),
    ({"counts": [1, -1, 2]}, "counts must be 0 or more, got -1 at 1"),
    ({"prices": [1, -2, 1]}, "prices must be 0 or more, got -2 at 1"),
    ({"prices": [1, np.nan, 1]}, "prices must be finite"),
    ({"prices": [3, 2, 4], "budget": 1.5}, "budget must pay for the cheapest owner, 2"),
    ({"budget": -1.0}, "budget must be finite and zero or more"),
    ({"owners": "ab"}, "owners must have 3 names, one a vector, got 2"),
    ({"owners": "aba"}, "owners must have different names, got 'a' twice"),
    ({"constraint": "convex"}, "constraint must be one of 'nonnegative', 'simplex'"),
    ({"curvature": np.eye(2)}, r"curvature must have shape \(3, 3\), got \(2, 2\)"),
    ({"curvature": np.triu(np.ones((3, 3)))}, "curvature must be symmetric"),
    ({"curvature": -np.eye(3)}, "positive definite, got the least eigenvalue -1"),
    ({"l2": 0.0}, "l2 must be finite and above zero"),
    ({"tol": 1.0}, "tol must be below 1, got 1"),
    ({"parallel": 1.5}, "parallel must be at most 1"),
    ({"trainings": 0}, "trainings must be at least 1"),
    ({"vectors": np.eye(21), "target": np.ones(21)}, "key must be passed for more"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_bad_input_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        market.value_datasets(**(GOOD | changed))


def test_texts_are_refused():
    with pytest.raises(TypeError, match="vectors must be numeric"):
        market.value_datasets([["a", "b"]], [1.0, 2.0])


def test_data_for_nothing_is_bought_where_it_helps():
    result = market.value_datasets(
        np.eye(3), [1.0, 1.0, 0.0], prices=[0, 1, 0], budget=0
    )
    assert result.bought.tolist() == [True, False, False]
    assert result.cost == 0


def test_groups_are_joined_by_chains():
    """Of owners a little apart each, the ends of a chain may be far from each other."""
    angles = np.array([0.9, 0.0, 0.6, 0.3, 2.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    vectors = np.concatenate([vectors, np.zeros((1, 2))])
    result = market.value_datasets(vectors, [1.0, 1.0], parallel=0.95)
    assert result.groups == ((0, 1, 2, 3),)
    assert result.cosines[0, 1] < 0.95
    none = market.value_datasets(vectors, [1.0, 1.0], parallel=0.96)
    assert none.groups == ()
    np.testing.assert_array_equal(none.by_group, none.shapley)


def test_a_picture_shows_values_and_the_purchase():
    vectors, target = draw(n=3)
    result = market.value_datasets(vectors, target, owners=["a", "b$", "c"], budget=1)
    ax = result.plot()
    order = np.argsort(result.shapley)
    np.testing.assert_allclose(
        [bar.get_width() for bar in ax.patches], result.shapley[order]
    )
    full = [bar.get_facecolor()[3] > 0 for bar in ax.patches]
    assert full == result.bought[order].tolist()
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [["a", r"b\$", "c"][i] for i in order]
    assert result.plot(ax) is ax
