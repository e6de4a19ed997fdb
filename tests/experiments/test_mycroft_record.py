"""The record of a run of Mycroft's experiments, and the tables that it makes."""

import json

import pytest
from planted_tables import SIZES, planted
from test_mycroft_claims import N, made

from experiments._kit.records import PLACE
from experiments.mycroft import record
from experiments.mycroft.chapter import mycroft_chapters
from experiments.mycroft.tabular.paths import join_paths, paths_of
from experiments.mycroft.tabular.run import join_tabular, run_seed
from jaxsel.report import Report

TEXT = record.PAGE.read_text("utf-8")


def test_the_page_shows_the_record():
    """Otherwise: `python -m experiments.mycroft.record REPORT`."""
    known = json.loads(record.RECORD.read_text("utf-8"))
    assert record.fill(TEXT, known) == TEXT
    assert len(PLACE.findall(TEXT)) == TEXT.count("<!-- from record") == 11
    for count in known["counts"]:
        assert count in " ".join(TEXT.split())


def test_tables_are_those_of_the_report(tmp_path):
    runs = [run_seed(s, "digits", planted(), None, SIZES, full=False) for s in (0, 1)]
    paths = join_paths([paths_of(s, planted(), SIZES) for s in (0, 1)])
    result = made(tabular=join_tabular(runs), paths=paths, grown_paths=paths)
    files = Report(title="T", summary="", chapters=mycroft_chapters(result)).save(
        tmp_path
    )
    report = json.loads(files[1].read_text("utf-8"))
    known = record.recorded(report)
    assert [name for name, *_ in known["budgets"]] == [
        name
        for name in (
            "Fashion-MNIST, starved",
            "MNIST, digits of another source",
            "Fashion-MNIST before stripes",
        )
        for _ in range(3)
    ]
    text = record.fill(TEXT, known)
    rows = {name: [] for _, name, _ in PLACE.findall(text)}
    for head, name, _ in PLACE.findall(text):
        table = text[text.index(head) + len(head) :].partition("\n\n<!-- end")[0]
        rows[name] = table.splitlines()
    # Published FuncFeat is .1 above random, which is .3; all that is sent reaches .5.
    first = rows["budgets"][0].split(" | ")
    assert first[:2] == ["| Fashion-MNIST, starved", "8"]
    means = [float(cell.split()[0]) for cell in first[2:]]
    assert means == pytest.approx([40, 30, 30, 30, 30, 10, 50], abs=2)
    assert rows["budgets"][1].startswith("| | 32 | ")
    assert rows["variants"][0].startswith("| Mycroft | ")
    assert rows["variants"][-1].endswith("| – | – | – |")
    assert [row.split(" | ")[0] for row in rows["paths"]] == [
        "| Mycroft",
        "| Same path",
        "| Other paths",
        "| Random",
    ]
    assert [row.split(" | ")[:2] for row in rows["combined"]] == [
        ["| depth 4", "same path"],
        ["|", "random"],
        ["| leaves of five", "same path"],
        ["|", "random"],
    ]
    assert all("| not tested" not in row for row in rows["claims"])
    assert any(f"t-tests, {N} seeds, Holm of 4" in row for row in rows["claims"])
    assert rows["classifiers"][0].startswith("| Decision tree | ")
    assert "−" in "".join(rows["ours"])
    report["chapters"][0]["data"]["full"] = True
    with pytest.raises(ValueError, match="got a report of a --full run"):
        record.recorded(report)
