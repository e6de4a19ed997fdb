"""The clear module is the proxy, and both follow the schedule step by step."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import assume, given, reject, settings, strategies as st
from proxy.random_proxies import SMALL, random_proxy, small_manifests

from jaxsel import proxy
from jaxsel.proxy import Emulator, Spec
from jaxsel.proxy.families import ACTIVATIONS, ATTENTIONS, NORMS
from jaxsel.proxy.families._place import times
from mpc_bridge.engines.crypten import ClearProxy, _layers

pytestmark = pytest.mark.mpc

SIZES = SMALL
BOUND = 1e-4  # of the largest, or of 1


def assert_same(target, x, mask):
    """Compare logits and scores of the clear module with those of JAX."""
    arrays = target.arrays()
    module = ClearProxy(target.manifest, arrays)
    with jax.disable_jit():
        logits = target.logits(x, mask)
        scores = target.scores(logits)
    for found, expected in (
        (module(x, mask), logits - arrays["offset"]),
        (module.scores(x, mask), scores),
    ):
        error = np.abs(found.numpy() - expected).max()
        assert error <= BOUND * max(1, np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_clear_module_is_the_proxy(part):
    for seed, m in enumerate(list(small_manifests())[part::4]):
        assert_same(*random_proxy(m, seed, bound=2.0 ** (3 + seed % 3)))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "attention",
    ["quadratic", "2quad", Emulator("linear", centre=True, bias=True), "mlp"],
    ids=str,
)
@pytest.mark.left_out
def test_one_row_needs_no_keys_and_no_values(attention, masked):
    m = proxy.manifest(Spec(1, 2, 4, attention=attention), **SIZES, masked=masked)
    assert {"key", "value"} <= {op.name for op in proxy.schedule(m)}
    assert_same(*random_proxy(m, n=3, bound=8.0))


POWERS = [name for name in ATTENTIONS if "centre" in ATTENTIONS[name].parameters]
powers = st.builds(
    Emulator, st.sampled_from(POWERS), centre=st.booleans(), bias=st.booleans()
)
attentions = powers | st.sampled_from([n for n in ATTENTIONS if n not in POWERS])


@st.composite
def manifests(draw, **changes):
    choose = lambda *values: draw(st.sampled_from(values))
    score, secure = choose(
        ("margin", "exact"),
        ("margin", "square"),
        ("entropy", "exact"),
        ("entropy", "square"),
        ("prior_entropy", "mlp"),
    )
    onehot, masked = draw(st.booleans()), draw(st.booleans())
    spec = Spec(
        choose(1, 2),
        2,
        attention=draw(attentions),
        norm=choose(*NORMS),
        ffn=choose(False, *ACTIVATIONS),
        read=choose("cls", "mean"),
        embed="onehot" if onehot else "public",
        secure=secure,
    )
    return proxy.manifest(
        spec,
        **SIZES | {"n_classes": 2 if secure == "square" else 3},
        masked=masked,
        pre_norm=draw(st.booleans()),
        head=choose(0, 3),
        score=score,
        plan=choose("plain", "folded"),
        **changes,
    )


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(manifests(), st.integers(0, 99))
def test_every_combination_is_the_proxy(m, seed):
    try:
        made = random_proxy(m, seed)
    except ValueError:
        reject()  # rows may grow beyond all bounds where norms are random numbers
    assume(max(made[0].manifest.fixed_point.bounds.values()) <= 2**10)
    assert_same(*made)


@pytest.mark.slow
def test_without_bounds_and_masks_it_is_the_proxy_too():
    for m in list(small_manifests())[::5]:
        target, x, _ = random_proxy(m, bound=8.0)
        assert_same(proxy.Proxy(m, target.params), x, None)


def steps_of(m):
    """Return a run of the clear module, with the operations of a schedule."""
    target, x, mask = random_proxy(m, bound=8.0)
    module = ClearProxy(target.manifest, target.arrays())

    def run(operations, patch):
        patch.setattr(_layers, "schedule", lambda _: operations)
        return module.scores(x, mask)

    return run


def drifted(operation):
    """Yield an operation with another name, number of operands, or axis."""
    yield dataclasses.replace(operation, name="another")
    yield dataclasses.replace(operation, shapes=operation.shapes[:-1])
    yield dataclasses.replace(operation, shapes=(*operation.shapes, (-1, 1)))
    for i, shape in enumerate(operation.shapes):
        for other in (
            *((*shape[:j], shape[j] + 1, *shape[j + 1 :]) for j in range(len(shape))),
            (*shape, 1),
        ):
            if other[0] == 0:  # the samples: of any number
                continue
            shapes = (*operation.shapes[:i], other, *operation.shapes[i + 1 :])
            yield dataclasses.replace(operation, shapes=shapes)


@pytest.mark.parametrize("plan", ["plain", "folded"])
@pytest.mark.left_out
def test_every_step_is_held_against_the_schedule(plan, monkeypatch):
    attention = Emulator("cubic", centre=True, bias=True)
    spec = Spec(1, 2, attention=attention, ffn="quad", read="mean", embed="onehot")
    m = proxy.manifest(spec, **SIZES, head=3, plan=plan)
    run, operations = steps_of(m), list(proxy.schedule(m))
    assert len(run(operations, monkeypatch)) == 5
    for i, operation in enumerate(operations):
        for other in drifted(operation):
            changed = [*operations[:i], other, *operations[i + 1 :]]
            with pytest.raises(RuntimeError, match=f"{operation.place}: the schedule"):
                run(changed, monkeypatch)
        with pytest.raises(RuntimeError, match="the schedule has|more operations"):
            run(operations[:i] + operations[i + 1 :], monkeypatch)
        with pytest.raises(RuntimeError, match="the schedule has|fewer operations"):
            run(operations[: i + 1] + operations[i:], monkeypatch)


class Recorder:
    def __truediv__(self, other):
        return "/", other

    def __mul__(self, other):
        return "*", other


def test_whole_inverses_are_divided_by():
    # In fixed point a small factor is rounded, a large divisor is not.
    for hidden in (1, 49, 98, 312, 384, 744):
        for bound in 2.0 ** np.arange(-16, 40):
            whole = hidden * bound
            name, other = times(Recorder(), 1 / whole)
            if whole == int(whole):
                assert (name, other) == ("/", int(whole))
            else:
                assert (name, other) == ("*", 1 / whole)
