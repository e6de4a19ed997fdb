"""The secure run of a selection, as two parties and a dealer on this machine."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import tempfile
import time
from pathlib import Path

import numpy as np

from jaxsel.models import Target
from jaxsel.proxy import Phased, Samples


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateRun:
    """What came of a selection in secret.

    Attributes:
        rows: Rows of the pool that were chosen, ascending.
        mean: The chosen rows' mean score, the only score that was opened: of two
            classes an entropy, in nats.
        seconds: Wall clock: samples embedded, three processes started and ended.
        megabytes: Payload between the two parties: sent plus received by one.
        rounds: Messages between them.
        dealer_megabytes: Of the third party's correlated randomness.
        compared: Outcomes of comparisons that were opened, in each phase.
    """

    rows: np.ndarray
    mean: float
    seconds: float
    megabytes: float
    rounds: int
    dealer_megabytes: float
    compared: tuple[int, ...]


def private_ready() -> bool:
    """Return whether the secure phase is installed beside jaxsel."""
    wanted = ("mpc_bridge", "torch", "crypten", "safetensors")
    return all(importlib.util.find_spec(name) is not None for name in wanted)


def run_private(
    found: Phased, pool: Samples, base: Target, *, seed: int = 0
) -> PrivateRun:
    """Choose again what `select` has chosen in the clear, but in secret.

    Args:
        found: The selection, with its proxies.
        pool: The data owner's samples.
        base: The public base model that embeds them.
        seed: Of the pivots, public.

    Raises:
        RuntimeError: If the run fails; with what each role said.
    """
    # By name, when it is there: jaxsel works without the secure phase.
    bridge = importlib.import_module("mpc_bridge")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        bridge.run_selection(
            found,
            pool,
            base=base,
            name="demo",
            seed=seed,
            appraisal="mean",
            output=folder,
            notice=False,
        )
        seconds = time.perf_counter() - start
        result = bridge.Result.read(Path(folder) / "model-owner")
    total = result.total()
    return PrivateRun(
        rows=np.asarray(result.rows),
        mean=result.appraisal,
        seconds=seconds,
        megabytes=total.bytes / 1e6,
        rounds=total.rounds,
        dealer_megabytes=total.dealer_bytes / 1e6,
        compared=tuple(phase.comparisons for phase in result.phases),
    )
