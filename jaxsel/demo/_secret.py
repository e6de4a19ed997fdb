"""The secure run of a selection, as two parties and a dealer on this machine."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel.models import Target
from jaxsel.proxy import Phased, Samples, proxy_inputs, save_proxy

_LAST_WORDS = 2000  # characters of a failed run's output that are shown
_PATIENCE = 1200  # seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateRun:
    """What came of a selection in secret.

    Attributes:
        rows: Rows of the pool that were chosen, ascending.
        mean: The chosen rows' mean score, the only score that was opened: of two
            classes an entropy, in nats.
        seconds: Wall clock, three processes started and ended.
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
    found: Phased, pool: Samples, base: Target, folder: Path, *, seed: int = 0
) -> PrivateRun:
    """Choose again what `select` has chosen in the clear, but in secret.

    Both parties' files go to the folder; `python -m mpc_bridge local` runs the model
    owner, the data owner and the third party as processes on loopback.

    Args:
        found: The selection, with its proxies.
        pool: The data owner's samples.
        base: The public base model, that embeds them.
        folder: Where the parties' files go.
        seed: Of the pivots, public.

    Raises:
        RuntimeError: If the run fails; with what it said.
    """
    phases, inputs = [], []
    for i, (proxy, rows) in enumerate(zip(found.proxies, found.survivors, strict=True)):
        place = save_proxy(proxy, folder / f"phase-{i}")
        phases.append({"manifest": f"{place.name}/manifest.json", "keep": len(rows)})
        if not proxy.manifest.layers:
            assert pool.features is not None
            arrays = {"x": pool.features}
        else:
            x, mask = proxy_inputs(proxy.manifest, base, pool.inputs)
            arrays = {"x": x, "mask": mask}
        for name, array in arrays.items():
            np.save(folder / f"{name}-{i}.npy", array)
        inputs.append({name: f"{name}-{i}.npy" for name in arrays})
    np.save(folder / "bought.npy", found.bootstrap)
    tables = {
        "session": {
            "name": "demo",
            "seed": seed,
            "rendezvous": "tcp://127.0.0.1:0",
            "samples": found.n,
            "exclude": "bought.npy",
        },
        "appraisal": {"mode": "mean"},
        "model_owner": {
            "weights": [f"phase-{i}" for i in range(len(phases))],
            "output": "model-owner",
        },
        "data_owner": {"output": "data-owner"},
    }
    lines = [_table(f"[{name}]", entries) for name, entries in tables.items()]
    lines += [_table("[[data_owner.inputs]]", entries) for entries in inputs]
    lines += [_table("[[phases]]", entries) for entries in phases]
    (folder / "run.toml").write_text("\n".join(lines), "utf-8")
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "mpc_bridge", "local", "--config", "run.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    if run.returncode:
        raise RuntimeError(f"the secure run failed: {run.stderr[-_LAST_WORDS:]}")
    seconds = time.perf_counter() - start
    result = json.loads((folder / "model-owner" / "result.json").read_text("utf-8"))
    total = result["total"]
    return PrivateRun(
        rows=np.asarray(result["rows"]),
        mean=result["appraisal"],
        seconds=seconds,
        megabytes=total["bytes"] / 1e6,
        rounds=total["rounds"],
        dealer_megabytes=total["dealer_bytes"] / 1e6,
        compared=tuple(phase["comparisons"] for phase in result["phases"]),
    )


def _table(header: str, entries: dict[str, Any]) -> str:
    # Texts, numbers and lists of texts are written alike in TOML and JSON.
    return "\n".join([header, *(f"{k} = {json.dumps(v)}" for k, v in entries.items())])
