"""Values of embeddings against a target sample: the definitions, and raw tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jaxsel

KERNELS = ("gaussian", "linear")
WIDTH = 1.3


def kernel_of(kernel, a, b, width=WIDTH):
    if kernel == "linear":
        return a @ b.T
    return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * width**2))


def mmd(kernel, x, z, width=WIDTH):
    """Return the squared MMD by its definition."""
    xx, xz, zz = (kernel_of(kernel, *p, width) for p in ((x, x), (x, z), (z, z)))
    return xx.mean() - 2 * xz.mean() + zz.mean()


def influences(kernel, x, z, width=WIDTH):
    """Return the influence of each sample on -MMD² over n, and its rows by target."""
    xx, xz = kernel_of(kernel, x, x, width), kernel_of(kernel, x, z, width)
    rows = xz - xx.mean(1)[:, None]
    rows = 2 / len(x) * (rows - rows.mean(0))
    return rows.mean(1), rows


def tables(seed, n=23, m=11, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), 0.5 + rng.normal(size=(m, d))


def call(x, z, kernel, **options):
    if kernel == "gaussian":
        options = {"bandwidth": WIDTH, **options}
    return jaxsel.mmd_values(x, z, kernel=kernel, **options)


def close(values, expected, tolerance=2e-6):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(2))
def test_values_are_influences_on_mmd(kernel, seed):
    x, z = tables(seed)
    values = call(x, z, kernel)
    expected, rows = influences(kernel, x, z)
    close(values.values, expected)
    close(values.stderr, rows.std(1, ddof=1) / np.sqrt(len(z)), 1e-5)
    assert values.count == len(z)
    assert abs(np.sum(values.values)) < 1e-6


@pytest.mark.parametrize("kernel", KERNELS)
def test_influences_are_derivatives(kernel):
    x, z = tables(3, n=7)
    step, n = 1e-6, len(x)
    xx, xz = kernel_of(kernel, x, x), kernel_of(kernel, x, z).mean(1)
    shares = np.full(n, 1 / n)
    slopes = []
    for i in range(n):
        moved = (1 - step) * shares + step * np.eye(n)[i]
        change = [2 * w @ xz - w @ xx @ w for w in (moved, shares)]
        slopes.append((change[0] - change[1]) / step / n)
    close(call(x, z, kernel).values, np.array(slopes), 1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [2, 3, 23])
def test_leave_one_out_is_the_exact_difference(kernel, n):
    x, z = tables(1, n=n)
    values = call(x, z, kernel, leave_one_out=True)
    whole = mmd(kernel, x, z)
    expected = [mmd(kernel, np.delete(x, i, 0), z) - whole for i in range(n)]
    close(values.values, np.array(expected), 1e-5)
    _, rows = influences(kernel, x, z)
    error = rows.std(1, ddof=1) / np.sqrt(len(z)) * n / (n - 1)
    close(values.stderr, error, 1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("chunk_size", [1, 7, 100])
def test_chunks_change_nothing(kernel, chunk_size):
    x, z = tables(2)
    whole = call(x, z, kernel)
    parts = call(x, z, kernel, chunk_size=chunk_size)
    close(parts.values, whole.values, 1e-6)
    close(parts.m2, whole.m2, 1e-5)


def test_a_few_samples_stand_for_all():
    x, z = tables(4, n=2000, d=2)
    exact = call(x, z, "gaussian", reference_size=None)
    close(exact.values, influences("gaussian", x, z)[0])
    near = call(x, z, "gaussian", reference_size=400)
    spread = kernel_of("gaussian", x, x).std(1).max()
    bound = 4 * 2 / len(x) * spread / np.sqrt(400)
    assert 0 < np.abs(near.values - exact.values).max() < bound
    # Being one of the few is no disadvantage, though a sample is like itself.
    drawn = np.random.default_rng(0).choice(2000, 400, replace=False)
    gap = np.asarray(near.values - exact.values)
    inside = np.isin(np.arange(2000), drawn)
    error = gap.std() / np.sqrt(400)
    assert abs(gap[inside].mean() - gap[~inside].mean()) < 4 * error
    np.testing.assert_array_equal(
        call(x, z, "gaussian", reference_size=400).values, near.values
    )


def test_parts_of_the_target_merge():
    x, z = tables(5, m=30)
    first, second = (call(x, part, "gaussian") for part in (z[:8], z[8:]))
    merged, whole = first.merge(second), call(x, z, "gaussian")
    close(merged.values, whole.values)
    close(merged.stderr, whole.stderr, 1e-5)
    with pytest.raises(ValueError, match="both counted the 8 target samples"):
        first.merge(call(x, z[:8], "gaussian"))
    with pytest.raises(ValueError, match="method differs"):
        first.merge(call(x, z[8:], "gaussian", bandwidth=2))


def test_sums_over_owners():
    x, z = tables(6)
    owners = np.arange(len(x)) % 3
    values = call(x, z, "linear")
    sums = values.by_owner(owners).values
    np.testing.assert_allclose(
        sums, [values.values[owners == o].sum() for o in range(3)], atol=1e-6
    )


def test_the_bandwidth_is_the_median_distance():
    x, z = tables(7)
    points = np.concatenate([x, z])
    lengths = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    median = np.median(lengths[np.triu_indices(len(points), 1)])
    values = jaxsel.mmd_values(x, z)
    assert f"bandwidth={median:.6g}," in values.method
    close(values.values, influences("gaussian", x, z, median)[0])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("offset", [1e6, 3e8])
def test_far_from_the_origin(kernel, offset):
    x, z = tables(8)
    values = call(x + offset, z + offset, kernel)
    close(values.values, influences(kernel, x, z)[0], 1e-5)


def test_data_many_bandwidths_from_the_target():
    x, z = tables(9)
    x[::2] += 5000  # float32 loses their distances among each other
    values = call(x, z, "gaussian", leave_one_out=True)
    whole = mmd("gaussian", x, z)
    expected = [mmd("gaussian", np.delete(x, i, 0), z) - whole for i in range(len(x))]
    close(values.values, np.array(expected), 1e-6)
    close(values.m2, call(x, z, "gaussian", chunk_size=3, leave_one_out=True).m2)


def regression(kernel, x, y, z, y_val, l2, width=WIDTH):
    """Return values with labels, by kernel ridge regression."""
    centre = z.mean(0)
    gram, near = (kernel_of(kernel, a - centre, z - centre, width) for a in (z, x))
    classes = np.union1d(y, y_val)
    hot = (y_val[:, None] == classes).astype(float)
    ridge = l2 * len(z) * gram.diagonal().mean() * np.eye(len(z))
    fit = near @ np.linalg.solve(gram + ridge, hot)
    return -((fit - (y[:, None] == classes)) ** 2).sum(1)


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_of_labels_are_misfits_of_a_regression(kernel):
    x, z = tables(10, m=30)
    y, y_val = np.arange(23) % 4, np.arange(30) % 3  # class 3 is not in the target
    values = call(x, z, kernel, y=y, y_val=y_val, l2=0.01, chunk_size=9)
    close(values.values, regression(kernel, x, y, z, y_val, 0.01), 1e-5)
    assert values.stderr is None
    assert "labels=True" in values.method
    names = np.array([*"abcd"])
    named = call(x, z, kernel, y=names[y], y_val=names[y_val], l2=0.01)
    close(named.values, values.values)


def test_labels_far_from_the_target_and_wrong_ones():
    z, y_val = np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1]
    x, y = np.array([[0.05], [0.05], [100.0]]), [0, 1, 1]
    values = np.asarray(
        jaxsel.mmd_values(x, z, y=y, y_val=y_val, bandwidth=1.0, l2=1e-6).values
    )
    np.testing.assert_allclose(values, [0, -2, -1], atol=1e-2)


def area(score, wrong):
    """Return the chance that a wrong label has less than a right one."""
    score = np.asarray(score)
    return np.mean(score[wrong][:, None] < score[~wrong])


def test_wrong_labels_are_last_as_by_neighbours():
    from jaxsel import data

    digits = data.load("digits")
    rows = np.random.default_rng(0).permutation(len(digits.y))[:900]
    x, y = digits.as_features()[rows], digits.y[rows].copy()
    wrong = np.arange(500) % 10 == 0
    y[:500][wrong] = (y[:500][wrong] + 1 + np.arange(50) % 9) % 10
    arguments = x[:500], y[:500], x[500:], y[500:]
    scores = [
        jaxsel.knn_shapley(*arguments).values,
        jaxsel.mmd_values(x[:500], x[500:], y=y[:500], y_val=y[500:]).values,
    ]
    areas = [area(score, wrong) for score in scores]
    assert areas[1] > areas[0] - 0.01 > 0.97


def test_crowds_are_worth_less_than_a_place_that_is_missing():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 2))
    z[:40] += 9
    x = np.concatenate([rng.normal(size=(60, 2)), np.zeros((60, 2)), [[9.0, 9.0]]])
    values = np.asarray(jaxsel.mmd_values(x, z).values)
    assert np.ptp(values[60:120]) < 1e-8  # duplicates are worth the same
    assert values.argmax() == 120
    assert values[:60].mean() > values[60:120].mean()


def test_a_constant_column_changes_nothing():
    x, z = tables(11)
    wide = [np.c_[a, np.full(len(a), 7e5)] for a in (x, z)]
    close(call(*wide, "gaussian").values, call(x, z, "gaussian").values, 1e-5)


def test_all_equal_samples_are_told():
    x, z = np.ones((60, 2)), np.ones((5, 2))
    with pytest.warns(UserWarning, match="all 60 values are"):
        values = jaxsel.mmd_values(x, z)
    assert np.allclose(values.values, 0, atol=1e-7)


def test_a_rare_class_keeps_its_values():
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(400, 2)), rng.normal(size=(100, 2))
    y, y_val = np.zeros(400, int), np.zeros(100, int)
    for features, labels, count in ((x, y, 4), (z, y_val, 2)):
        features[:count] += 8
        labels[:count] = 1
    values = np.asarray(jaxsel.mmd_values(x, z, y=y, y_val=y_val, bandwidth=1).values)
    assert values[:4].min() > -1
    assert values[4:].mean() > -0.2


def test_raw_columns_are_told():
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=(80, 3)), rng.normal(size=(20, 3))
    x[:, 1] *= 1e6
    z[:, 1] *= 1e6
    with pytest.warns(UserWarning, match="column 1 of x varies by"):
        values = jaxsel.mmd_values(x, z)
    width = float(values.method.split("bandwidth=")[1].split(",")[0])
    close(values.values, influences("gaussian", x, z, width)[0], 1e-4)


def test_the_target_itself_is_told():
    x, _ = tables(0)
    with pytest.warns(UserWarning, match="x_val is x"):
        jaxsel.mmd_values(x, x.copy())


def test_frames_and_jax_arrays():
    x, z = tables(12)
    expected = call(x, z, "gaussian").values
    frame = pd.DataFrame(x, columns=[*"abc"], index=[f"r{i}" for i in range(len(x))])
    target = pd.DataFrame(z, columns=[*"abc"])[[*"cab"]]
    values = call(frame, target, "gaussian")
    close(values.values, expected)
    assert values.to_pandas().index[1] == "r1"
    close(call(jnp.asarray(x), jnp.asarray(z), "gaussian").values, expected, 1e-5)
    with jax.enable_x64(True):
        close(call(x, z, "gaussian").values, expected, 1e-6)


X, Z = tables(0)
REFUSED = {
    "NaN": (
        lambda: call(np.where(X > 1, np.nan, X), Z, "gaussian"),
        "x must be finite",
    ),
    "NaN in the target": (
        lambda: call(X, np.full_like(Z, np.nan), "gaussian"),
        "x_val must be finite, but row 0",
    ),
    "shapes": (lambda: call(X, Z[:, :2], "linear"), "same number of features"),
    "kernel": (lambda: jaxsel.mmd_values(X, Z, kernel="rbf"), "kernel must be one of"),
    "bandwidth": (lambda: call(X, Z, "gaussian", bandwidth=0), "bandwidth must be"),
    "tiny bandwidth": (
        lambda: call(X, Z, "gaussian", bandwidth=1e-20),
        "bandwidth must be at least",
    ),
    "unused bandwidth": (
        lambda: call(X, Z, "linear", bandwidth=1),
        "bandwidth must be None with kernel='linear'",
    ),
    "labels alone": (
        lambda: call(X, Z, "linear", y=[1]),
        "y_val must be passed with y",
    ),
    "length of y": (
        lambda: call(X, Z, "linear", y=[1, 2], y_val=[1] * 11),
        "each of the 23 samples",
    ),
    "other labels": (
        lambda: call(X, Z, "linear", y=[1] * 23, y_val=[2] * 11),
        "must share a label",
    ),
    "one out with labels": (
        lambda: call(X, Z, "linear", y=[1] * 23, y_val=[1] * 11, leave_one_out=True),
        "leave_one_out must be False",
    ),
    "one sample": (
        lambda: call(X[:1], Z, "linear", leave_one_out=True),
        "two samples to leave one out, got 1",
    ),
    "reference_size": (
        lambda: call(X, Z, "gaussian", reference_size=1),
        "reference_size must be at least 2",
    ),
    "huge": (lambda: call(X * 1e16, Z, "linear"), "1e-15 to 1e\\+15"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    function, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        function()


def test_one_sample_of_each_table():
    values = jaxsel.mmd_values([[1.0]], [[2.0]])
    assert np.asarray(values.values).tolist() == [0.0]
    assert np.isnan(values.stderr[0])
