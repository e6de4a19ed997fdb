"""The trainer of `jaxsel market rank`: its samples, and what it makes of an answer."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxsel._checks import check_finite
from jaxsel.data import Dataset
from jaxsel.market import Answer, Request, screen
from jaxsel.market._schema import check_rows, in_order
from jaxsel.market._screen import overlap, sent

from ._market_data import plain_labels
from ._market_model import Network, Scale


class Trainer:
    """The trainer's samples, those shown to owners among them.

    Attributes:
        shown: How many of the shown samples are trained on.
        warnings: What the user should know of the ranking.
    """

    def __init__(
        self,
        request: Request,
        train: Dataset,
        held_out: Dataset,
        args: argparse.Namespace,
    ) -> None:
        self.args = args
        self.request = request
        self.warnings: list[str] = []
        if (
            train.x.shape[1:] != held_out.x.shape[1:]
            or train.x.dtype.kind not in "biuf"
        ):
            raise ValueError(
                "TRAIN and HELD_OUT must hold numbers of one shape, got samples of "
                f"shape {train.x.shape[1:]} and {held_out.x.shape[1:]}"
            )
        self.shape = train.x.shape[1:]
        schema = request.schema
        asked = schema.sample_shape or (schema.n_features,)
        if asked != self.shape or schema.sample_dtype == "text":
            raise ValueError(
                f"TRAIN must hold samples of shape {asked} as the request asks, and "
                f"numbers, got {self.shape}: to rank others, call jaxsel.market.rank"
            )
        known = () if schema.classes is None else schema.classes
        labels = [plain_labels(train.y), plain_labels(held_out.y)]
        if known:
            labels.append(np.asarray(known))
        if len({array.dtype.kind == "U" for array in labels}) > 1:
            raise ValueError(
                "TRAIN, HELD_OUT and the request must have labels of one kind, but "
                "some are texts and some are numbers"
            )
        self.classes = np.unique(np.concatenate(labels))
        train, held_out = _aligned(train, held_out, schema.columns)
        for name, data in (("TRAIN", train), ("HELD_OUT", held_out)):
            check_rows(name, np.asarray(data.x), gaps=request.gaps)
        self.x, self.held_out_x = np.asarray(train.x), np.asarray(held_out.x)
        self.scale = Scale.of(self.x)
        self.held_out = self._pair("HELD_OUT", self.held_out_x, held_out.y)
        pairs = [self._pair("TRAIN", self.x, train.y), *self._shown()]
        rows, codes = zip(*pairs, strict=True)
        self.train = np.concatenate(rows), np.concatenate(codes)
        self.shown = sum(map(len, rows[1:]))
        self.base: list[Network] = []

    def load(self, paths: Sequence[str]) -> tuple[dict[str, Answer], dict[str, str]]:
        """Read answers, and return those that may be used, and why others may not.

        Returns:
            Both by file. Copies of what was shown are left out, with a warning.
        """
        answers: dict[str, Answer] = {}
        refused: dict[str, str] = {}
        for path in paths:
            try:
                answer = Answer.load(path, self.request, max_bytes=self.args.max_bytes)
            except (ValueError, OSError) as error:
                refused[path] = str(error)
                continue
            try:
                self._check(answer)
                if answer.owner in {other.owner for other in answers.values()}:
                    raise ValueError(f"owner {answer.owner!r} has answered already")
            except ValueError as error:
                refused[path] = f"{path} is refused: {error}"
                continue
            answers[path] = answer
        found = screen(
            answers.values(),
            self.request,
            self.x,
            held_out=self.held_out_x,
            reach=self.args.reach,
        )
        passed = {answer.owner: answer for answer in found.answers}
        for path, answer in list(answers.items()):
            try:
                if answer.owner in found.refused:
                    raise ValueError(found.refused[answer.owner])
                answers[path] = passed[answer.owner]
                self._pair("x", sent(answer), np.asarray(answer.y))
            except ValueError as error:
                refused[path] = f"{path} is refused: {error}"
                del answers[path]
                continue
            if answer.owner in found.left_out:
                self.warnings.append(f"{path}: {answers[path].reason}")
        order = dict.fromkeys(path for path in paths if path in refused)
        return answers, {path: refused[path] for path in order}

    def score(self, answer: Answer | None) -> list[float]:
        """Return the accuracy on the hard samples held out, for each seed."""
        rows, codes = self.train
        if answer is not None and answer.y is not None:
            more, more_codes = self._pair(answer.owner, sent(answer), answer.y)
            rows = np.concatenate([rows, more])
            codes = np.concatenate([codes, more_codes])
        scores, lost = [], 0
        for seed in range(self.args.seeds):
            keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(3)]
            if len(self.base) == seed:
                new = Network.new(rows.shape[1], len(self.classes), keys[0])
                if not self.args.retrain:
                    new = new.trained(*self.train, keys[1], self.args.steps)
                self.base.append(new)
            after = self.base[seed].trained(rows, codes, keys[2], self.args.steps)
            score, bad = after.accuracy(*self.held_out)
            scores.append(score)
            lost += bad
        if lost:
            who = "without any answer" if answer is None else f"with {answer.owner!a}"
            self.warnings.append(
                f"{who}, the network's outputs are not finite for {lost} of "
                f"{len(scores) * len(self.held_out[1])} samples, which count as wrong"
            )
        return scores

    def _check(self, answer: Answer) -> None:
        """Refuse an answer that can't be learnt from."""
        if answer.y is None:
            raise ValueError("y is missing: without labels nothing is learnt")
        if not np.isin(answer.y, self.classes).all():
            raise ValueError(
                "y must hold classes of TRAIN, HELD_OUT or the request: "
                f"{', '.join(map(str, self.classes[:20]))}"
            )

    def _shown(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The shown samples that the trainer may learn from: not those of HELD_OUT."""
        request = self.request
        x = request.x if request.schema.sample_shape is not None else request.features
        if x is None or request.y is None:
            return []
        same = overlap(request, self.held_out_x)
        if same.any():
            self.warnings.append(
                f"{int(same.sum())} of {len(same)} samples shown to owners are in "
                "HELD_OUT: scores favour what resembles them, and they are not "
                "trained on"
            )
        if self.args.without_shown:
            return []
        return [self._pair("the request", x[~same], request.y[~same])]

    def _pair(
        self, name: str, x: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = self.scale(x)
        check_finite(f"{name}, in standard deviations of TRAIN,", rows)
        return rows, np.searchsorted(self.classes, plain_labels(y))


def _aligned(
    train: Dataset, held_out: Dataset, columns: tuple[str, ...] | None
) -> tuple[Dataset, Dataset]:
    """Bring the columns of tables into one order: the request's, or TRAIN's.

    Raises:
        ValueError: If their names differ.
    """
    of = "the request"
    if columns is None:
        columns, of = train.feature_names, "TRAIN"
    both: list[Any] = []
    for name, data in (("TRAIN", train), ("HELD_OUT", held_out)):
        x = in_order(name, data.x, data.feature_names, columns, of=of)
        both.append(dataclasses.replace(data, x=x, feature_names=None))
    return both[0], both[1]
