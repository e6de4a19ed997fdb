"""The ledger counts steps by phase, the dealer apart, and opens only what it may."""

import dataclasses

import pytest
from parties import both, secret

import mpc_bridge
from mpc_bridge._appraise import appraise
from mpc_bridge._choose import choose
from mpc_bridge._ledger import OPENINGS, Ledger

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]


def run(rank):
    """Choose and appraise in two phases; return what the ledger has."""
    scores, ledger = secret([4, -1, 7, 7, 0, 2, 9, 3]), Ledger()
    ledger.phase = "first"
    chosen = choose(scores, 3, seed=0, ledger=ledger)
    scores * scores  # between two steps: not counted
    ledger.phase = "second"
    again = choose(scores, 5, seed=1, ledger=ledger)
    appraise(scores, again.rows, threshold=0.5, ledger=ledger)
    totals = {
        (phase, place): dataclasses.asdict(ledger.total(phase, place))
        for phase in (None, "first", "second")
        for place in (None, "choice", "appraisal")
    }
    found = list(ledger.steps), totals, ledger.opened, (chosen, again)
    return *found, ledger.uncounted


def test_steps_and_phases():
    steps, totals, opened, (chosen, again), uncounted = both(run)[0]
    assert steps == [
        ("first", "choice", "compare"),
        ("first", "choice", "open"),
        ("second", "choice", "compare"),
        ("second", "choice", "open"),
        ("second", "appraisal", "sum"),
        ("second", "appraisal", "compare"),
        ("second", "appraisal", "open"),
    ]
    counted = {
        key: (total["rounds"], total["bytes"], total["dealer_rounds"])
        for key, total in totals.items()
    }
    first = (9 * chosen.passes, 448 * chosen.comparisons, 0)
    choice = (9 * again.passes, 448 * again.comparisons, 0)
    second = (choice[0] + 9, choice[1] + 448, 0)
    assert counted["first", None] == counted["first", "choice"] == first
    assert counted["first", "appraisal"] == (0, 0, 0)
    assert counted["second", "choice"] == choice
    assert counted["second", "appraisal"] == (9, 448, 0)
    assert counted["second", None] == second
    assert counted[None, None] == (first[0] + second[0], first[1] + second[1], 0)
    assert totals[None, None]["seconds"] == pytest.approx(
        totals["first", None]["seconds"] + totals["second", None]["seconds"]
    )
    assert totals["first", "choice"]["seconds"] > 0
    kinds = [(kind, phase) for kind, phase, _ in opened]
    assert kinds == [("pivot", "first")] * chosen.passes + [
        ("pivot", "second")
    ] * again.passes + [("above", "second")]
    assert sum(size for *_, size in opened[:-1]) == (
        chosen.comparisons + again.comparisons
    )
    # The product of eight numbers between two steps opens two masked ones for each.
    assert uncounted == 2 * 8 * 16


@pytest.mark.slow
def test_dealer_is_counted_apart():
    plain, _ = both(run)
    dealt = both(run, dealer=True)
    passes = plain[3][0].passes + plain[3][1].passes + 1  # the appraisal's is like one
    for rank, (steps, totals, opened, _, uncounted) in enumerate(dealt):
        assert (steps, opened) == (plain[0], plain[2])
        for key, total in totals.items():
            for name in ("rounds", "bytes"):
                assert total[name] == plain[1][key][name]
        asked = totals[None, None]
        # Each of the 8 rounds of a comparison but the opening takes three calls.
        assert asked["dealer_rounds"] == (24 * passes if rank == 0 else 0)
        assert (asked["dealer_bytes"] > 0) == (rank == 0)
        # Nor does the dealer go unnoticed between steps.
        assert (uncounted > plain[4]) == (rank == 0)


def run_openings(rank):
    """Return what refusals say, what was sent meanwhile, and what is opened."""
    crypten = mpc_bridge.import_crypten()
    score, ledger, said = secret([3]), Ledger(), []
    before = crypten.communicator.get().comm_rounds
    for of, kind in ((ledger, "scores"), (ledger, "all"), (Ledger(allow=()), "mean")):
        with pytest.raises(ValueError, match="kind must be one of") as caught:
            of.open(kind, score)
        said.append(str(caught.value))
    sent = crypten.communicator.get().comm_rounds - before
    with pytest.raises(ValueError, match="kind must be one of"):
        choose(secret([1, 2]), 1, seed=0, ledger=Ledger(allow=("mean",)))
    tests = Ledger(allow=("scores",))
    tests.phase = "last"
    value = tests.open("scores", score).item() * 2**16
    return said, sent, ledger.opened, value, tests.opened


def test_what_is_not_allowed_stays_closed():
    said, sent, opened, value, allowed = both(run_openings)[0]
    usual = "('outside', 'pivot', 'shuffled', 'rows', 'mean', 'above')"
    assert said == [
        f"kind must be one of {usual}, got 'scores'",
        f"kind must be one of {usual}, got 'all'",
        "kind must be one of (), got 'mean'",
    ]
    assert sent == 0
    assert opened == []
    assert value == 3
    assert allowed == [("scores", "last", 1)]
    assert set(OPENINGS) == {
        "outside",
        "pivot",
        "shuffled",
        "rows",
        "mean",
        "above",
        "scores",
    }


def run_failing(rank):
    if rank == 1:
        raise KeyError("here")
    mpc_bridge.import_crypten().communicator.get().barrier()  # for ever


def test_a_failing_party_is_named():
    with pytest.raises(RuntimeError, match=r"(?s)party 1 failed:.*KeyError: 'here'"):
        both(run_failing)


def open_numbers(rank, ring):
    return Ledger(allow=("scores",)).open("scores", secret(ring)).tolist()


@pytest.mark.left_out
def test_what_is_opened_is_decoded_exactly():
    # CrypTen's decoding takes the first of these, just above -13, for -13.9999.
    ring = [-851960, -851968, -1, 0, 1, 65537, -(2**40) + 1]
    for found in both(open_numbers, ring):
        assert found == [number / 2**16 for number in ring]
