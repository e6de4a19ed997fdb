"""Folded coefficients are the polynomials they came from, and names tell no numbers."""

import dataclasses

import numpy as np
import numpy_engine
import pytest
from hypothesis import example, given, settings, strategies as st
from random_proxies import SMALL, random_arrays, random_proxy, small_manifests

from jaxsel import proxy
from jaxsel.proxy import SharedInputs, Spec, array_shapes, fold, manifest
from jaxsel.proxy._manifest import FixedPoint
from jaxsel.proxy.families import ATTENTIONS
from jaxsel.proxy.families._form_cubic import Cubic
from jaxsel.proxy.families._form_hinge import Hinge
from jaxsel.proxy.families._form_quadratic import Quadratic
from jaxsel.proxy.families._norm import variance_unit
from jaxsel.proxy.families._norm_exact import root_scale
from jaxsel.proxy.families._norm_squared import SquaredNorm
from jaxsel.proxy.families._place import Place, Run

quadratic, cubic, hinge = Quadratic().fold, Cubic().fold, Hinge().fold

T = np.linspace(-20, 20, 81)
ROUNDING = 1e-9  # of the largest term

sizes = st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 2.0**-10, 0.1, 1.0, 7.0, 40.0])
coefficients = st.one_of(
    st.floats(-50, 50), st.builds(lambda s, c: s * c, sizes, st.sampled_from([-1, 1]))
)


def powers(c):
    return sum(each * T**i for i, each in enumerate(c))


def largest(c):
    return sum(abs(each) * np.abs(T) ** i for i, each in enumerate(c)) + 1


def folded(form, *c):
    """Return what a form of one head adds to a score, its factor and its sign."""
    found, scale, sign = form(*(np.array([each]) for each in c))
    assert all(value.shape == (1,) for value in found.values())
    assert all(np.isfinite(value).all() for value in (*found.values(), scale, sign))
    return {k: v[0] for k, v in found.items()}, scale[0], sign[0]


@settings(max_examples=100, deadline=None)
@given(coefficients, coefficients, coefficients)
@example(0.9, 0.7, 0.0)
@example(0.9, -0.7, -1e-9)
@example(0.0, 0.0, 0.0)
def test_quadratic(c0, c1, c2):
    found, scale, sign = folded(quadratic, c0, c1, c2)
    u = scale * T
    value = sign * ((u + found["shift"]) ** 2 + found["offset"])
    least = max(abs(c1) / 128, 2.0**-10) ** 2
    raised = least * T**2 if abs(c2) < least else 0
    error = np.abs(value - powers([c0, c1, c2]))
    size = largest([c0, c1, c2]) + found["shift"] ** 2
    assert (error <= raised + ROUNDING * size).all()
    assert sign in (-1, 1)
    assert scale >= 2.0**-10
    assert abs(found["shift"]) <= 64 * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(coefficients, coefficients, coefficients, coefficients)
@example(0.9, 0.7, 0.3, 0.0)
@example(0.9, 0.7, -0.3, -1e-12)
@example(0.0, 0.0, 0.0, 0.0)
@example(1.0, 3.0, 3.0, 1.0)  # a triple root
@example(0.0, 0.0, 3.0, 1.0)  # a double root, at 0
def test_cubic(c0, c1, c2, c3):
    found, scale, sign = folded(cubic, c0, c1, c2, c3)
    u = scale * T
    square = (u + found["shift"]) ** 2 + found["offset"]
    value = sign * (u + found["root"]) * square
    least = max((abs(c2) / 256) ** 1.5, (abs(c1) / 256) ** 3, 2.0**-30)
    raised = least * np.abs(T) ** 3 if abs(c3) < least else 0
    error = np.abs(value - powers([c0, c1, c2, c3]))
    root, shift = abs(found["root"]), abs(found["shift"])
    terms = (np.abs(u) + root) * ((np.abs(u) + shift) ** 2 + abs(found["offset"]))
    terms += root**3  # the root itself is rounded
    assert (error <= raised + ROUNDING * (terms + 1)).all()
    assert abs(scale) >= 2.0**-10 * (1 - 1e-9)
    assert abs(c2) / scale**2 <= 256 * (1 + 1e-9)
    assert abs(c1 / scale) <= 256 * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(coefficients, coefficients, coefficients, st.floats(-10, 10))
@example(1.0, 0.0, 0.7, 0.5)
@example(1.0, 0.7, -0.7, 0.5)
@example(1.0, -0.7, 0.2, 0.5)
@example(1.0, 1e-12, -2e-12, 0.5)
@example(0.0, 0.0, 0.0, 0.0)
def test_hinge(c0, c1, slope, knot):
    found, scale, sign = folded(hinge, c0, c1, slope, knot)
    u = scale * T
    bent = found["slope"] * np.maximum(u - found["knot"], 0)
    value = sign * (u + bent + found["offset"])
    steepest = max(abs(c1), abs(c1 + slope))
    raised = 2.0**-10 * np.abs(T) if steepest < 2.0**-10 else 0
    expected = c0 + c1 * T + slope * np.maximum(T - knot, 0)
    size = largest([c0, abs(c1) + 2 * abs(slope)]) + abs(slope * knot)
    assert (np.abs(value - expected) <= raised + ROUNDING * size).all()
    assert abs(scale) >= 2.0**-10
    assert abs(found["slope"]) <= 2 * (1 + 1e-9)


def test_heads_are_folded_each_by_itself():
    rng = np.random.default_rng(0)
    for form, terms in ((quadratic, 3), (cubic, 4), (hinge, 4)):
        c = rng.normal(size=(terms, 6))
        found, scale, sign = form(*c)
        for head in range(6):
            alone = form(*c[:, head : head + 1])
            assert scale[head] == alone[1][0]
            assert sign[head] == alone[2][0]
            for name, values in found.items():
                assert values[head] == alone[0][name][0]


def test_operands_do_not_depend_on_the_numbers():
    # The data owner makes room for them from the manifest alone.
    rng = np.random.default_rng(0)
    for m in small_manifests():
        shapes = [
            {name: value.shape for name, value in fold(m, arrays).items()}
            for arrays in (
                random_arrays(m, rng),
                {k: np.ones(shape) for k, shape in array_shapes(m).items()},
                {k: np.zeros(shape) for k, shape in array_shapes(m).items()},
            )
        ]
        assert list(shapes[0].items()) == list(shapes[1].items())
        assert shapes[0] == shapes[2]


@pytest.mark.parametrize("unit", [2.0**-15, 0.25, 1.0, 2.0, 512.0, 2.0**31])
def test_a_squared_norm_in_any_unit(unit):
    norm, v = SquaredNorm(), unit * np.linspace(0.05, 1, 20)
    fitted = np.asarray(norm.fit(v / 2)["affine"], np.float64)
    for affine in (fitted, -fitted, fitted * [1, 0], 0 * fitted):
        params = {"affine": affine}
        (shift,), gain = norm.fold(params, unit)["norm.shift"], norm.gain(params, unit)
        total = 4 * v  # of the squares in four columns
        steps = norm.factor(place(unit, shift), total)
        _, _, kind, (operand,), _ = next(steps)
        assert kind == "square"
        with pytest.raises(StopIteration) as end:
            steps.send(operand**2)
        found, expected = gain * end.value.value, np.asarray(norm.apply(params, v))
        # A slope below 1/64 is raised to it.
        share = 1e-5 if affine[1] else 1 / 16
        size = np.abs(expected).max() + unit**-0.5 / 256
        assert np.abs(found - expected).max() <= share * size
        assert abs(shift) <= 64 * (1 + 1e-9)
        assert gain >= 2.0**-20


def place(unit, shift):
    sizes = {"layers": 1, "heads": 1, "head_width": 2, "hidden": 4, "length": 3}
    m = proxy.manifest(Spec(1, 1, norm="squared"), **sizes, n_classes=2)
    fixed = FixedPoint(bounds={"layers.0.variance": unit})
    m = dataclasses.replace(m, fixed_point=fixed)
    weight = lambda name, shape: shift
    return Place(Run(m, weight, SharedInputs(0), np.concatenate), "layers.0")


def test_units_are_public_powers_of_two():
    spec, sizes = Spec(1, 1, norm="exact"), {"layers": 1, "heads": 1, "head_width": 2}
    m = proxy.manifest(spec, **sizes, hidden=4, length=3, n_classes=2)
    unit = lambda m: variance_unit(Place(Run(m, zip, SharedInputs(0), sum), "layers.0"))
    assert unit(m) == 1
    for bound in 2.0 ** np.arange(-16, 40):
        fixed = FixedPoint(bounds={"layers.0.variance": bound})
        bounded = dataclasses.replace(m, fixed_point=fixed)
        assert unit(bounded) == bound
        # Within a factor of four below 32, where CrypTen's root converges.
        divided = bound / 4.0 ** root_scale(unit(bounded))
        assert 8 < divided <= 32


@pytest.mark.parametrize("family", sorted(ATTENTIONS))
@pytest.mark.parametrize("read", ["cls", "mean"])
def test_spare_bits_change_no_score(family, read):
    spec = Spec(2, 2, attention=family, norm="polynomial", read=read)
    m = manifest(spec, **SMALL | {"layers": 2}, masked=True)
    target, x, mask = random_proxy(m, n=4, bound=8.0)
    arrays = target.arrays()
    plain, _ = numpy_engine.scores(target.manifest, arrays, x, mask)
    found, calls = numpy_engine.scores(target.manifest, arrays, x, mask, spare_bits=4)
    np.testing.assert_allclose(found, plain, rtol=1e-9)
    absorbed = read == "cls" and any(call.name == "key" for call in calls)
    changed = fold(target.manifest, arrays, spare_bits=4)
    for name, value in fold(target.manifest, arrays).items():
        maps = ("1.query.weight", "1.key.weight", "1.value.weight", "1.output.weight")
        if absorbed and name.endswith(maps):
            assert not np.array_equal(changed[name], value), name
        elif not (absorbed and name.startswith("layers.1.")):
            assert np.array_equal(changed[name], value), name
