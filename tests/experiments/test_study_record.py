"""The record of a run of the study in miniature, and the tables that it makes."""

import json

import pytest
from test_study_report import SEEDS, jobs

from experiments._kit.records import PLACE
from experiments.values import record
from experiments.values.chapter import study_chapter
from experiments.values.run import run_study
from jaxsel.report import Report

__all__ = ["jobs"]  # a fixture
TEXT = record.PAGE.read_text("utf-8")


def test_the_page_shows_the_record():
    """Otherwise: `python -m experiments.values.record REPORT`."""
    known = json.loads(record.RECORD.read_text("utf-8"))
    assert record.fill(TEXT, known) == TEXT
    assert len(PLACE.findall(TEXT)) == TEXT.count("<!-- from record") == 9


def rows_of(page):
    """Return the rows of a page's tables, by the name of their place."""
    places = [place.partition("<!-- end -->")[0] for place in page.split("from record")]
    return {
        place[2 : place.index(" -->")]: place.partition("|\n|-")[2].splitlines()[1:-1]
        for place in places[1:]
    }


def test_tables_are_those_of_the_report(jobs, tmp_path):
    jobs()
    chapter = study_chapter(run_study(tmp_path / "runs", seeds=SEEDS))
    files = Report(title="T", summary="", chapters=[chapter]).save(tmp_path)
    report = json.loads(files[1].read_text("utf-8"))
    rows = rows_of(record.fill(TEXT, record.recorded(report)))
    assert {*rows} == {name for _, name, _ in PLACE.findall(TEXT)}
    claims = "\n".join(rows["claims"])
    assert " features" not in claims
    assert "not tested" not in claims
    assert claims.count("KNN-LOO is near random") == 1  # of two rows
    assert all("because" not in row for row in rows["untested"])
    assert rows["ours"][0].startswith("| wrong labels, Fashion-MNIST | −")
    assert any(row.startswith("| the word TEST, ") for row in rows["ours"])
    assert [row.split(" | ")[1] for row in rows["nearest"]] == 2 * [
        str(points) for points in record.VALIDATED
    ]
    assert rows["sizes"][-1].split(" | ")[4] == "–"  # LOO beyond 1,000 points
    assert rows["networks"][0].startswith("| `network_influence` | .70 ± .00 |")
    assert rows["networks"][-1].startswith("| accuracy of the networks | 80 %")
    assert rows["order"][1].startswith("| KNN-LOO | 1 | 27 | 24 | 3 |")
    assert rows["bounds"][3].startswith("| clipped sum | 4 | .5000 |")
    report["chapters"][0]["data"]["full"] = True
    with pytest.raises(ValueError, match="got a report of a --full run"):
        record.recorded(report)
