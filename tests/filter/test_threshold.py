"""Loss thresholds against brute force, SciPy and each other."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from references_filter import threshold
from scipy import stats

from jaxsel.filter import (
    _inputs,
    _sorted,
    _source,
    _tally,
    ks_threshold,
    loss_threshold,
)
from jaxsel.filter._bits import split, to_float, to_place


def tied(rng, n, high=6):
    """Draw losses of which many are equal, as float32."""
    return (rng.integers(-2, high, n) / 3).astype(np.float32)


def cases(number, most_v=8, most_p=11):
    for i in range(number):
        rng = np.random.default_rng(i)
        m, n = rng.integers(1, most_v), rng.integers(1, most_p)
        draw = tied if i % 4 else lambda rng, n: rng.normal(size=n).astype(np.float32)
        yield rng, draw(rng, m), draw(rng, n)


def facts(found):
    return found.value, found.n_kept, found.distance, found.share


@pytest.fixture
def in_chunks(monkeypatch):
    """Read arrays three at a time, and collect hardly any."""
    monkeypatch.setattr(_inputs, "IN_MEMORY", 0)
    monkeypatch.setattr(_inputs, "_CHUNK", 3)
    monkeypatch.setattr(_source, "GATHERED", 3)


def test_brute_force():
    for _, v, p in cases(3000):
        value, distance = threshold(v, p)
        found = loss_threshold(v, p)
        assert (found.value, found.distance) == (value, float(distance)), (v, p)
        assert found.n_kept == np.sum(p <= value)
        assert (found.n, found.n_benchmark) == (len(p), len(v))
        assert (found.keeps(p) == (p <= value)).all()


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
)
def test_any_ties(v, p):
    v, p = np.array(v, float), np.array(p, float)
    value, distance = threshold(v, p)
    found = loss_threshold(v, p)
    assert (found.value, found.distance) == (value, float(distance))


def test_smallest_of_equal_minima():
    # A search for the crossing alone finds 4.
    assert loss_threshold([8, 8], [0, 2, 3, 4, 5]).value == 0


def test_distance_is_that_of_scipy():
    rng = np.random.default_rng(0)
    v, p = rng.gamma(1, 0.5, 300), rng.gamma(1, 1, 4000)
    found = loss_threshold(v, p)
    kept = p[p <= found.value]
    assert found.distance == pytest.approx(stats.ks_2samp(v, kept).statistic, abs=1e-12)
    others = np.quantile(p, np.linspace(0.01, 1, 50))
    assert all(
        stats.ks_2samp(v, p[p <= t]).statistic >= found.distance - 1e-12 for t in others
    )


def test_chunks_give_the_same(in_chunks):
    for _, v, p in cases(300):
        value, distance = threshold(v, p)
        found = loss_threshold(v, p)
        assert (found.value, found.distance) == (value, float(distance))
        assert found.n_kept == np.sum(p <= value)


def drawn(rng, smooth, n):
    return rng.normal(size=n) if smooth else tied(rng, n, 30).astype(float)


@pytest.mark.parametrize("weighted", [False, True])
def test_bins_count_as_sorting_does(weighted, monkeypatch):
    monkeypatch.setattr(_tally, "FEW", 0)
    for i in range(300):
        rng = np.random.default_rng(i)
        dtype = (np.float32, np.float64)[i % 2]
        scale = 10.0 ** rng.integers(-40, 30)
        losses = drawn(rng, i % 3 > 0, rng.integers(1, 200)) * scale
        edges = drawn(rng, i % 3 > 1, rng.integers(1, 40)) * scale
        losses, edges = losses.astype(dtype), np.unique(edges.astype(dtype) + dtype(0))
        if i % 5 == 0:
            losses, edges = np.abs(losses), np.abs(edges[-1:])
        weights = rng.integers(0, 5, len(losses)) if weighted else None
        found = _tally.tally(losses, weights, edges)
        expected = _sorted.Sorted(losses, weights).counts(edges)
        np.testing.assert_array_equal(found.below, expected.below)
        np.testing.assert_array_equal(found.upto, expected.upto)
        assert found.total == expected.total


def test_bins_of_many_losses():
    rng = np.random.default_rng(0)
    v = rng.gamma(1, 0.6, 1000).astype(np.float32)
    p = np.concatenate([rng.gamma(1, 1, 50_000), rng.choice(v, 500)]).astype(np.float32)
    found = _tally.tally(p, None, np.unique(v))
    expected = _sorted.Sorted(p).counts(np.unique(v))
    np.testing.assert_array_equal(found.below, expected.below)
    np.testing.assert_array_equal(found.upto, expected.upto)
    # Hardly any needed sorting, so that binning is worth its while.
    exact, source = loss_threshold(v, p), _sorted.Sorted(p)
    object.__setattr__(exact, "source", source)
    again = loss_threshold(v, p)
    assert facts(again) == facts(exact)
    key = jax.random.key(0)
    np.testing.assert_array_equal(
        again.band(key, 50).values, exact.band(key, 50).values
    )


def test_function_of_chunks():
    rng = np.random.default_rng(0)
    v, p = tied(rng, 50), tied(rng, 200, 20)
    found = loss_threshold(v, lambda: iter(np.split(p, 8)))
    assert facts(found) == facts(loss_threshold(v, p))


def test_memory_mapped_file(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    v, p = rng.gamma(1, 0.5, 100), rng.gamma(1, 1, 5000).astype(np.float32)
    np.save(tmp_path / "p.npy", p)
    expected = facts(loss_threshold(v, p))
    monkeypatch.setattr(_inputs, "IN_MEMORY", 1000)
    monkeypatch.setattr(_inputs, "_CHUNK", 700)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    assert facts(loss_threshold(v, mapped)) == expected


def test_reads_few_times(monkeypatch):
    rng = np.random.default_rng(0)
    v, p = rng.gamma(1, 0.5, 100), rng.gamma(1, 1, 100_000)
    passes = []

    def read():
        passes.append(1)
        return iter(np.split(p, 10))

    found = loss_threshold(v, read)
    assert facts(found) == facts(loss_threshold(v, p))
    # One for the type, one for the counts, one each for two intervals, two in the end.
    assert len(passes) <= 6


def test_whole_weights_are_repetitions(in_chunks):
    for rng, v, p in cases(200):
        w = rng.integers(0, 4, len(p))
        w[0] += 1
        b = rng.integers(0, 3, len(v))
        b[-1] += 1
        expected = loss_threshold(np.repeat(v, b), np.repeat(p, w))
        found = loss_threshold(v, p, weights=w, benchmark_weights=b)
        assert (found.value, found.distance, found.share) == (
            expected.value,
            expected.distance,
            expected.share,
        )
        assert found.n_kept == np.sum(p <= found.value)


def test_weights_in_memory_and_of_any_scale():
    for rng, v, p in cases(100):
        w = rng.integers(1, 4, len(p))
        expected = loss_threshold(v, np.repeat(p, w))
        for weights in (w, w * 0.37):
            found = loss_threshold(v, p, weights=weights)
            assert found.value == expected.value
            assert found.distance == pytest.approx(expected.distance, abs=1e-9)


def test_weights_of_chunks():
    rng = np.random.default_rng(0)
    v, p, w = tied(rng, 30), tied(rng, 80, 20), rng.integers(0, 3, 80)
    pairs = lambda: zip(np.split(p, 4), np.split(w, 4), strict=True)
    assert facts(loss_threshold(v, pairs)) == facts(loss_threshold(v, p, weights=w))


@pytest.mark.parametrize(
    ("v", "p", "value", "n_kept"),
    [
        ([1.0], [2.0], 2.0, 1),  # n < 2
        ([1.0, 1.0], [1.0, 1.0, 1.0], 1.0, 3),  # all equal
        ([3.0], [5.0, 5.0], 5.0, 2),
        (np.arange(100.0), [3.0, 50.0], 50.0, 2),  # benchmark larger than data
        ([-0.0], [0.0, 1.0], 0.0, 1),
        (np.float32([1e-45]), np.float32([1e-45, 3e-45, 2]), np.float32(1e-45), 1),
    ],
)
def test_edge_cases(v, p, value, n_kept):
    found = loss_threshold(v, p)
    assert (found.value, found.n_kept) == (value, n_kept)
    assert found.value == threshold(np.asarray(v), np.asarray(p))[0]


def test_float_types_mix():
    rng = np.random.default_rng(0)
    v, p = rng.gamma(1, 0.5, 30), rng.gamma(1, 1, 100).astype(np.float32)
    assert loss_threshold(v, p).value == threshold(v, p.astype(np.float64))[0]
    half = loss_threshold(v.astype(np.float16), jax.numpy.asarray(p, "bfloat16"))
    assert half.n == 100


NAN, INF, F32 = np.nan, np.inf, np.float32([1])


@pytest.mark.parametrize(
    ("v", "p", "options", "match"),
    [
        ([], [1.0], {}, "benchmark_losses must hold at least one loss"),
        ([1.0], [], {}, "losses must have shape"),
        ([1.0], [[1.0]], {}, "losses must have shape"),
        ([1.0], [0.0, NAN], {}, "losses must be finite, but entry 1 is nan"),
        ([1.0], [0.0, 1.0, INF], {}, "losses must be finite, but entry 2 is inf"),
        ([NAN], [0.0], {}, "benchmark_losses must be finite, but entry 0 is nan"),
        ([1.0], [0.0], {"weights": [-1]}, "entry 0 is -1"),
        ([1.0], [0.0], {"weights": [0]}, "weight above zero"),
        ([1.0], [0.0], {"weights": [1, 2]}, r"weights must have shape \[1\]"),
        ([1.0], [0.0], {"benchmark_weights": [0.0]}, "must not all be zero"),
        ([1.0], [0.0], {"benchmark_weights": [2**31]}, "below 2\\^31"),
        ([1.0] * 9, [0.0], {"weights": [2**60]}, "at most 2\\^62"),
        ([1.0], lambda: iter([]), {}, "at least one"),
        ([1.0], lambda: iter([[1.0], [NAN]]), {}, "entry 1 is nan"),
        ([1.0], lambda: iter([([1.0], [0.5])]), {}, "must be whole numbers"),
        ([1.0], lambda: iter([[1.0]]), {"weights": [1]}, "weights must be None"),
        ([1.0], [0.0] * 3, {"weights": [2**62] * 3}, "weights must add up to at most"),
        ([1.0], [0.0, 1.0], {"weights": [1e30, 1]}, "at most 2\\^62, got 1e\\+30"),
        ([1.0, 2.0], [0.0], {"benchmark_weights": [1e30, 1]}, "benchmark_weights must"),
        (np.float32([1]), lambda: iter([F32, [1e39]]), {}, "of one type in all chunks"),
        (F32, lambda: iter([F32, (F32, [1])]), {}, "weights with all chunks or"),
        (F32, lambda: iter([(F32, F32, F32)]), {}, "pairs of losses and weights"),
    ],
)
def test_bad_input(v, p, options, match):
    with pytest.raises(ValueError, match=match):
        loss_threshold(v, p, **options)


@pytest.mark.parametrize("name", ["weights", "benchmark_weights"])
def test_weights_must_be_numbers(name):
    with pytest.raises(TypeError, match=f"{name} must be numeric"):
        loss_threshold([1.0], [0.0], **{name: ["1"]})


def test_an_iterator_is_used_up():
    used = iter([F32, F32])
    with pytest.raises(ValueError, match="must return a new iterator at each call"):
        loss_threshold(F32, lambda: used)


def test_losses_that_change_between_passes():
    rng = np.random.default_rng(0)
    v, passes = rng.gamma(1, 0.5, 100), []

    def read():
        passes.append(1)
        return iter([rng.gamma(1, 1, 9000), rng.gamma(1, 1, 9000)])

    with pytest.raises(ValueError, match="must be the same at each call"):
        loss_threshold(v, read)


def test_losses_and_weights_of_any_scale():
    rng = np.random.default_rng(0)
    for _ in range(40):
        v, p = rng.gamma(1, 1, 20), rng.gamma(1, 1, 50)
        b, w = rng.random(20), rng.random(50)
        found = loss_threshold(v, p, weights=w, benchmark_weights=b)
        thousandth = loss_threshold(v, p, weights=w / 1000, benchmark_weights=b * 7)
        assert found.value == thousandth.value
        assert found.share == pytest.approx(w[p <= found.value].sum() / w.sum())
    half = np.full(200_000, 0.6, np.float16)  # their sum exceeds float16
    p = rng.gamma(1, 1, len(half))
    assert loss_threshold(v, p, weights=half).value == loss_threshold(v, p).value
    with np.errstate(all="raise"):
        assert loss_threshold([1e308] * 2, [1e308] * 2).n_kept == 2


def test_refuses_what_is_no_number():
    with pytest.raises(TypeError, match="losses must be numeric"):
        loss_threshold([1.0], ["a"])
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda p: loss_threshold([1.0], p).value)(np.ones(3))


def test_band():
    rng = np.random.default_rng(0)
    v, p = rng.gamma(1, 0.5, 60).astype(np.float32), rng.gamma(1, 1, 500)
    found, key = loss_threshold(v, p), jax.random.key(3)
    band = found.band(key, 50, level=0.8)
    assert band.values.shape == band.shares.shape == (50,)
    for i in (0, 17, 49):
        draws = jax.random.randint(jax.random.fold_in(key, i), (36,), 0, 60)
        again = np.sort(v)[np.asarray(draws)]
        expected = loss_threshold(again, p)
        assert (band.values[i], band.shares[i]) == (expected.value, expected.share)
    assert (band.values < band.low).sum() <= 5 >= (band.values > band.high).sum()
    assert band.low < band.high
    band = found.band(key, 200)
    ordered = np.sort(band.values)
    assert (band.low, band.high) == (ordered[10], ordered[189])


@pytest.mark.slow
@pytest.mark.parametrize("m", [200, 1000])
def test_bands_hold_the_threshold_of_an_endless_benchmark(m):
    """Replicates of as many losses as there are held it in .78 of these runs."""
    held = []
    for seed in range(60):
        rng = np.random.default_rng([seed, m])
        p = np.append(rng.gamma(1, 0.3, 2100), np.exp(rng.normal(0.5, 1, 900)))
        endless = np.random.default_rng(9).gamma(1, 0.3, 200_000)
        true = loss_threshold(endless, p).value
        band = loss_threshold(rng.gamma(1, 0.3, m), p).band(jax.random.key(seed), 100)
        held.append(band.low <= true <= band.high)
    assert np.mean(held) > 0.9 - 2 * np.sqrt(0.9 * 0.1 / 60)


@pytest.mark.left_out
def test_band_narrows_with_more_benchmark_losses():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.gamma(1, 0.5, 2000), 3 + rng.gamma(1, 1, 2000)])
    widths = []
    for m in (30, 3000):
        band = loss_threshold(rng.gamma(1, 0.5, m), p).band(jax.random.key(0), 100)
        widths.append(band.shares.std())
    assert widths[1] < widths[0] / 3


def test_band_in_chunks(in_chunks):
    rng = np.random.default_rng(0)
    v, p = tied(rng, 20), rng.gamma(1, 1, 100).astype(np.float32)
    found = loss_threshold(v, p).band(jax.random.key(0), 20)
    memory = _sorted.Sorted(p)
    exact = loss_threshold(v, p)
    object.__setattr__(exact, "source", memory)
    expected = exact.band(jax.random.key(0), 20)
    np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"replicates": 0}, "replicates"), ({"level": 1.0}, "level must lie")],
)
def test_band_refuses(options, match):
    with pytest.raises(ValueError, match=match):
        loss_threshold([1.0], [1.0]).band(jax.random.key(0), **options)


@pytest.mark.parametrize("times", [30, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.left_out
def test_kernel_is_as_exact(times):
    kernel = jax.jit(ks_threshold)
    for i in range(times):
        rng = np.random.default_rng(i)
        m, n = [(5, 7), (8, 11), (1, 9)][i % 3]
        v, p = tied(rng, m), tied(rng, n, 9)
        value, distance = threshold(v, p)
        found = kernel(v, p)
        assert (float(found.value), int(found.n_kept)) == (value, np.sum(p <= value))
        assert float(found.distance) == pytest.approx(float(distance), abs=1e-6)


@pytest.mark.left_out
def test_kernel_where_products_exceed_32_bits():
    rng = np.random.default_rng(0)
    v, p = rng.gamma(1, 0.6, 30_000), rng.gamma(1, 1, 300_000)
    v, p = v.astype(np.float32), p.astype(np.float32)
    found, expected = jax.jit(ks_threshold)(v, p), loss_threshold(v, p)
    assert (float(found.value), int(found.n_kept)) == (expected.value, expected.n_kept)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (30, 40), (100, 3)])
def test_kernel_of_other_shapes(shape):
    kernel = jax.jit(ks_threshold)
    for i in range(100):
        rng = np.random.default_rng(i)
        v, p = tied(rng, shape[0]), tied(rng, shape[1], 9)
        found = kernel(v, p)
        assert float(found.value) == threshold(v, p)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_places(dtype):
    info = np.finfo(dtype)
    values = [
        -np.inf,
        info.min,
        -1,
        -info.tiny,
        -0.0,
        0,
        info.tiny,
        1,
        info.max,
        np.inf,
    ]
    values = np.array(values, dtype)
    places = to_place(values)
    assert (np.diff(places) >= 0).all()
    np.testing.assert_array_equal(to_float(places, np.dtype(dtype)), values)
    following = to_float(places[1:-2] + 1, np.dtype(dtype))
    np.testing.assert_array_equal(following, np.nextafter(values[1:-2], dtype(np.inf)))


@settings(max_examples=50)
@given(st.integers(-(2**62), 2**62), st.integers(2, 2**62), st.integers(2, 50))
def test_split(low, width, parts):
    cuts = split(low, low + width, parts)
    assert len(cuts) == min(width - 1, parts - 1)
    places = [low, *cuts.tolist(), low + width]  # beyond int64 perhaps
    steps = [after - before for before, after in itertools.pairwise(places)]
    assert min(steps) >= 1
    assert max(steps) - min(steps) <= 1


def test_losses_that_are_unlike_the_benchmark_are_told():
    rng = np.random.default_rng(0)
    benchmark, losses = rng.gamma(1, 0.1, 100), 50 + rng.gamma(1, 1, 300)
    with pytest.warns(UserWarning, match="nowhere distributed like benchmark_losses"):
        found = loss_threshold(benchmark, losses)
    assert found.distance == 1
