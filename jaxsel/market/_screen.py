"""Screening of answers: implausible values, and copies of the samples shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_positive
from jaxsel._inputs.frames import in_order, names_of

from ._answer import Answer
from ._made import Making
from ._request import Request
from ._schema import as_samples, as_vectors, encoded

# An honest owner of so many times the trainer's samples comes as near to a shown sample
# as a copy must be with this probability at most.
_DENSER, _CHANCE = 1000, 0.05
_MUCH_DENSER = 100  # times the trainer's samples: nearer ones than theirs are counted
_FURTHEST = 0.5  # of the distance between neighbours: no sample beyond it is a copy
_COPIES = 0.5  # share of an answer from which it is refused
_NATURAL = 0.1  # share of the trainer's own repeats from which copies are natural
_ROUNDING = 1e-6  # of a sample's length: error of conversions between types
_PROBES = 256  # samples of the trainer's to find neighbours of
_ROWS = 4096  # at a time


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Screening:
    """Result of `screen`: answers that passed, and reasons of refusal of the others.

    Attributes:
        answers: Those that can be ranked, without copies; in the order given.
        left_out: How many samples of an answer were left out as copies, by owner; only
            owners with any.
        refused: Why an answer was refused, by owner.
        near: How many samples of an answer are suspiciously near to shown ones, though
            no copies by the rule, by owner; only where these and those left out are at
            least half.
    """

    answers: tuple[Answer, ...]
    left_out: dict[str, int]
    refused: dict[str, str]
    near: dict[str, int] = dataclasses.field(default_factory=dict[str, int])

    def __repr__(self) -> str:
        return (
            f"Screening({len(self.answers)} answers, copies left out of "
            f"{len(self.left_out)}, {len(self.refused)} refused)"
        )


def screen(
    answers: Iterable[Answer],
    request: Request,
    x: npt.ArrayLike,
    *,
    held_out: npt.ArrayLike | None = None,
    reach: float = 10.0,
) -> Screening:
    """Refuse implausible answers, and leave out samples that the trainer already has.

    Five rules, all measured on the trainer's own samples: `x`, those of the request,
    and `held_out`. Numbers of a table are measured by column, others all together, in
    units of their width: from the 1st to the 99th percentile; the whole range where
    that is 0; 1 where all are equal.

    - **Implausible**: a number further than `reach` widths outside the percentiles, and
      outside the range, of the trainer's own. The answer is refused.
    - **Impossible**: features that the request's encoder makes of no table, such as
      0.99 in a column of categories. The answer is refused.
    - **Copies**: a sample that equals one of the request, one of `held_out` or an
      earlier one of the same answer, or is nearer to it than an honest sample is
      likely to come: t times the distance between neighbours, where t is
      (5e-5)^(1/d) for samples of intrinsic dimension d, and at most 1/2. They are left
      out, whatever their label.
    - **Made of shown samples**: a sample on the line through two shown ones, or through
      one and 0; one of which half of the numbers stand in shown samples, in columns
      where the trainer's seldom do; one with a fraction in a column where all of the
      trainer's numbers are whole. They are left out too. The first holds from 3
      columns on, the others for tables.
    - **Mostly copies**: an answer of which at least half are copies or made of shown
      samples is refused, unless a tenth of the trainer's own samples equal another:
      then copies are natural.

    Where at least half of an answer is left out or nearer to shown samples than those
    of an owner with 100 times the trainer's data would be, typically, `near` counts
    these nearer samples: they may be copies with noise.

    Texts have no distance, and are only compared for equality. The range is that of all
    of the trainer's own samples; all else is measured on 4096 of them, evenly spread.
    Costs the distances of these to 256 of them, and those between each answer and the
    samples shown or held out.

    Args:
        answers: Answers to the request, one from each owner.
        request: The request that was sent.
        x: The trainer's own samples, `[n, ...]`, or their features if the request asks
            for features. The columns of a data frame are brought into the request's
            order.
        held_out: The hard samples held out, in the form of `x`.
        reach: How many widths outside are still plausible, above 0.

    Returns:
        A `Screening`. An answer that lost samples has the status "short" and says why.

    Raises:
        TypeError: If `x` or `held_out` are of another kind than the samples.
        ValueError: If an answer does not fit the request, two are of one owner, `x` or
            `held_out` have another shape or other columns, or `reach` is out of range.

    References:
        Facco, d'Errico, Rodriguez and Laio, Estimating the intrinsic dimension of
        datasets by a minimal neighborhood information, Scientific Reports 7, 2017
        (d, by maximum likelihood).
    """
    reach = check_positive("reach", reach)
    guard = _Guard(request, x, held_out, reach)
    passed: list[Answer] = []
    left_out: dict[str, int] = {}
    refused: dict[str, str] = {}
    near: dict[str, int] = {}
    owners: set[str] = set()
    for answer in answers:
        answer.check(request)
        if answer.owner in owners:
            raise ValueError(f"answers must have one from each owner: {answer.owner!r}")
        owners.add(answer.owner)
        try:
            # Squares may overflow with a vast `reach`: such samples are no copies.
            with np.errstate(over="ignore", invalid="ignore"):
                keep, close = guard.keep(answer)
        except ValueError as error:
            refused[answer.owner] = str(error)
            continue
        if not keep.all():
            left_out[answer.owner] = int((~keep).sum())
            answer = _without(answer, keep)
        if close:
            near[answer.owner] = close
        passed.append(answer)
    return Screening(
        answers=tuple(passed), left_out=left_out, refused=refused, near=near
    )


def overlap(request: Request, held_out: npt.ArrayLike) -> np.ndarray:
    """Return which shown samples are held out too, up to rounding, `[m]`.

    Args:
        request: The request that showed them.
        held_out: The hard samples held out, `[h, ...]`, in the same form.
    """
    shown = _shown(request)
    other = _samples("held_out", held_out, request)
    if shown is None:
        return np.zeros(len(request), bool)
    if shown.dtype.kind == "U":
        return np.isin(_lines(shown), _lines(other))
    scale = _Scale([shown, other], [shown, other])
    a, b = scale(shown), scale(other)
    return _nearest(a, b, 1)[:, 0] <= _slack(a)


def sent(answer: Answer) -> np.ndarray:
    """Return the samples of an answer, or the features that stand for them."""
    rows: Any = answer.features if answer.x is None else answer.x
    return rows


class _Guard:
    """Statistics of the trainer's samples that the rules of `screen` use."""

    def __init__(
        self,
        request: Request,
        x: npt.ArrayLike,
        held_out: npt.ArrayLike | None,
        reach: float,
    ) -> None:
        train = _samples("x", x, request)
        known = [a for a in [_shown(request)] if a is not None]
        if held_out is not None:
            known.append(_samples("held_out", held_out, request))
        self.columns, self.encoder = request.schema.columns, request.encoder
        self.reach = reach
        self.texts = train.dtype.kind == "U"
        if self.texts:
            self.known = np.concatenate([_lines(a) for a in (train[:0], *known)])
            reference = np.concatenate([_lines(train), self.known])
            self.natural = len(np.unique(reference)) <= (1 - _NATURAL) * len(reference)
            return
        subset = train[
            np.unique(np.linspace(0, len(train) - 1, _ROWS).round().astype(int))
        ]
        self.scale = _Scale([train, *known], [subset, *known])
        reference = np.concatenate([self.scale(a) for a in (subset, *known)])
        self.known = reference[len(subset) :]
        probes = np.unique(np.linspace(0, len(subset) - 1, _PROBES).round().astype(int))
        shown = known[0] if known else train[:0]
        # Columns of numbers only: the encoder itself checks the others.
        self.making = Making(
            self._numbers(subset), self._numbers(shown), train.ndim == 2, probes
        )
        probes = np.unique(
            np.linspace(0, len(reference) - 1, _PROBES).round().astype(int)
        )
        # The first neighbour of each is the sample itself.
        near = _nearest(reference[probes], reference, 3)[:, 1:]
        equal = (
            near[:, 0] <= _slack(reference[probes]) if near.size else np.ones(1, bool)
        )
        self.natural = bool(near.size and np.mean(equal) >= _NATURAL)
        share, self.typical, much = _FURTHEST, 0.0, 0.0
        if near.shape[1] == 2 and not equal.all():
            first, second = near[~equal, 0], near[~equal, 1]
            # TwoNN (Facco et al.): second / first is Pareto of exponent d.
            logs = float(np.log(second / first).mean())  # 1 / d
            denser = _DENSER * len(train) / len(subset)
            # Chances to come within t of the distance to a neighbour grow as t^d.
            share = min(share, (_CHANCE / denser) ** logs)
            much = min(
                _FURTHEST, (1 / (_MUCH_DENSER * len(train) / len(subset))) ** logs
            )
            self.typical = share * float(np.median(near[:, 0]))
        self.radius = self.close = np.empty(0)
        if len(self.known):
            around = _nearest(self.known, reference, 2)[:, -1]
            self.radius = np.minimum(self.typical, share * around)
            self.close = much * around

    def _numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return numbers as the owner's table has them, `[n, d]`, NaN for gaps."""
        rows = _rows(rows)
        if self.encoder is None:
            return rows
        try:
            return self.encoder.numbers(rows)
        except ValueError as error:
            raise ValueError(
                f"x must hold what the request's encoder makes of a table: {error}"
            ) from error

    def keep(self, answer: Answer) -> tuple[np.ndarray, int]:
        """Return which samples are no copies, and the number of nearly copies.

        Raises:
            ValueError: If the answer is refused.
        """
        rows = sent(answer)
        if not len(rows):
            return np.ones(0, bool), 0
        synthetic = np.zeros(len(rows), bool)
        close, fractions = synthetic, ""
        if self.texts:
            rows = _lines(rows)
            copies = np.isin(rows, self.known)
            again = np.ones(len(rows), bool)
            again[np.unique(rows, return_index=True)[1]] = False
        else:
            self._check_range(rows)
            numbers = self._numbers(rows)
            wrong = self.making.fractions(numbers)
            if wrong.any():
                fractions = self._about_fractions(numbers, wrong)
            synthetic = wrong.any(axis=1) | self.making.made(numbers)
            rows = self.scale(rows)
            copies = np.zeros(len(rows), bool)
            if len(self.known):
                apart = _distances(rows, self.known)
                copies = np.any(apart <= self.radius + _slack(rows)[:, None], axis=1)
                close = np.any(apart <= self.close, axis=1)
            apart = _distances(rows, rows) <= self.typical + _slack(rows)[:, None]
            # Of samples close to each other the first is kept.
            again = np.tril(apart, -1).any(axis=1)
        keep = ~(copies | again | synthetic)
        against = synthetic if self.natural else ~keep
        synthetic = synthetic & ~(copies | again)
        if np.mean(against) >= _COPIES:
            pieces, repeats = int(synthetic.sum()), int((again & ~copies).sum())
            raise ValueError(
                f"x must hold samples of the owner's own, but of {len(rows)} "
                f"{int(copies.sum())} are copies of what the trainer showed or holds "
                f"back, {'' if pieces else 'and '}{repeats} repeat others"
                f"{f', and {pieces} are made of shown ones' if pieces else ''}"
                f"{fractions}"
            )
        many = 2 * int((close | ~keep).sum()) >= len(keep)
        return keep, int((close & keep).sum()) if many else 0

    def _about_fractions(self, numbers: np.ndarray, wrong: np.ndarray) -> str:
        row, j = np.argwhere(wrong)[0]
        names = self.columns if self.encoder is None else self.encoder.number_columns
        named = "" if names is None else f" ({names[j]})"
        return (
            f": row {row} has {numbers[row, j]:.6g} in column {j}{named}, where all of "
            "the trainer's numbers are whole"
        )

    def _check_range(self, rows: np.ndarray) -> None:
        flat = _rows(rows)
        low, high = self.scale.bounds(self.reach)
        wrong = (flat < low) | (flat > high)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            low, high = (np.broadcast_to(a, flat.shape[1])[column] for a in (low, high))
            named = "" if self.columns is None else f" ({self.columns[column]})"
            raise ValueError(
                f"x must lie within {self.reach:g} widths of the trainer's samples, "
                f"{low:.6g} to {high:.6g} in column {column}{named}, but row {row} has "
                f"{flat[row, column]:.6g} ({int(wrong.any(axis=1).sum())} of "
                f"{len(flat)} rows lie outside)"
            )


class _Scale:
    """Centre and width of numbers, by column of a table or of all together."""

    def __init__(self, whole: list[np.ndarray], parts: list[np.ndarray]) -> None:
        """Measure the range on whole arrays, and all else on parts of them."""
        axis = 0 if whole[0].ndim == 2 else None
        rows = np.concatenate([_rows(a) for a in parts])
        rows = np.where(np.isnan(rows).all(axis=axis), 0, rows)  # a column of gaps
        self.low, self.high = np.inf, -np.inf
        for a in (rows, *whole):
            self.low = np.fmin(self.low, np.fmin.reduce(a, axis=axis))
            self.high = np.fmax(self.high, np.fmax.reduce(a, axis=axis))
        self.inner = np.nanquantile(rows, [0.01, 0.99], axis=axis)
        width = self.inner[1] - self.inner[0]
        width = np.where(width > 0, width, self.high - self.low)
        self.width = np.where(width > 0, width, 1.0)
        self.centre = np.nanmean(rows, axis=axis)

    def bounds(self, reach: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the greatest plausible number."""
        return (
            np.minimum(self.low, self.inner[0] - reach * self.width),
            np.maximum(self.high, self.inner[1] + reach * self.width),
        )

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return samples as rows in units of the width; missing numbers are 0."""
        return np.nan_to_num((_rows(x) - self.centre) / self.width)


def _samples(name: str, value: npt.ArrayLike, request: Request) -> np.ndarray:
    """Return the trainer's samples in the form that answers have."""
    schema = request.schema
    if schema.sample_shape is None:
        x, shape = as_vectors(name, value), (schema.n_features,)
    else:
        value = encoded(name, value, request.encoder)
        x, shape = as_samples(name, value, gaps=request.gaps), schema.sample_shape
        x = in_order(name, x, names_of(value), schema.columns)
    if x.shape[1:] != shape:
        raise ValueError(
            f"{name} must hold samples of shape {shape} as the request asks, got "
            f"{x.shape[1:]}"
        )
    if (x.dtype.kind == "U") != (schema.sample_dtype == "text"):
        raise TypeError(f"{name} must be of the request's kind, got dtype {x.dtype}")
    return x


def _shown(request: Request) -> np.ndarray | None:
    """Return the shown samples in the form of answers, or None if there are none."""
    return request.features if request.schema.sample_shape is None else request.x


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1).astype(np.float64)


def _lines(x: np.ndarray) -> np.ndarray:
    """Return texts, or rows of texts, as single texts."""
    if x.ndim == 1:
        return x
    return np.array(["\x1f".join(row) for row in x.reshape(len(x), -1)], str)


def _slack(rows: np.ndarray) -> np.ndarray:
    """Return how far rounding may move a sample, `[n]`."""
    return _ROUNDING * (1 + np.linalg.norm(rows, axis=1))


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return distances `[n, m]`; in float64, so that copies come out near 0."""
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.sqrt(np.maximum(squares, 0))


def _nearest(a: np.ndarray, b: np.ndarray, k: int) -> np.ndarray:
    """Return the k least distances from each of a to b, `[n, k]`, ascending."""
    best = np.empty((len(a), 0))
    for start in range(0, len(b), _ROWS):
        best = np.concatenate([best, _distances(a, b[start : start + _ROWS])], axis=1)
        best = np.sort(best, axis=1)[:, :k]
    return best


def _without(answer: Answer, keep: np.ndarray) -> Answer:
    arrays = {
        name: None if array is None else array[keep]
        for name in ("x", "features", "y", "weights")
        for array in [getattr(answer, name)]
    }
    n = int((~keep).sum())
    return dataclasses.replace(
        answer,
        **arrays,
        status="short",
        reason=f"{n} of {len(keep)} samples sent were copies, and left out",
    )
