"""The manifest: a golden file, strict reading, and what specifications become."""

import copy
import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from jaxsel import proxy
from jaxsel.proxy import Emulator, Manifest, Spec
from jaxsel.proxy._manifest import (
    FFN,
    FixedPoint,
    Head,
    Inputs,
    Layer,
    Score,
    power_of_two,
)
from jaxsel.proxy.families import ATTENTIONS, NORMS

GOLDEN = Path(__file__).with_name("manifest.json")
TARGET = {
    "layers": 6,
    "heads": 12,
    "head_width": 32,
    "hidden": 384,
    "length": 64,
    "n_classes": 2,
    "intermediate": 1536,
    "vocab": 30522,
}


def golden():
    hinge = Emulator("hinge", width=2)
    common = {"head_width": 32, "pre_norm": False, "norm": hinge}
    return Manifest(
        inputs=Inputs(
            kind="tokens",
            length=64,
            width=384,
            embed="onehot",
            vocab=30522,
            masked=True,
            norm=Emulator("polynomial", degree=2),
        ),
        layers=(
            Layer(heads=1, attention=Emulator("mlp", width=16), **common),
            Layer(
                heads=3,
                attention=Emulator("quadratic", centre=True),
                ffn=FFN(width=1536, activation="relu"),
                **common,
            ),
        ),
        final_norm=None,
        read="cls",
        head=Head(width=0, n_classes=2),
        score=Score(kind="prior_entropy", secure=Emulator("square")),
        plan="folded",
        fixed_point=FixedPoint(bounds={"layers.0.scores": 64.0, "inputs": 0.5}),
    )


def test_the_golden_file_is_read_and_written_as_it_is():
    text = GOLDEN.read_text(encoding="utf-8")
    assert Manifest.from_json(text) == golden()
    assert golden().to_json() == text
    assert hash(Manifest.from_json(text)) == hash(golden())


def document():
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def places(node, path=()):
    """Yield the path of every node of a document but the root."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def changed(path, value=None, *, delete=False):
    result = copy.deepcopy(document())
    node = result
    for key in path[:-1]:
        node = node[key]
    if delete:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return result


def at(path):
    node = document()
    for key in path:
        node = node[key]
    return node


OBJECTS = [
    (),
    *(p for p in places(document()) if isinstance(at(p), dict) and p[-1] != "bounds"),
]


@pytest.mark.parametrize("path", OBJECTS, ids=str)
def test_unknown_and_missing_fields_are_named(path):
    with pytest.raises(ValueError, match=r"(^|\.)extra is unknown"):
        Manifest.from_json(json.dumps(changed((*path, "extra"), 1)))
    for name in set(at(path)) - {"centre"}:
        with pytest.raises(ValueError, match=f"{name} (is missing|must be)"):
            Manifest.from_json(json.dumps(changed((*path, name), delete=True)))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version must be 1, got 2"),
        (("version",), True, "version must be 1, got True"),
        (("format",), "onnx", "format must be 'jaxsel proxy'"),
        (("plan",), "fast", "plan must be one of 'folded', 'plain'"),
        (("read",), "row", "read must be one of 'cls', 'mean', got 'row'"),
        (("layers",), [], "layers must be at least one for tokens"),
        (("layers",), {}, r"layers must be a list, got {}"),
        (("layers", 1), 3, r"layers\[1\] must be an object, got 3"),
        (("layers", 0, "heads"), 0, r"layers\[0\].heads must be at least 1, got 0"),
        (("layers", 0, "heads"), 1.0, r"layers\[0\].heads must be a whole number"),
        (("layers", 0, "heads"), True, r"layers\[0\].heads must be a whole number"),
        (("layers", 0, "heads"), 2**32, r"layers\[0\].heads must be at most 2\*\*31"),
        (("inputs", "length"), 70_000, r"inputs.length must be at most 2\*\*16"),
        (("layers", 1, "pre_norm"), True, r"layers\[1\].pre_norm must be that of"),
        (("layers", 0, "pre_norm"), 1, r"layers\[0\].pre_norm must be true or false"),
        (
            ("layers", 0, "attention", "family"),
            "cosine",
            r"layers\[0\].attention.family must be one of 'mlp',.* got 'cosine'",
        ),
        (
            ("layers", 1, "attention", "width"),
            4,
            r"layers\[1\].attention.width is no parameter of 'quadratic', got 4",
        ),
        (("layers", 0, "norm", "width"), None, "norm.width must not be None"),
        (
            ("layers", 1, "attention", "bias"),
            False,
            "attention.bias must not be False: leave it out",
        ),
        (
            ("layers", 1, "attention", "bias"),
            1,
            r"layers\[1\].attention.bias must be true or false, got 1",
        ),
        (
            ("layers", 0, "attention"),
            {"family": "polynomial", "degree": 3},
            r"layers\[0\].attention.degree must be even, got 3",
        ),
        (("layers", 0, "norm", "centre"), True, "norm.centre is no parameter of"),
        (("inputs", "norm", "degree"), 1, "inputs.norm.degree must be at least 2"),
        (("inputs", "norm"), None, "inputs.norm must be an emulator"),
        (("inputs", "embed"), "public", "inputs.norm must be None for embed='public'"),
        (("inputs", "vocab"), None, "inputs.vocab must be given for embed='onehot'"),
        (("inputs", "kind"), "patches", "inputs.embed must be 'public' for patches"),
        (("inputs", "kind"), "features", "inputs.length must be 1 for features"),
        (("layers", 1, "ffn", "activation"), "tanh", r"ffn.activation must be one of"),
        (("final_norm",), {"family": "exact"}, "final_norm must be None unless"),
        (("head", "n_classes"), 3, "secure.family 'square' ranks two classes only"),
        (("head", "n_classes"), 1, "head.n_classes must be at least 2, got 1"),
        (("score", "kind"), "loss", "score.kind must be one of 'entropy'"),
        (("fixed_point", "fraction_bits"), 31, "fraction_bits must be at most 30"),
        (("fixed_point", "bounds"), {"layers.0.scores": 60.0}, "must be a power of"),
        (("fixed_point", "bounds"), {"head": 0}, "must be a power of two"),
        (("fixed_point", "bounds"), {"head": True}, "must be a power of two"),
        (("fixed_point", "bounds"), {"tail": 2.0}, "bounds must name places"),
        (("fixed_point", "bounds"), {"layers.2": 2.0}, "but there are 2 layers"),
        (("fixed_point", "bounds"), [], "bounds must map places to numbers"),
    ],
)
def test_bad_values_are_named(path, value, message):
    with pytest.raises(ValueError, match=message):
        Manifest.from_json(json.dumps(changed(path, value)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"a": 1, "a": 1}',
        '{"a": NaN}',
        '{"version": 1' + "0" * 5000 + "}",
        None,
    ],
    ids=range(9),
)
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(ValueError, match=r"manifest (is no JSON|must be)|format must"):
        Manifest.from_json(text)


sizes = st.integers(1, 2**31)


def emulators(families, degrees):
    """Return a strategy of emulators of every family, of any sizes."""
    values = {"width": sizes, "degree": st.sampled_from(degrees)}
    return st.one_of(
        *(
            st.builds(
                Emulator,
                st.just(name),
                **{k: values.get(k, st.booleans()) for k in family.parameters},
            )
            for name, family in families.items()
        )
    )


normal, attentions = emulators(NORMS, range(2, 31)), emulators(ATTENTIONS, [2, 8])


@st.composite
def manifests(draw):
    if draw(st.booleans()):
        return proxy.probe_manifest(
            width=draw(sizes), n_classes=draw(st.integers(2, 9)), head=draw(sizes)
        )
    spec = Spec(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 12)),
        draw(sizes),
        draw(attentions),
        draw(normal),
        draw(st.sampled_from([False, True, "gelu", "quad"])),
        draw(st.sampled_from(["cls", "mean"])),
        draw(st.sampled_from(["public", "onehot"])),
        draw(st.sampled_from([None, "exact", "mlp"])),
    )
    bounds = draw(
        st.dictionaries(
            st.sampled_from(["inputs", "layers.0.scores", "head.logits", "score"]),
            st.integers(-70, 63).map(lambda power: math.ldexp(1, power)),
        )
    )
    # The emulator of the entropy does not rank as the margin does.
    kinds = ["entropy", "prior_entropy"] + ["margin"] * (spec.secure != "mlp")
    return proxy.manifest(
        spec,
        **TARGET
        | {"n_classes": draw(st.integers(2, 9)), "length": draw(st.integers(1, 2**16))},
        pre_norm=draw(st.booleans()),
        masked=draw(st.booleans()),
        head=draw(st.integers(0, 9)),
        score=draw(st.sampled_from(kinds)),
        plan=draw(st.sampled_from(["folded", "plain"])),
        fixed_point=FixedPoint(fraction_bits=draw(st.integers(1, 30)), bounds=bounds),
    )


@settings(max_examples=60, deadline=None)
@given(manifests())
def test_every_manifest_returns_from_json(manifest):
    text = manifest.to_json()
    assert Manifest.from_json(text) == manifest
    assert Manifest.from_json(text).to_json() == text
    assert proxy.cost(manifest, 1).bytes > 0


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda node: (
        st.lists(node, max_size=3)
        | st.dictionaries(st.text(max_size=8), node, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(places(document()), key=str)), anything)
@pytest.mark.left_out
def test_a_changed_node_is_refused_by_name_or_changes_nothing_else(path, value):
    mutated = changed(path, value)
    try:
        written, error = Manifest.from_json(json.dumps(mutated)).to_json(), None
    except ValueError as refusal:
        written, error = None, str(refusal)
    if error is None:
        assert json.loads(written) == mutated
        return
    named = set(re.split(r"[^\w-]+", error))
    # A change may be found where it no longer fits: 'square' with other classes.
    allowed = {str(key) for key in path} | {"JSON", "square", "onehot", "features"}
    assert named & allowed, error


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40) | anything.map(json.dumps))
def test_nonsense_is_refused(text):
    with pytest.raises(ValueError, match=r"manifest|format"):
        Manifest.from_json(text)


@settings(max_examples=50, deadline=None)
@given(st.floats(min_value=1e-300, max_value=1e300))
def test_bounds_are_rounded_up_to_the_next_power_of_two(value):
    bound = power_of_two(value)
    assert value <= bound < 2 * value
    assert math.frexp(bound)[0] == 0.5


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan])
def test_only_positive_numbers_have_a_bound(value):
    with pytest.raises(ValueError, match="value must be finite and above zero"):
        power_of_two(value)


def test_a_specification_sets_sizes_and_score():
    made = proxy.manifest(Spec(2, 3, 16, attention="mlp"), **TARGET)
    layer = made.layers[1]
    assert (len(made.layers), layer.heads, layer.ffn) == (2, 3, None)
    assert layer.attention == Emulator("mlp", width=16)
    assert layer.norm == Emulator("hinge", width=16)
    assert made.score.secure == Emulator("square")
    assert made.inputs.masked
    many = proxy.manifest(Spec(1, 1, 8), **TARGET | {"n_classes": 5})
    assert many.score.secure == Emulator("mlp", width=8)
    five = TARGET | {"n_classes": 5}
    margin = proxy.manifest(Spec(1, 1, 8), **five, score="margin")
    assert margin.score.secure == Emulator("exact")
    with pytest.raises(ValueError, match="'square' or 'exact' for the margin"):
        proxy.manifest(Spec(1, 1, 8, secure="mlp"), **five, score="margin")
    vit = proxy.manifest(
        Spec(1, 1, ffn=True), **TARGET | {"vocab": None}, kind="patches", pre_norm=True
    )
    assert vit.final_norm == vit.layers[0].norm
    assert vit.layers[0].ffn == FFN(width=1536, activation="relu")
    assert not vit.inputs.masked


def test_ablations_undo_one_part():
    paper = Spec(1, 1, attention="mlp", norm="mlp", secure="mlp")
    assert proxy.ablation(paper, "NoAttnSM") == dataclasses.replace(
        paper, attention="exact"
    )
    assert proxy.ablation(paper, "NoAttnLN").norm == "exact"
    exact = proxy.ablation(paper, "NoApprox")
    assert (exact.attention, exact.norm, exact.secure) == ("exact",) * 3
    for name, family in (("2Quad", "2quad"), ("Bolt", "polynomial")):
        made = proxy.manifest(proxy.ablation(paper, name), **TARGET)
        assert made.layers[0].attention.family == family


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Spec(0, 1), "layers must be at least 1"),
        (lambda: Spec(1, 1, attention="softmax"), "attention must be one of 'mlp'"),
        (lambda: Spec(1, 1, norm="quadratic"), "norm must be one of"),
        (lambda: Spec(1, 1, ffn="tanh"), "ffn must be one of"),
        (lambda: Spec(1, 1, read="max"), "read must be one of"),
        (lambda: proxy.ablation(Spec(1, 1), "NoFFN"), "name must be one of 'NoAttnSM'"),
        (
            lambda: proxy.manifest(Spec(7, 1), **TARGET),
            "spec.layers must be at most the target's 6, got 7",
        ),
        (
            lambda: proxy.manifest(Spec(1, 13), **TARGET),
            "spec.heads must be at most the target's 12, got 13",
        ),
        (
            lambda: proxy.manifest(
                Spec(1, 1, ffn=True), **TARGET | {"intermediate": None}
            ),
            "intermediate must be given for spec.ffn",
        ),
        (
            lambda: proxy.probe_manifest(width=8, n_classes=3, secure="square"),
            "ranks two classes only",
        ),
    ],
)
def test_bad_specifications_are_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
