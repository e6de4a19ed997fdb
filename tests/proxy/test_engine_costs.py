"""The shape of the formulae for SPU's engines; tests/mpc_bridge counts real runs."""

import dataclasses
import math

import pytest
from small_manifests import SMALL, small_manifests

from jaxsel import proxy
from jaxsel.proxy import Network, Spec, owned_schedule, schedule
from jaxsel.proxy._cost import _cheetah as cheetah

ENGINES = ("crypten", "spu-cheetah", "spu-aby3")
PROBE = proxy.probe_manifest(width=384, n_classes=2)


def layer(**changes):
    spec = Spec(1, 2, attention="quadratic", norm="polynomial")
    return proxy.manifest(dataclasses.replace(spec, **changes), **SMALL)


@pytest.mark.parametrize("engine", ENGINES)
def test_all_samples_are_the_sum_of_batches(engine):
    network = Network(bandwidth=1e6, latency=0.01)
    for manifest in (PROBE, layer()):
        whole = proxy.cost(manifest, 10, network, engine=engine, batch_size=4)
        parts = [
            proxy.cost(manifest, n, network, engine=engine, batch_size=n)
            for n in (4, 4, 2)
        ]
        assert whole.bytes == pytest.approx(sum(part.bytes for part in parts), abs=2)
        assert whole.rounds == pytest.approx(sum(p.rounds for p in parts), abs=2)
        assert whole.seconds == pytest.approx(sum(part.seconds for part in parts))
        assert whole.bytes_per_sample == pytest.approx(parts[0].bytes / 4, abs=1)


def test_aby3_is_linear_in_samples_and_its_sends_are_received():
    for manifest in list(small_manifests())[::4]:
        sizes = [
            proxy.cost(manifest, n, engine="spu-aby3", batch_size=n).all
            for n in (2, 3, 4)
        ]
        step = sizes[1].total - sizes[0].total
        assert sizes[2].total == pytest.approx(sizes[1].total + step)
        for each in sizes:
            assert sum(each.received) == pytest.approx(each.total)


def test_aby3_pays_for_results_and_for_inputs_alone():
    # 16 bytes to share each feature, 52 for each logit's product and for the square.
    counted = proxy.cost(PROBE, 100, engine="spu-aby3", batch_size=100)
    assert counted.all.total == pytest.approx(100 * (16 * 384 + 2 * 52 + 52))
    assert counted.all.sent[1] > counted.all.sent[0]
    assert counted.bytes == round(counted.all.sent[1] + counted.all.received[1])


def test_cheetah_pays_by_the_ciphertext():
    few, more, many = (
        proxy.cost(PROBE, n, engine="spu-cheetah", batch_size=n) for n in (1, 10, 4000)
    )
    assert few.bytes > 300_000
    assert more.bytes < few.bytes * 1.1  # they fit the same ciphertexts
    assert many.bytes_per_sample < few.bytes_per_sample / 100
    # What one party sends the other one receives.
    assert many.all.sent == pytest.approx(many.all.received[::-1])
    assert many.all.one_way >= many.bytes / 2


@pytest.mark.parametrize("sizes", [(5, 6, 3), (512, 384, 2), (192, 384, 96), (1, 1, 1)])
def test_blocks_hold_the_product(sizes):
    for packed in (True, False):
        block = cheetah.blocks(*sizes, packed=packed)
        assert math.prod(block) <= cheetah.SLOTS
        assert all(b <= a for a, b in zip(sizes, block, strict=True))


def test_ciphertexts_are_those_that_were_counted():
    # Of runs of two parties: blocks asked with, blocks replied.
    for sizes, found in (
        ((8, 4, 2), (1, 1, False)),
        ((512, 384, 2), (2, 1, True)),
        ((2000, 16, 8), (1, 2, True)),
    ):
        assert cheetah.ciphertexts(*sizes) == found, sizes


def test_an_owners_own_work_is_not_in_the_schedule():
    manifest = layer()
    kinds = [op.kind for op in owned_schedule(manifest, private=(0, 1))]
    assert {"matmul", "scale", "share", "zero"} <= {*kinds}
    assert kinds.count("zero") == 1
    calls = [op.kind for op in schedule(manifest)]
    extra = {"scale", "share", "zero"}
    assert [kind for kind in kinds if kind not in extra] == calls
    # Rows that the data owner norms first, by itself, cost nothing.
    probe = owned_schedule(PROBE, private=(0, 1))
    assert probe[0].owners == (1, 0)
    assert owned_schedule(PROBE, private=())[0].owners == (None, None)


def test_batches_that_run_at_once_wait_together():
    def counted(n, lanes=1):
        link = Network(bandwidth=1e9, latency=0.1)
        given = {"engine": "spu-aby3", "batch_size": 4, "lanes": lanes}
        return proxy.cost(layer(), n, link, **given)

    shared = sum(
        row.all.waits for row in counted(4).rows if row.operation.kind == "share"
    )
    one, rest = (counted(n).all.waits - shared for n in (4, 2))
    assert one > 2 * shared > 0
    # Full batches, then one of two samples, alone or beside them.
    for n, waits in ((32, 2 * one), (30, 2 * one), (34, 2 * one + rest), (12, one)):
        alone, some = counted(n), counted(n, lanes=4)
        assert (some.all.sent, some.all.rounds) == (alone.all.sent, alone.all.rounds)
        assert some.all.waits == pytest.approx(waits + -(-n // 4) * shared)
        assert some.seconds < 0.6 * alone.seconds


@pytest.mark.parametrize("engine", ENGINES)
def test_a_choice_grows_with_scores(engine):
    network = Network(bandwidth=1e6, latency=0.01)
    few, many = (
        proxy.choice_cost(n, n // 4, network, engine=engine) for n in (400, 4000)
    )
    assert 8 < many.bytes / few.bytes < 12
    assert few.rounds < many.rounds < 2 * few.rounds
    assert few.bytes < few.bytes_bound
    assert few.rounds < few.rounds_bound
    assert many.seconds > few.seconds
    assert proxy.choice_cost(9, 9, engine=engine).bytes == 0


@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_a_set_costs_a_shuffle_more(engine):
    for n in (1000, 10_000):  # of 100, each pass by rank is lengthened to 100
        by_rank, by_set = (
            proxy.choice_cost(n, n // 4, engine=engine, leak=leak).expected.total
            for leak in ("rank", "set")
        )
        if engine == "spu-cheetah":  # n log n switches, for each of two parties
            assert 1.2 * by_rank < by_set < 4 * by_rank
        else:  # which does not lengthen what it compares
            assert 0.5 * by_rank < by_set < 2 * by_rank


def test_proxies_are_compared_on_an_engine():
    both = {"probe": PROBE, "layer": layer()}
    texts = {e: proxy.compare_costs(both, 100, engine=e) for e in ENGINES}
    assert len({*texts.values()}) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: proxy.cost(PROBE, 1, engine="spu"), "engine must be one of crypten"),
        (
            lambda: proxy.cost(PROBE, 1, engine="spu-cheetah", lanes=2),
            "lanes must be 1 with engine 'spu-cheetah', got 2",
        ),
        (lambda: proxy.choice_cost(9, 3, engine="x"), "engine must be one of"),
        (lambda: proxy.choice_cost(9, 3, leak="all"), "leak must be one of rank, set"),
        (lambda: proxy.choice_cost(9, 3, leak="set"), "leak must be 'rank' with"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
