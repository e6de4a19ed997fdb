"""The build hook: a wheel is for one platform if something was compiled, or for all."""

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tree(tmp_path):
    """A copy of what a build needs, with a library that an earlier build has left."""
    files = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore")
    for name in files:
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "jaxsel/_native", tmp_path / "jaxsel/_native")
    shutil.copy(ROOT / "jaxsel/_version.py", tmp_path / "jaxsel")
    (tmp_path / "jaxsel/_native/kernels.so").write_text("of an earlier build")
    (tmp_path / "mpc_bridge").mkdir()
    return tmp_path


def hatch(tree, target, compiler):
    """Return the wheel or sdist that is built."""
    folder = tree / "dist" / target
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder],
        cwd=tree,
        env=os.environ | {"CXX": str(compiler)},
        check=True,
        capture_output=True,
    )
    (built,) = folder.iterdir()
    return built


def build(tree, compiler):
    """Return the wheel's tags and the bytes of its library, None without."""
    wheel = hatch(tree, "wheel", compiler)
    *_, tags = parse_wheel_filename(wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        library = "jaxsel/_native/kernels.so"
        found = archive.read(library) if library in archive.namelist() else None
    return {(tag.interpreter, tag.abi, tag.platform) for tag in tags}, found


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_what_is_compiled_serves_every_python_of_one_platform(tree):
    writes = 'while [ "$1" != -o ]; do shift; done; echo compiled > "$2"'
    tags, library = build(tree, script(tree / "compiler", writes))
    ((interpreter, abi, platform),) = tags
    assert (interpreter, abi) == ("py3", "none")
    # auditwheel may promise more than the machine on which it was built, the hook not.
    assert platform.startswith(("linux_", "macosx_", "win"))
    assert library == b"compiled\n"


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "is missing"])
def test_without_a_compiler_the_wheel_is_pure(tree, fails):
    compiler = tree / "compiler"
    tags, library = build(tree, script(compiler, "exit 1") if fails else compiler)
    assert tags == {("py3", "none", "any")}
    assert library is None


def test_wheel_and_sdist_have_the_templates_of_reports(tree):
    source = ROOT / "jaxsel/report"
    shutil.copytree(source, tree / "jaxsel/report")
    templates = {
        file.relative_to(ROOT).as_posix(): file.read_bytes()
        for file in source.rglob("*")
        if file.suffix in (".html", ".css")
    }
    assert len(templates) == 3
    wheel = hatch(tree, "wheel", tree / "compiler")
    with zipfile.ZipFile(wheel) as archive:
        assert templates == {name: archive.read(name) for name in templates}
    sdist = hatch(tree, "sdist", tree / "compiler")
    with tarfile.open(sdist) as archive:
        inside = {
            name: archive.extractfile(f"{sdist.name[: -len('.tar.gz')]}/{name}").read()
            for name in templates
        }
    assert inside == templates
