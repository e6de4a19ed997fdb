"""The summary on top of RESULTS.md: ours, the best peer, the ratio, and the chart."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from records import DEVICE, case, record, row

from benchmarks import _chart, _summary, report


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
    assert [line.rsplit(" | ")[-1] for line in _summary.summary([run])[2:]] == [
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
    one, two = (_summary.summary(x)[0] for x in ([runs], [other, runs]))
    assert one == "| case | ours | closest peer | × closest peer | of the limit |"
    assert two == "| case | on | ours | closest peer | × closest peer | of the limit |"


def test_the_document_opens_with_the_table_and_the_chart(runs):
    text = report.document([runs], "chart.svg")
    top = text.split("\n## Abacus")[0]
    shown = (
        "| knn pair† | jaxsel, 1.00 ms/pair | best, 3.00 ms/pair | **2.00** (2.00 to"
    )
    assert shown in top
    assert "| knn alone | jaxsel, 3.00 µs/pair | – | – |" in top
    assert f"![{_chart.ALT}](chart.svg)" in top
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

    monkeypatch.setattr(_chart, "chart", fail)
    (tmp_path / "a.json").write_text(json.dumps(runs))
    report.main(["--history", str(tmp_path), "--out", str(tmp_path / "R.md")])
    assert "![" not in (tmp_path / "R.md").read_text()
    assert "no chart: No module named 'matplotlib'" in capsys.readouterr().err


def test_the_smaller_of_both_ratios_is_printed_with_its_times():
    """A peer whose idle threads spin takes twice the CPU seconds, and no longer."""
    rows = [
        row("jaxsel", [1.0] * 3),
        row("spins", [40.0] * 3, wall=[20.0] * 3, peer=True),
    ]
    (line,) = _summary.lines([record(case("pair", rows))])
    assert (line.ratios, line.by, line.wall) == ([20, 20, 20], "wall_s", True)
    assert line.peer == "spins, 20.0 ms/pair"
    assert line.marks == "†‡"
    text = "\n".join(_summary.summary([record(case("pair", rows))]))
    assert "| knn pair†‡ |" in text
    assert "**20.0** wall (20.0 to 20.0)" in text
    assert "† threads were not limited" in text
    assert "‡ CPU seconds a second of the two differ" in text
    shown = report.section(DEVICE, [record(case("pair", rows))])
    assert "20.0 wall (20.0 to 20.0)" in shown
    assert (
        "threads not limited (CPU seconds a second differ by a factor of 2.00" in shown
    )


def test_the_closest_peer_is_chosen_by_the_smaller_ratios():
    rows = [
        row("jaxsel", [1.0] * 3),
        row("spins", [40.0] * 3, wall=[20.0] * 3, peer=True),
        row("steady", [30.0] * 3, peer=True),
    ]
    (line,) = _summary.lines([record(case("pair", rows))])
    assert line.peer == "spins, 20.0 ms/pair"


@pytest.mark.parametrize(
    ("cores", "threads", "marks"),
    [(1, {}, ""), (2, {}, "†"), (2, {"threads": 1}, ""), (2, {"threads": None}, "†")],
)
def test_runs_without_a_limit_of_threads_are_marked(cores, threads, marks):
    rows = [row("jaxsel", [1.0]), row("other", [2.0], peer=True)]
    run = record(case("pair", rows, **threads), cores=cores)
    assert _summary.lines([run])[0].marks == marks


def test_accelerators_know_one_clock():
    rows = [row("jaxsel", [0.0], wall=[1.0]), row("p", [9.0], wall=[2.0], peer=True)]
    run = record(case("pair", rows, threads=1)) | {"clock": "wall_s"}
    (line,) = _summary.lines([run])
    assert (line.ratios, line.wall, line.marks) == ([2, 2, 2], False, "")


def test_a_look_up_is_no_time_and_its_figures_are_shown():
    """Old records timed what had kept its result."""
    look_up = case("first", [row("jaxsel", [3e-5], call_cpu_s=3.1)])
    honest = case("second", [row("jaxsel", [3.1], call_cpu_s=3.1)])
    run = record(look_up, honest)
    assert [line.case for line in _summary.lines([run])] == ["second"]
    assert "as their figures are the result: knn first." in _summary.summary([run])[-1]
    text = report.document([run])
    assert "| jaxsel | no time |" in text
    assert "call_cpu_s 3.10" in text


def test_cases_without_rounds_are_no_row_of_the_table():
    run = record(case("figures", [row("jaxsel", [], gain=0.5)]))
    assert _summary.lines([run]) == []
    assert "gain 0.500" in report.document([run])


def test_one_round_has_no_quartiles():
    rows = [row("jaxsel", [1.0]), row("other", [2.0], peer=True)]
    text = report.document([record(case("pair", rows))])
    assert "**2.00** (one round)" in text
    assert "1.00 to 1.00" not in text


def test_many_figures_go_into_a_table_of_their_own():
    names = {f"figure_{i}": float(i) for i in range(12)}
    text = report.document([record(case("pair", [row("jaxsel", [1.0], **names)]))])
    assert "| figure 11 | 11.0 |" in text
    assert "figure_11" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert max(map(len, rows)) < 200


def target(quantity, bound, limit, **more):
    return {
        "text": f"jaxsel: {quantity} {bound} {limit}",
        "level": "must",
        "contender": "jaxsel",
        "quantity": quantity,
        "bound": bound,
        "limit": limit,
        "against": None,
        "measured": 0.0,  # as it was judged then
        "met": True,
    } | more


def test_the_report_opens_with_musts_that_are_missed(tmp_path, capsys):
    rows = [
        row("jaxsel", [1.0] * 3, error=0.5),
        row("spins", [40.0] * 3, wall=[20.0] * 3, peer=True),
    ]
    pair = case("pair", rows)
    pair["targets"] = [
        target("error", "at most", 0.1),
        target("error", "at most", 0.1, level="goal"),
        target("ratio", "at least", 10, against="spins"),
        target("ratio", "at least", 30, against="spins"),  # by CPU time it is met
        target("nothing", "at least", 1),
    ]
    (tmp_path / "a.json").write_text(json.dumps(record(pair)))
    argv = ["--history", str(tmp_path), "--out", str(tmp_path / "R.md")]
    assert report.main(argv) == 1
    top = (tmp_path / "R.md").read_text().split("## Summary")[0]
    assert "**2 of 4 musts are missed.** 1 could not be measured." in top
    assert "- **knn pair**, jaxsel: error at most 0.1: 0.500 (Abacus 3000)" in top
    assert "- **knn pair**, jaxsel: ratio at least 30: 20.0 (Abacus 3000)" in top
    assert "2 of 4 musts are missed" in capsys.readouterr().err
    assert report.one_run(record(pair)).startswith("**2 of 4 musts are missed.**")
    pair["targets"] = pair["targets"][2:3]
    (tmp_path / "a.json").write_text(json.dumps(record(pair)))
    assert report.main(argv) == 0
    assert "No must is missed, of 1." in (tmp_path / "R.md").read_text()


def test_the_charts_labels_can_be_read_on_a_telephone():
    """Letters of 390 pixels' width are 10 high at least."""
    assert _chart.LABEL_PT * 390 / (72 * _chart.WIDTH_IN) > 10


def test_old_rows_of_the_hybrid_say_that_they_sorted():
    old = case("memory", [row("hybrid", [1.0])])
    new = case("memory", [row("hybrid", [1.0])], threads=1)
    word = "exact values: that call sorts where operations are compiled"
    assert word in report.document([record(old)])
    assert word not in report.document([record(new)])


def test_a_busy_machine_is_marked():
    rows = [row("jaxsel", [1.0]), row("other", [2.0], peer=True)]
    quiet, loud = case("quiet", rows, threads=1), case("loud", rows, threads=1)
    loud["load_after"] = [4.1, 1.0, 1.0]  # of two cores
    loud["targets"] = [target("cpu_s", "at most", 0.1)]
    alone = case("alone", rows[:1], threads=1) | {"load_before": [9.0, 9.0, 9.0]}
    found = {x.case: x.marks for x in _summary.lines([record(quiet, loud, alone)])}
    assert found == {"quiet": "", "loud": "§", "alone": "§"}
    text = report.document([record(quiet, loud)])
    assert "§ the machine was busy, at a load above two for each core" in text
    assert "1.00 (Abacus 3000, at a load of 4)" in text
