"""The public description of a proxy, from which its secure run and its cost follow.

It has the architecture and never the parameters: no weight, no range measured more
finely than a power of two, no hash. Reading is strict: a field that is missing, unknown
or of the wrong type is refused by name, so that two parties never run two programs.

The formula of each family, L the length, s the scores of a row with 1/sqrt(head width)
in the query's weights, m the mask (1 for a token, 0 for padding), len = sum m; t is s,
or with `centre` s less its mean over the row's tokens; B m is added with `bias`, a
secret number by head and position:

| attention | weights of a row |
|---|---|
| `mlp` | (relu((s m) W1 + b1) W2 + b2) m, one for all heads |
| `linear` | (c0 + c1 t) m / len, by head |
| `quadratic` | (c0 + c1 t + c2 t²) m / len, by head |
| `cubic` | (c0 + c1 t + c2 t² + c3 t³) m / len, by head |
| `hinge` | (c0 + c1 t + c2 relu(t - k)) m / len, by head |
| `2quad` | (s + c)² m over its sum, c public |
| `polynomial` | p(s) m over its sum, p of an even `degree`, public |
| `exact` | the softmax |
| `uniform` | m / len: no query, no key |
| `relu` | relu(s) m / len |

| norm | factor of the centred row, from its variance v |
|---|---|
| `mlp` | relu(v W1 + b1) W2 + b2 |
| `hinge` | c0 + c v + sum of a_t relu(v - knot_t), `width` knots |
| `polynomial` | of `degree` in v |
| `linear` | c0 + c v |
| `squared` | (c0 + c v)² |
| `exact` | 1 / sqrt(v + eps) |
| `none` | there is no norm: the row goes on as it is |
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from jaxsel._files.codec import (
    check_format,
    decode,
    encode,
    read_json,
    short,
    write_json,
)
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.show import brief

from .families import (
    ACTIVATIONS,
    ATTENTIONS,
    NORMS,
    SECURE_SCORES,
    Family,
    score_of,
)

FORMAT, VERSION = "jaxsel proxy", 1

Kind = Literal["entropy", "prior_entropy", "margin"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of scores that samples are ranked by, see `score`."""


@dataclasses.dataclass(frozen=True)
class Emulator:
    """A stand-in for a non-linear function: its family and that family's sizes.

    Attributes:
        family: One of the tables above, by role.
        width: Hidden units of `mlp`, knots of a norm's `hinge`; else None.
        degree: Of `polynomial`, at least 2; else None.
        centre: For attention by powers: see above.
        bias: For attention by powers: see above.
    """

    family: str
    width: int | None = dataclasses.field(default=None, metadata={"omit": True})
    degree: int | None = dataclasses.field(default=None, metadata={"omit": True})
    centre: bool = dataclasses.field(default=False, metadata={"omit": True})
    bias: bool = dataclasses.field(default=False, metadata={"omit": True})

    def entry(self) -> dict[str, Any]:
        """Return the fields that are given, as the emulators' own `entry` does."""
        fields = dataclasses.asdict(self).items()
        return {name: value for name, value in fields if value not in (None, False)}


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The data owner's input: one sample as it is shared.

    Attributes:
        kind: "tokens", "patches" (both `[length, width]` after embedding) or "features"
            (one row).
        length: Rows of a sample, L; 1 for features.
        width: Columns of a row, H.
        embed: "public": the data owner embeds in the clear, its norm included.
            "onehot": rows of `vocab` indicators are multiplied by a secret table.
        vocab: Rows of that table; it may be named for "public" too.
        masked: Whether samples are padded, and the number of their rows is secret.
        norm: The norm after a secret table; null for "public".
    """

    kind: Literal["tokens", "patches", "features"]
    length: int
    width: int
    embed: Literal["public", "onehot"] = "public"
    vocab: int | None = None
    masked: bool = False
    norm: Emulator | None = dataclasses.field(default=None, metadata={"of": Emulator})

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("tokens", "patches", "features"))
        _check_sizes(self, "length", "width")
        check_choice("embed", self.embed, ("public", "onehot"))
        if self.vocab is not None:
            _check_sizes(self, "vocab")
        _check_flag("masked", self.masked)
        if self.kind == "features" and self.length != 1:
            raise ValueError(f"length must be 1 for features, got {self.length}")
        if self.kind != "tokens":
            for name in ("embed", "vocab", "masked"):
                plain = Inputs.__dataclass_fields__[name].default
                if getattr(self, name) != plain:
                    raise ValueError(
                        f"{name} must be {plain!r} for {self.kind}, "
                        f"got {getattr(self, name)!r}"
                    )
        if self.embed == "onehot":
            if self.vocab is None:
                raise ValueError("vocab must be given for embed='onehot', got None")
            _check_emulator("norm", self.norm, NORMS)
        elif self.norm is not None:
            raise ValueError(f"norm must be None for embed='public', got {self.norm}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FFN:
    """The feed-forward part of a layer: `width` hidden units and their activation.

    "quad" is x²/8 + x/4 + 1/2 (MPCFormer's stand-in for GELU); "gelu" is computed as
    x · sigmoid(1.5958 (x + 0.044715 x³)).
    """

    width: int
    activation: str

    def __post_init__(self) -> None:
        _check_sizes(self, "width")
        check_choice("activation", self.activation, tuple(ACTIVATIONS))


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: attention with a norm, and the feed-forward part where it is kept.

    `pre_norm` says that the norms stand before the two parts (ViT), not after the sums
    (BERT); both parts have a norm of the same family.
    """

    heads: int
    head_width: int
    pre_norm: bool
    attention: Emulator = dataclasses.field(metadata={"of": Emulator})
    norm: Emulator = dataclasses.field(metadata={"of": Emulator})
    ffn: FFN | None = dataclasses.field(default=None, metadata={"of": FFN})

    def __post_init__(self) -> None:
        _check_sizes(self, "heads", "head_width")
        _check_flag("pre_norm", self.pre_norm)
        _check_emulator("attention", self.attention, ATTENTIONS)
        _check_emulator("norm", self.norm, NORMS)
        if self.ffn is not None and not isinstance(self.ffn, FFN):
            raise TypeError(f"ffn must be an FFN or None, got {self.ffn!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """The classifier: linear (`width` 0), or with `width` hidden ReLU units."""

    width: int
    n_classes: int

    def __post_init__(self) -> None:
        _check_sizes(self, "width", minimum=0)
        _check_sizes(self, "n_classes", minimum=2)


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """The score that samples are ranked by, and its form in secret.

    `secure` is `mlp` (the entropy's emulator), `square` (two classes: minus the square
    of the difference of the logits, which ranks as all three kinds do) or `exact`. The
    prior of "prior_entropy" is an offset of the logits and costs nothing.
    """

    kind: Kind
    secure: Emulator = dataclasses.field(metadata={"of": Emulator})

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        _check_emulator("secure", self.secure, SECURE_SCORES)
        family = self.secure.family
        if self.kind == "margin" and SECURE_SCORES[family].type.emulates:
            others = (k for k, v in SECURE_SCORES.items() if not v.type.emulates)
            raise ValueError(
                f"secure must be {' or '.join(map(repr, others))} for the margin, got "
                f"{family!r}, which emulates the entropy"
            )


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """Fraction bits of the ring, and bounds on computed numbers, as powers of two.

    Attributes:
        fraction_bits: Fraction bits of a number in the 64-bit ring.
        bounds: A bound on the absolute value at each named place, such as
            "layers.0.scores"; read only. `power_of_two` rounds measured ones.
    """

    fraction_bits: int = 16
    bounds: Mapping[str, float] = dataclasses.field(
        default_factory=dict[str, float], hash=False
    )

    def __post_init__(self) -> None:
        _check_sizes(self, "fraction_bits")
        if self.fraction_bits > 30:
            raise ValueError(
                f"fraction_bits must be at most 30, got {self.fraction_bits}"
            )
        if not isinstance(self.bounds, Mapping):
            raise TypeError(f"bounds must map places to numbers, got {self.bounds!r}")
        for place, bound in self.bounds.items():
            if not isinstance(place, str) or not _PLACE.fullmatch(place):
                raise ValueError(
                    "bounds must name places such as 'layers.0.scores', "
                    f"got {short(place)}"
                )
            number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
            if not number or not 0 < bound < 2.0**64 or math.frexp(bound)[0] != 0.5:
                raise ValueError(
                    f"bounds[{place!r}] must be a power of two below 2**64, "
                    f"got {short(bound)}"
                )
        bounds = {place: float(bound) for place, bound in self.bounds.items()}
        object.__setattr__(self, "bounds", bounds)


_PLACE = re.compile(
    r"(inputs|final_norm|head|score|layers\.(0|[1-9]\d{0,3}))(\.[a-z_]+)?"
)


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """A proxy's architecture: public, and enough to run and to cost it.

    Attributes:
        inputs: The data owner's input, shared for each sample.
        layers: The layers, first to last; none for features.
        final_norm: The norm after the last layer of a pre-norm encoder; else None.
        read: The row that the classifier reads: "cls" (the first; then the last layer
            computes no other), "mean" (over the mask), or "row" (features).
        head: The classifier.
        score: The score and its secure form.
        plan: "folded": the model owner multiplies weights that meet into one before
            the run, and an operand of several weights is opened once. "plain":
            one product for each linear map, as CrypTen's own layers do.
        fixed_point: The ring's precision and the bounds that must hold.
    """

    inputs: Inputs = dataclasses.field(metadata={"of": Inputs})
    layers: tuple[Layer, ...] = dataclasses.field(metadata={"of": Layer, "many": True})
    final_norm: Emulator | None = dataclasses.field(metadata={"of": Emulator})
    read: Literal["cls", "mean", "row"]
    head: Head = dataclasses.field(metadata={"of": Head})
    score: Score = dataclasses.field(metadata={"of": Score})
    plan: Literal["folded", "plain"] = "folded"
    fixed_point: FixedPoint = dataclasses.field(
        default_factory=FixedPoint, metadata={"of": FixedPoint}
    )

    def __post_init__(self) -> None:
        for name, kind in (
            ("inputs", Inputs),
            ("head", Head),
            ("score", Score),
            ("fixed_point", FixedPoint),
        ):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be of {kind.__name__}")
        object.__setattr__(self, "layers", tuple(self.layers))
        features = self.inputs.kind == "features"
        check_choice("read", self.read, ("row",) if features else ("cls", "mean"))
        check_choice("plan", self.plan, ("folded", "plain"))
        if features == bool(self.layers):
            allowed = "empty for" if features else "at least one for"
            raise ValueError(
                f"layers must be {allowed} {self.inputs.kind}, got {len(self.layers)}"
            )
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers[{index}] must be a Layer, got {layer!r}")
            if layer.pre_norm != self.layers[0].pre_norm:
                raise ValueError(
                    f"layers[{index}].pre_norm must be that of the first layer, "
                    f"got {layer.pre_norm}"
                )
        if self.layers and self.layers[0].pre_norm:
            _check_emulator("final_norm", self.final_norm, NORMS)
        elif self.final_norm is not None:
            raise ValueError(
                "final_norm must be None unless the layers are pre_norm, "
                f"got {self.final_norm}"
            )
        family = self.score.secure.family
        if SECURE_SCORES[family].type.two_classes and self.head.n_classes != 2:
            raise ValueError(
                f"score.secure.family {family!r} ranks two classes only, got "
                f"head.n_classes {self.head.n_classes}"
            )
        for place in self.fixed_point.bounds:
            parts = place.split(".")
            if parts[0] == "layers" and int(parts[1]) >= len(self.layers):
                raise ValueError(
                    f"fixed_point.bounds names {place!r}, but there are "
                    f"{len(self.layers)} layers"
                )

    def rows_of(self, layer: int) -> int:
        """Return the rows that a layer computes: the first where it alone is read."""
        first = self.read == "cls" and layer == len(self.layers) - 1
        return 1 if first else self.inputs.length

    @property
    def watched(self) -> bool:
        """True if numbers may leave their bounds though the inputs keep theirs.

        Numbers of a probe can't, but for the logits that exact entropies take.
        """
        family = score_of(self.score.secure)
        proven = family.degree(self.score.kind) or family.emulates
        known = {"head.logits", "score"} <= set(self.fixed_point.bounds)
        return known and not (proven and self.inputs.kind == "features")

    @property
    def outside(self) -> float:
        """The score of samples that leave their bounds, below all others."""
        return -2 * self.fixed_point.bounds["score"]

    def to_json(self) -> str:
        """Return the manifest as JSON text that ends with a line feed."""
        return write_json({"format": FORMAT, "version": VERSION, **encode(self)})

    @staticmethod
    def from_json(text: str) -> Manifest:
        """Return the manifest that `to_json` wrote.

        Raises:
            ValueError: If it is no JSON, is of another format or version, or has a
                field that is missing, unknown, of the wrong type or out of range; it
                names the field.
        """
        document = read_json(text)
        check_format(document, FORMAT, VERSION)
        return decode(Manifest, document)


def power_of_two(value: float) -> float:
    """Return the least power of two that is at least `value`.

    Args:
        value: Above zero.

    Raises:
        ValueError: If the value is not finite and above zero.
    """
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"value must be finite and above zero, got {value}")
    # The fraction lies in [1/2, 1); a power of two has 1/2.
    fraction, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - (fraction == 0.5))


def _check_emulator(name: str, value: Any, families: Mapping[str, Family[Any]]) -> None:
    if not isinstance(value, Emulator):
        raise TypeError(f"{name} must be an emulator with a family, got {value!r}")
    check_choice(f"{name}.family", value.family, tuple(families))
    family = families[value.family]
    for parameter in ("width", "degree", "centre", "bias"):
        entry = getattr(value, parameter)
        if parameter in ("centre", "bias"):
            _check_flag(f"{name}.{parameter}", entry)
        elif parameter in family.parameters:
            _check_size(f"{name}.{parameter}", entry, 2 if parameter == "degree" else 1)
        if parameter not in family.parameters and entry not in (None, False):
            raise ValueError(
                f"{name}.{parameter} is no parameter of {value.family!r}, "
                f"got {short(entry)}"
            )
    try:
        family.make(**{field: getattr(value, field) for field in family.parameters})
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None


def _check_sizes(node: Any, *names: str, minimum: int = 1) -> None:
    for name in names:
        size = _check_size(name, getattr(node, name), minimum)
        object.__setattr__(node, name, size)


def _check_size(name: str, value: Any, minimum: int) -> int:
    value = check_count(name, value, minimum=minimum)
    # The count of a row's maximum is CrypTen's for rows that are not enormous.
    power = 16 if name in ("length", "n_classes") else 31
    if value > 2**power:
        raise ValueError(f"{name} must be at most 2**{power}, got {short(value)}")
    return value


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {short(value)}")
