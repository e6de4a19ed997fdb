"""Build hook: compile the optional C++ operations where a compiler is at hand.

Without one, or with one that fails, the package installs as pure Python and says so.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("jaxsel/_native")


class CompileNative(BuildHookInterface):
    """Add `kernels.so` to the wheel, and mark the wheel as one for this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        library = compile_native(Path(self.root))
        if library is None:
            self.app.display_warning("nothing was compiled: pure JAX only")
            return
        build_data["artifacts"].append(library.relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        # XLA calls the library, not Python: one wheel serves every Python. With which
        # other C libraries it runs (manylinux) is for auditwheel to say.
        here = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
        build_data["tag"] = f"py3-none-{here}"


def compile_native(root: Path) -> Path | None:
    """Compile in place, or return None where that cannot be done."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    jaxlib = importlib.util.find_spec("jaxlib")
    if compiler is None or jaxlib is None or jaxlib.origin is None:
        return None
    include = Path(jaxlib.origin).parent / "include"
    target = root / NATIVE / "kernels.so"
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        built = Path(folder) / target.name
        command = [compiler, "-O3", "-std=c++17", "-fPIC", "-shared", "-w"]
        command += [f"-I{include}", "-o", str(built)]
        result = subprocess.run(
            [*command, str(root / NATIVE / "kernels.cc")],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            print(result.stderr[-2000:], file=sys.stderr)  # noqa: T201
            return None
        built.replace(target)
    return target
