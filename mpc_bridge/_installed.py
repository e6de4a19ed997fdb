"""The engine that is installed, here or in another environment."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys

from ._interpreter import check_python


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecurePhase:
    """Engine of a choice in secret, its interpreter, and why it is not SPU's."""

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
    """Return SPU's engine if it is installed, here or with `python`, else another's.

    With a helper: by Cheetah, without one, a text of the second phase takes many times
    as long, and 90 MB of memory.

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
        path = check_python(python, "spu-aby3")
        return SecurePhase(engine="spu-aby3", python=path)
    engine = "crypten" if _installed("crypten") and _installed("torch") else None
    return SecurePhase(engine=engine, missing=missing)


def _installed(name: str) -> bool:
    needed = ("safetensors", name)
    return all(importlib.util.find_spec(module) is not None for module in needed)
