"""Bounds hold where inputs are as large as they may be, or samples are counted out."""

import contextlib

import numpy as np
import pytest
import ring_engine
from random_proxies import crafted, encoder

from jaxsel.proxy import (
    Proxy,
    array_shapes,
    fix_head,
    probe_manifest,
    scale_head,
    with_bounds,
)
from jaxsel.proxy._enlarge import head_scales
from jaxsel.proxy._ring import check_ring

WIDTH, N, CHOSEN = 48, 400, 40


def probe(n_classes=2, kind="entropy", head=0, scale=1.0, seed=0):
    """Return a random probe of small logits, and samples."""
    rng = np.random.default_rng(seed)
    manifest = probe_manifest(
        width=WIDTH, n_classes=n_classes, head=head, score=kind, secure=None
    )
    arrays = {}
    for name, shape in array_shapes(manifest).items():
        arrays[name] = rng.normal(size=shape) / np.sqrt(shape[0])
        if name == "offset":
            arrays[name] = 0 * arrays[name]
    for name in ("head.1.weight", "head.1.bias") if head else arrays:
        if name.startswith("head."):
            arrays[name] = arrays[name] * scale
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    x = rng.normal(size=(N, WIDTH)).astype(np.float32)
    return Proxy.from_arrays(manifest, arrays), x


def clear_scores(made, x):
    """Return a probe's scores in float64: the margin, or minus the squared lead."""
    arrays = {name: np.float64(value) for name, value in made.arrays().items()}
    for i in range(2 if made.manifest.head.width else 1):
        x = x @ arrays[f"head.{i}.weight"] + arrays[f"head.{i}.bias"]
        x = np.maximum(x, 0) if i < bool(made.manifest.head.width) else x
    ordered = np.sort(x, 1)
    lead = ordered[:, -1] - ordered[:, -2]
    return -(lead**2) if made.manifest.score.secure.family == "square" else -lead


def best(scores):
    return set(np.argsort(-scores, kind="stable")[:CHOSEN].tolist())


HEADS = [(2, "entropy", 0), (3, "margin", 0), (2, "margin", 8), (2, "entropy", 8)]


@pytest.mark.parametrize("bits", [18, 22])
@pytest.mark.parametrize(("n_classes", "kind", "head"), HEADS)
def test_small_margins_choose_what_clear_scores_choose(n_classes, kind, head, bits):
    made, x = probe(n_classes, kind, head, scale=5e-4)
    bounded = with_bounds(made, x, strict=True)
    clear = clear_scores(made, x.astype(np.float64))
    found, unit = ring_engine.scores(bounded, x, bits=bits)
    assert best(found) == best(clear)
    assert unit >= 64
    np.testing.assert_allclose(
        found / unit, clear, atol=1e-4 * np.abs(clear).max(), rtol=0
    )
    # Scores of a trained size choose the same, too.
    made, x = probe(n_classes, kind, head)
    found, unit = ring_engine.scores(with_bounds(made, x), x, bits=16)
    assert best(found) == best(clear_scores(made, x.astype(np.float64)))


def test_scales_follow_from_what_is_public():
    made, x = probe(3, "margin", scale=5e-4)
    bounded = with_bounds(made, x)
    scales = head_scales(bounded.manifest, fraction_bits=18)
    theirs, nothing, unit = scale_head(bounded.manifest, fraction_bits=18)
    mine, arrays, same = scale_head(
        bounded.manifest, bounded.arrays(), fraction_bits=18
    )
    assert (theirs, unit) == (mine, same)
    assert not nothing
    assert unit == np.prod(scales) > 1
    # It is scaled once, and other scores never.
    assert head_scales(mine, fraction_bits=18) == (1.0,)
    check_ring(mine, arrays, fraction_bits=18)
    fixed = scale_head(fix_head(bounded.manifest), fraction_bits=18)
    assert fixed[2] == 1
    made, x = probe(3, "entropy")
    assert head_scales(with_bounds(made, x).manifest, fraction_bits=18) == (1.0,)
    # Products that CrypTen cuts back wrongly now and then stay small.
    (inexact,) = head_scales(bounded.manifest, fraction_bits=16, exact_cut=False)
    assert inexact * bounded.manifest.fixed_point.bounds["head.logits"] <= 16


def test_scores_that_tie_in_fixed_point_are_told():
    made, x = probe(3, "entropy")
    scores = made.params["score"]
    made = Proxy(
        made.manifest,
        made.params | {"score": scores | {"w2": 1e-4 * scores["w2"]}},
    )
    with pytest.warns(UserWarning, match=r"scores that differ, of 400 samples, are"):
        with_bounds(made, x)
    with pytest.raises(ValueError, match="scores must differ in fixed point"):
        with_bounds(made, x, strict=True)


def test_no_row_within_the_inputs_bound_exceeds_a_probes_bounds():
    for n_classes, kind, head in [*HEADS, (3, "entropy", 0), (3, "entropy", 8)]:
        made, x = probe(n_classes, kind, head)
        bounds = with_bounds(made, x).manifest.fixed_point.bounds
        weight = made.arrays()["head.0.weight"]
        rows = np.concatenate(
            [np.sign(weight.T), -np.sign(weight.T), np.sign(x)]
        ) * np.float32(bounds["inputs"])
        logits = made.logits(rows)
        assert np.abs(logits).max() <= bounds["head.logits"]
        assert np.abs(made.scores(logits)).max() <= bounds["score"]


def most_bits(made):
    for bits in range(22, 7, -1):
        with contextlib.suppress(ValueError):
            check_ring(made.manifest, made.arrays(), fraction_bits=bits, spare_bits=4)
            return bits
    return None


def wrong_of(made, x, *, watch=True):
    """Return which scores are wrong and not told, and which samples are counted."""
    bound = made.manifest.fixed_point.bounds["score"]
    found, unit = ring_engine.scores(made, x, bits=most_bits(made), watch=watch)
    clear = made.scores(made.logits(x), finite=False)
    out = found <= 0.75 * unit * made.manifest.outside
    with np.errstate(all="ignore"):
        error = np.abs(found / unit - clear)
        right = error <= 0.02 * np.maximum(np.abs(clear), min(1.0, bound))
    return ~out & ~right, out


ENCODERS = [
    (2, "quadratic", "polynomial", 1.5),
    (6, "quadratic", "squared", 1.0),
    *(
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (
            (1, "cubic", "polynomial", 2.0),
            (1, "quadratic", "squared", 2.0),
            (2, "cubic", "squared", 1.0),
            (2, "quadratic", "exact", 2.0),
            (6, "quadratic", "exact", 2.0),
            (6, "linear", "squared", 1.0),
            (12, "quadratic", "exact", 2.0),
            (12, "quadratic", "squared", 1.0),
            (12, "exact", "exact", 2.0),
        )
    ),
]


@pytest.mark.parametrize(("layers", "attention", "norm", "gain"), ENCODERS)
@pytest.mark.every(2)
def test_rows_of_a_seller_are_scored_right_or_counted(layers, attention, norm, gain):
    made, x = encoder(layers, attention, norm, gain)
    wrong, out = wrong_of(made, x)
    assert not wrong.any()
    assert not out.any()  # samples like those of the bounds are never counted
    rows = crafted(made.manifest.fixed_point.bounds["inputs"], x, 60)
    wrong, out = wrong_of(made, rows)
    assert not wrong.any()
    # Unwatched, rows of polynomials come out wrong; a linear one hardly grows.
    if attention not in ("exact", "linear") and norm != "exact":
        assert wrong_of(made, rows, watch=False)[0].any()


@pytest.mark.parametrize(
    "hot", [30.0, *(pytest.param(hot, marks=pytest.mark.slow) for hot in (100, 300))]
)
@pytest.mark.parametrize("attention", ["quadratic", "exact"])
@pytest.mark.every(2)
def test_extreme_temperatures_are_refused_or_told(attention, hot):
    made, x = encoder(2, attention, "exact", hot=hot)
    if most_bits(made) is None:  # refused
        return
    for rows in (x, crafted(made.manifest.fixed_point.bounds["inputs"], x, 60)):
        assert not wrong_of(made, rows)[0].any()


def test_a_small_head_of_an_encoder_is_scaled_within_the_ring():
    made, x = encoder(1, "quadratic", "polynomial", score="margin")
    small = {
        name: value * {"head": 2e-4, "offset": 0}.get(name.split(".")[0], 1)
        for name, value in made.arrays().items()
    }
    made = with_bounds(Proxy.from_arrays(made.manifest, small), x, strict=True)
    found, unit = ring_engine.scores(made, x, bits=18)
    assert unit > 1
    clear = made.scores(made.logits(x))
    np.testing.assert_allclose(
        found / unit, clear, rtol=0, atol=1e-3 * np.abs(clear).max()
    )


def test_a_place_has_the_margin_of_its_degree():
    """Samples twice as large lie within the bounds, where the ring has room."""
    made, x = encoder(1, "quadratic", "exact")
    bounds = made.manifest.fixed_point.bounds
    twice = with_bounds(made, 2 * x, margin=1.0).manifest.fixed_point.bounds
    for place in ("layers.0.scores", "layers.0.variance", "head.logits", "score"):
        assert twice[place] <= bounds[place]
    # Scores are of degree 2: of margin 2 alone they would be too small.
    assert bounds["layers.0.scores"] >= 4 * bounds["layers.0.scores_unit"] / 2


def test_scores_that_overflow_are_told():
    made, x = encoder(6, "quadratic", "squared")
    wild = np.array(x[:3])
    wild[1] *= 1e6
    logits = made.logits(wild)
    with pytest.raises(ValueError, match=r"scores must be finite, got .* for row 1"):
        made.scores(logits)
    assert np.isfinite(made.scores(logits, finite=False)).tolist() == [1, 0, 1]
