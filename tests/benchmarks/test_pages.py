"""Figures of pages are those of the records, and RESULTS.md is what these make."""

import copy
import re

import pytest
from records import case, record, row

from benchmarks import _chart, pages, report
from benchmarks._machine import ROOT
from benchmarks._records import HISTORY, read
from benchmarks._targets import judged

RECORDS = read(HISTORY.glob("*.json"))
CASES, LINES = pages.on_record(RECORDS)
PAGES = pages.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_figures_of_pages_are_those_of_the_records(page):
    """Otherwise: `python -m benchmarks.pages`."""
    text = page.read_text("utf-8")
    assert pages.fill(text, CASES, LINES) == text


def test_every_place_is_on_a_page():
    shown = "".join(page.read_text("utf-8") for page in PAGES)
    assert {found[1] for found in pages.PLACE.finditer(shown)} == {*pages.PLACES}


def test_results_are_made_of_the_records():
    """Otherwise: `python -m benchmarks.report`."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    assert report.document(RECORDS, "RESULTS.svg") == text
    assert f"![{_chart.ALT}](RESULTS.svg)" in text


def test_no_place_has_an_unknown_name():
    text = "<!-- from records: nothing -->\n<!-- end -->"
    with pytest.raises(ValueError, match="nothing: expected one of speed, comparison"):
        pages.fill(text, CASES, LINES)


def test_a_page_with_other_figures_than_the_record_is_mended():
    changed = copy.deepcopy({**CASES})
    rows = changed["labels", "found digits"][1]["contenders"]
    rows[0]["figures"]["auc"] = 0.1234
    page = ROOT / "docs" / "label-errors.md"
    made = pages.fill(page.read_text("utf-8"), changed, LINES)
    assert "| digits, 1,442 | jaxsel | 0.1234 | 0.994 |" in made
    assert pages.fill(made, CASES, LINES) == page.read_text("utf-8")


def test_losses_are_shown_beside_wins():
    pair = [row("jaxsel", [4.0] * 3), row("ahead", [1.0] * 3, peer=True)]
    other = [row("jaxsel", [1.0] * 3), row("behind", [4.0] * 3, peer=True)]
    run = record(case("lost", pair), case("won", other), case("exact", other))
    found = pages.fill(
        "<!-- from records: speed -->\n<!-- end -->\n"
        "<!-- from records: losses -->\n<!-- end -->",
        *pages.on_record([run]),
    )
    assert "| knn lost | 4.00 ms per pair | ahead, 1.00 ms per pair | 0.250† |" in found
    assert "| KNN-Shapley, exact | 1.00 ms per pair |" in found
    assert "knn won" not in found  # of the others only those that `SHOWN` names
    assert "Of 3 cases on this machine jaxsel is behind its closest peer in 1" in found


def test_every_figure_that_is_not_reached_is_in_the_readme():
    text = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    cpus = {line.machine for line in LINES}
    missed = [
        one for one in judged(RECORDS) if one.met is False and one.machine in cpus
    ]
    assert missed
    for one in missed:
        assert f"| {one.bench} {one.case} | {one.target.level} |" in text
    assert text.count(" | must | ") + text.count(" | goal | ") == len(missed)


def test_no_row_takes_less_than_its_figures_say():
    """A call that finds its result in a cache has no time."""
    for line in LINES:
        _, found = CASES[line.bench, line.case]
        ours = next(x for x in found["contenders"] if line.ours.startswith(x["name"]))
        named = [v for k, v in ours["figures"].items() if k.endswith("_s")]
        assert all(0.1 * seconds <= max(ours["wall_s"]) for seconds in named)


def test_two_pages_on_secure_costs_have_the_same_figures():
    rows = re.findall(
        r"^\| BERT, a batch of 4: \w+ \|.*\| ([\d,]+) \|$",
        (ROOT / "docs" / "secure-figures.md").read_text("utf-8"),
        re.MULTILINE,
    )
    page = (ROOT / "docs" / "secure-cost.md").read_text("utf-8")
    assert len(rows) == 2
    rounds, size = rows
    assert f"a batch of 4 takes {rounds} rounds and {size} GB in our count" in page
