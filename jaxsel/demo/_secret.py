"""The secure run of a selection, with all its roles on this machine."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel.models import Target
from jaxsel.proxy import Phased, Samples
from jaxsel.report import Table

_BATCH = 32  # texts: a small machine has the memory for it
_PATIENCE = 600.0  # seconds: the roles share the cores with each other, and others


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One party's side of a secure run, of its own result.

    Attributes:
        sent: Payload that it sent to the others, in megabytes.
        received: Payload that it received, in megabytes, from a helper as well.
        opened: Values that it saw opened, in words, by phase.
        recovered: The best rank correlation of its attacks on the proxies, by phase;
            None where it attacked nothing.
        attacked: Rows used by these attacks, by phase.
        seconds: Wall-clock from its start to its result.
        working: Seconds of these in steps: sharing, computing, messages.
    """

    sent: float
    received: float
    opened: tuple[str, ...]
    recovered: tuple[float | None, ...]
    attacked: tuple[int, ...]
    seconds: float
    working: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateRun:
    """Results of a selection under two-party computation.

    Attributes:
        engine: "spu-aby3" or "crypten".
        rows: Rows of the pool that were chosen, ascending.
        mean: The chosen rows' mean score, the only score that was opened: for two
            classes an entropy, in nats.
        seconds: Wall clock of the slower party, from its start to its result.
        megabytes: Payload that the two owners sent, to each other and to a helper.
        rounds: Messages that the model owner waited for.
        dealer_megabytes: Correlated randomness from CrypTen's third party.
        compared: Outcomes of comparisons that were opened, in each phase.
        model_owner, data_owner: Their sides.
    """

    engine: str
    rows: np.ndarray
    mean: float
    seconds: float
    megabytes: float
    rounds: int
    dealer_megabytes: float
    compared: tuple[int, ...]
    model_owner: Side
    data_owner: Side


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecurePhase:
    """Engine and interpreter of a choice in secret.

    Attributes:
        engine: "spu-aby3" or "crypten"; None if neither is installed.
        python: Interpreter of the environment that has it; None for this process's.
        missing: Why it is not SPU's; empty if it is.
    """

    engine: str | None
    python: str | None = None
    missing: str = ""

    def notices(self) -> list[str]:
        """Return notices to a user who expects a choice in secret on SPU."""
        if self.engine is None:
            return [f"Nothing was chosen in secret. {self.missing}"]
        if self.engine == "crypten":
            return [
                "That ran on CrypTen, for measurement only: it protects nothing. "
                f"{self.missing}"
            ]
        return []


def secure_phase(python: str | None = None) -> SecurePhase:
    """Return SPU's engine if it is installed, here or there, else CrypTen's or none.

    With a helper: by Cheetah, without one, a text of the second phase takes many times
    as long, and 90 MB of memory.

    Args:
        python: Interpreter of another environment that may have SPU.

    Raises:
        ImportError: If this environment lacks packages that hand over to the other.
        ValueError: If the other one can't run SPU: with the reason.
    """
    if _installed("cryptography") and _installed("spu"):
        return SecurePhase(engine="spu-aby3")
    version = ".".join(map(str, sys.version_info[:2]))
    if sys.version_info >= (3, 12):
        missing = (
            f"SPU has no wheel for Python {version}: `make secure` installs it with a "
            "Python 3.11, which `make demo` then takes"
        )
    else:
        missing = "SPU is not installed: `make demo` installs it where it has a wheel"
    if python is not None:
        if not _installed("cryptography"):
            raise ImportError(
                "python is for an environment that has the bridge's packages as well: "
                "pip install 'jaxsel[spu]'"
            )
        interpreter = importlib.import_module("mpc_bridge._interpreter")
        path = interpreter.check_python(python, "spu-aby3")
        return SecurePhase(engine="spu-aby3", python=path)
    engine = "crypten" if _installed("crypten") and _installed("torch") else None
    return SecurePhase(engine=engine, missing=missing)


def _installed(name: str) -> bool:
    needed = ("mpc_bridge", "safetensors", name)
    return all(importlib.util.find_spec(module) is not None for module in needed)


def run_private(
    found: Phased,
    pool: Samples,
    base: Target,
    *,
    engine: str,
    python: str | None = None,
    seed: int = 0,
) -> PrivateRun:
    """Repeat a selection of `select` under two-party computation.

    Args:
        found: The selection, with its proxies.
        pool: The data owner's samples.
        base: The public base model that embeds them.
        engine: Engine to run on, of `secure_phase`.
        python: Interpreter that runs the roles; None takes this process's.
        seed: Public seed of the pivots.

    Raises:
        RuntimeError: If the run fails; with the output of each role.
    """
    # By name, when it is there: jaxsel works without the secure phase.
    bridge = importlib.import_module("mpc_bridge")
    with tempfile.TemporaryDirectory() as folder:
        bridge.run_selection(
            found,
            pool,
            base=base,
            engine=engine,
            name="demo",
            seed=seed,
            appraisal="mean",
            output=folder,
            batch_size=_BATCH,
            timeout=_PATIENCE,
            notice=False,
            python=python,
        )
        result, other = (
            bridge.Result.read(Path(folder) / name)
            for name in ("model-owner", "data-owner")
        )
    return private_run(result, other)


def private_run(result: Any, other: Any) -> PrivateRun:
    """Combine both parties' results of a run.

    Args:
        result: The model owner's `mpc_bridge.Result`.
        other: The data owner's.
    """
    total = result.total()
    sides = _side(result), _side(other)
    return PrivateRun(
        engine=result.engine,
        rows=np.asarray(result.rows),
        mean=result.appraisal,
        seconds=max(result.seconds, other.seconds),
        megabytes=sum(side.sent for side in sides),
        rounds=total.rounds,
        dealer_megabytes=total.dealer_bytes / 1e6,
        compared=tuple(phase.comparisons for phase in result.phases),
        model_owner=sides[0],
        data_owner=sides[1],
    )


def _side(result: Any) -> Side:
    total = result.total()
    return Side(
        sent=total.sent / 1e6,
        received=(total.bytes - total.sent) / 1e6,
        opened=tuple(reveal.opened for reveal in result.reveals),
        recovered=tuple(reveal.recovered for reveal in result.reveals),
        attacked=tuple(reveal.rows for reveal in result.reveals),
        seconds=result.seconds,
        working=total.seconds,
    )


def sides_table(run: PrivateRun, *, offered: int) -> Table:
    """Return a table of the data that each side of a secure run received and saw.

    Args:
        run: The run.
        offered: Samples that were scored.
    """
    model, data = run.model_owner, run.data_owner
    opened = _phases(data.opened) + f"; at the end, their mean score: {run.mean:.3f}"
    rows = [
        ("kept to itself", "the proxies' weights", f"{offered:,} samples, embedded"),
        (
            "received",
            f"{model.received:,.1f} MB that look random",
            f"{data.received:,.1f} MB that look random",
        ),
        ("saw opened", opened, opened),
        (
            "could recover",
            "where each row ranks, and nothing that is in it",
            _phases(
                [
                    _recovered(correlation, rows)
                    for correlation, rows in zip(
                        data.recovered, data.attacked, strict=True
                    )
                ]
            ),
        ),
        (
            "seconds, with set-up",
            f"{model.seconds:,.1f}",
            f"{data.seconds:,.1f}",
        ),
        ("seconds, without", f"{model.working:,.1f}", f"{data.working:,.1f}"),
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
