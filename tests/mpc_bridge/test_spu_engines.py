"""SPU's engines: the clear scores, the clear choice, and nothing wild."""

import contextlib
import dataclasses
import functools
import json
from typing import ClassVar

import jax
import numpy as np
import pytest
from proxy.random_proxies import SMALL, random_proxy, small_manifests
from spu_parties import BITS, ENGINES, KINDS, WIDE, play, score

from jaxsel.proxy import Call, Spec, manifest, operand_shapes, probe_manifest, schedule
from jaxsel.proxy._manifest import FixedPoint
from jaxsel.proxy.families import ACTIVATIONS, ATTENTIONS, NORMS
from jaxsel.proxy.families._place import Place
from jaxsel.proxy.families._ranges import Ranges
from mpc_bridge import Ledger, choose, score_pool
from mpc_bridge._appraise import appraise
from mpc_bridge._inputs import shapes_of
from mpc_bridge._journal import Journal
from mpc_bridge._network import network
from mpc_bridge._programs import Above, Forward, Highest, Keys, Rows, Switched
from mpc_bridge._scoring import most_fraction_bits, share_proxy
from mpc_bridge.engines import Engine, Program, Unseen
from mpc_bridge.engines.spu._lower import compile_program, lower, padded

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]
ALL = [*ENGINES]
SLOW_BY_TWO = ["spu-aby3", pytest.param("spu-cheetah", marks=pytest.mark.slow)]
SLOW_BY_THREE = [*SLOW_BY_TWO, pytest.param(WIDE, marks=pytest.mark.slow)]
ERROR = {engine: 2e-5 if engine == WIDE else 1e-4 for engine in KINDS}
"""Of the largest score, or of 1: 18 fraction bits; of 40, what functions leave out."""


def assert_sound(engine, made, how=score, bits=None):
    target, x, mask = made
    expected = np.asarray(target.scores(target.logits(x, mask)))
    for found in play(engine, how, target, x, mask, bits=bits):
        if found is not None:
            error = np.abs(found - expected).max()
            assert error <= ERROR[engine] * max(1, np.abs(expected).max())


@pytest.mark.parametrize("engine", ALL)
@pytest.mark.left_out
def test_a_probe_is_scored(engine):
    for classes, hidden in ((2, 0), (3, 4)):
        m = probe_manifest(width=6, n_classes=classes, head=hidden)
        assert_sound(engine, random_proxy(m, n=9, bound=8.0))


@pytest.mark.left_out
def test_a_layer_is_scored():
    spec = Spec(1, 2, attention="quadratic", norm="polynomial")
    m = manifest(spec, **SMALL | {"n_classes": 3}, masked=True)
    assert_sound("spu-aby3", random_proxy(m, n=5, bound=8.0))


@pytest.mark.left_out
@pytest.mark.parametrize("engine", SLOW_BY_TWO)
def test_batches_are_scored_at_once(engine):
    spec = Spec(1, 2, attention="quadratic", norm="polynomial")
    m = manifest(spec, **SMALL | {"n_classes": 3}, masked=True)
    made = random_proxy(m, n=11, bound=8.0)
    # Two groups of three, of which the last batch is shorter.
    assert_sound(engine, made, functools.partial(score, batch_size=2, lanes=3))


def test_lanes_are_for_products_by_sample():
    layer = schedule(manifest(Spec(1, 2, attention="linear"), **SMALL))
    probe = schedule(probe_manifest(width=6, n_classes=2))
    kind = KINDS["spu-aby3"]
    assert (kind.lanes_for(layer), kind.lanes_for(probe)) == (8, 1)
    assert KINDS["spu-cheetah"].lanes_for(layer) == 1
    # All lanes share the memory, and few samples are spread over them.
    assert kind.batch_for(layer, 8 << 20) == Engine.batch_for.__func__(
        kind, layer, 1 << 20
    )
    for n, batch in (
        (8000, 500),
        (4000, 500),
        (2000, 250),
        (600, 75),
        (100, 64),
        (9, 9),
    ):
        assert kind.batch_of(n, 500, 8) == batch


@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_a_batch_is_what_operations_leave_room_for(engine):
    kind, memory = KINDS[engine], 2 << 30
    probe = schedule(probe_manifest(width=384, n_classes=2))
    assert 42_000 <= kind.batch_for(probe, memory) < 50_000  # fewer ciphertexts
    sizes = SMALL | {"length": 64}
    exact, quadratic = (
        schedule(
            manifest(
                Spec(1, 2, attention=each, norm="polynomial", read="mean"), **sizes
            )
        )
        for each in ("exact", "quadratic")
    )
    # An exact softmax holds much for each of its numbers.
    assert 3 * kind.batch_for(exact, memory) < kind.batch_for(quadratic, memory)


def with_family(family):
    """Return a random proxy of one layer with this family, in whichever place."""
    chosen = {"attention": "uniform", "norm": "polynomial"}
    if family in ACTIVATIONS and family != "relu":
        chosen["ffn"] = family
    elif family in ATTENTIONS:
        chosen["attention"] = family
    else:
        chosen["norm"] = family
    m = manifest(Spec(1, 2, **chosen), **SMALL | {"n_classes": 3}, masked=True)
    return random_proxy(m, n=3, bound=8.0)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({*ATTENTIONS, *NORMS, *ACTIVATIONS}))
@pytest.mark.parametrize("engine", ["spu-aby3", WIDE])
def test_every_family_is_scored(family, engine):
    assert_sound(engine, with_family(family))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["quadratic", "mlp", "exact", "gelu"])
def test_families_are_scored_by_two(family):
    assert_sound("spu-cheetah", with_family(family))


def operands(m, n):
    described = [
        jax.ShapeDtypeStruct(shape, np.float64) for shape in operand_shapes(m).values()
    ]
    return described + [
        jax.ShapeDtypeStruct(each.shape, np.float64) for each in shapes_of(m, n)
    ]


@pytest.mark.slow
def test_manifests_are_compiled():
    for m in list(small_manifests())[::4]:
        shapes = operands(m, 3)
        assert compile_program(Forward(m), shapes, [False] * len(shapes))


def test_programs_have_no_form_that_the_parser_does_not_know():
    numbers = jax.ShapeDtypeStruct((20,), np.float64)
    rows = jax.ShapeDtypeStruct((8,), np.int32)
    one, net = jax.ShapeDtypeStruct((1,), np.int32), network(20)
    stand = jax.ShapeDtypeStruct((net.switches,), np.bool_)
    for program, shapes in (
        (Above(), [numbers, rows, one, jax.ShapeDtypeStruct((8,), np.float64)]),
        (Keys(5), [numbers, numbers]),
        (Rows(5), [numbers, rows]),
        (Highest(5, 64, 4), [numbers]),
        (Switched(net), [numbers, stand]),
    ):
        assert "chlo." not in lower(program, shapes)


@dataclasses.dataclass(frozen=True)
class Sum(Program):
    place: ClassVar[str] = "test"
    name: ClassVar[str] = "sum"

    def steps(self, cat, *operands):
        return operands[0] + operands[1]
        yield


@dataclasses.dataclass(frozen=True)
class Product(Program):
    place: ClassVar[str] = "test"
    name: ClassVar[str] = "product"

    def steps(self, cat, *operands):
        return (yield Call(self.place, self.name, "mul", operands))


def shared(ledger, values):
    """Return numbers of which each owner has a part: scores are nobody's own."""
    engine, half = ledger.engine, np.random.default_rng(1).integers(-99, 99)
    parts = (values - half, np.full(values.shape, float(half)))
    secrets = [
        engine.share(rank, part if engine.rank == rank else Unseen(part.shape))[0]
        for rank, part in enumerate(parts)
    ]
    return ledger.run(Sum(), *secrets)


def run_choices(engine, ring, k, bits):
    ledger = Ledger(engine)
    scores = np.asarray(ring) / 2.0**bits
    secret = shared(ledger, scores)
    by_rank = choose(secret, k, seed=3, ledger=ledger)
    by_set = choose(secret, k, seed=3, ledger=ledger, leak="set")
    mean = appraise(secret, by_rank.rows, ledger=ledger)
    near = max(1e-9, 1e-12 * abs(mean))
    ends = [
        appraise(secret, by_rank.rows, threshold=mean + end, ledger=ledger)
        for end in (-near, near)
    ]
    return by_rank, by_set, mean, ends, ledger.opened


@pytest.mark.parametrize("engine", SLOW_BY_THREE)
@pytest.mark.left_out
def test_chosen_are_those_of_the_clear_order(engine):
    rng = np.random.default_rng(0)
    large = 2**41  # n < 2^6 more is below 2^62
    for ring in (rng.integers(-2, 3, 40), rng.integers(-large, large, 33)):
        k = len(ring) // 3
        best = np.sort(np.argsort(-ring, kind="stable")[:k])
        for found in play(engine, run_choices, ring.tolist(), k, BITS):
            by_rank, by_set, mean, ends, opened = found
            np.testing.assert_array_equal(by_rank.rows, best)
            np.testing.assert_array_equal(by_set.rows, best)
            assert (by_set.passes, by_set.comparisons) == (0, 0)
            assert mean == pytest.approx(ring[best].mean() / 2**BITS, rel=1e-12)
            assert ends == [True, False]
            pivots = [size for kind, _, size in opened if kind == "pivot"]
            assert sum(pivots) == by_rank.comparisons
            assert [size for kind, _, size in opened if kind == "rows"] == [k]


def run_products(engine, left, right):
    ledger = Ledger(engine, allow=("scores",))
    found = []
    for pair in zip(left, right, strict=True):
        secrets = [shared(ledger, np.asarray(values)) for values in pair]
        found.append(ledger.open("scores", ledger.run(Product(), *secrets)))
    return found


@dataclasses.dataclass(frozen=True)
class Scaled(Program):
    numbers: tuple[float, ...]
    place: ClassVar[str] = "test"
    name: ClassVar[str] = "scaled"

    def steps(self, cat, *operands):
        columns = [operands[0] * number / 12 for number in self.numbers]
        return cat(columns)
        yield


def run_scaled(engine, numbers, values):
    ledger = Ledger(engine, allow=("scores",))
    return ledger.open("scores", ledger.run(Scaled(numbers), shared(ledger, values)))


@pytest.mark.parametrize("engine", SLOW_BY_TWO)
def test_small_public_numbers_keep_their_digits(engine):
    """1 / 384 alone has 10 digits of 18: the largest would be off by 6e-3."""
    numbers = np.array([1, 1 / 384, 1 / 768, -1 / 700, 1 / 128, 0.25, 1.37])
    values = np.random.default_rng(0).uniform(-2500, 2500, (50, 1))
    expected = values * numbers
    for found in play(engine, run_scaled, tuple(12 * numbers), values)[:2]:
        # A cut is wrong by a digit; a factor by half of one, in a quarter at least.
        digits = 4 + np.where(numbers < 0.125, 2 * np.abs(expected), np.abs(values) / 2)
        assert (np.abs(found - expected) <= digits * 2.0**-18).all()


@pytest.mark.parametrize("engine", SLOW_BY_TWO)
def test_no_product_below_the_ring_is_wild(engine):
    """Where local truncation fails one time in eight, and up to the ring's last bit."""
    rng, n = np.random.default_rng(0), 20_000
    left, right = [], []
    for top in (61, 58, 40):  # bits of the product before it is cut back
        size = 2.0 ** ((top - 2 * BITS) / 2)
        for values in (left, right):
            values.append(np.round(rng.uniform(-size, size, n) * 2**BITS) / 2**BITS)
    for found in play(engine, run_products, left, right, bits=BITS):
        for product, x, y in zip(found, left, right, strict=True):
            # Half a digit is rounded, and truncation may be off by one more.
            assert np.abs(product - x * y).max() <= 2.5 / 2**BITS


@dataclasses.dataclass(frozen=True)
class Activate(Program):
    activation: str
    place: ClassVar[str] = "test"
    name: ClassVar[str] = "activation"

    def steps(self, cat, *operands):
        at = Place(run=None, at=self.place)
        return (yield from ACTIVATIONS[self.activation].steps(at, operands[0]))


def run_activation(engine, name, values):
    ledger = Ledger(engine, allow=("scores",))
    return ledger.open("scores", ledger.run(Activate(name), shared(ledger, values)))


@pytest.mark.parametrize("engine", SLOW_BY_TWO)
@pytest.mark.parametrize(("name", "largest"), [("relu", 25), ("quad", 12), ("gelu", 4)])
@pytest.mark.every(6)
def test_an_activation_is_right_up_to_its_bound(engine, name, largest):
    """The largest power of two that an export accepts with 18 fraction bits."""
    m = manifest(Spec(1, 2, ffn=name), **SMALL)
    for more in (0, 1):
        bounds = {"layers.0.hidden": 2.0 ** (largest + more)}
        fixed = FixedPoint(fraction_bits=BITS, bounds=bounds)
        described = dataclasses.replace(m, fixed_point=fixed)
        ranges = Ranges(described, BITS, at="layers.0")
        refused = pytest.raises(ValueError, match=r"layers\.0\.hidden: .* may reach")
        with refused if more else contextlib.nullcontext():
            ACTIVATIONS[name].check(ranges)
    values = 2.0**largest * np.linspace(-1, 1, 1001)
    expected = np.asarray(ACTIVATIONS[name].apply(values))
    for found in play(engine, run_activation, name, values, bits=BITS):
        error = np.abs(found - expected)
        assert (error <= 2e-3 * np.maximum(1, np.abs(expected))).all()


def test_an_extreme_sample_is_scored_as_any_other():
    m = probe_manifest(width=6, n_classes=2)
    target, x, _ = random_proxy(m, n=40, bound=2.0**9)
    x[7], x[8] = 2.0**9, -(2.0**9)
    bits = most_fraction_bits(KINDS["spu-aby3"], [(target.manifest, target.arrays())])
    assert BITS <= bits < KINDS["spu-aby3"].most_bits  # squares leave no more room
    assert_sound("spu-aby3", (target, x, None), bits=bits)


def run_set(engine, scores, k):
    """Return what a choice by "set" opens, in units of the ring's last digit."""
    ledger = Ledger(engine)
    secret = shared(ledger, scores)
    opened, program = [], Rows((len(scores) - 1).bit_length(), engine.ring)
    reveal = engine.reveal
    engine.reveal = lambda keys: opened.append(reveal(keys)) or opened[-1]
    found = choose(secret, k, seed=0, ledger=ledger, leak="set").rows
    unit = 2.0 ** (engine.ring - program.bits - engine.fraction_bits)
    ring = np.round(opened[-1] / unit)
    assert (opened[-1] == ring * unit).all()
    assert all(each.dtype == bool for each in opened[:-1])
    return found, np.sort(ring)


@pytest.fixture(params=[False, True])
def switching(request, monkeypatch):
    """Scores go through the parties' switches, or SPU shuffles them."""
    monkeypatch.setattr(KINDS["spu-cheetah"], "switches", request.param)
    return request.param


@pytest.mark.left_out
def test_switched_scores_are_chosen_alike(switching):
    rng = np.random.default_rng(0)
    for ring in (rng.integers(-2, 3, 41), rng.integers(-(2**41), 2**41, 6)):
        k = len(ring) // 3
        best = np.sort(np.argsort(-ring, kind="stable")[:k])
        for found in play("spu-cheetah", run_choices, ring.tolist(), k, BITS):
            np.testing.assert_array_equal(found[1].rows, best)
            # Whose score is where is open to nobody when these are compared.
            kinds = [kind for kind, _, _ in found[4]]
            assert ("shuffled" in kinds) == switching


def run_shuffled(engine, scores, k):
    """Return the outcomes that a choice by "set" opens, one after the other."""
    ledger, opened = Ledger(engine), []
    secret, reveal = shared(ledger, scores), engine.reveal
    engine.reveal = lambda keys: opened.append(reveal(keys)) or opened[-1]
    for _ in range(8):
        choose(secret, k, seed=0, ledger=ledger, leak="set")
    return [each for each in opened if each.dtype == bool]


@pytest.mark.left_out
def test_switches_hide_whose_score_is_where():
    both = play("spu-cheetah", run_shuffled, np.arange(12.0), 4)
    first = [tuple(each) for each in both[0] if len(each) >= 11]
    assert first == [tuple(each) for each in both[1] if len(each) >= 11]
    # One order and one seed: without a shuffle all outcomes would be the same.
    assert len(set(first)) > 4


@pytest.mark.parametrize("engine", SLOW_BY_THREE)
@pytest.mark.left_out
def test_a_set_opens_its_rows_and_no_digit_of_a_score(engine):
    rng, n, k = np.random.default_rng(0), 40, 9
    order = np.argsort(-np.arange(n) * 7 % n, kind="stable")
    scores = np.empty(n)
    opened = []
    for low, high in ((-4.0, 4.0), (100.0, 1000.0)):
        scores[order] = -np.sort(-rng.uniform(low, high, n))
        rows, ring = play(engine, run_set, scores, k)[1]
        np.testing.assert_array_equal(rows, np.sort(order[:k]))
        opened.append(ring)
    np.testing.assert_array_equal(*opened)


def run_resumed(engine, folder, target, x, stop, finish):
    """Score and choose until `stop` entries are written; return what was found.

    Args:
        engine: Of a party.
        folder: Of all journals.
        target: The proxy.
        x: Samples.
        stop: By rank.
        finish: Whether the journal is deleted at the end.
    """
    output = folder / str(engine.rank)
    output.mkdir(exist_ok=True)
    journal = Journal(output, "one session")
    there = [json.loads(each) for each in engine.exchange(b"%d" % journal.there)]
    journal.start(min(there), engine, {"bits": BITS})
    put = journal._put

    def counted(data):
        put(data)
        if journal._at == stop[engine.rank]:
            raise KeyboardInterrupt

    journal._put = counted
    ledger = Ledger(engine, journal=journal)
    arrays = target.arrays() if engine.rank == 0 else None
    asked = []

    def read(rows):
        asked.append(rows.start)
        return x[rows], None

    try:
        proxy = share_proxy(target.manifest, ledger=ledger, arrays=arrays)
        reads = read if engine.rank == 1 else None
        scores = score_pool(proxy, len(x), reads, batch_size=10)
        chosen = choose(scores, 7, seed=3, ledger=ledger)
    except KeyboardInterrupt:
        chosen = None
    if finish:
        journal.finish()
    else:
        journal.close()
    return chosen, min(there), asked, ledger.opened


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param((2, 2, 2), marks=pytest.mark.slow),
        pytest.param((3, 2, 2), marks=pytest.mark.slow),
        (6, 5, 6),
    ],
)
def test_a_killed_session_goes_on(tmp_path, stop):
    target, x, _ = random_proxy(probe_manifest(width=6, n_classes=2), n=40, bound=8.0)
    never = (-1, -1, -1)
    (tmp_path / "whole").mkdir()
    whole = play("spu-aby3", run_resumed, tmp_path / "whole", target, x, never, True)
    # A party that is ahead leaves the others waiting: here all end by themselves.
    ends = (max(stop),) * 3
    first = play("spu-aby3", run_resumed, tmp_path, target, x, ends, False)
    assert all(chosen is None for chosen, *_ in first)
    for rank, entries in enumerate(stop):
        for path in (tmp_path / str(rank) / "unfinished").glob("*.entry"):
            assert path.stat().st_mode & 0o777 == 0o600
            if int(path.stem) >= entries:
                path.unlink()
    again = play("spu-aby3", run_resumed, tmp_path, target, x, never, True)
    for found, expected in zip(again, whole, strict=True):
        np.testing.assert_array_equal(found[0].rows, expected[0].rows)
        assert found[0].passes == expected[0].passes
        assert found[1] == min(stop)
        assert found[3] == expected[3]  # what was opened, before and after
    assert again[1][2] == [10 * i for i in range(min(min(stop), 4), 4)]
    assert not [*tmp_path.glob("*/unfinished")]


def test_batches_of_rows_have_few_lengths():
    lengths = {len(padded(np.arange(n), 1000)) for n in range(1, 1001)}
    assert lengths == {
        *(1000, 875, 750, 625, 500, 438, 375, 313, 250, 219, 188, 157),
        *(125, 110, 94, 79),
    }
    assert padded(np.array([4, 7]), 70).tolist()[:3] == [4, 7, 7]
