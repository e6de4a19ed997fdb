"""Every family of every role is whole; what one lacks is named."""

import ast
import dataclasses
import functools
import importlib
import inspect
import sys
from pathlib import Path
from typing import get_args
from unittest import mock

import beartype
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpy_engine
import pytest
from random_proxies import SMALL, places, random_proxy

from jaxsel import proxy
from jaxsel.proxy import Emulator, Manifest, Spec, _manifest
from jaxsel.proxy._cost._schedule import trace
from jaxsel.proxy._forward import proxy_logits, proxy_scores
from jaxsel.proxy.families import (
    ACTIVATIONS,
    ATTENTIONS,
    NORMS,
    SECURE_SCORES,
    Attention,
    Family,
    attention_of,
    norm_of,
    score_of,
)
from jaxsel.proxy.families._attention import Folded
from jaxsel.proxy.families._attention_relu import ReLUAttention
from jaxsel.proxy.families._place import Kind

ROLES = {
    "attention": ATTENTIONS,
    "norm": NORMS,
    "secure": SECURE_SCORES,
    "ffn": ACTIVATIONS,
}
ALL = [(role, name) for role, families in ROLES.items() for name in families]
BOUND = 1e-4  # of the largest score, or of 1
DOCUMENTATION = ("no line in", "no word in")
GUIDE = (Path(__file__).parents[2] / "docs" / "proxy.md").read_text("utf-8")

# Plan, row that is read, whether samples are padded, and pre-norm layers.
SETTINGS = [
    ("folded", "cls", True, False),
    ("folded", "mean", False, True),
    ("plain", "mean", True, False),
]


typed = jaxtyping.jaxtyped(typechecker=beartype.beartype)


def described(role, name, plan="folded", read="cls", masked=True, pre_norm=False):
    """Return a small manifest with this family in its role."""
    usual = {"attention": "uniform", "norm": "linear", "secure": "square"}
    spec = Spec(1, 2, 3, read=read, **usual | {role: name})
    sizes = SMALL | {"n_classes": 2, "plan": plan}
    return proxy.manifest(spec, **sizes, masked=masked, pre_norm=pre_norm)


def gaps(role, name):
    """Yield what keeps a family from working everywhere, in words."""
    find = find_activation_gaps if role == "ffn" else find_gaps
    for what, check in (("construction", find), ("the forward pass", differences)):
        try:
            yield from check(role, name)
        except Exception as error:
            text = str(error) or type(error).__name__
            yield f"{role} {name!r}: {what} fails: {text}"


def find_activation_gaps(role, name):
    if f'"{name}"' not in _manifest.FFN.__doc__ + proxy.Spec.__doc__:
        yield f"{role} {name!r}: no line in the manifest's documentation"


def find_gaps(role, name):
    families = ROLES[role]
    start = f"{role} {name!r}:"
    m = described(role, name)
    if Manifest.from_json(m.to_json()) != m:
        yield f"{start} the manifest does not come back from JSON"
    named = {"attention": m.layers[0].attention, "norm": m.layers[0].norm}
    entry = (named | {"secure": m.score.secure})[role].entry()
    family = families[name].make(**{k: v for k, v in entry.items() if k != "family"})
    if family.entry() != entry:
        yield f"{start} `entry` gives {family.entry()}, the manifest {entry}"
    texts = {"attention": _manifest.__doc__, "norm": _manifest.__doc__}
    if f"`{name}`" not in texts.get(role, _manifest.Score.__doc__):
        yield f"{start} no line in the manifest's documentation"
    if name != "none" and f"`{name}`" not in GUIDE:
        yield f"{start} no word in docs/proxy.md"
    yield from (f"{start} {gap}" for gap in fit_gaps(role, family))
    if refuses_nothing(role, m) and not exempt(role, family):
        yield f"{start} `check` refuses nothing, however large numbers get"


def fit_gaps(role, family):
    """Yield where `fit`, `shapes` and `apply` don't fit together."""
    rng = np.random.default_rng(0)
    mask = np.arange(5) < np.array([5, 3, 4, 5])[:, None]
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    x = {"norm": draw(20) ** 2 + 0.5, "secure": draw(20, 2)}
    x = x.get(role, draw(4, 2, 5, 5))
    seen = (x, mask) if role == "attention" else (x,)
    batches = lambda: [seen]
    sizes = {
        "attention": {"heads": 2, "rows": 5, "length": 5},
        "norm": {},
        "secure": {"n_classes": 2},
    }
    shapes = family.shapes(**sizes[role])
    with jax.disable_jit():
        if role == "attention":
            job = family.nonlinearity(batches, mask)
        else:
            job = family.nonlinearity(x)
        if job is not None:
            return  # `train_mlps` makes the parameters of an MLP
        params = family.fit(*seen)
        if {k: np.shape(v) for k, v in params.items()} != shapes:
            found = {k: np.shape(v) for k, v in params.items()}
            yield f"`fit` gives parameters of shapes {found}, `shapes` {shapes}"
        apply = lambda params, x: family.apply(params, x, *seen[1:])
        found = apply(params, jnp.asarray(x))
        total = lambda *given: jnp.sum(apply(*given) ** 2)
        slopes = jax.grad(total, argnums=(0, 1))(params, jnp.asarray(x))
    if not all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes)):
        yield "`apply` has no finite gradients, which training in vivo needs"
    expected = x.shape[:-1] if role == "secure" else x.shape
    if found.shape != expected or not np.isfinite(found).all():
        yield f"`apply` gives {found.shape} of {x.shape}, or what is not finite"


def refuses_nothing(role, m):
    """Return whether numbers of any size pass for the ring."""
    arrays = {k: np.full(v, 0.1) for k, v in proxy.array_shapes(m).items()}
    huge = {
        "attention": ["layers.0.scores"],
        "norm": ["layers.0.variance"],
        "secure": ["head.logits"],
    }
    bounds = dict.fromkeys(places(m), 1.0) | dict.fromkeys(huge[role], 2.0**60)
    fixed = dataclasses.replace(m.fixed_point, bounds=bounds)
    try:
        proxy.check_ring(dataclasses.replace(m, fixed_point=fixed), arrays)
    except ValueError as error:
        return "must stay below" not in str(error)
    return True


def exempt(role, family):
    """Return whether a family has nothing to check, as it says of itself."""
    if role == "attention":
        return not family.reads_scores
    return not family.normalises if role == "norm" else family.emulates


def differences(role, name):
    """Yield where the secure forward pass is not that of JAX."""
    for i, setting in enumerate(SETTINGS):
        m = described(role, name, *setting)
        start = f"{role} {name!r} in {setting}:"
        target, x, mask = random_proxy(m, i, bound=8.0)
        operations, asked = trace(target.manifest)
        folded = proxy.fold(target.manifest, target.arrays())
        made = {k: v.shape for k, v in folded.items()}
        # The folded plan has taken some norms' gains and offsets into other operands.
        away = (".gamma", ".beta")
        used = {k: v for k, v in made.items() if not k.endswith(away)}
        if not used.items() <= asked.items() <= made.items():
            apart = sorted(set(made.items()) ^ set(asked.items()))
            yield f"{start} `fold` and the steps differ in operands: {apart}"
            continue
        found, calls = numpy_engine.scores(target.manifest, target.arrays(), x, mask)
        ran = [(call.place, call.name, call.kind, call.degree) for call in calls]
        if ran != [(op.place, op.name, op.kind, op.degree) for op in operations]:
            yield f"{start} the schedule is not what was run"
        for call, op in zip(calls, operations, strict=False):
            sizes = [tuple(len(x) if n == -1 else n for n in s) for s in op.shapes]
            if sizes != [operand.shape for operand in call.operands]:
                yield f"{start} {op.place} {op.name}: the schedule has other shapes"
        with jax.disable_jit():
            expected = target.scores(target.logits(x, mask))
        if not numpy_engine.close(found, expected, BOUND):
            yield f"{start} the steps compute something else than `apply`"


@pytest.mark.parametrize(("role", "name"), ALL)
@pytest.mark.every(24)
def test_a_family_is_whole(role, name):
    found = list(gaps(role, name))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("role", "name"), ALL)
def test_a_family_keeps_its_shapes_and_promotes_nothing(role, name, monkeypatch):
    m = described(role, name, read="mean")
    layer = m.layers[0]
    used = [
        attention_of(layer.attention),
        norm_of(layer.norm),
        score_of(m.score.secure),
    ]
    used += [ACTIVATIONS[layer.ffn.activation]] if layer.ffn else []
    for family in used:
        monkeypatch.setattr(type(family), "apply", typed(type(family).apply))
    target, x, mask = random_proxy(m, bound=8.0)
    arrays = jax.tree.map(jnp.asarray, (target.params, x, mask))

    def score(params, x, mask):
        logits = proxy_logits(params, x, mask, manifest=m)
        return proxy_scores(params, logits, manifest=m)

    strict = jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise")
    with strict[0], strict[1]:
        assert jax.eval_shape(score, *arrays).shape == (len(x),)


@pytest.mark.parametrize(("role", "name"), ALL)
def test_a_family_refuses_other_shapes(role, name):
    kind = type(ACTIVATIONS[name]) if role == "ffn" else ROLES[role][name].type
    apply = functools.partial(typed(kind.apply), None)
    if role == "attention":
        wrong = ({}, jnp.ones((3, 2, 5, 5)), jnp.ones((3, 4)))
    elif role == "ffn":
        wrong = (jnp.ones((3, 2), int),)
    else:
        wrong = ({}, jnp.ones(()) if role == "secure" else jnp.ones(3, int))
    with pytest.raises(jaxtyping.TypeCheckError):
        apply(*wrong)


class Slope:
    """All that a family writes: ReLU attention with a slope by head."""

    by_length = True

    def entry(self):
        return {"family": "slope"}

    def fit(self, scores=None, mask=None, *, key=None):
        return {"slope": jnp.ones(scores.shape[1])}

    def shapes(self, *, heads, rows, length):
        return {"slope": (heads,)}

    def apply(self, params, scores, mask):
        return params["slope"][:, None, None] * ReLUAttention().apply({}, scores, mask)

    def fold(self, params, *, heads, length):
        slope = {"attention.slope": params["slope"][:, None, None]}
        return Folded(slope, np.ones(heads), np.ones(heads))

    def weights(self, at, scores):
        bent = yield at.call("relu", "relu", scores)
        slope = at.weight("attention.slope", at.heads, 1, 1)
        return (yield at.call("slope", "mul", bent, slope))

    def check(self, ranges, params):
        ranges.fits(
            "scores", "a weight", ranges.bound("scores") * params["slope"].max()
        )


def twice(self, at, scores):
    weights = yield from Slope.weights(self, at, scores)
    return weights + weights


def unequal(self, at, scores):
    slope = at.weight("attention.slope", at.heads)
    return (yield at.call("slope", "mul", scores, slope))


@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        ({}, []),
        ({"shapes": Attention.shapes}, ["`fit` gives parameters of shapes"]),
        ({"fold": Attention.fold}, ["differ in operands", "attention.slope"]),
        ({"weights": twice}, ["the steps compute something else than `apply`"]),
        ({"weights": unequal}, ["shapes must fit"]),
        ({"check": lambda *_: None}, ["`check` refuses nothing"]),
        ({"entry": lambda _: {"family": "line"}}, ["`entry` gives {'family': 'line'}"]),
        ({"weights": Attention.weights}, ["abstract", "weights"]),
        ({"check": Attention.check}, ["abstract", "check"]),
    ],
)
def test_what_a_family_lacks_is_named(lacking, named, monkeypatch):
    """One that is whole but for its documentation, and then less and less of it."""
    members = {k: v for k, v in vars(Slope).items() if not k.startswith("__")}
    family = type("SlopeAttention", (Attention,), members | lacking)
    monkeypatch.setitem(ATTENTIONS, "slope", Family(family))
    found = "\n".join(gaps("attention", "slope"))
    rest = [
        line for line in found.splitlines() if not any(d in line for d in DOCUMENTATION)
    ]
    if not lacking:
        assert all(text in found for text in DOCUMENTATION)
        assert not rest
    for text in named:
        assert any(text in line for line in rest), found


def test_the_family_of_the_guide_is_whole(monkeypatch):
    """But for the documentation of one in the package."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    monkeypatch.delitem(sys.modules, "extend_family", raising=False)
    with mock.patch.dict(ATTENTIONS):
        importlib.import_module("extend_family")
        found = list(gaps("attention", "relu2"))
    rest = [line for line in found if not any(d in line for d in DOCUMENTATION)]
    assert not rest, "\n".join(rest)


def test_no_interpreter_names_a_family():
    """Only the tables do, the specification's defaults, and the papers' ablations."""
    from jaxsel.proxy import _fold, _forward, _ring, _shapes, _steps
    from jaxsel.proxy._cost import _schedule

    for module in (_fold, _forward, _ring, _schedule, _shapes, _steps):
        strings = {
            node.value
            for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.Constant)
        }
        # Activations are called as the primitives that compute them.
        named = strings & {name for _, name in ALL} - {*get_args(Kind)}
        assert not named, (module.__name__, named)


def test_relu_attention_is_relu_over_the_tokens():
    scores = np.array([[[[2.0, -1.0, 3.0]]]], np.float32)
    mask = np.array([[1, 1, 0]])
    family = ReLUAttention()
    found = family.apply({}, jnp.asarray(scores), jnp.asarray(mask))
    np.testing.assert_array_equal(found, [[[[1, 0, 0]]]])
    found = family.apply({}, jnp.asarray(scores), None)
    np.testing.assert_allclose(found, [[[[2 / 3, 0, 1]]]])


def test_a_squared_norm_takes_one_round_less_than_a_polynomial():
    squared, polynomial = (
        proxy.cost(described("norm", norm), 1, batch_size=1)
        for norm in ("squared", Emulator("polynomial", degree=2))
    )
    assert polynomial.rounds_per_batch == squared.rounds_per_batch + 1
    # Of the one number of the row: 16 bytes, for 48 beside the weights' own 32.
    assert polynomial.bytes_per_sample == squared.bytes_per_sample + 64
