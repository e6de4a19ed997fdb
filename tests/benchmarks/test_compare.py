"""Verdicts on made-up runs: slowdowns that were put in are found, and noise is not."""

import json

import numpy as np
import pytest
from records import case, record, row, scattered

from benchmarks import compare as command
from benchmarks.compare import compare


def run(ours, *, seed, peer=None, rounds=7, load=1.0, share=0.03):
    """A case in which ours takes so long; `load` slows down both, round by round."""
    rng = np.random.default_rng([seed, 1])
    spikes = load * np.exp(0.3 * rng.standard_normal(rounds) ** 2)
    rows = [row("jaxsel", spikes * scattered(ours, [seed, 2], rounds=rounds))]
    if peer:
        times = spikes * scattered(peer, [seed, 3], rounds=rounds, share=share)
        rows.append(row("pyDVL", times, peer=True))
    return case("exact", rows)


def verdict(before, after):
    (change,) = compare([record(before)], [record(after)]).changes
    return change


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("factor", "expected"), [(1.5, "slower"), (1 / 1.5, "faster"), (1, "within noise")]
)
def test_changes_are_found_beside_a_peer_whatever_the_load(seed, factor, expected):
    before = run(1.0, peer=20.0, seed=seed)
    # All take twice as long there: nothing that our code has done.
    after = run(factor, peer=20.0, seed=seed + 100, load=2.0)
    change = verdict(before, after)
    assert change.verdict == expected
    assert change.low <= change.ratio <= change.high
    assert change.low <= factor <= change.high
    assert change.by == "beside pyDVL"


def test_noise_alone_is_seldom_more():
    found = [
        verdict(run(1.0, peer=20.0, seed=s), run(1.0, peer=20.0, seed=s + 1000)).verdict
        for s in range(100)
    ]
    assert found.count("within noise") >= 97


def test_a_change_of_which_one_peer_knows_nothing_is_noise():
    def three(ours, second):
        return case(
            "exact",
            [
                row("jaxsel", scattered(ours, 1)),
                row("pyDVL", scattered(20, 2), peer=True),
                row("torch", scattered(second, 3), peer=True),
            ],
        )

    assert verdict(three(1.0, 5.0), three(1.4, 5.0)).verdict == "slower"
    assert verdict(three(1.0, 5.0), three(1.4, 7.0)).verdict == "within noise"


@pytest.mark.parametrize(("factor", "expected"), [(1.5, "slower"), (1, "within noise")])
def test_without_a_peer_plain_times_count(factor, expected):
    def plain(ours, seed):
        return case("exact", [row("jaxsel", scattered(ours, seed))])

    change = verdict(plain(1.0, 1), plain(factor, 2))
    assert (change.verdict, change.by) == (expected, "plain times")
    assert change.high / change.low > 1.2


def test_without_a_peer_the_drift_of_other_cases_counts():
    def two(ours, peer):
        alone = case("alone", [row("jaxsel", scattered(ours, 1))])
        pair = [row("jaxsel", scattered(1, 2)), row("p", scattered(peer, 3), peer=True)]
        return record(alone, case("pair", pair))

    steady = compare([two(1.0, 9.0)], [two(1.4, 9.0)]).changes
    loaded = compare([two(1.0, 9.0)], [two(1.4, 13.0)]).changes
    assert steady[0].verdict == "slower"
    assert loaded[0].verdict == "within noise"


def test_two_rounds_are_too_few():
    before, after = run(1, peer=20, seed=1, rounds=2), run(9, peer=20, seed=2, rounds=2)
    assert verdict(before, after).verdict == "too few rounds"


@pytest.mark.parametrize(
    "device",
    [
        {"cpu": "Abacus 4000"},
        {"platform": "gpu", "kind": "Beads"},
        {"cores": 1},
    ],
)
def test_other_machines_are_refused(device):
    before, after = run(1.0, seed=1), run(1.0, seed=2)
    with pytest.raises(ValueError, match="different machines say nothing about"):
        compare([record(before)], [record(after, **device)])


def test_other_numbers_of_cores_are_compared_on_demand_and_said():
    before, after = record(run(1.0, seed=1)), record(run(1.0, seed=2), cores=1)
    with pytest.raises(ValueError, match="--any-cores compares them"):
        compare([before], [after])
    found = compare([before], [after], any_cores=True)
    assert len(found.changes) == 1
    assert "knn: 2 cores in A, 1 in B" in found.notes
    other = record(run(1.0, seed=2), cpu="Abacus 4000")
    with pytest.raises(ValueError, match="Abacus 3000, 2 cores, and B on Abacus 4000"):
        compare([before], [other], any_cores=True)


def test_what_is_missing_or_of_another_size_is_listed():
    same, gone = run(1.0, seed=1), case("gone", [row("jaxsel", [1, 1, 1])])
    small = case("size", [row("jaxsel", [1, 1, 1])])
    large = case("size", [row("jaxsel", [9, 9, 9])], title="size: more of it")
    broken = case("broken", [row("jaxsel", [1, 1, 1])])
    fails = case("broken", [row("jaxsel", [], status="failed")])
    after = record(same, large, fails)
    after["versions"] = {"python": "3.11.7", "jax": "0.11.2"}
    elsewhere = record(same, date="20260102T000000Z", platform="gpu", kind="Beads")
    found = compare([record(same, gone, small, broken), elsewhere], [after])
    assert [change.case for change in found.changes] == ["exact"]
    assert found.notes == [
        "only A: knn gone",
        "knn: jax 0.10.2 in A, 0.11.2 in B",
        "knn size: another size, so not compared",
        "knn broken, jaxsel: not timed in both",
        "only A, on Beads, 2 cores: knn exact",
    ]


def test_the_latest_run_of_a_case_counts():
    old = record(run(9.0, peer=20, seed=1), date="20250101T000000Z")
    new = record(run(1.0, peer=20, seed=2), date="20260101T000000Z")
    (change,) = compare([new, old], [new]).changes
    assert change.ratio == 1


@pytest.fixture
def history(tmp_path):
    runs = {
        "20260101T000000Z": run(1.0, peer=20.0, seed=1),
        "20260202T000000Z": run(1.5, peer=20.0, seed=2),
    }
    for date, one in runs.items():
        (tmp_path / f"knn-{date}.json").write_text(json.dumps(record(one, date=date)))
    quick = record(run(50.0, seed=3), date="20260203T000000Z", quick=True)
    (tmp_path / "knn-quick.json").write_text(json.dumps(quick))
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "status"), [(None, 0), ("1.1", 1), ("1.2", 1), ("1.45", 0), ("2", 0)]
)
def test_the_exit_status_tells_of_what_is_slower_beyond_noise(history, limit, status):
    argv = ["20260101", "20260202", "--history", str(history)]
    assert command.main(argv + (["--fail-above", limit] if limit else [])) == status


def test_the_command_takes_files_folders_revisions_and_dates(history, capsys):
    first, second = (history / f"knn-2026{d}T000000Z.json" for d in ("0101", "0202"))
    for a, b in (
        (first, second),
        (first, history),  # its latest
        ("20260101aaaa", "20260202aaaa"),
        ("20260101", second),
    ):
        command.main([str(a), str(b), "--history", str(history)])
        shown = capsys.readouterr().out
        assert "| knn exact | jaxsel | 1.5" in shown
        assert "| slower | beside pyDVL |" in shown


@pytest.mark.parametrize("what", ["20260203", "abcdef", "missing.json"])
def test_quick_runs_are_never_mixed_in_and_unknown_ones_are_refused(
    history, what, capsys
):
    with pytest.raises(SystemExit):
        command.main(["20260101", what, "--history", str(history)])
    assert f"{what}: expected a file or folder of full runs" in capsys.readouterr().err


def test_times_of_different_machines_are_refused_with_a_sentence(history, capsys):
    other = record(run(1.0, seed=1), date="20270101T000000Z", cpu="Abacus 4000")
    (history / "other.json").write_text(json.dumps(other))
    with pytest.raises(SystemExit):
        command.main(["20260101", "20270101", "--history", str(history)])
    assert "A was measured on Abacus 3000, 2 cores" in capsys.readouterr().err


def test_runs_with_and_without_a_limit_of_threads_are_kept_apart():
    free, tied = run(1.0, peer=20, seed=1), run(1.0, peer=20, seed=2) | {"threads": 1}
    found = compare([record(free)], [record(tied)])
    assert found.changes == []
    assert found.notes == [
        "knn exact: threads limited on one side only, so not compared"
    ]
    # One core is a limit, too.
    found = compare([record(free, cores=1)], [record(tied, cores=1)])
    assert len(found.changes) == 1


def test_cases_without_a_time_are_not_compared():
    figures = case("figures", [row("jaxsel", [], gain=0.5)])
    found = compare([record(figures)], [record(figures)])
    assert found.changes == []
    assert found.notes == ["knn figures, jaxsel: not timed in both"]
