"""The summary on top of RESULTS.md: ours, the best peer, the ratio, and the chart."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from records import case, record, row

from benchmarks import _summary, report


@pytest.fixture
def runs():
    pair = case(
        "pair",
        [
            row("jaxsel", [1.0, 1.0, 4.0, 1.0]),
            row("other", [0.5] * 4),  # faster, but not the case's first
            # A tenth of the work: ten times as slow as it looks.
            row("shared", [1.1, 1.1, 4.4, 2.2], peer=True, work=100),
            row("best", [2.0, 2.0, 8.0, 4.0], peer=True),
            row("wrong", [], peer=True, status="wrong"),
        ],
    )
    alone = case("alone", [row("jaxsel", [3e-3])])
    skipped = case("skipped", [row("jaxsel", [], status="skipped")])
    return record(pair, alone, skipped)


def test_the_best_peer_is_compared_round_by_round(runs):
    pair, alone = _summary.lines([runs])
    assert (pair.case, alone.case) == ("pair", "alone")
    assert pair.ours == "jaxsel, 1.00 ms/pair"
    assert pair.peer == "best, 3.00 ms/pair"
    assert pair.ratios == [2, 2, 2.5]
    assert (alone.ours, alone.peer, alone.ratios) == ("jaxsel, 3.00 µs/pair", None, ())


def test_the_latest_run_counts_on_whatever_number_of_cores(runs):
    later = record(
        case("alone", [row("jaxsel", [9.0])]), date="20270101T000000Z", cores=1
    )
    alone = {line.case: line for line in _summary.lines([later, runs])}["alone"]
    assert alone.ours == "jaxsel, 9.00 ms/pair"


def test_the_machines_limit_is_the_tighter_of_both():
    rows = [row("jaxsel", [1.0])]  # a millisecond for each of 1000 pairs
    cases = [
        case("operations", rows, flops=50, bytes=0),
        case("memory", rows, flops=50, bytes=8),
        case("unknown", rows, flops=0, bytes=0),
    ]
    run = record(*cases) | {"limits": {"flops_per_s": 1e5, "bytes_per_s": 1e4}}
    found = _summary.lines([run])
    assert [line.limit for line in found] == [pytest.approx(0.5), 0.8, None]
    assert [line.rsplit(" | ")[-1] for line in _summary.summary(found)[2:]] == [
        *("50% |", "80% |", "– |"),
    ]
    assert all(line.limit is None for line in _summary.lines([record(*cases)]))
    text = report.document([run])
    assert text.count("; the machine does 0.000100 GFLOP") == 0
    assert text.count("reads 1.00e-05 GB a CPU second") == 2


def test_machines_are_told_apart(runs):
    other = json.loads(json.dumps(runs))
    other["device"] |= {"platform": "gpu", "kind": "Beads"}
    found = _summary.lines([other, runs])
    assert [line.machine for line in found] == 2 * ["Abacus 3000"] + 2 * ["Beads"]
    one, two = (_summary.summary(x)[0] for x in (_summary.lines([runs]), found))
    assert one == "| case | ours | best peer | × best peer | of the limit |"
    assert two == "| case | on | ours | best peer | × best peer | of the limit |"


def test_the_document_opens_with_the_table_and_the_chart(runs):
    text = report.document([runs], "chart.svg")
    top = text.split("\n## ")[0]
    shown = "| knn pair | jaxsel, 1.00 ms/pair | best, 3.00 ms/pair | **2.00** (2.00 to"
    assert shown in top
    assert "| knn alone | jaxsel, 3.00 µs/pair | – | – |" in top
    assert f"![{_summary.ALT}](chart.svg)" in top
    assert "![" not in report.document([runs])


def test_quick_runs_stay_out_and_the_chart_is_written(runs, tmp_path):
    quick = record(
        case("alone", [row("jaxsel", [77.0])]), date="20270101T000000Z", quick=True
    )
    for name, run in (("a", runs), ("b", quick)):
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    argv = ["--history", str(tmp_path), "--out", str(tmp_path / "R.md")]
    report.main(argv)
    text, drawn = (tmp_path / "R.md").read_text(), (tmp_path / "R.svg").read_bytes()
    assert "77.0" not in text
    assert "20270101T000000Z" not in text
    assert "(R.svg)" in text
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    assert b"#0072b2" in drawn
    assert b"<text" not in drawn  # outlines: no font is asked for
    report.main(argv)
    assert (tmp_path / "R.svg").read_bytes() == drawn


def test_without_matplotlib_there_is_no_chart(runs, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise ImportError("No module named 'matplotlib'")

    monkeypatch.setattr(_summary, "chart", fail)
    (tmp_path / "a.json").write_text(json.dumps(runs))
    report.main(["--history", str(tmp_path), "--out", str(tmp_path / "R.md")])
    assert "![" not in (tmp_path / "R.md").read_text()
    assert "no chart: No module named 'matplotlib'" in capsys.readouterr().err
