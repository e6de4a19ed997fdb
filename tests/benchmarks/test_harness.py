import dataclasses
import itertools
import json
import operator
import os
import statistics
import subprocess
import sys
from pathlib import Path

import fake_bench
import pytest

from benchmarks import _harness, _probe, _threads, report
from benchmarks._case import Case, Contender

pytestmark = pytest.mark.slow

MODULE = "tests.benchmarks.fake_bench"
TIMED = ["jax", "slow", "hungry"]


@pytest.fixture(scope="module")
def record():
    fake_bench.ORDER.clear()
    return _harness.run("fake", MODULE, fake_bench.cases())


@pytest.fixture(scope="module")
def rows(record):
    return {row["name"]: row for row in record["cases"][0]["contenders"]}


def test_the_record_is_json_and_says_what_it_was_measured_on(record):
    assert json.loads(json.dumps(record)) == record
    assert set(record) == {
        *("schema", "bench", "quick", "date", "clock"),
        *("device", "versions", "revision", "limits", "cases"),
    }
    assert record["clock"] == "cpu_s"
    assert record["device"]["platform"] == "cpu"
    assert record["device"]["cores"] >= 1
    assert {"python", "jax", "numpy", "pydvl", "torch"} <= set(record["versions"])
    assert len(record["cases"][0]["load_before"]) == 3


def test_what_is_wrong_is_said_and_not_timed(rows):
    status = {name: row["status"] for name, row in rows.items()}
    assert status == {
        **dict.fromkeys(TIMED, "ok"),
        **{"wrong": "wrong", "nan": "wrong", "broken": "failed", "missing": "absent"},
    }
    assert rows["wrong"]["reason"] == "error 0.01, at most 1e-05 allowed"
    assert rows["broken"]["reason"] == "RuntimeError: broken on purpose"
    assert rows["missing"]["reason"] == "No module named 'no_such_module'"
    for name, row in rows.items():
        assert len(row["cpu_s"]) == len(row["wall_s"]) == (5 if name in TIMED else 0)
        assert (row["peak_bytes"] is not None) == (name in TIMED)


def test_contenders_take_turns(rows):
    assert rows
    checks = [*TIMED[:2], "wrong", "nan", "hungry"]  # "broken" has no call
    assert checks + 5 * TIMED == fake_bench.ORDER


def test_memory_is_what_the_calls_take_above_the_inputs(rows):
    size = fake_bench.MEGABYTES * 1e6
    # Linux counts resident pages to within a few hundred.
    assert 0.95 * size < rows["hungry"]["peak_bytes"] < size + 16e6
    assert abs(rows["slow"]["peak_bytes"]) < 16e6


def test_only_what_compiles_has_compile_time(rows):
    assert rows["jax"]["compile_s"] > 0
    assert rows["slow"]["compile_s"] is None


def test_targets_are_judged_by_what_was_measured(record, rows):
    met = [target["met"] for target in record["cases"][0]["targets"]]
    assert met == [True, False, None, True, False, True, None]
    ratio = record["cases"][0]["targets"][0]["measured"]
    slow, jax = (rows[name] for name in ("slow", "jax"))
    assert slow["work"] == jax["work"] / 10
    medians = [
        statistics.median(map(operator.truediv, slow[clock], jax[clock]))
        for clock in ("cpu_s", "wall_s")
    ]
    assert ratio == pytest.approx(10 * min(medians))


def test_a_case_for_another_device_is_left_empty(record):
    case = record["cases"][1]
    assert case["contenders"][0]["status"] == "skipped"
    assert case["targets"][0]["met"] is None
    text = report.section(record["device"], [record])
    assert "Not measured here: needs abacus." in text


def test_the_table_shows_all_contenders_and_targets(record):
    lines = report.section(record["device"], [record]).splitlines()
    table = {line.split(" | ")[0][2:]: line for line in lines if line.startswith("| ")}
    for name in ("jax", "slow", "hungry"):
        assert "error" in table[name]
    assert "× slow" in lines[4]
    assert table["wrong"].startswith("| wrong | wrong | – ")
    assert table["missing"].startswith("| missing | absent | – ")
    words = [line.split(" | ")[-1][:-2] for line in lines if line.startswith("| must")]
    assert words == [
        *("met", "**not met**", "not measured", "met"),
        *("**not met**", "met", "not measured", "not measured"),
    ]
    widths = {
        len(line.split(" | "))
        for line in itertools.takewhile(lambda line: line, lines[4:])
    }
    assert len(widths) == 1


def test_limits_are_measured_and_shown(record, rows):
    limits = record["limits"]
    assert 1e8 < limits["flops_per_s"] < 1e14
    assert 1e7 < limits["bytes_per_s"] < 1e13
    text = report.section(record["device"], [record])
    shown = next(line for line in text.splitlines() if line.startswith("| jax |"))
    seconds = statistics.median(rows["jax"]["cpu_s"]) / rows["jax"]["work"]
    least = max(2 / limits["flops_per_s"], 4 / limits["bytes_per_s"])
    assert f"| {least / seconds:.0%} |" in shown


def test_the_document_keeps_the_latest_run_of_each_case_and_devices_apart(record):
    older = _copy(record, date="20200101T000000Z")
    older["cases"][0]["title"] = "Outdated"
    newer = _copy(record, date="21000101T000000Z")
    newer["cases"] = newer["cases"][:1]
    other = _copy(record)
    other["device"] |= {"platform": "gpu", "kind": "Abacus 3000"}
    text = report.document([newer, older, other])
    assert text.count("### Sum of squares") == 2
    assert text.count("### For another device") == 2
    assert "Outdated" not in text
    assert text.count("\n## ") == 3  # the summary, and two devices
    assert "\n## Abacus 3000\n" in text


def test_the_command_line_writes_one_file_and_reports_wrong_ones(tmp_path, capsys):
    out = tmp_path / "sub" / "run.json"
    argv = ["--quick", "--only", "elsewhere", "--out", str(out)]
    assert _harness.main(MODULE, fake_bench.cases, argv) == 0
    assert json.loads(out.read_text())["cases"][0]["name"] == "elsewhere"
    assert [path.name for path in out.parent.iterdir()] == ["run.json"]
    assert "### For another device" in capsys.readouterr().out

    report.main(["--history", str(out.parent), "--out", str(tmp_path / "R.md")])
    assert (tmp_path / "R.md").read_text().startswith("# Benchmark results\n")


def test_an_unknown_case_is_refused(capsys):
    with pytest.raises(SystemExit):
        _harness.main(MODULE, fake_bench.cases, ["--only", "nothing"])
    assert "expected one of squares, elsewhere" in capsys.readouterr().err


def test_a_folder_to_write_to_is_refused_before_the_run(capsys, tmp_path):
    with pytest.raises(SystemExit):
        _harness.main(MODULE, fake_bench.cases, ["--out", str(tmp_path)])
    assert f"--out must name a file, but {tmp_path} is" in capsys.readouterr().err


def test_the_exit_status_tells_of_wrong_results(monkeypatch):
    monkeypatch.setattr(_harness, "probe", lambda *_, quick: {})
    argv = ["--quick", "--only", "squares"]
    assert _harness.main(MODULE, fake_bench.cases, argv) == 1


def _copy(record, **changes):
    return json.loads(json.dumps(record)) | changes


@pytest.mark.parametrize(("peak", "known"), [(100, False), (101, True)])
def test_other_libraries_memory_on_accelerators_is_not_known(monkeypatch, peak, known):
    stats = {"bytes_in_use": 100, "peak_bytes_in_use": peak}
    monkeypatch.setattr(_probe, "_device_stats", lambda: stats)
    case = fake_bench.cases()[0]
    measured = _probe._measure(case, case.contenders[0])
    assert measured["peak_bytes"] == (1 if known else None)


def test_a_quick_run_is_short_and_says_nothing_of_targets(monkeypatch):
    probed = []
    monkeypatch.setattr(
        _harness, "probe", lambda module, *names, quick: probed.append(names) or {}
    )
    case = fake_bench.cases(quick=True)[0]
    other = dataclasses.replace(case, name="other")
    record = _harness.run("fake", MODULE, [case, other], quick=True)
    assert probed == [("squares", "jax")]
    for found in record["cases"]:
        assert found["targets"] == []
        assert len(found["contenders"][0]["cpu_s"]) == _harness.QUICK_ROUNDS == 3


def test_a_quick_run_leaves_out_cases_that_are_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(_harness, "probe", lambda *_, quick: {})
    out = tmp_path / "run.json"

    def names(*argv):
        argv = ["--quick", "--out", str(out), *argv]
        _harness.main(MODULE, fake_bench.cases, argv, alike=("squares",))
        return [case["name"] for case in json.loads(out.read_text())["cases"]]

    assert names() == ["elsewhere"]
    assert names("--only", "squares") == ["squares"]


@pytest.mark.parametrize("error", [ImportError, FileNotFoundError])
def test_a_case_without_its_data_is_absent_and_others_run(monkeypatch, error):
    monkeypatch.setattr(_harness, "probe", lambda *_, quick: {})

    def fails():
        raise error(f"reviews are not prepared in {Path.home()}/data")

    case = fake_bench.cases(quick=True)[0]
    missing = dataclasses.replace(case, name="missing", inputs=fails)
    record = _harness.run("fake", MODULE, [missing, case], quick=True)
    lost, found = (one["contenders"] for one in record["cases"])
    assert {row["status"] for row in lost} == {"absent"}
    assert lost[0]["reason"] == "inputs: reviews are not prepared in ~/data"
    assert found[0]["status"] == "ok"
    report.section(record["device"], [record])


def run_call(call, **options):
    """The row of one contender that makes this call, checked once and timed once."""
    contender = Contender(
        name="one", make=lambda _: call, check=lambda _, found: {}, limits={}
    )
    contender = dataclasses.replace(contender, seconds=options.pop("seconds", None))
    case = Case(
        **{"name": "one", "title": "one", "inputs": int, "tiny": int, "work": 1},
        **{"unit": "call", "contenders": [contender], "probed": False, "rounds": 1},
    )
    record = _harness.run(
        "fake", "", [dataclasses.replace(case, **options)], quick=True
    )
    return record["cases"][0]


def test_every_contender_has_one_thread():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    seen = []

    def call():
        pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
        seen.append((pools, [os.environ.get(name) for name in _threads.VARIABLES]))

    before = dict(os.environ)
    assert run_call(call)["threads"] == 1
    assert len(seen) == 2
    for pools, variables in seen:
        assert pools
        assert set(pools) == {1}
        assert set(variables) == {"1"}
    assert dict(os.environ) == before


def test_processes_of_a_case_take_the_threads_that_they_want():
    seen = []
    found = run_call(lambda: seen.append(dict(os.environ)), threads=None)
    assert found["threads"] is None
    assert not {*_threads.VARIABLES} & {*seen[0]}


def test_pools_of_a_new_process_have_one_thread():
    pytest.importorskip("threadpoolctl")
    pytest.importorskip("torch")
    code = """
import glob, numpy, torch, threadpoolctl
from benchmarks import _threads
with _threads.limited():
    import jax
    jax.devices()
    print(_threads.limit())
    names = [open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")]
    print(names.count("tf_XLAEigen"), torch.get_num_threads())
    print(*{pool["num_threads"] for pool in threadpoolctl.threadpool_info()})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1", "1", "1"]


def test_who_measures_itself_is_believed():
    found = run_call(lambda: 7.0, seconds=lambda result: (result, 2 * result))
    (row,) = found["contenders"]
    assert (row["cpu_s"], row["wall_s"]) == ([7.0], [14.0])


def test_a_case_says_by_which_clock_it_goes():
    assert run_call(lambda: None)["clock"] == "cpu_s"
    assert run_call(lambda: None, clock="wall_s")["clock"] == "wall_s"


def test_a_case_without_rounds_is_checked_and_not_timed():
    calls = []
    (row,) = run_call(lambda: calls.append(0), rounds=0)["contenders"]
    assert len(calls) == 1
    assert (row["status"], row["cpu_s"]) == ("ok", [])
