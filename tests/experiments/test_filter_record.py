"""The record of a run of filtering, and the tables that it makes."""

import dataclasses
import json

import pytest
from test_filter_claims import made

from experiments._kit.records import PLACE
from experiments.filter import record
from experiments.filter.chapter import filter_chapter
from jaxsel.report import Report

PAGES = [page.read_text("utf-8") for page in record.PAGES]


def saved(result, folder):
    """Return the report of an invented run, as it is saved."""
    chapter = filter_chapter(result)
    files = Report(title="Filter", summary="", chapters=[chapter]).save(folder)
    return json.loads(files[1].read_text("utf-8"))


def test_the_pages_show_the_record():
    """Otherwise: `python -m experiments.filter.record REPORT`."""
    known = json.loads(record.RECORD.read_text("utf-8"))
    assert [record.fill(page, known) for page in PAGES] == PAGES
    places = [place for page in PAGES for place in PLACE.findall(page)]
    assert len(places) == sum(page.count("<!-- from record") for page in PAGES) == 8


def test_tables_are_those_of_the_report(tmp_path):
    known = record.recorded(saved(made(none=0.5), tmp_path))
    text, figures = (record.fill(page, known) for page in PAGES)
    row = text.partition("| open-set, 3 : 1, plain averaging |")[2]
    gain, _, far = row.splitlines()[0].removesuffix(" |").split(" | ")
    assert gain.startswith(" +24.")
    assert gain.endswith(" holds")
    assert far.startswith("−6.")  # with a minus, not a hyphen
    none, paper, *_ = figures.partition("| no selection | – | – | ")[2].splitlines()
    assert none.startswith("50.")
    assert paper.startswith("| | the paper's | 80.")
    assert "0.5 : 1" not in text + figures


def test_full_runs_are_refused(tmp_path):
    report = saved(dataclasses.replace(made(), full=True), tmp_path)
    with pytest.raises(ValueError, match="got a report of a --full run"):
        record.recorded(report)
