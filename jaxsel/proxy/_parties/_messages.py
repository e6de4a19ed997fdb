"""Messages between the parties of a selection, each with the facts that it reveals."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from jaxsel._files.codec import check_format, decode, encode, read_json, write_json
from jaxsel._inputs.checks import check_count, check_same_length
from jaxsel._inputs.show import brief
from jaxsel.proxy._manifest import Manifest

from ._plan import Samples

FORMAT, VERSION = "jaxsel phases", 1


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """A data owner's description of its pool, before anything is bought.

    Reveals how many samples there are and the shape of one; no value of any.

    Attributes:
        n: Samples in the pool.
        tokens: Whether the inputs are `Tokens`.
        inputs: Shape of each array of one sample's inputs; None without inputs.
        features: Shape of one sample's features, `(d,)`; None without features.
    """

    n: int
    tokens: bool
    inputs: tuple[tuple[int, ...], ...] | None
    features: tuple[int, ...] | None


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A model owner's answer to an offer.

    Reveals the architecture of each phase's proxy, before any is trained, and the sizes
    of the purchase; no parameter of a model.

    Attributes:
        n: Samples in the pool.
        bootstrap: Share of the pool that is drawn at random and bought first.
        n_classes: Classes of the labels, C.
        keeps: Rows that each phase leaves, the bootstrap set not counted.
        manifests: Of each phase's proxy, still without bounds.
    """

    n: int
    bootstrap: float
    n_classes: int
    keeps: tuple[int, ...]
    manifests: tuple[Manifest, ...]


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Bootstrap:
    """The first purchase: samples that the data owner sells, with their labels.

    Reveals these samples to the model owner, and nothing of the others.

    Attributes:
        rows: Rows of the pool, `[m]`, ascending; see `draw_bootstrap`.
        samples: The samples.
        labels: Their classes, `[m]` int32.
    """

    rows: np.ndarray
    samples: Samples = dataclasses.field(repr=False)
    labels: np.ndarray


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """The public part of the phases that a model owner has prepared.

    Together with the pool it is all that the data owner needs for the secure run.
    Reveals architectures and, as powers of two, bounds on the proxies' numbers for
    the bootstrap set; no parameter of a model.

    Attributes:
        n: Samples in the pool.
        bootstrap: Rows that are bought already, ascending: they are not scored.
        keeps: Rows that each phase leaves, the bootstrap set not counted.
        manifests: Of each phase's proxy, with bounds.

    Raises:
        TypeError: If a row or a number of rows is no whole number.
        ValueError: If there is not one manifest for each of `keeps`, they do not fall,
            or a row lies outside the pool or stands there twice.
    """

    n: int
    bootstrap: tuple[int, ...]
    keeps: tuple[int, ...]
    manifests: tuple[Manifest, ...] = dataclasses.field(
        metadata={"of": Manifest, "many": True}
    )

    def __post_init__(self) -> None:
        check_count("n", self.n)
        for name, minimum in (("bootstrap", 0), ("keeps", 1)):
            counts = [
                check_count(f"{name}[{i}]", value, minimum=minimum)
                for i, value in enumerate(getattr(self, name))
            ]
            object.__setattr__(self, name, tuple(counts))
        if any(row >= self.n for row in self.bootstrap) or len(
            set(self.bootstrap)
        ) < len(self.bootstrap):
            raise ValueError(
                f"bootstrap must hold distinct rows in [0, {self.n}), got "
                f"{len(self.bootstrap)} rows up to {max(self.bootstrap)}"
            )
        if not self.keeps or len(self.manifests) != len(self.keeps):
            raise ValueError(
                "manifests must be one for each of keeps, one at least, got "
                f"{len(self.manifests)} for {len(self.keeps)}"
            )
        before = self.n - len(self.bootstrap)
        for i, keep in enumerate(self.keeps):
            if keep >= before:
                raise ValueError(
                    f"keeps[{i}] must be below the {before} rows before it, got {keep}"
                )
            before = keep

    def to_json(self) -> str:
        """Return the phases as JSON text, manifests included."""
        return write_json({"format": FORMAT, "version": VERSION, **encode(self)})

    @staticmethod
    def from_json(text: str) -> Published:
        """Return the phases that `to_json` wrote.

        Raises:
            ValueError: If it is no JSON, is of another format or version, or has a
                field that is missing, unknown or out of range; it names the field.
        """
        document = read_json(text, "the phases' text")
        check_format(document, FORMAT, VERSION)
        return decode(Published, document)


def check_labels(labels: npt.ArrayLike, n: int, n_classes: int) -> np.ndarray:
    """Return the classes of n bought samples as int32.

    Raises:
        ValueError: If they are not n integers in `[0, n_classes)`.
    """
    y = np.asarray(labels)
    check_same_length("labels", y, "bootstrap", np.empty(n))
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(
            f"labels must return integers [m], got {y.dtype} of shape {y.shape}"
        )
    if y.min() < 0 or y.max() >= n_classes:
        raise ValueError(
            f"labels must lie in [0, {n_classes}), got values from {y.min()} to "
            f"{y.max()}"
        )
    return y.astype(np.int32)
