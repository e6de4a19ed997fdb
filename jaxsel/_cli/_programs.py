"""JAX's persistent compilation cache, which the command line enables."""

from __future__ import annotations

import os
import tempfile
import warnings

import jax

from jaxsel._files.folders import cache_folder

_FOLDER = "jax_compilation_cache_dir"
_KEEP_SMALL = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def keep_programs() -> str | None:
    """Enable JAX's persistent compilation cache, in the user's cache folder.

    A folder that the user has set, as by `JAX_COMPILATION_CACHE_DIR`, is used instead,
    and so are other settings of JAX's cache in the environment. A folder that can't be
    written is left alone: JAX would warn of each program.

    Returns:
        Why no programs are kept, or None if they are.
    """
    for name, value in _KEEP_SMALL.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    folder = getattr(jax.config, _FOLDER) or str(cache_folder("programs"))
    ignore_failures()
    problem = None
    if "://" not in folder:  # a bucket is JAX's own business
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(b"some bytes")
        except OSError as error:
            problem = f"{error.strerror}: {folder}"
    jax.config.update(_FOLDER, folder if problem is None else None)
    return problem


def ignore_failures() -> None:
    """Turn off JAX's warnings, one a program, of a folder that has become full."""
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache"
    )


def keep_no_programs() -> None:
    """Disable JAX's persistent compilation cache, whatever the user has set."""
    jax.config.update("jax_enable_compilation_cache", False)
