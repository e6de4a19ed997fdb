"""`leak = "set"` opens the set: all else that both owners see follows from it alone."""

import collections

import numpy as np
import pytest
from parties import needs_spu
from scipy import stats
from spu_parties import play
from test_network import Plain, cat

from jaxsel.proxy import quickselect, run_steps
from mpc_bridge import Ledger, choose
from mpc_bridge._network import route
from mpc_bridge._programs import Switched
from mpc_bridge.engines import Engine, Unseen

pytestmark = [pytest.mark.mpc]
LEAST = 1e-5
"""Of a p-value."""


class Everybody(int):
    """A rank that is all parties': one process plays them."""

    def __eq__(self, other):
        return True

    __hash__ = None


class Both(Engine):
    """Both parties of Cheetah in one, on whole numbers of the ring, in the clear.

    Attributes:
        drawn: How each party's switches stand, in the order of their use.
        opened: What both see, in order.
        mixing: Whether rows are shuffled again.
    """

    name, notice, switches, fraction_bits = "both", "", True, 0
    rank = Everybody(0)
    connect = explain = exchange = start = dump = load = join = copies = terms = None

    def __init__(self, mixing=True):
        self.mixing, self.drawn, self.opened = mixing, [], []

    @classmethod
    def versions(cls):
        return {}

    def share(self, owner, *arrays):
        assert not any(isinstance(array, Unseen) for array in arrays)
        self.drawn += [array.tobytes() for array in arrays]
        return tuple(map(Plain, arrays))

    def run(self, program, lanes, book):
        ((first, *others),) = lanes
        if isinstance(program, Switched) and not self.mixing and len(self.drawn) > 2:
            return [first]
        operands = [
            x if isinstance(x, Plain) else np.asarray(x).astype(np.int64)
            for x in others
        ]
        return [run_steps(program.steps(cat, first, *operands), self.execute)]

    def execute(self, call):
        first, *rest = (operand.array for operand in call.operands)
        if call.kind == "nonnegative":
            return Plain(first >= 0)
        assert call.kind == "select"
        return Plain(np.where(first, *rest, 0))

    def reveal(self, secret):
        self.opened.append(tuple(secret.array.tolist()))
        return secret.array

    def shape(self, secret):
        return secret.shape

    def count(self):
        from mpc_bridge.engines import Count

        return Count()


Both.__abstractmethods__ = frozenset()


def view(scores, k, *, mixing=True, party=None):
    """Return what both owners see of a choice, and what one of them has drawn."""
    engine = Both(mixing)
    secret = Plain(np.asarray(scores))
    ring = Ledger(engine)
    found = choose(secret, k, seed=0, ledger=ring, leak="set").rows
    *outcomes, rows = engine.opened
    bits = (len(scores) - 1).bit_length()
    unit = 2 ** (engine.ring - bits)
    rows = tuple(-row // unit % 2**bits for row in rows)
    assert sorted(rows) == found.tolist()
    own = () if party is None else tuple(engine.drawn[party::2])
    return tuple(outcomes), rows, own


def simulated(n, chosen, rng, *, party=None):
    """Draw what both owners see, knowing the set alone."""
    order, outcomes = rng.permutation(n), []
    asking = quickselect(n, len(chosen), seed=0)
    try:
        pivot, others = next(asking)
        while True:
            above = order[others] > order[pivot]
            outcomes.append(tuple(above.tolist()))
            pivot, others = asking.send(above)
    except StopIteration:
        rows = tuple(rng.permutation(chosen).tolist())
    sizes = () if party is None else (n, len(chosen))
    own = tuple(route(rng.permutation(size)).tobytes() for size in sizes)
    return tuple(outcomes), rows, own


def homogeneous(one, other):
    """Return the p-value that two samples of transcripts are of one distribution."""
    counts = [collections.Counter(each) for each in (one, other)]
    cells = [[count[key] for key in {*counts[0], *counts[1]}] for count in counts]
    rows = np.array(cells)
    rare = rows.sum(0) < 10
    rows = np.c_[rows[:, ~rare], rows[:, rare].sum(1)]
    return stats.chi2_contingency(rows[:, rows.sum(0) > 0]).pvalue


CASES = [
    ([5, -3, 9, 0], 2, None),
    ([3, 1, 2], 2, 0),
    ([3, 1, 2], 2, 1),
    ([4, 4, 4, 4, 4], 2, None),
    ([2, 7, 1, 9, 3, 8], 3, None),
]


@pytest.mark.parametrize(
    ("case", "runs"),
    [
        *((i, 1000) for i in range(3)),
        *(pytest.param(i, 6000, marks=pytest.mark.slow) for i in range(5)),
    ],
)
@pytest.mark.every(3)
def test_what_both_owners_see_follows_from_the_set(case, runs):
    """Whole transcripts: all outcomes, the rows as they are opened, one's own draws."""
    scores, k, party = CASES[case]
    best = np.sort(np.argsort(-np.array(scores), kind="stable")[:k])
    rng = np.random.default_rng(1)
    run = [view(scores, k, party=party) for _ in range(runs)]
    made = [simulated(len(scores), best, rng, party=party) for _ in range(runs)]
    assert homogeneous(run, made) > LEAST
    orders = collections.Counter(rows for _, rows, _ in run)
    assert stats.chisquare([*orders.values()]).pvalue > LEAST


def test_rows_opened_where_they_were_compared_would_tell():
    """The test above can fail."""
    scores, k = CASES[0][:2]
    best = np.sort(np.argsort(-np.array(scores), kind="stable")[:k])
    rng = np.random.default_rng(1)
    run = [view(scores, k, mixing=False) for _ in range(500)]
    made = [simulated(len(scores), best, rng) for _ in range(500)]
    assert homogeneous(run, made) < 1e-12


def correlation(scores, opened):
    """Return Spearman's correlation of rows' places and their scores."""
    return stats.spearmanr(np.arange(len(opened)), -scores[opened]).statistic


def test_rows_are_opened_in_no_order():
    rng, n, k, runs = np.random.default_rng(0), 200, 60, 20
    found = []
    for _ in range(runs):
        scores = rng.permutation(n)
        found.append(correlation(scores, np.array(view(scores, k)[1])))
    assert abs(np.mean(found)) < 4 / np.sqrt(runs * (k - 1))


def run_opened(engine, scores, k, runs):
    """Return rows in the order in which a party sees them, of many choices."""
    from test_spu_engines import shared

    ledger, opened = Ledger(engine), []
    secret, reveal = shared(ledger, scores), engine.reveal
    engine.reveal = lambda keys: opened.append(reveal(keys)) or opened[-1]
    bits = (len(scores) - 1).bit_length()
    unit = 2.0 ** (engine.ring - bits - engine.fraction_bits)
    found = []
    for _ in range(runs):
        choose(secret, k, seed=0, ledger=ledger, leak="set")
        found.append(-np.round(opened[-1] / unit).astype(np.int64) % 2**bits)
    return found


@needs_spu
@pytest.mark.parametrize(
    ("engine", "runs"),
    [
        ("spu-aby3", 6),
        pytest.param("spu-aby3", 60, marks=pytest.mark.slow),
        pytest.param("spu-cheetah", 12, marks=pytest.mark.slow),
    ],
)
def test_engines_open_rows_in_no_order_of_scores(engine, runs):
    rng, n, k = np.random.default_rng(0), 100, 50
    scores = rng.permutation(n) / 4
    both = play(engine, run_opened, scores, k, runs)
    np.testing.assert_array_equal(both[0], both[1])
    found = [correlation(scores, opened) for opened in both[0]]
    assert abs(np.mean(found)) < 4 / np.sqrt(runs * (k - 1))
    assert len({tuple(opened) for opened in both[0]}) == runs


@needs_spu
@pytest.mark.slow
@pytest.mark.parametrize(("engine", "runs"), [("spu-aby3", 200), ("spu-cheetah", 40)])
def test_engines_open_few_rows_alike_whatever_their_scores(engine, runs):
    """The order of three rows of five, for scores that rank them the other way."""
    some = [
        [tuple(opened) for opened in play(engine, run_opened, np.array(s), 3, runs)[0]]
        for s in ([0.5, 4.0, 1.0, 3.0, 2.0], [0.5, 2.0, 1.0, 3.0, 4.0])
    ]
    assert homogeneous(*some) > LEAST
    assert {row for opened in some for order in opened for row in order} == {1, 3, 4}
