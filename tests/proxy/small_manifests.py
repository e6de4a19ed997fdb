"""Every family, role, plan and input on a small target, for tests of all of them."""

import dataclasses

from jaxsel import proxy
from jaxsel.proxy import Emulator, Spec
from jaxsel.proxy.families import ACTIVATIONS, ATTENTIONS, NORMS, SECURE_SCORES

SMALL = {
    "layers": 3,
    "heads": 4,
    "head_width": 3,
    "hidden": 8,
    "length": 5,
    "n_classes": 3,
    "intermediate": 6,
    "vocab": 7,
}


def small_manifests():
    """Every family, role, plan, way of reading, and input, on a small target.

    Families that the list leaves out come last, so that a new one is tested as well.
    """
    listed = list(_listed())
    yield from listed
    layers = [layer for m in listed for layer in m.layers]
    attentions = {layer.attention.family for layer in layers}
    norms = {layer.norm.family for layer in layers}
    activations = {layer.ffn.activation for layer in layers if layer.ffn is not None}
    scores = {m.score.secure.family for m in listed}
    usual = Spec(2, 2, 4, attention="linear", norm="polynomial")
    for plan in ("plain", "folded"):
        sizes = SMALL | {"plan": plan}
        for read, pre_norm in (("cls", False), ("mean", True)):
            base = dataclasses.replace(usual, read=read)
            for role, families, known in (
                ("attention", ATTENTIONS, attentions),
                ("norm", NORMS, norms),
                ("ffn", ACTIVATIONS, activations),
                ("secure", SECURE_SCORES, scores),
            ):
                for name in [name for name in families if name not in known]:
                    spec = dataclasses.replace(base, **{role: name})
                    yield proxy.manifest(spec, **sizes, pre_norm=pre_norm)


def _listed():
    for plan in ("plain", "folded"):
        sizes = SMALL | {"plan": plan}
        for attention in ("mlp", "quadratic", "linear", "2quad", "exact", "uniform"):
            for read in ("cls", "mean"):
                spec = Spec(2, 2, 4, attention=attention, norm="polynomial", read=read)
                yield proxy.manifest(spec, **sizes)
        for family in ("linear", "quadratic", "cubic", "hinge"):
            flags = {"centre": family != "quadratic", "bias": family != "linear"}
            attention = Emulator(family, **flags)
            for read in ("cls", "mean"):
                spec = Spec(1, 2, 4, attention=attention, norm="linear", read=read)
                yield proxy.manifest(spec, **sizes)
        spec = Spec(2, 2, attention=Emulator("polynomial", degree=6), read="mean")
        for norm in ("mlp", "hinge", "linear", "exact", "none"):
            spec = dataclasses.replace(spec, norm=norm, secure="exact")
            yield proxy.manifest(spec, **sizes)
            yield proxy.manifest(spec, **sizes, kind="tokens", pre_norm=True)
        for ffn in ("relu", "gelu", "quad"):
            spec = Spec(1, 1, ffn=ffn, embed="onehot")
            yield proxy.manifest(spec, **sizes, head=3, score="margin")
        spec = Spec(1, 1, read="mean", secure="exact")
        sizes |= {"kind": "patches", "vocab": None}
        yield proxy.manifest(spec, **sizes, pre_norm=True, score="margin")
        yield proxy.manifest(spec, **sizes | {"n_classes": 2}, score="margin")
    yield proxy.probe_manifest(width=8, n_classes=2)
    yield proxy.probe_manifest(width=8, n_classes=3, head=4)
