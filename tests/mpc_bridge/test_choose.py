"""The secure choice is the clear one, and shows nothing but outcomes of comparisons."""

import contextlib
import io
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from parties import both, secret

import mpc_bridge
from mpc_bridge._choose import choose
from mpc_bridge._ledger import Ledger

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]
LARGE = 2**61  # two of them differ by less than half the ring


def run(rank, cases):
    """Return rows, passes, comparisons, and what was counted, of each choice."""
    results = []
    for ring, k, seed in cases:
        ledger = Ledger()
        chosen = choose(secret(ring), k, seed=seed, ledger=ledger)
        spent, opened = ledger.total(), [size for *_, size in ledger.opened]
        results.append(
            (chosen.rows, chosen.passes, chosen.comparisons, spent.rounds, spent.bytes)
            + (opened,)
        )
    return results


def check(cases):
    results, others = both(run, cases)
    np.testing.assert_equal(results, others)
    for (ring, k, _), result in zip(cases, results, strict=True):
        rows, passes, comparisons, rounds, size, opened = result
        order = np.argsort(-np.asarray(ring, np.int64), kind="stable")
        np.testing.assert_array_equal(rows, np.sort(order[:k]))
        assert rows.dtype == np.int64
        assert (rounds, size) == (9 * passes, 448 * comparisons)
        assert len(opened) == passes
        assert sum(opened) == comparisons
    return results


sizes = st.integers(1, 24).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-2, 2), min_size=n, max_size=n)
        | st.lists(st.integers(-LARGE, LARGE), min_size=n, max_size=n),
        st.integers(1, n),
        st.integers(0, 2**64 - 1),
    )
)


@settings(max_examples=25, deadline=None)
@given(sizes)
@pytest.mark.left_out
def test_chosen_are_those_of_the_clear_order(case):
    ring, k, seed = case
    # What a float64 cannot hold would not be the number that is shared.
    check([([int(float(element)) for element in ring], k, seed)])


@pytest.mark.left_out
def test_edges():
    rng = np.random.default_rng(0)
    some = rng.integers(-50, 50, 30).tolist()
    results = check(
        [
            ([5], 1, 0),
            (some, 1, 1),
            (some, 29, 2),
            ([7] * 40, 13, 3),
            ([0] * 5 + [1] * 20 + [-1] * 5, 10, 4),
            ([element - 2**40 for element in some], 7, 5),
            ([element * 2**55 for element in some], 7, 6),
            (some, 30, 7),
            *(([3, 2, 1], 2, seed) for seed in range(8)),
        ]
    )
    for whole in (results[0], results[7]):  # k = n needs no pass
        assert whole[1:] == (0, 0, 0, 0, [])
    # It ends when the set is known, here after the first pass for two of three pivots.
    assert {passes for _, passes, *_ in results[8:]} == {1, 2}


@pytest.mark.left_out
def test_passes_are_within_the_bound_and_follow_the_seed():
    from jaxsel.proxy import choice_cost

    ring = np.random.default_rng(1).permutation(60).tolist()
    results = check([(ring, 12, seed) for seed in (0, 1, 2, 3, 0)])
    bound = choice_cost(60, 12)
    for _, passes, comparisons, *_ in results:
        assert passes <= bound.passes_bound
        assert comparisons <= bound.comparisons_bound
    np.testing.assert_equal(results[0], results[-1])
    assert len({str(result[-1]) for result in results}) > 2


@contextlib.contextmanager
def watched(calls):
    """Note each reduction, and whether the ledger or any opening asked for it."""
    from crypten.mpc import MPCTensor

    communicator = mpc_bridge.import_crypten().communicator.get()
    reduce, open_, inside = communicator.all_reduce, Ledger.open, []

    def all_reduce(operand, *args, **kwargs):
        result = reduce(operand, *args, **kwargs)
        calls.append((tuple(inside), operand, result))
        return result

    def noting(name, function):
        def called(*args, **kwargs):
            inside.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                inside.pop()

        return called

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(communicator, "all_reduce", all_reduce)
        patch.setattr(Ledger, "open", noting("ledger", open_))
        for name in ("get_plain_text", "reveal"):
            patch.setattr(MPCTensor, name, noting(name, getattr(MPCTensor, name)))
        yield


def run_watched(rank, ring, k, seed, masked=True):
    """Return how each reduction was asked for, the outcomes, and histograms."""
    import torch
    from crypten.config import cfg
    from crypten.mpc.provider import tfp_provider

    crypten = mpc_bridge.import_crypten()
    scores, ledger, calls = secret(ring), Ledger(), []
    with cfg.temp_override({"debug.debug_mode": True}):  # allows seeds
        crypten.manual_seed(rank, 2 + rank, 4)
    with pytest.MonkeyPatch.context() as patch, watched(calls):
        if not masked:
            zeros = lambda size, **_: torch.zeros(size, dtype=torch.long)
            patch.setattr(tfp_provider, "generate_kbit_random_tensor", zeros)
        choose(scores, k, seed=seed, ledger=ledger)
    words, bits, outcomes = np.zeros(256, int), np.zeros(2, int), []
    for inside, _, result in calls:
        if inside:
            outcomes.append(result.numpy().tolist())
        elif isinstance(result, list):
            # What differs as well: two masks that cancel would leave each uniform.
            for word in (*result, result[0] ^ result[1]):
                top = (word.numpy().view(np.uint64) >> np.uint64(56)).astype(int)
                words += np.bincount(top.ravel(), minlength=256)
        else:
            bits += np.bincount(result.numpy(), minlength=2)
    asked = [inside for inside, *_ in calls]
    return asked, ledger.total().rounds, len(ledger.opened), outcomes, words, bits


@pytest.mark.left_out
def test_everything_that_is_opened_passes_the_ledger():
    for result in both(run_watched, [3, 1, 2, 2, 9, 4] * 4, 5, 0):
        asked, rounds, opened, outcomes, *_ = result
        assert len(asked) == rounds  # nothing goes another way
        assert set(asked) == {(), ("ledger", "reveal")}
        assert sum(map(bool, asked)) == opened == len(outcomes) > 0
        assert {bit for outcome in outcomes for bit in outcome} == {0, 1}


@pytest.mark.left_out
def test_outcomes_depend_on_the_order_only():
    rng = np.random.default_rng(2)
    small, large = rng.permutation(40), np.sort(rng.integers(-(2**50), 2**50, 40))
    first = both(run_watched, small.tolist(), 11, 3)[0][3]
    assert both(run_watched, large[small].tolist(), 11, 3)[0][3] == first
    assert both(run_watched, large[::-1].tolist(), 11, 3)[0][3] != first


@pytest.mark.parametrize("ring", [[0] * 600, [2**58, -(2**58), 1] * 200])
@pytest.mark.left_out
def test_all_else_that_is_opened_is_uniform(ring):
    from scipy.stats import chisquare

    *_, words, bits = both(run_watched, ring, 1, 0)[0]
    assert words.sum() > 20_000
    assert chisquare(words).pvalue > 1e-3
    assert chisquare(bits).pvalue > 1e-3


def test_what_no_mask_hides_is_not_uniform():
    from scipy.stats import chisquare

    *_, words, _ = both(run_watched, [0] * 100, 1, 0, False)[0]
    assert chisquare(words).pvalue < 1e-9


def run_wrong(rank):
    """Return what each wrong call says, and how many messages they sent."""
    import torch
    from crypten.mpc import binary

    scores, ledger = secret([1, 2, 3]), Ledger()
    rows = secret(range(4)).reshape(2, 2)
    wrong = [
        (torch.zeros(3), 1, 0),
        (scores.to(binary), 1, 0),
        (rows, 1, 0),
        (scores[:0], 1, 0),
        (scores, 0, 0),
        (scores, 4, 0),
        (scores, 1.0, 0),
        (scores, True, 0),
        (scores, 1, -1),
        (scores, 1, None),
    ]
    said = []
    communicator = mpc_bridge.import_crypten().communicator.get()
    before = communicator.comm_rounds
    for operand, k, seed in wrong:
        with pytest.raises((TypeError, ValueError)) as caught:
            choose(operand, k, seed=seed, ledger=ledger)
        said.append(f"{caught.type.__name__}: {caught.value}")
    return said, communicator.comm_rounds - before


def test_wrong_arguments_are_named_before_anything_is_sent():
    said, sent = both(run_wrong)[0]
    expected = [
        "TypeError: scores must be an MPCTensor of arithmetic shares, got",
        "TypeError: scores must be an MPCTensor of arithmetic shares, got",
        "ValueError: scores must have shape [n], n at least 1, got (2, 2)",
        "ValueError: scores must have shape [n], n at least 1, got (0,)",
        "ValueError: k must be at least 1, got 0",
        "ValueError: k must be at most the number of scores, 3, got 4",
        "TypeError: k must be a whole number, got 1.0",
        "TypeError: k must be a whole number, got True",
        "ValueError: seed must be at least 0, got -1",
        "TypeError: seed must be a whole number, got None",
    ]
    for message, start in zip(said, expected, strict=True):
        assert message.startswith(start)
    assert sent == 0


def run_progress(rank):
    """Return what stands on standard error, without and with a bar."""
    from tqdm import tqdm

    tqdm.set_lock(threading.RLock())  # its own leaves a semaphore where it is killed
    shown = []
    for progress in (False, True):
        with contextlib.redirect_stderr(io.StringIO()) as stream:
            choose(secret([3, 1, 2]), 1, seed=0, ledger=Ledger(), progress=progress)
        shown.append(stream.getvalue())
    return shown


def test_progress_is_shown_if_asked_for():
    silent, shown = both(run_progress)[0]
    assert silent == ""
    assert "Choosing" in shown
