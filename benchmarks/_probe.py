"""Peak memory and compile time of one contender, in a process of its own.

`python -m benchmarks._probe MODULE CASE CONTENDER [--quick]` writes one line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from ._case import Case, Contender
from ._machine import ROOT

_STATUS = Path("/proc/self/status")


def probe(module: str, case: str, contender: str, *, quick: bool) -> dict[str, Any]:
    """Measure a contender in a fresh process.

    Args:
        module: Where `cases(quick=...)` is found.
        case: Its name.
        contender: Its name.
        quick: Passed to `cases`.

    Returns:
        `peak_bytes`: the most memory in use during the first two calls, above what was
        in use once the inputs were made and the runtime was warm; None where it is not
        known, as of other libraries on accelerators. It includes the results and what
        compilation takes. `compile_s`: seconds in which JAX traced, lowered and
        compiled, without the persistent cache; None if it did not. Or `probe_error`, if
        the process failed.
    """
    command = [sys.executable, "-m", "benchmarks._probe", module, case, contender]
    if quick:
        command.append("--quick")
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"probe_error": lines[-1] if lines else f"exit {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def block(result: Any) -> Any:
    """Wait until `result` is computed, where JAX computes it."""
    jax = sys.modules.get("jax")
    return jax.block_until_ready(result) if jax else result


def _measure(case: Case, contender: Contender) -> dict[str, Any]:
    block(contender.make(case.tiny())())
    call = contender.make(case.inputs())
    gc.collect()
    seconds = _compile_seconds()
    before, memory = _in_use(), _Peak()
    for _ in range(2):
        block(call())
    peak = memory.read()
    if _device_stats() and peak == before:
        peak = None  # the device's memory is not JAX's to count: another library's
    return {
        "compile_s": sum(seconds) if seconds else None,
        "peak_bytes": None if peak is None or before is None else peak - before,
    }


def _compile_seconds() -> list[float]:
    """Return a list to which JAX appends each compilation's seconds from here on."""
    seconds: list[float] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            seconds.append(duration)

    jax = sys.modules.get("jax")
    if jax:
        jax.monitoring.register_event_duration_secs_listener(listen)
    return seconds


class _Peak:
    """The most memory in use since it was made."""

    def __init__(self) -> None:
        # Linux forgets the peak so far, as far as it is asked to: the peak of making
        # the inputs. Where it refuses, the figure is too high, never too low.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def read(self) -> int | None:
        stats = _device_stats()
        return stats["peak_bytes_in_use"] if stats else _status("VmHWM")


def _in_use() -> int | None:
    stats = _device_stats()
    if stats:
        return stats["bytes_in_use"]
    # Freed memory that malloc keeps would hide what the calls take from it.
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim:
            trim(0)
    return _status("VmRSS")


def _device_stats() -> dict[str, int] | None:
    """Return the statistics of an accelerator's allocator; None on a CPU."""
    jax = sys.modules.get("jax")
    return jax.devices()[0].memory_stats() if jax else None


def _status(field: str) -> int | None:
    try:
        text = _STATUS.read_text()
    except OSError:
        return None
    match = re.search(rf"^{field}:\s*(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _main(module: str, case_name: str, contender_name: str, *flags: str) -> None:
    cases = importlib.import_module(module).cases(quick="--quick" in flags)
    case = next(c for c in cases if c.name == case_name)
    contender = next(c for c in case.contenders if c.name == contender_name)
    print(json.dumps(_measure(case, contender)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
