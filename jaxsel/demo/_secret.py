"""A selection under two-party computation, with all its roles on this machine."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel.models import Target
from jaxsel.proxy import Phased, Samples
from jaxsel.report import Table


def run_private(
    phased: Phased, pool: Samples, base: Target, phase: Any, *, seed: int = 0
) -> dict[str, Any]:
    """Repeat a selection of `select`, of a pool that `base` embeds, in secret.

    Raises:
        RuntimeError: If the run fails; with the output of each role.
    """
    # By name, when it is there: jaxsel works without the secure phase.
    bridge = importlib.import_module("mpc_bridge")
    with tempfile.TemporaryDirectory() as folder:
        bridge.run_selection(
            phased,
            pool,
            base=base,
            engine=phase.engine,
            name="demo",
            seed=seed,
            appraisal="mean",
            output=folder,
            batch_size=32,  # a small machine has the memory for it
            timeout=600.0,  # the roles share the cores with each other, and others
            notice=False,
            python=phase.python,
        )
        result, other = (
            bridge.Result.read(Path(folder) / name)
            for name in ("model-owner", "data-owner")
        )
    return private_run(result, other)


def private_run(result: Any, other: Any) -> dict[str, Any]:
    """Return figures of the model owner's and the data owner's `mpc_bridge.Result`.

    Megabytes are payload; `compared` counts outcomes that were opened, by phase.
    """
    total = result.total()
    sides = [_side(result), _side(other)]
    return {
        "engine": result.engine,
        "rows": np.asarray(result.rows),
        "mean": result.appraisal,
        "seconds": max(result.seconds, other.seconds),
        "megabytes": sum(side["sent"] for side in sides),
        "rounds": total.rounds,
        "dealer_megabytes": total.dealer_bytes / 1e6,
        "compared": tuple(phase.comparisons for phase in result.phases),
        "model_owner": sides[0],
        "data_owner": sides[1],
    }


def _side(result: Any) -> dict[str, Any]:
    total = result.total()
    return {
        "sent": total.sent / 1e6,
        "received": (total.bytes - total.sent) / 1e6,  # from a helper as well
        "opened": tuple(reveal.opened for reveal in result.reveals),
        "recovered": tuple(reveal.recovered for reveal in result.reveals),
        "attacked": tuple(reveal.rows for reveal in result.reveals),
        "seconds": result.seconds,  # from its start to its result
        "working": total.seconds,  # of these in steps
    }


def sides_table(run: Mapping[str, Any], *, offered: int) -> Table:
    """Return a table of the data that each side of a secure run received and saw."""
    data = run["data_owner"]
    sides, mean = (run["model_owner"], data), run["mean"]
    opened = f"{_phases(data['opened'])}; at the end, their mean score: {mean:.3f}"
    attacks = _phases([*map(_recovered, data["recovered"], data["attacked"])])
    rows = [
        ("kept to itself", "the proxies' weights", f"{offered:,} samples, embedded"),
        ("received", *(f"{s['received']:,.1f} MB that look random" for s in sides)),
        ("saw opened", opened, opened),
        ("could recover", "where each row ranks, and nothing that is in it", attacks),
        ("seconds, with set-up", *(f"{side['seconds']:,.1f}" for side in sides)),
        ("seconds, without", *(f"{side['working']:,.1f}" for side in sides)),
    ]
    return Table(
        columns=("", "Model owner", "Data owner"),
        rows=rows,
        formats=("", "", ""),
        caption="What each side of the secure run saw. After the run the data owner "
        "has attacked the proxies with the answer, on its own samples: the rank "
        "correlation is that of the best attack's scores with what was opened of "
        "samples that it held out; 1 ranks as the proxy does, 0 knows nothing of it.",
    )


def _phases(texts: Sequence[str]) -> str:
    return "; ".join(f"phase {i + 1}: {text}" for i, text in enumerate(texts))


def _recovered(correlation: float | None, rows: int) -> str:
    if correlation is None:
        return "not attacked, too few samples"
    return f"a ranking, rank correlation {correlation:.2f} ({rows:,} samples attacked)"
