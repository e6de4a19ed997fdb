"""The cases of an accelerator: named as benchmarks name them, resumed by record."""

import importlib
import json

import pytest

from benchmarks import accelerator
from benchmarks._machine import describe


def test_each_case_is_one_of_its_benchmark():
    for room in {cell.room for cell in accelerator.CELLS}:
        module = importlib.import_module(f"benchmarks.bench_{room}")
        names = {case.name for case in module.cases(quick=True)}
        assert {c.case for c in accelerator.CELLS if c.room == room} <= names
    assert len(set(accelerator.CELLS)) == len(accelerator.CELLS)


def test_every_case_that_waits_for_a_gpu_is_among_them():
    rooms = ("knn", "match", "retrieve", "filter", "retrain", "proxy", "attribute")
    for room in rooms:
        module = importlib.import_module(f"benchmarks.bench_{room}")
        for case in module.cases(quick=True):
            if "gpu" in case.platforms:
                assert accelerator.Cell(room, case.name) in accelerator.CELLS


def record(here, room, case, **changes):
    return {
        **here,
        "bench": room,
        "quick": False,
        "cases": [{"name": case, "contenders": []}],
    } | changes


def test_cases_with_a_record_of_this_revision_and_device_are_left_out():
    here = describe()
    done = record(here, "knn", "gpu")
    older = record(here, "match", "food", revision="0123456789ab")
    other = here["device"] | {"kind": "another"}
    elsewhere = record(here, "retrain", "mlp", device=other)
    left = accelerator.todo([done, older, elsewhere], here)
    assert accelerator.Cell("knn", "gpu") not in left
    assert left == [c for c in accelerator.CELLS if c != accelerator.Cell("knn", "gpu")]


def test_without_an_accelerator_it_says_so(capsys, tmp_path):
    if describe()["device"]["platform"] != "cpu":
        pytest.skip("there is an accelerator")
    assert accelerator.main(["--out", str(tmp_path / "out")]) == 2
    assert "jax[cuda13]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_case_is_begun_when_time_is_up(capsys, tmp_path):
    status = accelerator.main(["--quick", "--minutes", "0", "--out", str(tmp_path)])
    assert status == 3
    assert f"{len(accelerator.CELLS)} cases are left" in capsys.readouterr().out


def test_a_case_that_fails_does_not_end_the_others(capsys, tmp_path, monkeypatch):
    cells = accelerator.Cell("none", "x"), accelerator.Cell("filter", "loop")
    monkeypatch.setattr(accelerator, "CELLS", cells)
    assert accelerator.main(["--quick", "--out", str(tmp_path)]) == 1
    assert "none: x failed" in capsys.readouterr().out
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["cases"][0]["name"] == "loop"
    assert accelerator.main(["--quick", "--list", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "none: x\n"
