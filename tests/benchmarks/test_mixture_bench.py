"""The benchmark of mixtures: its page, written from the figures on record."""

import json

import pytest

from benchmarks import mixture


def figures():
    return json.loads((mixture.HERE / "mixture.json").read_text())


def test_the_page_is_that_of_the_figures():
    assert (mixture.HERE / "MIXTURE.md").read_text() == mixture.page(figures())


def test_a_deal_above_its_best_is_told():
    record = figures()
    for other in record["deals"].values():
        other["in_rounds"] = other["best_measured"]
    deal = record["deals"]["12"]
    deal["in_rounds"] = 1.02 * deal["best_measured"]
    deal["coverage"] = 0.5
    low, high = deal["interval_in_rounds"]
    text = mixture.page(record)
    assert "in rounds: mixture over the best measured, worst deal 1.020" in text
    assert "≤ 1.01: missed" in text
    assert "at once: coverage of 95 % intervals, least 0.500" in text
    lines = text.splitlines()
    (spread,) = (line for line in lines if line.startswith("- in rounds: -"))
    assert "at most +2.0%, within 1 % on 15 of 16 deals" in spread
    row = next(line for line in lines if line.startswith("| 12 |"))
    inside = low <= deal["in_rounds"] <= high
    assert row.endswith(
        f"| +2.0% | {deal['coverage_in_rounds']:.3f} | {'yes' if inside else 'no'} |"
    )


def test_both_ways_train_as_many_runs(monkeypatch):
    """Sixteen runs a round, of which only the first are spread."""
    calls = []

    class Fake:
        def __init__(self, count):
            self.count = count

        def merge(self, other):
            return Fake(self.count + other.count)

        def response(self):
            return self

        def next_design(self, count):
            return [None] * count

    def swarm(seed, mixtures, domains, targets):
        count = mixtures if isinstance(mixtures, int) else len(mixtures)
        calls.append((seed, isinstance(mixtures, int)))
        return Fake(count)

    monkeypatch.setattr(mixture, "swarm", swarm)
    assert mixture.in_rounds(7, {}, None).count == mixture.RUNS
    assert [spread for _, spread in calls] == [True, False, False, False]
    assert len({seed for seed, _ in calls}) == mixture.ROUNDS


@pytest.mark.parametrize("deal", [0, 11])
def test_domains_of_a_deal(deal):
    domains, (x_val, _) = mixture.planted(deal)
    assert [len(y) for _, y in domains.values()] == [200] * 4 + [100] * 4
    assert len(x_val) == 597
