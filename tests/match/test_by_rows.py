"""Matching by the compiled operation, beside the same in JAX and in long double."""

import threading

import jax
import match_cases as cases
import numpy as np
import pytest
import scipy.optimize

import jaxsel
from jaxsel import _native, gradients, match
from jaxsel.match import _by_rows

pytestmark = pytest.mark.skipif(
    not _native.available(), reason="no C++ compiler at installation"
)

N, P = 70, 9


def rows_of(name, n=N, p=P):
    """Draw rows whose bytes tell them apart well, badly, or not at all."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, p))
    return {
        "normal": x,
        "offset": x + 1e6,
        "unlike columns": x * 10.0 ** rng.integers(-5, 6, p),
        "heavy tails": np.exp(4 * x),
        "an outlier": np.where((np.arange(n) == 7)[:, None], 1e7 * x, x),
        "an outlying number": np.where(rng.random((n, p)) < 0.02, 1e6 * x, x),
        "copies": np.repeat(x[: n // 2], 2, axis=0),
        "near copies": np.repeat(x[: n // 2], 2, axis=0) * (1 + 1e-7 * x[:, :1]),
        "one direction": x[:, :1] * x[:1] + 1e-4 * x,
        "sparse": np.where(rng.random((n, p)) < 0.7, 0, x),
        "constant columns": np.where(np.arange(p) % 2, 5e3, x),
        "whole numbers": np.round(x),
    }[name]


each_kind = pytest.mark.parametrize(
    "name",
    [
        "normal",
        "offset",
        "unlike columns",
        "heavy tails",
        "an outlier",
        "an outlying number",
        "copies",
        "near copies",
        "one direction",
        "sparse",
        "constant columns",
        "whole numbers",
    ],
)
each_score = pytest.mark.parametrize("score", ["omp", "nomp"])


def stepwise(x, b, indices, l2):
    """Return each choice's regret and the objective after it, in long double."""
    x, b = x.astype(np.longdouble), b.astype(np.longdouble)
    basis, left = [], np.pad(b, (0, len(indices)))
    for t, j in enumerate(indices):
        row = np.pad(x[j], (0, len(indices)))
        row[len(b) + t] = np.sqrt(np.longdouble(l2))
        for _ in range(2):  # modified Gram-Schmidt, twice
            for unit in basis:
                row = row - (row @ unit) * unit
        scores = np.abs(x @ left[: len(b)])
        scores[indices[:t]] = 0
        yield scores, left
        basis.append(row / np.sqrt(row @ row))
        left = left - (left @ basis[-1]) * basis[-1]
    yield None, left


@each_kind
@pytest.mark.parametrize("l2", [0.0, 0.5])
@each_score
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_choice_is_the_best_in_long_double(name, l2, score, dtype):
    x = rows_of(name).astype(dtype)
    b = x[:11].mean(axis=0)
    lengths = np.linalg.norm(x.astype(np.longdouble), axis=1)
    with jax.enable_x64(True):
        found = match.omp(x, b, 8, l2=l2, positive=False, score=score)
    indices = np.asarray(found.indices)
    assert len(indices) >= 1
    steps = stepwise(x, b, indices, l2)
    for t, (scores, left) in enumerate(steps):
        end = left @ left / (b.astype(np.longdouble) @ b)
        if t:
            share = found.objective[t - 1] / found.target_norm
            np.testing.assert_allclose(float(share), float(end), atol=3e-7, rtol=1e-6)
        if scores is None or end < 1e-12:
            break
        by = scores if score == "omp" else scores / np.where(lengths > 0, lengths, 1)
        span = np.sqrt(left @ left) * (1 if score == "nomp" else lengths[indices[t]])
        assert by.max() - by[indices[t]] <= 1e-9 * span
        if by.max() - by[indices[t]]:  # a tie: from here on either is right
            break


@each_kind
@each_score
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("l2", [1e-3, 0.5])
def test_equals_jax_in_float64(name, score, positive, l2, monkeypatch):
    if score == "nomp" and name == "near copies":
        pytest.skip("directions tie")
    x = rows_of(name)
    x /= np.abs(x).max()
    rng = np.random.default_rng(1)
    valid, psi = rng.random(N) < 0.8, rng.random(N)
    b = x[:11].mean(axis=0)
    options = {
        "score": score,
        "positive": positive,
        "l2": l2,
        "valid": valid,
        "penalty": psi,
    }
    with jax.enable_x64(True):
        found = match.omp(x, b, 6, **options)
        monkeypatch.setattr(_by_rows, "_MOST", 0)
        expected = match.omp(x, b, 6, **options)
    if expected.rounded and not found.rounded:
        assert found.objective[-1] <= expected.objective[-1] * (1 + 1e-6)
        return
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-8)
    for name in ("n_valid", "steps", "status", "dropped", "rounded"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.method == expected.method


@pytest.mark.every(6)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 1500, 5000])
@pytest.mark.parametrize("p", [1, 2, 31, 130])
def test_every_shape_of_block(n, p, monkeypatch):
    """Rows in blocks of 16, columns in pairs, centres of a sample of 1024."""
    x, b = cases.normal(n, p).astype(np.float64), cases.normal(p, seed=4)
    with jax.enable_x64(True):
        found = match.omp(x, b, 5, l2=0.1)
        monkeypatch.setattr(_by_rows, "_MOST", 0)
        expected = match.omp(x, b, 5, l2=0.1)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)


def test_weights_are_the_non_negative_fit_past_the_rank():
    """Weights that return to zero leave the factor, and may enter it again."""
    x, b = cases.normal(400, 40).astype(np.float64), cases.normal(40, seed=4)
    pursued = _native.pursue(
        x,
        b.astype(np.float64),
        np.full(400, 1e-3),
        np.ones(400, bool),
        budget=200,
        floor=0.0,
        positive=True,
        by_length=False,
    )
    assert pursued.steps == 200
    assert np.sum(pursued.weights == 0) > 5
    chosen = x[pursued.indices]
    augmented = np.concatenate([chosen, np.sqrt(1e-3) * np.eye(200)], axis=1)
    expected, length = scipy.optimize.nnls(augmented.T, np.pad(b, (0, 200)))
    np.testing.assert_allclose(pursued.weights, expected, atol=1e-10)
    np.testing.assert_allclose(pursued.objective[-1], length**2, rtol=1e-10)
    assert np.all(np.diff(pursued.objective) <= 1e-14)


def test_rounding_of_bytes_cannot_hide_the_best():
    """Every entry of the best row is rounded down, and of the second best mostly up."""
    p, unit, n = 64, 0.03, 404
    best, second = np.full(p, 10.49), np.where(np.arange(p) < 31, 10.6, 10.02)
    top = unit * np.stack([best, second])
    top[:, 0] = 127 * unit
    x = np.concatenate([top, -top, np.zeros((n - 4, p))])
    # Columns of mean 0 and variance 1, by rows that hardly correlate with the target.
    fill = np.sqrt((n - (x**2).sum(axis=0)) / (n - 4))
    signs = (
        np.where(np.arange(p) % 2, 1, -1)
        * np.where(np.arange(n - 4) % 2, 1, -1)[:, None]
    )
    x[4:] = fill * signs
    target = np.where(np.arange(p) > 0, 1.0, 0.0)
    products = x[:2] @ target
    assert products[1] < products[0] < 1.05 * products[1]
    rounded = np.round(x[:2] / unit)[:, 1:].sum(axis=1)
    assert rounded[0] < 0.96 * rounded[1]
    with jax.enable_x64(True):
        found = match.omp(x, target, 1)
    assert found.indices[0] == 0


def test_a_correlation_that_is_rounding_gives_way_to_a_smaller_one():
    x, b = np.array([[1e12, 1e-5], [0.0, 1e-6]]), np.array([0.0, 1.0])
    with jax.enable_x64(True):
        found = match.omp(x, b, 1, l2=0.0)
    np.testing.assert_array_equal(found.indices, [1])


def test_rounding_is_told():
    """A row that depends on others but for rounding, and rows far from the origin."""
    with jax.enable_x64(True):
        x, b = np.array([[1.0, 0], [1, 3e-8]]), np.array([1.0, 5])
        alike = match.omp(x, b, 2, l2=0, positive=False)
        assert len(alike) == 1
        assert alike.rounded
        x = rows_of("normal") + 1e6
        assert match.omp(x, x[:11].mean(axis=0), 5, positive=False).rounded
        x = rows_of("normal")
        assert not match.omp(x, x[:11].mean(axis=0), 5, positive=False).rounded


def test_a_row_with_nan_is_never_chosen():
    x = cases.normal(N, P)
    x[3, 2] = np.nan
    oracle = gradients.Dense(jax.numpy.asarray(x))
    found = match.omp(oracle, x[0], 20, l2=0.1)
    assert 3 not in found.indices
    assert np.isfinite(found.weights).all()


def test_equal_rows_are_chosen_in_their_order():
    x = np.repeat(cases.normal(5, P), 3, axis=0)
    found = match.omp(x, x.mean(axis=0), 5, l2=0.5)
    assert found.indices[0] % 3 == 0


@pytest.mark.parametrize("target", [0.0, 1.0])
def test_nothing_to_choose(target):
    x = np.zeros((4, 2)) if target else np.ones((4, 2))
    found = match.omp(x, np.full(2, target), 3)
    assert len(found) == 0
    assert "no candidate is left" in found.reasons
    none = match.omp(np.ones((4, 2)), np.ones(2), 3, valid=np.zeros(4, bool))
    assert len(none) == 0


def test_stops_at_the_tolerance_of_narrow_rows():
    x, b = cases.normal(N, P), cases.normal(P, seed=4)
    full = match.omp(x, b, 40, l2=0.0, positive=False)
    assert "within the tolerance" in full.reasons
    assert full.error < 1e-12
    half = match.omp(x, b, 40, l2=0.0, positive=False, tol=0.5)
    assert len(half) < len(full)
    np.testing.assert_array_equal(half.indices, full.indices[: len(half)])
    assert full.weights.dtype == np.float32


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_what_does_not_fit_float32_is_refused_as_before(scale, monkeypatch):
    x = cases.normal(N, P).astype(np.float64) * scale

    def message():
        with pytest.raises(ValueError, match="float32") as error:
            match.omp(x, x[0], 3)
        return str(error.value)

    refused = message()
    monkeypatch.setattr(_by_rows, "_MOST", 0)
    assert message() == refused


def test_threads_match_alike():
    x, b = cases.normal(3000, 40), cases.normal(40, seed=4)
    expected = match.omp(x, b, 30, l2=0.1)
    results = [None] * 8

    def run(t):
        results[t] = match.omp(x, b, 30, l2=0.1)

    threads = [threading.Thread(target=run, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result.indices, expected.indices)
        np.testing.assert_array_equal(result.weights, expected.weights)


def test_the_operation_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"rows \[n, d\].*\(4, 2\), \(3,\)"):
        _native.pursue(
            np.ones((4, 2)),
            np.ones(3),
            np.zeros(4),
            np.ones(4, bool),
            budget=1,
            floor=0.0,
            positive=True,
            by_length=False,
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda x, b: match.omp(x, b, 3, score="ols"),
        lambda x, b: match.omp(x, np.stack([b, b]), 3),
        lambda x, b: match.omp(x, b, 3, penalty=np.ones((2, N))),
        lambda x, b: match.omp(x, b, 3, progress=True),
        lambda x, b: match.omp(
            gradients.streamed(lambda rows: gradients.dense(x[rows]), N), b, 3
        ),
    ],
    ids=["ols", "targets", "matrix", "progress", "streamed"],
)
@pytest.mark.every(2)
def test_other_matches_take_the_path_in_jax(call, monkeypatch):
    x, b = cases.normal(N, P), cases.normal(P, seed=4)
    monkeypatch.setattr(_native, "pursue", None)
    assert call(x, b) is not None
    with pytest.raises(TypeError, match="NoneType"):
        jaxsel.omp(x, b, 3)
