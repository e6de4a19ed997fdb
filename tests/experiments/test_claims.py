"""Claims as rows of data: their tests, their tallies, and what pages say of them."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from experiments._kit.claims import (
    ABOVE,
    BELOW,
    SHARE,
    Measured,
    SeedTest,
    Stated,
    by_claim,
    claim_table,
    differs_table,
    judge,
    matrix,
    share_of,
    tally,
    untested_table,
)
from experiments._kit.judge import FAILS, HOLDS, OPEN, UNTESTED, Claim, holm
from experiments.filter.claims import CLAIMS as FILTER, OURS
from experiments.mycroft.claims import CLAIMS as MYCROFT, OURS as BESIDE_MYCROFT
from experiments.mycroft.spaces import CLAIMS as SPACES
from experiments.secure.claims import CLAIMS as SECURE
from experiments.selectformer.cells.chapter import CLAIMS as CELL
from experiments.selectformer.curve.claims import CLAIMS as CURVE
from experiments.selectformer.proxies.claims import CLAIMS as PROXIES
from experiments.selectformer.scores.claims import CLAIMS as SCORES
from experiments.values.claims import CLAIMS as STUDY

DOCS = Path(__file__).parents[2] / "docs"
RNG = np.random.default_rng(0)


def stated(text="A is above B", test=ABOVE, **options):
    return Stated(text=text, where="Table 1", test=test, **options)


def measured(key, mean, where="d", n=6, **options):
    values = mean + 0.1 * np.linspace(-1, 1, n)
    return Measured(key=key, where=where, values=values, said="said", **options)


@pytest.mark.parametrize(
    ("test", "mean", "verdict"),
    [
        (ABOVE, 1.0, HOLDS),
        (ABOVE, -1.0, FAILS),
        (ABOVE, 0.01, OPEN),
        (BELOW, -1.0, HOLDS),
        (SeedTest("above", -2.0), -1.0, HOLDS),
        (SeedTest("below", 2.0), 1.0, HOLDS),
        (SeedTest("within", 0.5), 0.0, HOLDS),
        (SeedTest("within", 0.5), 1.0, FAILS),
        (SeedTest("share"), 1.0, SHARE),
    ],
)
def test_each_test(test, mean, verdict):
    (claim,) = judge({"a": stated(test=test)}, [measured("a", mean)])
    assert (claim.verdict, claim.place) == (verdict, "Table 1")


def test_a_claim_of_several_parts_needs_all():
    one = measured("a", 1.0)
    both = np.stack([one.values, one.values])
    for parts, verdict in ((both, HOLDS), (both * [[1], [-1]], FAILS)):
        row = Measured(key="a", where="d", values=parts, said="")
        (claim,) = judge({"a": stated()}, [row])
        assert claim.verdict == verdict
        assert claim.test.startswith("2 t-tests, 6 seeds")


def test_a_family_is_corrected_together_and_no_other():
    claims = {"a": stated("a", family="f"), "b": stated("b", family="f"), "c": stated()}
    rows = [measured(key, mean) for key, mean in (("a", 0.1), ("b", 0.2), ("c", 0.1))]
    raw = [ttest_1samp(row.values, 0).pvalue for row in rows]
    found = [claim.p for claim in judge(claims, rows)]
    np.testing.assert_allclose(found, [*holm(raw[:2]), raw[2]])
    assert found[1] > raw[1]


def test_without_seeds_nothing_can_be_told():
    """Seeds in which a figure is undefined are left out, all of them if need be."""
    (claim,) = judge({"a": stated()}, [measured("a", 1.0, n=0)])
    assert (claim.verdict, claim.p) == (OPEN, 1.0)


def test_what_nothing_bears_on():
    claims = {
        "a": stated("a"),
        "b": stated("b", test=None, because="of b"),
        "c": stated("c", because="it takes --paper"),
        "d": stated("d"),
    }
    rows = [
        measured("a", 1.0),
        measured("a", 1.0, where="e", other="another model"),
        measured("b", 1.0),
        measured("d", 1.0),
    ]
    found = judge(claims, rows)
    by = {(c.text, c.where): c.verdict for c in found}
    assert by["a", "e"] == f"{UNTESTED}, because another model"
    assert by["b", "d"] == f"{UNTESTED}, because of b"
    assert by["c", ""] == f"{UNTESTED}, because it takes --paper"
    assert tally(found) == "2 hold in each setting and 2 are not tested here"
    assert [row[0] for row in untested_table(found).rows] == ["b", "c"]
    assert [row[0] for row in claim_table(found, "", n_seeds=6).rows] == ["a", "a", "d"]
    notes = {row[0]: row[-1] for row in matrix(found, "").rows}
    assert notes == {"a": "in 1", "b": UNTESTED, "c": UNTESTED, "d": ""}
    assert untested_table(judge({"a": stated()}, rows[:1])) is None
    with pytest.raises(ValueError, match=r"stated claims, got \['x'\]"):
        judge(claims, [measured("x", 1.0)])


def test_headings_count_claims_and_not_rows():
    """One truism in seven settings is one claim."""
    claims = {"true": stated("true"), "matters": stated("matters")}
    rows = [measured("true", 1.0, where=f"{i}") for i in range(7)]
    rows += [measured("matters", -1.0, where=f"{i}") for i in range(7)]
    found = judge(claims, rows)
    assert tally(found) == "1 holds in each setting and 1 holds in none"
    table = matrix(found, "Claims.")
    assert [row[:5] for row in table.rows] == [
        ["true", "Table 1", 7, 0, 0],
        ["matters", "Table 1", 0, 7, 0],
    ]
    rows[0] = measured("true", -1.0, where="0")
    assert "1 holds in some settings" in tally(judge(claims, rows))


def test_one_seed_has_no_standard_error():
    found = judge({"a": stated()}, [measured("a", 1.0, n=1)])
    assert found[0].verdict == OPEN
    assert "standard error" not in claim_table(found, "", n_seeds=1).caption
    assert "standard error" in claim_table(found, "", n_seeds=2).caption


def test_shares_have_an_interval_and_no_verdict():
    said = share_of(np.array([0, 8]), np.array([100, 100]), "pairs")
    assert said.startswith("8 of 200 pairs: 4.00%, 95 % interval over seeds 0.00% to ")
    assert "no interval" in share_of(np.array([8]), np.array([100]), "pairs")
    counts = RNG.binomial(1000, 0.3, 200)
    said = share_of(counts, np.full(200, 1000), "pairs")
    low, high = (float(x) for x in re.findall(r"(\d+\.\d+)%", said)[1:])
    assert low < 30 < high < low + 0.6


_ALL = (FILTER, OURS, MYCROFT, BESIDE_MYCROFT, SPACES, STUDY, CELL)
_ALL += (SECURE, PROXIES, SCORES, CURVE)


@pytest.mark.parametrize("claims", _ALL)
def test_every_claim_names_its_place_measure_and_test_or_why_not(claims):
    for one in claims.values():
        assert one.text
        assert one.where
        assert (one.test is None) <= bool(one.because)
        assert (one.test is not None) <= bool(one.measure)
    assert len({one.text for one in claims.values()}) == len(claims)
    assert len(differs_table(claims, "").rows) <= len(claims)


def rows_of(page):
    """Claims of each table of a page that begins with the column "claim"."""
    tables, inside = [], False
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| claim |"):
            tables.append([])
            inside = True
        elif inside and line.startswith("|") and not line.startswith("|---"):
            verdict = cells[-1].strip(" |")
            known = verdict in (HOLDS, FAILS, OPEN, SHARE)
            verdict = verdict if known else UNTESTED
            text = cells[0].strip() or tables[-1][-1].text  # not said twice
            claim = Claim(text, "", "", "", "", None, verdict)
            tables[-1].append(claim)
        elif not line.startswith("|"):
            inside = False
    return tables


@pytest.mark.parametrize(
    ("page", "parts"), [("study.md", [(0, 1, 2)]), ("mycroft.md", [(0, 1), (3,)])]
)
def test_pages_count_their_claims_as_reports_do(page, parts):
    text = " ".join((DOCS / page).read_text().split()).replace(", and", " and")
    tables = rows_of(page)
    for some in parts:
        claims = [claim for i in some for claim in tables[i]]
        assert by_claim(claims)
        assert tally(claims).replace(", and", " and") in text


def test_no_other_page_counts_claims_by_hand():
    counts = re.compile(r"\d+ holds? in (each|some|none)")
    counted = {p.name for p in DOCS.glob("*.md") if counts.search(p.read_text())}
    assert counted == {"study.md", "mycroft.md"}
