"""The record of proxies on real pools, and the tables that it makes."""

import numpy as np
import pytest

from experiments.selectformer.proxies import record
from experiments.selectformer.proxies.points import RATES, candidates, points
from experiments.selectformer.proxies.tries import HELD_OUT

POOL, TWO = "movie_polarity", [*points()].index("paper, 2 phases")


def write_run(folder, seed, shift=0.0):
    """Write the files of one seed; the guard refuses the two phases in seed 1."""
    count = len(points())
    ranks = np.linspace(0.2, 0.9, count) + shift
    bought = np.full((3, count), 0.62 + shift)
    if seed == 1:
        ranks[TWO] = bought[:, TWO] = np.nan
    np.savez(
        folder / f"proxies-{POOL}-{seed}.npz",
        n=100,
        random=np.full((4, 5), 0.6),
        ideal=np.full((3, 3), 0.63),
        bought=bought,
        pool=0.7,
        spearman=ranks,
        overlap=np.concatenate([[0.2, 1.0], ranks / 2]),
    )
    judged = np.zeros((len(candidates("text")), len(RATES)))
    judged[0, 0] = np.nan
    np.savez(folder / f"settings-proxies-{POOL}-{HELD_OUT}.npz", judged=judged)


def test_seeds_are_added_and_replaced(tmp_path):
    write_run(tmp_path, 0)
    first = record.add({}, tmp_path)
    (tmp_path / f"proxies-{POOL}-0.npz").unlink()
    write_run(tmp_path, 1, shift=0.01)
    write_run(tmp_path, 10)
    write_run(tmp_path, 2)
    both = record.add(first, tmp_path)
    assert [*both[POOL]["seeds"]] == ["0", "1", "2", "10"]
    assert [*first[POOL]["seeds"]] == ["0"]
    write_run(tmp_path, 2, shift=0.05)
    again = record.column(record.add(both, tmp_path), POOL, "ranks")
    before = record.column(both, POOL, "ranks")
    np.testing.assert_allclose(again["probe"] - before["probe"], [0, 0, 0.05, 0])
    assert both[POOL]["judged"]["d=2"][0] is None


def test_seeds_of_other_settings_are_refused(tmp_path):
    write_run(tmp_path, 0)
    first = record.add({}, tmp_path)
    path = tmp_path / f"settings-proxies-{POOL}-{HELD_OUT}.npz"
    judged = np.load(path)["judged"]
    judged[1, 3] = 0.5
    np.savez(path, judged=judged)
    with pytest.raises(ValueError, match=r"other settings than the record's seeds of"):
        record.add(first, tmp_path)


def test_figures_are_points_beyond_random_and_shares_of_the_choice(tmp_path):
    write_run(tmp_path, 0)
    found = record.add({}, tmp_path)
    gains = record.column(found, POOL, "points")
    assert gains[record.ORACLE] == pytest.approx(3)
    assert gains["probe"] == pytest.approx(2)
    assert gains["all"] == pytest.approx(10)
    shares = record.column(found, POOL, "shares")
    ranks = record.column(found, POOL, "ranks")
    assert shares["random"] == pytest.approx(0.2)
    assert shares["words"] == pytest.approx(ranks["words"] / 2, abs=1e-4)


def test_refused_seeds_are_counted_and_left_out(tmp_path):
    for seed in (0, 1, 2):
        write_run(tmp_path, seed)
    places = [f"<!-- from record: {n} -->\n<!-- end -->" for n in ("ranks", "points")]
    page = "\n".join(places)
    text = record.fill(page, record.add({}, tmp_path))
    (ranks, gains) = [
        line
        for line in text.splitlines()
        if line.startswith("| the paper's two phases")
    ]
    assert ranks.endswith(".24 ± .00, 1 refused (.12) |")
    assert gains.endswith("+2.0 ± .0, 1 refused |")
    assert "Movie polarity, 100 samples, 3 seeds" in text


def test_a_negative_zero_has_no_sign():
    assert record._short(-0.004, 2) == ".00"
    assert record._short(-0.04, 1, sign=True) == "+.0"
    assert record._short(-1.25, 1, sign=True) == "-1.2"


def test_the_page_shows_the_record():
    """Otherwise: `python -m experiments.selectformer.proxies.record`."""
    text = record.PAGE.read_text("utf-8")
    assert record.fill(text, record.read()) == text


def test_the_record_is_whole():
    for name, pool in record.read().items():
        seeds = [int(seed) for seed in pool["seeds"]]
        assert HELD_OUT not in seeds
        assert seeds == sorted(seeds)
        for field in ("ranks", "shares", "points"):
            for values in record.column(record.read(), name, field).values():
                assert len(values) == len(seeds)
