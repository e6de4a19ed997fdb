"""The secure benchmark: what it checks and aims at, and tiny runs of two parties."""

import dataclasses
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import _mpc, _mpc_scoring, _spu, bench_mpc, shuffles
from jaxsel import proxy

ROOT = Path(__file__).parents[2]


def test_full_size_cases_are_those_of_the_issue():
    cases = {case.name: case for case in bench_mpc.cases()}
    work = {name: case.work for name, case in cases.items()}
    assert work == {
        **{"comparison": 10_000, "probe": 42_000, "secure probe": 42_000},
        "secure layer": 8 + 24,
        "secure pool": 200_000,
        "secure depth": 2 + 4,
        **dict.fromkeys(["exact block", "paper's block", "quadratic block"], 8),
        **dict.fromkeys(["all rows", "CLS row"], 2),
    }
    assert {
        (name, target.contender, target.quantity, target.limit)
        for name, case in cases.items()
        for target in case.targets
        if target.level == "must" and target.bound == "at most"
    } == {
        ("comparison", "1", "rounds", 8),
        ("comparison", "1", "bytes", 432),
        ("comparison", "10,000", "rounds", 8),
        ("comparison", "10,000", "bytes", 432),
        ("exact block", "1 head", "off", 0.01),
        ("exact block", "12 heads", "off", 0.01),
        ("paper's block", "1 head, d = 2", "off", 0.05),
        ("paper's block", "12 heads, d = 16", "off", 0.05),
        ("quadratic block", "1 head", "rounds", 20),
        ("quadratic block", "1 head", "of the paper's bytes", 0.5),
        ("quadratic block", "12 heads", "rounds", 20),
        ("quadratic block", "12 heads", "of the paper's bytes", 0.5),
        ("probe", "linear", "rounds", 40),
        ("probe", "16 hidden", "rounds", 40),
        ("secure probe", "spu-cheetah, rank", "scoring s", 60),
        ("secure probe", "spu-cheetah, rank", "scoring MB one way", 20),
        ("secure probe", "spu-cheetah, rank", "choosing s", 30),
        ("secure probe", "spu-cheetah, rank", "choosing MB one way", 20),
        ("secure probe", "spu-cheetah, rank", "bytes a comparison", 100),
        ("secure probe", "spu-aby3, rank", "scoring s", 15),
        ("secure probe", "spu-aby3, rank", "scoring MB one way", 10),
        ("secure probe", "spu-aby3, rank", "choosing s", 15),
        ("secure probe", "spu-aby3, rank", "choosing MB one way", 10),
        ("secure probe", "spu-aby3, rank", "bytes a comparison", 40),
        ("secure probe", "spu-cheetah, set", "of rank's seconds", 3),
        ("secure probe", "spu-aby3, set", "of rank's seconds", 3),
        ("secure pool", "spu-aby3", "CPU s a party", 25),
        ("secure layer", "spu-aby3, quadratic", "KB one way", 1301),
        ("secure layer", "spu-aby3, quadratic", "CPU s", 0.5),
    }


@pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)
@pytest.mark.slow
@pytest.mark.mpc
@pytest.mark.multihost
def test_whole_sessions_on_spu_are_checked(tmp_path):
    out = tmp_path / "run.json"
    assert bench_mpc.main(["--quick", "--only", "secure probe", "--out", str(out)]) == 0
    (case,) = json.loads(out.read_text())["cases"]
    found = {row["name"]: row["figures"] for row in case["contenders"]}
    assert found["spu-aby3, set"]["misplaced"] == 0
    # Of 200 x 8 numbers; the weights and signs are small beside them.
    assert found["spu-aby3, rank"]["inputs MB"] == 16 * 200 * 8 / 1e6
    assert 0 < found["spu-aby3, rank"]["scoring MB one way"] < 0.03
    assert found["spu-cheetah, rank"]["inputs MB"] == 0


@pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)
@pytest.mark.slow
@pytest.mark.mpc
@pytest.mark.multihost
@pytest.mark.parametrize("engine", shuffles.ENGINES)
def test_repeated_shuffles_send_more_and_choose_the_same(engine):
    whole, shuffle, hashed = shuffles.measure(engine, (60, 12, 8), 2)
    assert 0 < shuffle.choosing_mb < whole.choosing_mb
    assert abs(hashed.choosing_mb) < 0.02 * shuffle.choosing_mb


def test_what_lies_below_the_border_is_misplaced():
    clear = np.arange(10.0)
    assert _spu._misplaced(np.array([7, 8, 9]), clear, 3) == 0
    assert _spu._misplaced(np.array([6, 8, 9]), clear, 3) == 1


def test_a_wrong_count_score_or_choice_is_noticed():
    rng = np.random.default_rng(0)
    clear = -(rng.normal(size=200) ** 2)
    manifest = proxy.probe_manifest(width=8, n_classes=2)
    scoring = _mpc_scoring.Scoring(manifest, 200, 64, 40)
    counted = proxy.cost(manifest, 200, batch_size=64)
    right = _mpc.Ran(
        {"forward": (counted.rounds, counted.bytes), "choice": (81, 200_000)},
        result=clear,
        rows=np.argsort(-clear)[:40],
        passes=9,
    )
    changes = {
        "miscounted": {"counts": right.counts | {"forward": (8, counted.bytes + 16)}},
        "error": {"result": clear + 0.01 * np.abs(clear).max()},
        "misplaced": {"rows": np.argsort(-clear)[1:41]},
        "of the bound": {"counts": right.counts | {"choice": (9 * 199, 200_000)}},
    }
    limits = scoring.contender("linear").limits
    assert set(limits) == set(changes)
    figures = scoring.check((clear, None), (right, clear))
    assert all(figures[name] <= limit for name, limit in limits.items())
    for name, change in changes.items():
        wrong = dataclasses.replace(right, **change)
        figures = scoring.check((clear, None), (wrong, clear))
        above = {key for key, limit in limits.items() if figures[key] > limit}
        assert above == {name}


def test_the_table_in_the_docs_is_what_is_counted():
    page = (ROOT / "docs" / "secure-cost.md").read_text(encoding="utf-8")
    section = page.split("## Counted on CrypTen")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    found = {row[0]: row[1:] for row in cells}
    for read, heads, column in (
        ("mean", 1, 1),
        ("mean", 12, 2),
        ("cls", 1, 4),
        ("cls", 12, 5),
    ):
        proxies = _mpc_scoring.side_by_side(read, heads, _mpc_scoring.BLOCK)
        for name, head in (("linear probe", 0), ("probe, 16 hidden", 16)):
            proxies[name] = proxy.probe_manifest(width=384, n_classes=2, head=head)
        for name, manifest in proxies.items():
            counted = proxy.cost(manifest, 64, batch_size=64)
            figures = (counted.rounds_per_batch, round(counted.bytes_per_sample / 2000))
            rounds, size = (found[name][i] for i in (column // 4 * 3, column))
            assert (rounds, size) == tuple(f"{figure:,}" for figure in figures)


@pytest.mark.slow
@pytest.mark.mpc
@pytest.mark.multihost
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_parties_are_counted_checked_and_timed(tmp_path, capsys):
    out = tmp_path / "run.json"
    argv = ["--quick", "--only", "comparison", "--only", "probe", "--out", str(out)]
    try:
        assert bench_mpc.main(argv) == 0
    finally:
        _mpc.close()
    record = json.loads(out.read_text())
    rows = {row["name"]: row for case in record["cases"] for row in case["contenders"]}
    assert set(rows) == {"1", "100", "linear", "16 hidden"}
    for row in rows.values():
        assert row["status"] == "ok"
        assert len(row["wall_s"]) == len(row["cpu_s"]) > 1
        assert min(row["wall_s"] + row["cpu_s"]) > 0
    assert rows["100"]["figures"]["bytes"] == 432
    assert rows["16 hidden"]["figures"]["rounds"] == 12
    met = [target["met"] for case in record["cases"] for target in case["targets"]]
    assert met == [True] * 6
    assert "probes: 200 samples" in capsys.readouterr().out
