"""The demo's table of what each side of a secure run saw, of stored results."""

import json
import sys

import numpy as np
import pytest

from jaxsel.demo._secret import private_run, sides_table
from jaxsel.report import Chapter, Report

_installed = pytest.importorskip("mpc_bridge._installed")
secure_phase = _installed.secure_phase


def results():
    """Both parties' results as a run would have written them, with invented figures."""
    from mpc_bridge import Result
    from mpc_bridge._result import PhaseResult, Reveal, Step

    phases = tuple(
        PhaseResult(samples=n, kept=k, batch_size=64, passes=9, comparisons=m)
        for n, k, m in ((630, 210, 1234), (210, 70, 432))
    )

    def result(role, sent, received, basis, found):
        steps = [
            Step(
                phase=f"phase {i + 1}",
                place="scores",
                name="product",
                rounds=3,
                bytes=sent + received,
                dealer_rounds=0,
                dealer_bytes=0,
                sent=sent,
                seconds=1.25,
            )
            for i in range(2)
        ]
        reveals = tuple(
            Reveal(
                phase=f"phase {i + 1}",
                opened=f"the {phase.kept} rows that are left",
                basis=basis,
                rows=500 - 100 * i,
                outcomes=found[i],
                chosen=found[i] and found[i] - 0.1,
                verdict="",
            )
            for i, phase in enumerate(phases)
        )
        return Result(
            role=role,
            session="demo",
            engine="spu-aby3",
            rows=tuple(range(70)),
            phases=phases,
            appraisal=0.6543,
            steps=tuple(steps),
            openings=(),
            fraction_bits=18,
            terms={},
            versions={},
            reveals=reveals,
            seconds=19.5 if role == "model-owner" else 18.5,
        )

    model = result("model-owner", 1_500_000, 6_000_000, "random probe", (0.11, None))
    data = result("data-owner", 5_500_000, 2_500_000, "own rows", (0.876, None))
    return model, data


def test_both_sides_of_a_run():
    run = private_run(*results())
    assert (run["megabytes"], run["rounds"], run["seconds"]) == (14.0, 6, 19.5)
    assert run["compared"] == (1234, 432)
    np.testing.assert_array_equal(run["rows"], np.arange(70))
    model, data = run["model_owner"], run["data_owner"]
    # A helper sends too: what one received is not what the other sent.
    assert (model["sent"], data["sent"]) == (3.0, 11.0)
    assert (model["received"], data["received"]) == (12.0, 5.0)
    assert data["recovered"] == (0.876, None)
    assert (data["seconds"], data["working"]) == (18.5, 2.5)


def test_the_table_says_what_each_side_saw(tmp_path):
    run = private_run(*results())
    table = sides_table(run, offered=630)
    shown = {row[0]: row[1:] for row in table.rows}
    assert shown["kept to itself"][1] == "630 samples, embedded"
    assert [cell.split(" MB")[0] for cell in shown["received"]] == ["12.0", "5.0"]
    opened = (
        "phase 1: the 210 rows that are left; phase 2: the 70 rows that are left; "
        "at the end, their mean score: 0.654"
    )
    assert shown["saw opened"] == (opened, opened)
    model, data = shown["could recover"]
    assert "nothing that is in it" in model
    assert data == (
        "phase 1: a ranking, rank correlation 0.88 (500 samples attacked); "
        "phase 2: not attacked, too few samples"
    )
    assert shown["seconds, with set-up"] == ("19.5", "18.5")
    assert shown["seconds, without"] == ("2.5", "2.5")
    chapter = Chapter(title="T", blocks=[table], data=run)
    html, numbers = Report(title="T", summary="", chapters=[chapter]).save(tmp_path)
    assert "phase 1: a ranking, rank correlation 0.88 (500 samples" in html.read_text()
    kept = json.loads(numbers.read_text())["chapters"][0]["data"]
    assert kept["data_owner"]["recovered"] == [0.876, None]


def test_spu_is_taken_where_it_is(monkeypatch):
    asked = []
    monkeypatch.setattr(
        _installed, "check_python", lambda *names: asked.append(names) or "/there"
    )
    monkeypatch.setattr(_installed, "_installed", lambda name: True)
    phase = secure_phase("secure/bin/python")
    assert (phase.engine, phase.python, phase.missing) == ("spu-aby3", None, "")
    assert not phase.notices()
    assert not asked  # this environment has it
    monkeypatch.setattr(_installed, "_installed", lambda name: name == "cryptography")
    phase = secure_phase("secure/bin/python")
    assert (phase.engine, phase.python, phase.missing) == ("spu-aby3", "/there", "")
    assert asked == [("secure/bin/python", "spu-aby3")]
    monkeypatch.setattr(_installed, "_installed", lambda name: name == "spu")
    with pytest.raises(ImportError, match=r"pip install 'jaxsel\[spu\]'"):
        secure_phase("secure/bin/python")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ((3, 13), "no wheel for Python 3.13: `make secure` installs it"),
        ((3, 11), "SPU is not installed: `make demo` installs it"),
    ],
)
@pytest.mark.parametrize("engine", ["crypten", None])
def test_a_choice_without_spu_says_why(monkeypatch, version, reason, engine):
    there = {"crypten", "torch", "cryptography"} if engine else {"crypten"}
    monkeypatch.setattr(_installed, "_installed", there.__contains__)
    monkeypatch.setattr(sys, "version_info", (*version, 1, "final", 0))
    phase = secure_phase()
    assert (phase.engine, phase.python) == (engine, None)
    assert reason in phase.missing
    (line,) = phase.notices()
    assert line.endswith(phase.missing)
    assert ("it protects nothing" in line) == (engine == "crypten")


def test_an_environment_that_lacks_spu_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(_installed, "_installed", lambda name: name == "cryptography")
    with pytest.raises(ValueError, match="such as secure/bin/python, got"):
        secure_phase(str(tmp_path / "python"))
