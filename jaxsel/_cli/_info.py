"""`jaxsel info`: versions and devices, for bug reports."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform

from ._output import say
from ._parser import Commands, Parser

_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "jinja2",
    "scikit-learn",
    "tensorflow-datasets",
    "array-record",
    "safetensors",
    "tokenizers",
)

_DESCRIPTION = """\
Show versions, devices, and whether the compiled operations are available. Please put
it into bug reports."""


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "info", help="versions and devices", description=_DESCRIPTION
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    del args
    import jax

    from jaxsel import __version__, _native

    devices = ", ".join(
        f"{device.platform}:{device.id} ({device.device_kind})"
        for device in jax.devices()
    )
    compiled = "available"
    if not _native.available():
        built = _native.LIBRARY.exists()
        compiled = "not loaded" if built else "not built; pure JAX takes their place"
    facts = {
        "jaxsel": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        **{name: _version(name) for name in _PACKAGES},
        "devices": devices,
        "compiled operations": compiled,
    }
    say(*(f"{key:<20} {value}" for key, value in facts.items()))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
