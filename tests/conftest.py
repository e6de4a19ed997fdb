"""Eight CPU devices in every test process, so that sharding is always exercised."""

import os

import jax

# Before anything creates a device.
jax.config.update("jax_num_cpu_devices", 8)
os.environ.setdefault("MPLBACKEND", "Agg")
