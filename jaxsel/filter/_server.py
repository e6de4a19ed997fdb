"""The server's part of filtering across clients, in rounds of questions."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._files.wire import check_text
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.show import brief

from ._answers import Asked, check_agreement, claimed, outsized
from ._inputs import as_benchmark
from ._messages import Counted, Question, Verdict, check_counts
from ._objective import Benchmark, Counts
from ._solve import Solution, solve
from ._threshold import LossThreshold

if TYPE_CHECKING:
    import numpy.typing as npt

_RING = 1 << 32


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FilterServer:
    """Server's state, immutable: each step returns a new one.

    `filter_server` makes one. While `question` is not None, send it to all `clients`
    and hand what comes back to `receive`; then send `verdict`. Clients that drop out,
    or whose counts are not possible, are left out of the whole: what they answered
    before does not count any more.

    Attributes:
        task: 32 hexadecimal digits.
        benchmark: The benchmark's distribution: its losses go to the clients.
        clients: Clients that still take part.
        left_out: Reasons why the others do not, by name.
        round: Number of questions answered.
        answers: Answers of each client, if known to the server.
        sums: Sums of the clients' answers, under secure aggregation.
        max_losses: Maximum number of losses of a client; None for the default.
    """

    task: str
    benchmark: Benchmark
    clients: tuple[str, ...]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    round: int = 0
    answers: Mapping[str, tuple[Asked, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[Asked, ...]]
    )
    sums: tuple[Asked, ...] = ()
    max_losses: int | None = None

    @property
    def question(self) -> Question | None:
        """Next question to the clients; None once the threshold is known."""
        result = self._replay()
        if isinstance(result, Solution):
            return None
        # Masked sums are known modulo 2^32: within this limit none wraps around.
        limit = (_RING - 1) // len(self.clients)
        if self.max_losses is not None:
            limit = min(limit, self.max_losses)
        return Question(task=self.task, round=self.round + 1, limit=limit, edges=result)

    @property
    def threshold(self) -> LossThreshold:
        """The threshold, once there is no question left.

        Its value lies between the largest kept loss and the next one: no client's loss
        is told exactly, unless several are equal or it is an edge that was asked.

        Raises:
            ValueError: If there is a question left.
        """
        result = self._replay()
        if not isinstance(result, Solution):
            raise ValueError("threshold is not known yet: ask the question first")
        counts = self._sum(self.benchmark.edges)
        assert counts is not None
        return LossThreshold(
            value=result.value,
            distance=result.distance,
            n_kept=result.kept,
            n=counts.total,
            n_benchmark=self.benchmark.total,
            share=result.kept / counts.total,
            benchmark=self.benchmark,
        )

    @property
    def verdict(self) -> Verdict:
        """Return the message that closes the task, once there is no question left."""
        value = np.array([self.threshold.value], self.benchmark.edges.dtype)
        return Verdict(task=self.task, value=value)

    def receive(self, answers: Iterable[Counted]) -> FilterServer:
        """Take the answers to the question, in the clear.

        Leaves out clients that did not answer, and those whose counts are of another
        form, negative, fall, exceed the limit, or contradict what they said before; in
        the first round also those that claim more than 20 times the median client's
        losses, unless `max_losses` was declared. Names are taken as they come: that a
        client sends under its own only must be seen to where messages are passed on.

        Raises:
            ValueError: If there is no question, no client is left, or those who are
                have no loss.
        """
        question = self._asked()
        accepted: dict[str, tuple[Asked, ...]] = {}
        left_out = dict(self.left_out)
        for answer in answers:
            name = answer.client
            try:
                if name not in self.clients:
                    raise ValueError("it was not asked")
                if name in accepted:
                    raise ValueError("it answered twice")
                asked = question.edges, check_counts(question, answer)
                before = self.answers.get(name, ())
                check_agreement([*before, asked])
                accepted[name] = *before, asked
            except ValueError as error:
                left_out.setdefault(name, f"round {question.round}: {error}")
        for name in self.clients:
            if name not in accepted:
                left_out.setdefault(name, f"round {question.round}: no answer")
        if self.max_losses is None and not self.round:
            for name, why in outsized(accepted).items():
                left_out.setdefault(name, f"round {question.round}: {why}")
        clients = tuple(name for name in self.clients if name not in left_out)
        kept = {name: accepted[name] for name in clients}
        total = sum(claimed(asked) for asked in kept.values())
        return self._next(clients, left_out, total, answers=kept)

    def receive_sum(
        self,
        counts: npt.NDArray[np.integer],
        clients: Sequence[str],
        *,
        again: bool = False,
    ) -> FilterServer:
        """Take the sum of the answers to the question, from secure aggregation.

        If clients have dropped out since an earlier round, their counts are in its sum,
        and nobody can take them out: the rest must be asked again. The difference of
        both sums is then what those who left had answered, in the clear.

        Only the sum can be checked, and that it is no more than all clients may have
        together. Within that a single client can move it, and with it the threshold,
        as it likes, without being found out.

        Args:
            counts: Sum of the counts of `clients`, `[2 E + 1]`.
            clients: Names of the clients counted in it.
            again: Whether to ask the rest again where clients have dropped out.

        Raises:
            ValueError: If there is no question, no client, one that was not asked, the
                sum is not possible or of no losses, or clients have dropped out and
                `again` is not set: then nothing was received.
        """
        question = self._asked()
        strangers = set(clients) - set(self.clients)
        if strangers:
            raise ValueError(f"clients must be among those asked, got {strangers}")
        gone = sorted(set(self.clients) - set(clients))
        if gone and self.sums and not again:
            raise ValueError(
                f"clients {gone} have dropped out since their counts were summed: to "
                "ask the rest again shows their answers, as the difference of two "
                "sums; set again=True to accept that"
            )
        total = Counted(
            task=self.task, round=question.round, client="all", counts=counts
        )
        limit = question.limit * max(1, len(clients))
        whole = dataclasses.replace(question, limit=limit)
        asked = question.edges, check_counts(whole, total)
        before = () if gone else self.sums
        check_agreement([*before, asked])
        left_out = dict(self.left_out)
        left_out |= dict.fromkeys(gone, f"round {question.round}: no answer")
        kept = tuple(name for name in self.clients if name in set(clients))
        return self._next(kept, left_out, int(asked[1][-1]), sums=(*before, asked))

    def _asked(self) -> Question:
        question = self.question
        if question is None:
            raise ValueError("the threshold is known: there is no question")
        return question

    def _next(
        self,
        clients: tuple[str, ...],
        left_out: dict[str, str],
        total: int,
        **known: Any,
    ) -> FilterServer:
        gone = "; ".join(f"{name!r}, {why}" for name, why in left_out.items())
        if not clients:
            raise ValueError(f"clients must answer, but none is left: {gone}")
        if not total:
            raise ValueError(
                f"clients must have losses, but {', '.join(map(repr, clients))} have "
                "none" + (f", and others are left out: {gone}" if gone else "")
            )
        return dataclasses.replace(
            self, clients=clients, left_out=left_out, round=self.round + 1, **known
        )

    def _replay(self) -> Solution | np.ndarray:
        """Return the solution, or the edges of the next question."""
        # Run again from the start each time: a generator can't be stored, and its state
        # would keep answers of clients that have dropped out since.
        search = solve(self.benchmark, exact=False)
        try:
            edges = next(search)
            while (counts := self._sum(edges)) is not None:
                edges = search.send(counts)
        except StopIteration as end:
            return end.value
        return edges

    def _sum(self, edges: np.ndarray) -> Counts | None:
        """Return the sum of all clients' counts at the edges, if all have answered."""
        sides = [self.answers.get(name, ()) for name in self.clients]
        answers = [
            counts
            for asked in ([self.sums] if self.sums else sides)
            for asked_edges, counts in asked
            if np.array_equal(asked_edges, edges)
        ]
        if len(answers) < (1 if self.sums else len(sides)):
            return None
        total = np.sum(answers, axis=0)
        return Counts(total[:-1:2], total[1::2], int(total[-1]))


def filter_server(
    benchmark_losses: npt.ArrayLike,
    clients: Sequence[str],
    *,
    dtype: npt.DTypeLike = np.float32,
    max_losses: int | None = None,
) -> FilterServer:
    """Begin to filter across clients: the server's part of `loss_threshold`.

    The kept samples are those that `loss_threshold` would keep with all losses in one
    place, rounded to `dtype`. The first question holds the benchmark's distinct losses;
    further ones cut the interval in which the threshold turns out to lie into a
    thousand, at most four times in float32 and nine in float64, and seldom more than
    twice, for each of one or two intervals.

    Args:
        benchmark_losses: Losses of clean samples, `[m]`. The clients learn them.
        clients: Names of the clients that take part.
        dtype: Type that losses are rounded to: "float32" or "float64".
        max_losses: Maximum number of losses of a client: the more, the further a single
            client can move the threshold. If None, 20 times as many as the median of
            the clients that have any. Under secure aggregation nobody sees how many a
            client has: then the limit applies to the sum only, and None is no limit.

    Returns:
        The server, with its first question.

    Raises:
        TypeError: If `max_losses` is no whole number.
        ValueError: If the losses are not finite, there is no client, two have one
            name, or `max_losses` is less than 1.

    References:
        Tuor, Wang, Ko, Liu and Leung, Overcoming Noisy and Irrelevant Data in Federated
        Learning, ICPR 2021, section III; there clients send the distribution of their
        losses.
    """
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}") from error
    check_choice("dtype", dtype, (np.dtype(np.float32), np.dtype(np.float64)))
    names = tuple(check_text("a client's name", name, longest=100) for name in clients)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"clients must be one or more distinct names, got {names}")
    return FilterServer(
        task=secrets.token_hex(16),
        benchmark=as_benchmark(benchmark_losses, dtype=dtype),
        clients=names,
        max_losses=None
        if max_losses is None
        else check_count("max_losses", max_losses),
    )
