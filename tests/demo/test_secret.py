"""The demo's table of what each side of a secure run saw, of stored results."""

import dataclasses
import json

import numpy as np
import pytest

from jaxsel.demo._secret import private_run, sides_table
from jaxsel.report import Chapter, Report

pytest.importorskip("mpc_bridge")


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
    assert (run.megabytes, run.rounds, run.seconds) == (14.0, 6, 19.5)
    assert run.compared == (1234, 432)
    np.testing.assert_array_equal(run.rows, np.arange(70))
    # A helper sends too: what one received is not what the other sent.
    assert (run.model_owner.sent, run.data_owner.sent) == (3.0, 11.0)
    assert (run.model_owner.received, run.data_owner.received) == (12.0, 5.0)
    assert run.data_owner.recovered == (0.876, None)
    assert (run.data_owner.seconds, run.data_owner.working) == (18.5, 2.5)


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
    chapter = Chapter(title="T", blocks=[table], data=dataclasses.asdict(run))
    html, numbers = Report(title="T", summary="", chapters=[chapter]).save(tmp_path)
    assert "phase 1: a ranking, rank correlation 0.88 (500 samples" in html.read_text()
    kept = json.loads(numbers.read_text())["chapters"][0]["data"]
    assert kept["data_owner"]["recovered"] == [0.876, None]
