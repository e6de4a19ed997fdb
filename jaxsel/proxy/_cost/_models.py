"""Formulae of SPU's engines, by the name of each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from jaxsel._inputs.show import brief
from jaxsel.proxy._manifest import Manifest

from . import _aby3, _cheetah
from ._operands import Operation
from ._schedule import Operations, owned_schedule
from ._traffic import EngineName, Traffic


@brief
@dataclasses.dataclass(frozen=True)
class Model:
    """An engine of SPU.

    Attributes:
        parties: How many compute.
        private: Ranks of the owners whose arrays never leave them.
        spread: Ranks of the owners whose arrays become shares before they are used.
        traffic: From an operation and the samples of a batch to its traffic.
        started: Traffic of meeting and making keys, once a session.
        spare_bits: By how many bits its runs fold attention's weights larger.
        lanes: Batches at once, where an operation waits for each sample apart.
    """

    parties: int
    private: tuple[int, ...]
    spread: tuple[int, ...]
    traffic: Callable[[Operation, int], Traffic]
    started: Traffic
    spare_bits: int = 4
    lanes: int = 1

    def lanes_for(self, operations: Operations) -> int:
        """Return how many batches its runs have under way at once."""
        # The products of a batch are made one after the other.
        by_sample = any(
            operation.kind == "matmul"
            and all(shape[0] == -1 for shape in operation.shapes)
            for operation in operations
        )
        return self.lanes if by_sample else 1

    def schedule(self, manifest: Manifest) -> Operations:
        """Return the operations of a forward pass."""
        return owned_schedule(
            manifest, self.private, self.spread, spare_bits=self.spare_bits
        )


_NOTHING = Traffic.equal(0, 0, parties=3)
MODELS: dict[EngineName, Model] = {
    "spu-cheetah": Model(2, (0, 1), (), _cheetah.traffic, _cheetah.STARTED),
    "spu-aby3": Model(3, (), (1,), _aby3.traffic, _NOTHING, lanes=8),
    "spu-aby3-128": Model(
        3,
        (),
        (1,),
        functools.partial(_aby3.traffic, ring=128),
        _NOTHING,
        spare_bits=0,
        lanes=8,
    ),
}
