"""What leaves the ring is refused, at its limit and by name."""

import dataclasses
import re

import numpy as np
import pytest
from random_proxies import SMALL, places

from jaxsel import proxy
from jaxsel.proxy import Emulator, Spec, check_ring
from jaxsel.proxy.families import attention_emulator
from jaxsel.proxy.families._attention_2quad import TwoQuadAttention
from jaxsel.proxy.families._attention_polynomial import PolynomialAttention

BITS = 16
WEIGHT = 2.0**15


def bounded(manifest, arrays, bits=BITS, **bounds):
    """Return a manifest with bounds of 1 but for those given, as places with dots."""
    values = dict.fromkeys(places(manifest), 1.0) | {
        name.replace("__", "."): value for name, value in bounds.items()
    }
    kept = {name: value for name, value in values.items() if value is not None}
    fixed = dataclasses.replace(manifest.fixed_point, fraction_bits=bits, bounds=kept)
    return dataclasses.replace(manifest, fixed_point=fixed), arrays


def model(family="quadratic", *, n_classes=2, secure=None, score="entropy", **changes):
    """Return a manifest of one layer and its parameters, all weights 0.1."""
    flags = {name: changes.pop(name) for name in ("centre",) if name in changes}
    given = {name: changes.pop(name) for name in ("width", "degree") if name in changes}
    spec = Spec(
        1,
        1,
        attention=Emulator(family, **flags, **given),
        norm=changes.pop("norm", "linear"),
        ffn=changes.pop("ffn", False),
        embed=changes.pop("embed", "public"),
        secure=secure,
    )
    sizes = SMALL | {"n_classes": n_classes, "hidden": 4} | changes
    manifest = proxy.manifest(spec, **sizes, score=score)
    shapes = proxy.array_shapes(manifest)
    return manifest, {name: np.full(shape, 0.1) for name, shape in shapes.items()}


def with_coefficients(made, *c):
    manifest, arrays = made
    return manifest, arrays | {"layers.0.attention.coefficients": np.array([c])}


def with_array(made, name, *values):
    """Return a model with one entry of an array replaced."""
    manifest, arrays = made
    changed = arrays[name].copy()
    changed.flat[: len(values)] = values
    return manifest, arrays | {name: changed}


SUM = "layers.0.scores: the sum of a row's weights may reach"
SPREAD = "layers.0.scores: a weight that its sum divides may reach"


def with_hinge(c0, c1, slope, knot):
    made = with_coefficients(model("hinge"), c0, c1)
    made = with_array(made, "layers.0.attention.slope", slope)
    return with_array(made, "layers.0.attention.knot", knot)


# The place of a bound, the largest power of two that fits, and what the next one says.
RANGES = [
    ("inputs", model(), 2.0**29, "inputs: a row may reach"),
    (
        "inputs.variance",
        model(embed="onehot", norm="exact"),
        2.0**27,
        "inputs.variance: a squared entry",
    ),
    (
        "layers.0.variance",
        model(norm="exact"),
        2.0**27,
        "layers.0.variance: a squared entry",
    ),
    (
        "layers.0.ffn_variance",
        model(ffn="relu", norm="exact"),
        2.0**27,
        "layers.0.ffn_variance: a squared entry",
    ),
    (
        "final_norm.variance",
        model(pre_norm=True, norm="exact"),
        2.0**27,
        "final_norm.variance: a squared entry",
    ),
    ("layers.0.scores", model("exact"), 64.0, "layers.0.scores: a score may reach"),
    ("layers.0.scores", model("2quad"), 2.0**8, SPREAD),
    ("layers.0.scores", model("polynomial", degree=4), 2.0**4, SPREAD),
    (
        "layers.0.scores",
        model("polynomial", degree=12),
        2.0**2,
        "layers.0.scores: a power may reach",
    ),
    (
        # -0.1 of the five scores, times 0.1 from each of four hidden units: 0.2 s.
        "layers.0.scores",
        with_array(model("mlp", width=4), "layers.0.attention.w1", *20 * [-0.1]),
        2.0**32,
        "layers.0.scores: a weight's emulator",
    ),
    ("layers.0.scores", with_coefficients(model("linear"), 0, 4), 2.0**25, SUM),
    ("layers.0.scores", with_coefficients(model(), 1, 0, 4), 2.0**12, SUM),
    ("layers.0.scores", with_coefficients(model("cubic"), 0, 0, 0, 8), 2.0**8, SUM),
    ("layers.0.scores", with_hinge(0, 4, -4, 0), 2.0**24, SUM),
    ("layers.0.hidden", model(ffn="relu"), 2.0**29, "layers.0.hidden: a hidden unit"),
    # (2^15 + 1)² is above 2^30.
    ("layers.0.hidden", model(ffn="quad"), 2.0**14, "layers.0.hidden: a hidden unit"),
    # 318 at 16, 2389 at 32: an exponent of CrypTen's must stay below 512.
    ("layers.0.hidden", model(ffn="gelu"), 2.0**4, "layers.0.hidden: the exponent of"),
    ("head.logits", model(), 2.0**13, "score: a squared margin"),
    (
        "head.logits",
        model(secure="exact", n_classes=3),
        2.0**7,
        "head.logits: a difference of logits",
    ),
]


@pytest.mark.parametrize(("place", "made", "largest", "message"), RANGES)
def test_ranges_are_refused_above_their_limit(place, made, largest, message):
    at = place.replace(".", "__")
    check_ring(*bounded(*made, **{at: largest}))
    with pytest.raises(ValueError, match=f"{re.escape(message)}.* with 16 fraction"):
        check_ring(*bounded(*made, **{at: 2 * largest}))
    missing = f"bounds must have '{place}'"
    if place == "head.logits":  # its absence says that there are none
        missing = r"must have fixed_point\.bounds: call"
    with pytest.raises(ValueError, match=missing):
        check_ring(*bounded(*made, **{at: None}))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (with_coefficients(model("linear"), 0.5, -2), 6.5),
        # (2 t + 3)² + 5 and (t + 2) ((t + 3)² + 5)
        (with_coefficients(model(), 14, 12, 4), 86),
        (with_coefficients(model("cubic"), 28, 26, 8, 1), 5 * 41),
        # u + 1 - relu(u + 1) / 2 of u = 2 t, without its sign
        (with_hinge(1, 2, -1, -0.5), 6 + 1 + 7 / 2),
    ],
)
def test_weights_of_scores_up_to_three(made, expected):
    manifest, arrays = made
    family = attention_emulator(manifest.layers[0].attention.entry())
    start = "layers.0.attention."
    params = {k.removeprefix(start): v for k, v in arrays.items() if start in k}
    assert family.largest_weight(params, 3.0) == pytest.approx(expected)


def test_weights_that_a_sum_divides():
    assert TwoQuadAttention().largest_weight(3.0) == 8**2
    fourth = PolynomialAttention(4)
    assert fourth.largest_weight(3.0) == 1 + 3 + 9 / 2 + 27 / 6 + 81 / 24


def test_centred_scores_may_be_twice_as_large():
    at = {"layers__0__scores": 2.0**13}
    check_ring(*bounded(*with_coefficients(model(), 0, 0, 1), **at))
    centred = with_coefficients(model(centre=True), 0, 0, 1)
    with pytest.raises(ValueError, match=SUM):
        check_ring(*bounded(*centred, **at))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "weights must be finite"),
        (-np.inf, "weights must be finite"),
        (WEIGHT, "a weight may reach 3.28e+04, and must stay below 3.28e+04"),
        (-WEIGHT, "a weight may reach 3.28e+04, and must stay below 3.28e+04"),
    ],
)
def test_weights_are_named(value, message):
    plain = {"plan": "plain"}
    made = with_array(model("uniform", **plain), "layers.0.out.weight", value)
    with pytest.raises(
        ValueError, match=re.escape(f"layers.0.output.weight: {message}")
    ):
        check_ring(*bounded(*made))
    largest = WEIGHT * (1 - 1e-9)
    made = with_array(model("uniform", **plain), "layers.0.out.weight", largest)
    check_ring(*bounded(*made))


def test_what_folding_multiplies_counts():
    # 300 in each of two matrices that meet: 3 · 300² in the folded plan.
    for plan, fits in (("plain", True), ("folded", False)):
        manifest, arrays = model("uniform", plan=plan)
        for name in ("value", "out"):
            name = f"layers.0.{name}.weight"
            arrays = arrays | {name: np.full_like(arrays[name], 300.0)}
        if fits:
            check_ring(*bounded(manifest, arrays))
        else:
            with pytest.raises(
                ValueError, match=r"layers\.0\.output\.weight: a weight"
            ):
                check_ring(*bounded(manifest, arrays))


def test_weights_that_drown_are_refused():
    manifest, arrays = model("uniform", plan="plain")
    name = "layers.0.out.weight"
    for value, fits in ((2.0**-12, True), (2.0**-12 * 0.999, False), (0.0, True)):
        made = manifest, arrays | {name: np.full_like(arrays[name], value)}
        if fits:
            check_ring(*bounded(*made))
        else:
            with pytest.raises(
                ValueError, match=r"layers\.0\.output\.weight: .* drown"
            ):
                check_ring(*bounded(*made))


def test_fraction_bits_move_the_limits():
    made = model()
    check_ring(*bounded(*made, bits=20, inputs=2.0**21))
    with pytest.raises(ValueError, match=r"a row may reach .* with 20 fraction bits"):
        check_ring(*bounded(*made, bits=20, inputs=2.0**22))
    check_ring(*bounded(*made, bits=12, inputs=2.0**37))


def test_no_bounds_are_refused():
    manifest, arrays = model()
    with pytest.raises(ValueError, match=r"must have fixed_point\.bounds: call"):
        check_ring(manifest, arrays)


def test_an_offset_moves_the_logits():
    # The prior's logarithm comes off the logits after they are bounded.
    for values, fits in (((-3.0, 2.0**13), True), ((-3.0, -(2.0**14)), False)):
        made = with_array(model(), "offset", *values)
        if fits:
            check_ring(*bounded(*made))
        else:
            with pytest.raises(ValueError, match="score: a squared margin"):
                check_ring(*bounded(*made))
    exact = with_array(model(secure="exact", n_classes=3), "offset", 0.0, 250.0, 260.0)
    with pytest.raises(ValueError, match=r"head\.logits: a difference of logits"):
        check_ring(*bounded(*exact))
    # The largest of three is taken below the others by what the bound says.
    margin = model(score="margin", n_classes=3)
    check_ring(*bounded(*with_array(margin, "offset", 0.0, 0.0, -1.4)))
    with pytest.raises(ValueError, match=r"head\.logits: a difference of logits"):
        check_ring(*bounded(*with_array(margin, "offset", 0.0, 0.0, -1.6)))
