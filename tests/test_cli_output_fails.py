"""Full disks, closed pipes, and numbers that no option takes."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxsel import Values
from jaxsel._files.staged import staged
from jaxsel.cli import main


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill(first, second):
    first.write_text("a")
    os.utime(first, (0, 0))
    second.write_text("b")
    full()


def test_a_full_disk_names_the_file_and_leaves_nothing():
    out = Path("new", "inner")
    files = [out / "a.csv", out / "b.html"]
    with pytest.raises(OSError, match="No space.*b.html") as error:  # noqa: SIM117
        with staged(files, folder=out) as parts:
            fill(*parts)
    assert error.value.filename == os.fspath(files[1])
    assert not Path("new").exists()


def test_a_folder_that_was_there_stays():
    Path("old").mkdir()
    with pytest.raises(OSError, match=r"old/a\.csv"):  # noqa: SIM117
        with staged([Path("old/a.csv")], folder=Path("old")):
            full()
    assert Path("old").is_dir()


def test_results_name_their_file(monkeypatch):
    values = Values(values=np.zeros(3), count=np.array(1))
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match=r"No space.*v\.npz"):
        values.save("v.npz")
    assert not list(Path().iterdir())


@pytest.mark.parametrize("k", ["1e20", "nan", "ten", "1.5", "1e400"])
def test_counts_are_whole_numbers(k, capsys):
    with pytest.raises(SystemExit):
        main(["value", "a.npz", "b.npz", "--out", "o.npz", "--k", k])
    assert f"--k: must be a whole number, got {k!r}" in capsys.readouterr().err


def test_numbers_beyond_all_counts(capsys):
    with pytest.raises(SystemExit):
        main(["errors", "t.csv", "--label", "a", "--out", "e", "--folds", "9" * 25])
    assert "--folds: must be at most 9223372036854775807" in capsys.readouterr().err


def command(text):
    line = f"{sys.executable} -m jaxsel {text}"
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, timeout=100
    )


@pytest.mark.left_out
def test_closed_output_ends_quietly():
    assert command("info >&-").stderr == ""
    done = command("--help | true; exit ${PIPESTATUS[0]}")
    assert (done.returncode in (0, 120, 141), done.stderr) == (True, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="of Linux")
@pytest.mark.left_out
def test_full_output_is_named():
    done = command("info > /dev/full")
    assert done.returncode == 2
    assert "No space left on device: standard output" in done.stderr
