"""engines.txt pins the engines' wheels by hash, and `make` installs nothing else."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mpc_bridge.engines.crypten import _compat as crypten
from mpc_bridge.engines.spu import _compat as spu

ROOT = Path(__file__).parents[2]
FILE = ROOT / "engines.txt"
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned():
    """Return each requirement of the file and its hashes, by name."""
    lines = [line for line in FILE.read_text().splitlines() if line[:1] != "#"]
    entries = "\n".join(lines).replace("\\\n", " ").splitlines()
    requirements = [Requirement(entry.partition("--hash")[0]) for entry in entries]
    return {
        one.name: (one, _HASH.findall(entry))
        for one, entry in zip(requirements, entries, strict=True)
    }


def test_the_file_pins_the_releases_that_the_bridge_knows():
    known = {"crypten": crypten._KNOWN, "spu": spu._KNOWN}
    versions = {name: str(one.specifier) for name, (one, _) in pinned().items()}
    assert versions == {name: f"=={version}" for name, version in known.items()}
    hashes = [each for _, several in pinned().values() for each in several]
    # Wheels of CPython 3.11 for three platforms, one of 3.10, and CrypTen's.
    assert len(hashes) == len({*hashes}) == 5


@pytest.mark.parametrize(
    ("version", "platform", "machine", "has_wheel"),
    [
        ("3.11", "linux", "x86_64", True),
        ("3.11", "linux", "aarch64", True),
        ("3.11", "darwin", "arm64", True),
        ("3.11", "darwin", "x86_64", False),
        ("3.11", "win32", "AMD64", False),
        ("3.12", "linux", "x86_64", False),
        ("3.13", "darwin", "arm64", False),
    ],
)
def test_spu_is_left_out_where_it_has_no_wheel(version, platform, machine, has_wheel):
    requirement, _ = pinned()["spu"]
    machine = {"sys_platform": platform, "platform_machine": machine}
    assert requirement.marker.evaluate({"python_version": version, **machine}) is (
        has_wheel
    )


def test_make_installs_engines_by_hash_only():
    makefile = (ROOT / "Makefile").read_text()
    assert "ENGINES := --no-deps --require-hashes --requirement engines.txt\n" in (
        makefile
    )
    recipes = [line for line in makefile.splitlines() if line[:1] == "\t"]
    assert sum("$(ENGINES)" in line for line in recipes) == 3
    assert not [line for line in recipes if re.search("(crypten|spu)==", line)]
    # What a failed check of a hash returns must not be ignored.
    assert not [line for line in recipes if line.startswith("\t-$(PIP)")]


@pytest.mark.slow
@pytest.mark.parametrize("tampered", [False, True], ids=["as it was", "another wheel"])
def test_pip_refuses_another_wheel(tmp_path, tampered):
    """With a wheel and a file of one release of nothing, as `make` calls pip."""
    wheel, info = tmp_path / "spu-0.9.5-py3-none-any.whl", "spu-0.9.5.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        metadata = "Metadata-Version: 2.1\nName: spu\nVersion: 0.9.5\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(b"" if tampered else wheel.read_bytes()).hexdigest()
    (tmp_path / "engines.txt").write_text(f"spu==0.9.5 --hash=sha256:{digest}\n")
    options = re.search(r"^ENGINES := (.+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--target", "at"]
    done = subprocess.run(
        [*command, "--find-links", ".", *options.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is tampered, done.stderr
    assert ("DO NOT MATCH THE HASHES" in done.stderr) is tampered
