"""Families of emulators: one file each, and one line each in the tables below.

A family says all there is to know about it: how it is fitted and applied, the shapes of
its parameters, how the model owner folds them, the operations that it asks for in
secret, and the ranges that it needs. The forward pass, the fold, the schedule, the cost
and the checks of ranges know none by name.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from jaxsel._inputs.checks import check_choice

from ._activation import Activation as Activation
from ._activation_gelu import GELU
from ._activation_quad import Quad
from ._activation_relu import ReLU
from ._attention import (
    Attention as Attention,
    AttentionPlace as AttentionPlace,
    Folded as Folded,
    shares as shares,
)
from ._attention_2quad import TwoQuadAttention
from ._attention_exact import SoftmaxAttention
from ._attention_mlp import MLPAttention
from ._attention_polynomial import PolynomialAttention
from ._attention_powers import FORMS, PowerAttention
from ._attention_relu import ReLUAttention
from ._attention_uniform import UniformAttention
from ._described import Entry
from ._norm import Norm as Norm, scaled_variance as scaled_variance
from ._norm_exact import ExactNorm
from ._norm_hinge import HingeNorm
from ._norm_mlp import MLPNorm
from ._norm_none import NoNorm
from ._norm_polynomial import PolynomialNorm
from ._norm_squared import SquaredNorm
from ._place import Arrays as Arrays, Place as Place, Shapes as Shapes, Steps as Steps
from ._ranges import Ranges as Ranges
from ._score import SecureScore as SecureScore
from ._score_exact import ExactEntropy
from ._score_mlp import MLPEntropy
from ._score_square import SquareEntropy

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, eq=False)
class Family(Generic[_T]):
    """One name of the manifest.

    Attributes:
        type: The class that does the work.
        parameters: Parameters of the manifest that it takes.
        given: Further fields, which the name stands for.
    """

    type: type[_T]
    parameters: tuple[str, ...] = ()
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def make(self, **fields: Any) -> _T:
        """Return the family of these sizes."""
        return self.type(**self.given, **fields)


ATTENTIONS: dict[str, Family[Attention]] = {
    "mlp": Family(MLPAttention, ("width",)),
    **{
        form: Family(PowerAttention, ("centre", "bias"), {"form": form})
        for form in FORMS
    },
    "2quad": Family(TwoQuadAttention),
    "polynomial": Family(PolynomialAttention, ("degree",)),
    "exact": Family(SoftmaxAttention),
    "uniform": Family(UniformAttention),
    "relu": Family(ReLUAttention),
}
NORMS: dict[str, Family[Norm]] = {
    "mlp": Family(MLPNorm, ("width",)),
    "hinge": Family(HingeNorm, ("width",)),
    "polynomial": Family(PolynomialNorm, ("degree",)),
    "linear": Family(PolynomialNorm, given={"degree": 1}),
    "squared": Family(SquaredNorm),
    "exact": Family(ExactNorm),
    "none": Family(NoNorm),
}
SECURE_SCORES: dict[str, Family[SecureScore]] = {
    "mlp": Family(MLPEntropy, ("width",)),
    "square": Family(SquareEntropy),
    "exact": Family(ExactEntropy),
}
ACTIVATIONS: dict[str, Activation] = {"relu": ReLU(), "gelu": GELU(), "quad": Quad()}


def attention_emulator(entry: Mapping[str, Any]) -> Attention:
    """Return the family that a manifest's entry names.

    Args:
        entry: Result of `entry()`. Fields that are None or False count as absent.

    Raises:
        ValueError: For an unknown family or field.
    """
    return _made("attention", ATTENTIONS, entry)


def norm_emulator(entry: Mapping[str, Any], *, eps: float = 1e-12) -> Norm:
    """Return the family that a manifest's entry names; "none" has no emulator.

    Args:
        entry: Result of `entry()`. Fields that are None or False count as absent.
        eps: Of the layer norm.

    Raises:
        ValueError: For an unknown family or field.
    """
    emulators = {name: family for name, family in NORMS.items() if name != "none"}
    return _made("norm", emulators, entry, eps=eps)


def entropy_emulator(entry: Mapping[str, Any]) -> SecureScore:
    """Return the family that a manifest's entry names.

    Args:
        entry: Result of `entry()`. Fields that are None or False count as absent.

    Raises:
        ValueError: For an unknown family or field.
    """
    return _made("entropy", SECURE_SCORES, entry)


def attention_of(emulator: Entry) -> Attention:
    """Return the family of a manifest's attention."""
    return _sized(ATTENTIONS[emulator.family], emulator)


def norm_of(emulator: Entry) -> Norm:
    """Return the family of a manifest's norm, "none" included."""
    return _sized(NORMS[emulator.family], emulator)


def score_of(emulator: Entry) -> SecureScore:
    """Return the family of a manifest's secure score."""
    return _sized(SECURE_SCORES[emulator.family], emulator)


@functools.lru_cache(maxsize=256)
def _sized(family: Family[Any], emulator: Entry) -> Any:
    return family.make(**{name: getattr(emulator, name) for name in family.parameters})


def _made(
    role: str, families: Mapping[str, Family[_T]], entry: Mapping[str, Any], **more: Any
) -> _T:
    fields = {k: v for k, v in entry.items() if v is not None and v is not False}
    family = fields.pop("family", None)
    check_choice("family", family, list(families))
    try:
        return families[family].make(**fields, **more)
    except TypeError as error:
        text = f"{role} entry {dict(entry)} does not fit: {error}"
        raise ValueError(text) from None
