"""Eight CPU devices in every test process, so that sharding is always exercised."""

import os

import jax

# Before anything creates a device.
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time, half of it for LLVM's optimisations. Give XLA_FLAGS,
# be it empty, to test what they make of the code, as users run it.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("MPLBACKEND", "Agg")
