"""A small network trained on the trainer's samples and an answer, to rank owners."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxsel._inputs.checks import check_count, check_finite
from jaxsel._inputs.frames import in_order, plain_labels
from jaxsel.data import Dataset

from ._answer import Answer
from ._request import Request
from ._scale import Scale
from ._schema import check_rows, listed, misspelt
from ._screen import overlap, screen, sent

if TYPE_CHECKING:
    from ._network import Network


class Trainer:
    """A trainer that learns from answers with a small network, to `rank` them.

    The network has one hidden layer, and learns from numbers only. It is trained on the
    trainer's samples and on those that the request shows, then trained on with these
    and the samples of one answer. For a model of your own, call `screen` and `rank`.

        trainer = Trainer(request, train, held_out)
        answers, refused = trainer.admit({answer.owner: answer for answer in received})
        baseline = trainer.hits(None)
        ranking = rank(answers.values(), trainer.hits, baseline=baseline)

    Args:
        request: The request that was sent.
        train: The trainer's own samples. Columns of a table are brought into the
            request's order by their names.
        held_out: Hard samples that no owner has seen, in the form of `train`.
        seeds: Number of runs, each with other initial weights.
        steps: Steps of 64 samples, in each of the two trainings.
        retrain: Whether to start from new weights with each answer, rather than train
            on.
        without_shown: Whether to leave out the samples that the request shows.
        names: Names of `train` and `held_out` in errors and warnings.

    Attributes:
        shown: How many of the shown samples are trained on.
        warnings: Warnings for users of the ranking; `admit` and `hits` add some.

    Raises:
        ValueError: If the samples are not finite numbers of the shape and with the
            columns that the request asks for, or their labels are of two kinds.
    """

    def __repr__(self) -> str:
        return f"Trainer({self.request!r}, seeds={self._seeds}, steps={self._steps})"

    def __init__(
        self,
        request: Request,
        train: Dataset,
        held_out: Dataset,
        *,
        seeds: int = 3,
        steps: int = 500,
        retrain: bool = False,
        without_shown: bool = False,
        names: tuple[str, str] = ("train", "held_out"),
    ) -> None:
        self.request = request
        self.warnings: list[str] = []
        self._seeds = check_count("seeds", seeds)
        self._steps = check_count("steps", steps)
        self._retrain, self._without_shown = retrain, without_shown
        self._names = names
        if (
            train.x.shape[1:] != held_out.x.shape[1:]
            or train.x.dtype.kind not in "biuf"
        ):
            raise ValueError(
                f"{' and '.join(names)} must hold numbers of one shape, got samples of "
                f"shape {train.x.shape[1:]} and {held_out.x.shape[1:]}"
            )
        self.shape = train.x.shape[1:]
        schema = request.schema
        asked = schema.sample_shape or (schema.n_features,)
        if asked != self.shape or schema.sample_dtype == "text":
            raise ValueError(
                f"{names[0]} must hold samples of shape {asked} as the request asks, "
                f"and numbers, got {self.shape}: to rank others, call "
                "jaxsel.market.rank"
            )
        known = () if schema.classes is None else schema.classes
        labels = [plain_labels(train.y), plain_labels(held_out.y)]
        if known:
            labels.append(np.asarray(known))
        if len({array.dtype.kind == "U" for array in labels}) > 1:
            raise ValueError(
                f"{', '.join(names)} and the request must have labels of one kind, but "
                "some are texts and some are numbers"
            )
        _check_spelling([*names, "the request"], labels)
        self.classes = np.unique(np.concatenate(labels))
        train, held_out = self._aligned(train, held_out, schema.columns)
        for name, data in zip(names, (train, held_out), strict=True):
            check_rows(name, np.asarray(data.x), gaps=request.gaps)
        self.x, self.held_out_x = np.asarray(train.x), np.asarray(held_out.x)
        self.scale = Scale.of(self.x)
        self.held_out = self._pair(names[1], self.held_out_x, held_out.y)
        pairs = [self._pair(names[0], self.x, train.y), *self._shown()]
        rows, codes = zip(*pairs, strict=True)
        self.train = np.concatenate(rows), np.concatenate(codes)
        self.shown = sum(map(len, rows[1:]))
        self._base: list[Network] = []

    def admit(
        self, answers: Mapping[str, Answer], *, reach: float = 10.0
    ) -> tuple[dict[str, Answer], dict[str, str]]:
        """Return the answers that may be ranked, and why the others may not.

        Copies of shown samples are left out of an answer, with a warning: see
        `screen`.

        Args:
            answers: Answers by their name in errors, such as the name of a file.
            reach: How many widths outside the trainer's own samples are plausible.

        Returns:
            Answers, and reasons of refusal, both by the names given.
        """
        admitted: dict[str, Answer] = {}
        refused: dict[str, str] = {}
        for name, answer in answers.items():
            try:
                self._check(answer)
                if answer.owner in {other.owner for other in admitted.values()}:
                    raise ValueError(f"owner {answer.owner!r} has answered already")
            except ValueError as error:
                refused[name] = f"{name} is refused: {error}"
                continue
            admitted[name] = answer
        screened = screen(
            admitted.values(),
            self.request,
            self.x,
            held_out=self.held_out_x,
            reach=reach,
        )
        passed = {answer.owner: answer for answer in screened.answers}
        for name, answer in list(admitted.items()):
            try:
                if answer.owner in screened.refused:
                    raise ValueError(screened.refused[answer.owner])
                admitted[name] = passed[answer.owner]
                self._pair("x", sent(answer), np.asarray(answer.y))
            except ValueError as error:
                refused[name] = f"{name} is refused: {error}"
                del admitted[name]
                continue
            if answer.owner in screened.left_out:
                self.warnings.append(f"{name}: {admitted[name].reason}")
            if answer.owner in screened.near:
                self.warnings.append(
                    f"{name}: {screened.near[answer.owner]} of {len(answer)} samples "
                    "are nearer to shown ones than if the owner had 100 times the "
                    "trainer's data: they may be copies with noise"
                )
        return admitted, refused

    def score(self, answer: Answer | None) -> list[float]:
        """Return the accuracy on the hard samples held out, for each seed.

        Args:
            answer: One that `admit` let pass; None for the trainer's samples alone.
        """
        return self.hits(answer).mean(axis=1).tolist()

    def hits(self, answer: Answer | None) -> np.ndarray:
        """Return which of the hard samples held out are right, `[seeds, h]` bool.

        Args:
            answer: One that `admit` let pass; None for the trainer's samples alone.
        """
        from ._network import Network

        rows, codes = self.train
        if answer is not None and answer.y is not None:
            more, more_codes = self._pair(answer.owner, sent(answer), answer.y)
            rows = np.concatenate([rows, more])
            codes = np.concatenate([codes, more_codes])
        hits: list[np.ndarray] = []
        lost = 0
        for seed in range(self._seeds):
            keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(3)]
            if len(self._base) == seed:
                new = Network.new(rows.shape[1], len(self.classes), keys[0])
                if not self._retrain:
                    new = new.trained(*self.train, keys[1], self._steps)
                self._base.append(new)
            after = self._base[seed].trained(rows, codes, keys[2], self._steps)
            right, bad = after.hits(*self.held_out)
            hits.append(right)
            lost += bad
        if lost:
            who = "without any answer" if answer is None else f"with {answer.owner!a}"
            self.warnings.append(
                f"{who}, the network's outputs are not finite for {lost} of "
                f"{len(hits) * len(self.held_out[1])} samples, which count as wrong"
            )
        return np.stack(hits)

    def _check(self, answer: Answer) -> None:
        """Raise if the network cannot be trained on an answer."""
        if answer.y is None:
            raise ValueError("y is missing: without labels nothing is learnt")
        if not np.isin(answer.y, self.classes).all():
            raise ValueError(
                f"y must hold classes of {', '.join(self._names)} or the request: "
                f"{', '.join(map(str, self.classes[:20]))}"
            )

    def _shown(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the shown samples to train on: all but held-out ones."""
        request = self.request
        x = request.x if request.schema.sample_shape is not None else request.features
        if x is None or request.y is None:
            return []
        same = overlap(request, self.held_out_x)
        if same.any():
            self.warnings.append(
                f"{int(same.sum())} of {len(same)} samples shown to owners are in "
                f"{self._names[1]}: scores favour what resembles them, and they are "
                "not trained on"
            )
        if self._without_shown:
            return []
        return [self._pair("the request", x[~same], request.y[~same])]

    def _pair(
        self, name: str, x: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = self.scale(x)
        check_finite(f"{name}, in standard deviations of {self._names[0]},", rows)
        return rows, np.searchsorted(self.classes, plain_labels(y))

    def _aligned(
        self, train: Dataset, held_out: Dataset, columns: tuple[str, ...] | None
    ) -> tuple[Dataset, Dataset]:
        """Bring the columns of tables into one order: the request's, or `train`'s.

        Raises:
            ValueError: If their names differ.
        """
        of = "the request"
        if columns is None:
            columns, of = train.feature_names, self._names[0]
        both: list[Any] = []
        for name, data in zip(self._names, (train, held_out), strict=True):
            x = in_order(name, data.x, data.feature_names, columns, of=of)
            both.append(dataclasses.replace(data, x=x, feature_names=None))
        return both[0], both[1]


def _check_spelling(names: Sequence[str], labels: Sequence[np.ndarray]) -> None:
    """Raise if one side spells classes otherwise than another.

    Raises:
        ValueError: If two differ in case or blanks only. One side that has both means
            two classes.
    """
    for i, j in itertools.permutations(range(len(labels)), 2):
        other = misspelt(labels[i], labels[j], beside=False)
        if len(other):
            raise ValueError(
                f"{names[i]} and {names[j]} must write classes alike, but {names[i]} "
                f"has {listed(other)}, which {names[j]} writes in another case or with "
                "other blanks"
            )
