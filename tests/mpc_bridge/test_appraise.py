"""Appraisal opens the mean, or a bit, and entropies are those of the squares."""

import numpy as np
import pytest
from parties import both, secret

from mpc_bridge._appraise import appraise
from mpc_bridge._ledger import Ledger
from mpc_bridge._programs import POWERS, REACH, TotalEntropy

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]
ULP = 2**-16


def run(rank, ring, calls):
    """Return each appraisal, with its rounds, bytes and openings."""
    scores, results = secret(ring), []
    for rows, options in calls:
        ledger = Ledger()
        value = appraise(scores, rows, **options, ledger=ledger)
        spent = ledger.total(place="appraisal")
        results.append((value, spent.rounds, spent.bytes, ledger.opened))
    return results


def appraised(ring, calls):
    results, others = both(run, ring, calls)
    assert results == others
    return results


@pytest.mark.left_out
def test_mean_of_the_chosen():
    ring = np.random.default_rng(0).integers(-(2**20), 2**20, 50)
    rows = ([3], [49, 0, 7], np.arange(50, dtype=np.int32))
    results = appraised(ring.tolist(), [(chosen, {}) for chosen in rows])
    for chosen, (mean, *spent) in zip(rows, results, strict=True):
        assert type(mean) is float
        assert mean == pytest.approx(ring[chosen].mean() * ULP, abs=2 * ULP)
        assert spent == [1, 16, [("mean", "", 1)]]


@pytest.mark.left_out
def test_bit_is_exact_at_the_threshold():
    ring, rows = [5, -2, 4, 100], [0, 1, 2]  # their mean is 7 / 3 units
    cases = [
        (7 / 3 * ULP * (1 - 1e-12), True),
        (7 / 3 * ULP * (1 + 1e-12), False),
        (-1e6, True),
        (1e6, False),
        (0, True),
        (1, False),
    ]
    calls = [(rows, {"threshold": threshold}) for threshold, _ in cases]
    calls.append(([0], {"threshold": 5 * ULP}))
    for (bit, *spent), (_, expected) in zip(
        appraised(ring, calls), [*cases, (None, True)], strict=True
    ):
        assert bit is expected
        assert spent == [9, 448, [("above", "", 1)]]


def test_bit_is_exact_beyond_floats():
    one = 2**52 + 1
    options = {"threshold": one * ULP}
    for ring, expected in (([one] * 3, True), ([one, one, one - 1], False)):
        ((bit, *_),) = appraised(ring, [([0, 1, 2], options)])
        assert bit is expected


def entropy(square):
    lead = np.sqrt(square)
    return np.log1p(np.exp(-lead)) + lead / (1 + np.exp(lead))


def test_entropies_of_all_squares_are_near():
    square = np.linspace(0, 40, 200_000) ** 2
    power = np.maximum(1 - square / REACH, 0)
    stand_in = sum(c * power**2 ** (i + 1) for i, c in enumerate(POWERS))
    assert np.abs(stand_in - entropy(square)).max() < 0.0036


def test_entropies_of_the_chosen():
    square = np.array([0, 0.5, 2, 6, 14, 25, 40, 63, 64, 65, 150, 400, 1e5, 4e9])
    calls = [([row], {"entropy": True}) for row in range(len(square))]
    rows = np.arange(len(square))
    calls.append((rows, {"entropy": True}))
    results = appraised(-(square / ULP), calls)
    expected = [*entropy(np.minimum(square, 1e4))]
    expected.append(np.mean(expected))
    assert expected[0] == pytest.approx(np.log(2))
    for (rows, _), (mean, *spent), exact in zip(calls, results, expected, strict=True):
        assert mean == pytest.approx(exact, abs=0.004)
        assert spent == [14, 16 + 528 * len(rows), [("mean", "", 1)]]


def test_entropies_against_a_threshold():
    square = np.array([0.1, 400, 3, 9])  # entropies 0.681, 0, 0.427, 0.191
    mean = entropy(square)[[0, 2, 3]].mean()
    calls = [
        ([0, 2, 3], {"threshold": mean + shift, "entropy": True})
        for shift in (-0.004, 0.004)
    ]
    below, above = appraised(-(square / ULP).round(), calls)
    assert below[0] is True
    assert above[0] is False
    assert below[1:] == (22, 448 + 528 * 3, [("above", "", 1)])


def run_wrong(rank):
    """Return what each wrong call says, and how many messages they sent."""
    import mpc_bridge

    crypten = mpc_bridge.import_crypten()
    scores, ledger, said = secret([1, 2, 3]), Ledger(), []
    before = crypten.communicator.get().comm_rounds
    for operand, rows, threshold in [
        ([1, 2, 3], [0], None),
        (scores, [], None),
        (scores, np.zeros((1, 0), int), None),
        (scores, [0.5], None),
        (scores, [True], None),
        (scores, [3], None),
        (scores, [-1], None),
        (scores, [1, 0, 1], None),
        (scores, [0], "1"),
        (scores, [0], float("nan")),
        (scores, [0, 1], 2.0**45),
    ]:
        with pytest.raises((TypeError, ValueError)) as caught:
            appraise(operand, rows, threshold=threshold, ledger=ledger)
        said.append(f"{caught.type.__name__}: {caught.value}")
    return said, crypten.communicator.get().comm_rounds - before


def test_wrong_arguments_are_named_before_anything_is_sent():
    said, sent = both(run_wrong)[0]
    assert said == [
        "TypeError: scores must be an MPCTensor of arithmetic shares, "
        "got <class 'list'>",
        "TypeError: rows must be whole numbers, got dtype float64",
        "ValueError: rows must have shape [k], k at least 1, got (1, 0)",
        "TypeError: rows must be whole numbers, got dtype float64",
        "TypeError: rows must be whole numbers, got dtype bool",
        "ValueError: rows must be from 0 to 2, got 3",
        "ValueError: rows must be from 0 to 2, got -1",
        "ValueError: rows must be distinct, got 1 more than once",
        "TypeError: threshold must be a number, got '1'",
        "ValueError: threshold must be finite and below 7.03687e+13 in size, got nan",
        "ValueError: threshold must be finite and below 3.51844e+13 in size, "
        "got 35184372088832.0",
    ]
    assert sent == 0


@pytest.mark.parametrize("unit", [1.0, 2.0**6, 2.0**16, 2.0**22])
def test_entropies_of_enlarged_squares_are_those_of_the_clear_ones(unit):
    """In SPU's fixed point: the inverse of 64 units may have no digits there."""
    from proxy.ring_engine import Fixed, cat, execute

    from jaxsel.proxy import run_steps

    square = np.array([0.0, 0.3, 2.0, 7.0, 30.0, 100.0])
    scores = Fixed.of(-unit * square, 18)
    for row in range(len(square)):
        steps = TotalEntropy(unit).steps(cat, scores, np.array([row]))
        total = run_steps(steps, execute).values
        assert total == pytest.approx(entropy(square[row]), abs=0.004)
