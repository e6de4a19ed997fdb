"""Specifications of proxies, and the manifests that they become for a target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.show import brief

from ._manifest import (
    FFN,
    Emulator,
    FixedPoint,
    Head,
    Inputs,
    Kind,
    Layer,
    Manifest,
    Score,
)
from .families import ACTIVATIONS, ATTENTIONS, NORMS, SECURE_SCORES, Family

# Each ablation replaces these fields of a specification.
ABLATIONS = {
    "NoAttnSM": {"attention": "exact"},
    "NoAttnLN": {"norm": "exact"},
    "NoApprox": {"attention": "exact", "norm": "exact", "secure": "exact"},
    "2Quad": {"attention": "2quad"},
    "Bolt": {"attention": "polynomial"},
}


@brief
@dataclasses.dataclass(frozen=True)
class Spec:
    """A proxy of a target: its bottom layers, fewer heads, emulators.

    Attributes:
        layers: Layers kept, from the bottom.
        heads: Heads kept in each layer.
        hidden: Width of every `mlp` emulator and knots of every `hinge` one: the
            paper's d.
        attention: Family of the attention's emulator, or an `Emulator` with its sizes.
        norm: Family of the norms' emulator, or an `Emulator` with its sizes.
        ffn: Whether the feed-forward parts stay; True puts ReLU for GELU, or name the
            activation: "relu", "gelu", "quad".
        read: The row that the classifier reads.
        embed: Whether the data owner embeds in the clear.
        secure: Family of the score in secret; None takes "square" for two classes and
            "mlp" for more.
    """

    layers: int
    heads: int
    hidden: int = 2
    attention: str | Emulator = Emulator("quadratic", centre=True, bias=True)
    norm: str | Emulator = "hinge"
    ffn: bool | str = False
    read: Literal["cls", "mean"] = "cls"
    embed: Literal["public", "onehot"] = "public"
    secure: str | Emulator | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "hidden"):
            check_count(name, getattr(self, name))
        for name, families in (
            ("attention", ATTENTIONS),
            ("norm", NORMS),
            ("secure", SECURE_SCORES),
        ):
            value = getattr(self, name)
            if not isinstance(value, Emulator) and value is not None:
                check_choice(name, value, tuple(families))
        if not isinstance(self.ffn, bool):
            check_choice("ffn", self.ffn, (False, True, *ACTIVATIONS))
        check_choice("read", self.read, ("cls", "mean"))
        check_choice("embed", self.embed, ("public", "onehot"))


def paper_spec(layers: int, heads: int, width: int) -> Spec:
    """Return one of the paper's proxies, which reads the mean over the rows of a text.

    Args:
        layers: The paper's l.
        heads: Its w.
        width: Its d, the hidden width of every emulator: each is an MLP.
    """
    mlp = Emulator("mlp", width=width)
    return Spec(layers, heads, attention=mlp, norm=mlp, read="mean", secure=mlp)


def ablation(spec: Spec, name: str) -> Spec:
    """Return a specification with one of the paper's parts undone, or a peer's part.

    "NoAttnSM", "NoAttnLN" and "NoApprox" compute the softmax, the norm, or everything
    exactly; "2Quad" takes MPCFormer's softmax, "Bolt" a polynomial one.

    Args:
        spec: The specification to change.
        name: One of `ABLATIONS`.
    """
    check_choice("name", name, tuple(ABLATIONS))
    return dataclasses.replace(spec, **ABLATIONS[name])


def manifest(
    spec: Spec,
    *,
    layers: int,
    heads: int,
    head_width: int,
    hidden: int,
    length: int,
    n_classes: int,
    kind: Literal["tokens", "patches"] = "tokens",
    intermediate: int | None = None,
    vocab: int | None = None,
    pre_norm: bool = False,
    masked: bool | None = None,
    head: int = 0,
    score: Kind = "entropy",
    plan: Literal["folded", "plain"] = "folded",
    fixed_point: FixedPoint | None = None,
) -> Manifest:
    """Return the manifest of a proxy for a target of these sizes.

    Args:
        spec: The proxy.
        layers: Layers of the target.
        heads: Heads of each of its layers.
        head_width: Width of a head.
        hidden: Width of a row, H.
        length: Rows of a sample: the padded length of a text, or patches and CLS.
        n_classes: Classes.
        kind: Texts or images.
        intermediate: Hidden units of the feed-forward parts, where `spec.ffn` keeps
            them.
        vocab: Words of the embedding table; needed for `embed="onehot"`.
        pre_norm: Whether the target's norms come before its parts (ViT).
        masked: Whether samples are padded; by default texts are and images aren't.
        head: Hidden units of the classifier, 0 for a linear one.
        score: Score that ranks the samples.
        plan: How the secure run multiplies; see `Manifest`.
        fixed_point: Precision and bounds.

    Raises:
        ValueError: If the target has fewer layers or heads, or sizes do not fit.
    """
    for name, most in (("layers", layers), ("heads", heads)):
        check_count(name, most)
        if getattr(spec, name) > most:
            raise ValueError(
                f"spec.{name} must be at most the target's {most}, "
                f"got {getattr(spec, name)}"
            )
    attention = _emulator(spec.attention, ATTENTIONS, spec.hidden, degree=4)
    norm = _emulator(spec.norm, NORMS, spec.hidden)
    ffn = None
    if spec.ffn:
        if intermediate is None:
            raise ValueError("intermediate must be given for spec.ffn, got None")
        activation = "relu" if spec.ffn is True else spec.ffn
        ffn = FFN(width=intermediate, activation=activation)
    layer = Layer(
        heads=spec.heads,
        head_width=head_width,
        pre_norm=pre_norm,
        attention=attention,
        norm=norm,
        ffn=ffn,
    )
    return Manifest(
        inputs=Inputs(
            kind=kind,
            length=length,
            width=hidden,
            embed=spec.embed,
            vocab=vocab,
            masked=kind == "tokens" if masked is None else masked,
            norm=norm if spec.embed == "onehot" else None,
        ),
        layers=(layer,) * spec.layers,
        final_norm=norm if pre_norm else None,
        read=spec.read,
        head=Head(width=head, n_classes=n_classes),
        score=_score(score, spec.secure, n_classes, spec.hidden),
        plan=plan,
        fixed_point=fixed_point or FixedPoint(),
    )


def probe_manifest(
    *,
    width: int,
    n_classes: int,
    head: int = 0,
    score: Kind = "entropy",
    secure: str | Emulator | None = None,
    hidden: int = 16,
    fixed_point: FixedPoint | None = None,
) -> Manifest:
    """Return the manifest of a probe: a classifier on public features of each sample.

    Args:
        width: Columns of the features.
        n_classes: Classes.
        head: Hidden ReLU units, 0 for a linear probe.
        score: Score that ranks the samples.
        secure: Family of the score in secret; None takes "square" for two classes and
            "mlp" for more.
        hidden: Width of that "mlp".
        fixed_point: Precision and bounds.
    """
    return Manifest(
        inputs=Inputs(kind="features", length=1, width=width),
        layers=(),
        final_norm=None,
        read="row",
        head=Head(width=head, n_classes=n_classes),
        score=_score(score, secure, n_classes, hidden),
        fixed_point=fixed_point or FixedPoint(),
    )


def _emulator(
    value: str | Emulator,
    families: Mapping[str, Family[Any]],
    width: int,
    degree: int = 2,
) -> Emulator:
    if isinstance(value, Emulator):
        return value
    return Emulator(
        value,
        width=width if "width" in families[value].parameters else None,
        degree=degree if "degree" in families[value].parameters else None,
    )


def _score(
    kind: Kind,
    secure: str | Emulator | None,
    n_classes: int,
    hidden: int,
) -> Score:
    if secure is None:
        # The emulator is of the entropy: it does not rank as the margin of many does.
        many = "exact" if kind == "margin" else "mlp"
        secure = "square" if n_classes == 2 else many
    if not isinstance(secure, Emulator):
        check_choice("secure", secure, tuple(SECURE_SCORES))
    return Score(kind=kind, secure=_emulator(secure, SECURE_SCORES, hidden))
