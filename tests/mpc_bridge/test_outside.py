"""Samples that leave a proxy's bounds in SPU's rings are counted, and rank last."""

import numpy as np
import pytest
from proxy.random_proxies import crafted, encoder
from spu_parties import play

from jaxsel.proxy import Proxy, probe_manifest, with_bounds
from mpc_bridge import Ledger, SessionError, choose, score_pool
from mpc_bridge._appraise import appraise
from mpc_bridge._scoring import most_fraction_bits, share_proxy
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
    assert (scores[at] == made.manifest.outside).all()
    clear = made.scores(made.logits(rows[others]))
    np.testing.assert_allclose(
        scores[others], clear, rtol=0, atol=2e-3 * np.abs(clear).max()
    )
    assert not np.isin(chosen, at).any()


@pytest.mark.left_out
def test_an_outlier_ranks_last_and_is_counted():
    assert_counted("spu-aby3", 1, "quadratic", "polynomial", 1.5, 40, 2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*KINDS])
def test_two_layers_count_outliers(engine):
    assert_counted(engine, 2, "quadratic", "polynomial", 1.5, 40, 2)


@pytest.mark.slow
def test_many_outliers_end_the_session_before_the_choice():
    made, x = encoder(1, "quadratic", "polynomial", 1.5)
    rows = x[:20].copy()
    rows[:5] = np.sign(rows[:5]) * made.manifest.fixed_point.bounds["inputs"]
    _, said, _, opened = played("spu-aby3", made, rows)
    assert "5 of 20 samples make the proxy leave its bounds" in said
    assert "Nothing was chosen" in said
    assert "with_bounds, margin=" in said
    assert [kind for kind, *_ in opened] == ["outside"]


def small_probe(n_classes, kind):
    """Return a probe whose median margin is about .001, samples and clear scores."""
    rng = np.random.default_rng(0)
    arrays = {
        "head.0.weight": 5e-4 * rng.normal(size=(48, n_classes)) / 7,
        "head.0.bias": np.zeros(n_classes),
        "offset": np.zeros(n_classes),
    }
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    made = probe_manifest(width=48, n_classes=n_classes, score=kind)
    x = rng.normal(size=(400, 48)).astype(np.float32)
    ordered = np.sort(x @ np.float64(arrays["head.0.weight"]), 1)
    lead = ordered[:, -1] - ordered[:, -2]
    clear = -(lead**2) if n_classes == 2 else -lead
    return with_bounds(Proxy.from_arrays(made, arrays), x, strict=True), x, clear


def run_both(engine, made, x, k):
    """Return the choice with heads scaled, its mean, and the choice without."""
    ledger, found = Ledger(engine), []
    for enlarge in (True, False):
        arrays = made.arrays() if engine.rank == 0 else None
        shared = share_proxy(
            made.manifest, ledger=ledger, arrays=arrays, enlarge=enlarge
        )
        read = (lambda rows: (x[rows], None)) if engine.rank == 1 else None
        secret = score_pool(shared, len(x), read)
        rows = choose(secret, k, seed=0, ledger=ledger).rows
        found += [rows, appraise(secret, rows, unit=shared.unit, ledger=ledger)]
    return found


@pytest.mark.parametrize(
    ("engine", "n_classes", "kind"),
    [
        ("spu-aby3", 3, "margin"),
        pytest.param("spu-aby3", 2, "entropy", marks=pytest.mark.slow),
        pytest.param("spu-cheetah", 2, "entropy", marks=pytest.mark.slow),
        pytest.param("spu-cheetah", 3, "margin", marks=pytest.mark.slow),
    ],
)
@pytest.mark.left_out
def test_small_margins_choose_what_clear_scores_choose(engine, n_classes, kind):
    made, x, clear = small_probe(n_classes, kind)
    bits = most_fraction_bits(KINDS[engine], [(made.manifest, made.arrays())])
    best = np.sort(np.argsort(-clear, kind="stable")[:40])
    for rows, mean, plain, _ in play(engine, run_both, made, x, 40, bits=bits):
        np.testing.assert_array_equal(rows, best)
        assert mean == pytest.approx(clear[best].mean(), rel=1e-2)
        assert len(np.intersect1d(plain, best)) < 40  # as they were before


@pytest.mark.slow
def test_rows_of_a_seller_are_scored_right_or_counted():
    made, x = encoder(2, "quadratic", "polynomial", 1.5)
    bad = crafted(made.manifest.fixed_point.bounds["inputs"], x, 40)
    rows = np.concatenate([x] * 15 + [bad])
    scores, count, _, _ = played("spu-aby3", made, rows)
    out = scores == made.manifest.outside
    assert count == out.sum() > 10
    clear = made.scores(made.logits(rows), finite=False)
    np.testing.assert_allclose(scores[~out], clear[~out], rtol=0.02, atol=0.02)
    assert not out[: -len(bad)].any()
