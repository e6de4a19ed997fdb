"""Samples that leave a proxy's bounds in SPU's rings are counted, and rank last."""

import numpy as np
import pytest
from proxy.random_proxies import crafted, encoder
from spu_parties import play

from jaxsel.proxy._steps import outside
from mpc_bridge import Ledger, SessionError, choose, score_pool, share_proxy
from mpc_bridge._scoring import most_fraction_bits
from mpc_bridge.engines.spu import Aby3Engine, CheetahEngine

pytestmark = [
    pytest.mark.mpc,
    pytest.mark.multihost,
    pytest.mark.filterwarnings("ignore:.*make the proxy leave:UserWarning"),
]
KINDS = {"spu-aby3": Aby3Engine, "spu-cheetah": CheetahEngine}


def run(engine, made, x, k):
    """Return opened scores over their unit, the count, the choice and openings."""
    ledger = Ledger(engine, allow=("outside", "pivot", "scores"))
    ledger.phase = "phase 1"
    arrays = made.arrays() if engine.rank == 0 else None
    shared = share_proxy(made.manifest, ledger=ledger, arrays=arrays, enlarge=True)
    read = (lambda rows: (x[rows], None)) if engine.rank == 1 else None
    try:
        secret = score_pool(shared, len(x), read)
    except SessionError as error:
        return None, str(error), None, list(ledger.opened)
    opened = list(ledger.opened)
    chosen = choose(secret, k, seed=0, ledger=ledger).rows
    scores = ledger.open("scores", secret)
    return scores / shared.unit, ledger.outside.get("phase 1"), chosen, opened


def played(engine, made, x, k=10):
    bits = most_fraction_bits(KINDS[engine], [(made.manifest, made.arrays())])
    first, *others = play(engine, run, made, x, k, bits=bits)
    for other in others:  # all parties know the same
        assert other[1] == first[1]
        assert other[3] == first[3]
    return first


def assert_counted(engine, layers, attention, norm, gain, n, wild):
    made, x = encoder(layers, attention, norm, gain)
    rows = np.concatenate([x] * -(-n // len(x)))[:n].copy()
    at = np.arange(0, n, n // wild)[:wild]
    bound = made.manifest.fixed_point.bounds["inputs"]
    rows[at] = np.sign(rows[at]) * bound
    scores, count, chosen, opened = played(engine, made, rows)
    assert opened == [("outside", "phase 1", 1)]
    assert count == wild
    others = np.setdiff1d(np.arange(n), at)
    assert (scores[at] == outside(made.manifest)).all()
    clear = made.scores(made.logits(rows[others]))
    np.testing.assert_allclose(
        scores[others], clear, rtol=0, atol=2e-3 * np.abs(clear).max()
    )
    assert not np.isin(chosen, at).any()


def test_an_outlier_ranks_last_and_is_counted():
    assert_counted("spu-aby3", 1, "quadratic", "polynomial", 1.5, 40, 2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*KINDS])
def test_two_layers_count_outliers(engine):
    assert_counted(engine, 2, "quadratic", "polynomial", 1.5, 40, 2)


def test_many_outliers_end_the_session_before_the_choice():
    made, x = encoder(1, "quadratic", "polynomial", 1.5)
    rows = x[:20].copy()
    rows[:5] = np.sign(rows[:5]) * made.manifest.fixed_point.bounds["inputs"]
    _, said, _, opened = played("spu-aby3", made, rows)
    assert "5 of 20 samples make the proxy leave its bounds" in said
    assert "Nothing was chosen" in said
    assert "with_bounds, margin=" in said
    assert [kind for kind, *_ in opened] == ["outside"]


@pytest.mark.slow
def test_rows_of_a_seller_are_scored_right_or_counted():
    made, x = encoder(2, "quadratic", "polynomial", 1.5)
    bad = crafted(made.manifest.fixed_point.bounds["inputs"], x, 40)
    rows = np.concatenate([x] * 15 + [bad])
    scores, count, _, _ = played("spu-aby3", made, rows)
    out = scores == outside(made.manifest)
    assert count == out.sum() > 10
    clear = made.scores(made.logits(rows), finite=False)
    np.testing.assert_allclose(scores[~out], clear[~out], rtol=0.02, atol=0.02)
    assert not out[: -len(bad)].any()
