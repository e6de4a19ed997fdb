"""Comparisons of every engine by the million, of all sizes and near ties.

JAXSEL_COMPARISONS says how many; Cheetah, which is slow, makes fewer unless it is set.
"""

import dataclasses
import os
from typing import ClassVar

import numpy as np
import pytest
from parties import both, needs_spu

from mpc_bridge.engines import Program

pytestmark = [pytest.mark.mpc, pytest.mark.multihost, pytest.mark.slow]
FEW = {"spu-cheetah": 40_000, "spu-aby3": 1_000_000, "crypten": 1_000_000}
PIECE = 50_000


def counts(engine):
    """Return the sizes of the pieces that are compared one after the other."""
    whole = int(os.environ.get("JAXSEL_COMPARISONS", FEW[engine]))
    return [min(PIECE, whole - start) for start in range(0, whole, PIECE)]


def numbers(seed, n, bits):
    """Return n ring elements: ties, near ones, and of every size up to 2^52."""
    rng = np.random.default_rng(seed)
    size = 2.0 ** rng.uniform(0, 52, n)
    ring = np.round(size * rng.choice([-1, 1], n))
    near = rng.random(n) < 0.25
    ring[near] = rng.integers(-3, 4, near.sum())
    return ring / 2.0**bits


@dataclasses.dataclass(frozen=True)
class Compare(Program):
    place: ClassVar[str] = "test"
    name: ClassVar[str] = "compare"

    def steps(self, cat, *operands):
        from jaxsel.proxy import Call

        return (yield Call(self.place, self.name, "nonnegative", operands))


def wrong_on_spu(engine, sizes, bits):
    from test_spu_engines import shared

    from mpc_bridge import Ledger

    ledger, wrong = Ledger(engine, allow=("pivot",)), 0
    for seed, n in enumerate(sizes):
        values = numbers(seed, n, bits)
        found = ledger.open("pivot", ledger.run(Compare(), shared(ledger, values)))
        wrong += int((found.astype(bool) != (values >= 0)).sum())
    return wrong


@needs_spu
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_no_comparison_on_spu_is_wrong(engine):
    from spu_parties import BITS, play

    for wrong in play(engine, wrong_on_spu, counts(engine), BITS):
        assert wrong == 0


def wrong_on_crypten(rank, sizes, bits):
    import torch

    import mpc_bridge

    crypten, wrong = mpc_bridge.import_crypten(), 0
    for seed, n in enumerate(sizes):
        values = numbers(seed, n, bits)
        secret = crypten.cryptensor(torch.tensor(values), src=0)
        found = secret.ge(0).get_plain_text().numpy() > 0.5
        wrong += int((found != (values >= 0)).sum())
    return wrong


def test_no_comparison_on_crypten_is_wrong():
    sizes = counts("crypten")
    # A call may take 120 seconds.
    found = [
        both(wrong_on_crypten, sizes[i : i + 4], 16) for i in range(0, len(sizes), 4)
    ]
    assert {wrong for pair in found for wrong in pair} == {0}
