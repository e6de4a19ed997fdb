"""Experiments that tests send to other processes."""

import os
import signal
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np


def make(folder, deadly):
    """Return two experiments that note when they begin, and may end their process.

    Args:
        folder: Where they note it.
        deadly: "never", "once", or "always", of the second one's seed 1.
    """
    folder, parent = Path(folder), os.getpid()
    caller = int((folder / "parent").read_text())

    def random(seed):
        (folder / f"random-{seed}-{time.time_ns()}").touch()
        if parent != caller:
            time.sleep(0.3)  # no worker does it all before another has begun
        x = jax.random.normal(jax.random.key(seed), (300, 40))
        return {"x": jnp.linalg.svd(x)[1], "process": os.getpid()}

    def dies(seed):
        before = [*folder.glob(f"dies-{seed}-*")]
        (folder / f"dies-{seed}-{time.time_ns()}").touch()
        again = ("always",) if before else ("once", "always")
        if parent != caller and seed == 1 and deadly in again:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": np.arange(3.0) + seed, "process": os.getpid()}

    return {"random": random, "dies": dies}


def fails(folder, deadly):
    """Return an experiment that raises for seed 1."""
    del folder, deadly

    def one(seed):
        if seed == 1:
            raise InterruptedError(f"told to, in seed {seed}")
        return {"x": np.arange(seed)}

    return {"one": one}
