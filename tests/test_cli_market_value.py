"""The command line: a valuation across owners, each step by files."""

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from commands import refuse, run

import jaxsel
from jaxsel import Values
from jaxsel.market import Valuation

OWNERS = ("north", "south", "east", "west")
VALUE = ("market", "value")


def draw(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return (rng.normal(size=(n, 3)) + y[:, None]).astype(np.float32), y


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("val", *OWNERS)):
        x, y = draw(20 + seed, seed)
        np.savez(f"{name}.npz", x=x, y=y)


def ask(*options, owners=OWNERS, data="val.npz"):
    run(
        *(*VALUE, "ask", data, "--radius", 1.5, "--owners", ",".join(owners)),
        *("--out", "asked.npz", *options),
    )
    return Valuation.load("asked.npz")


def join(name, *options, data=None):
    if "--max-epsilon" not in options:
        options = (*options, "--max-epsilon", "inf")  # exact sums
    run(
        *(*VALUE, "join", "asked.npz", data or f"{name}.npz", "--owner", name),
        *("--state", f"{name}_state.npz", "--out", f"{name}_keys.npz", *options),
    )


def step(name, action, result, *sent):
    run(
        *(*VALUE, action, "asked.npz", f"{name}_state.npz", *sent),
        *("--out", f"{name}_{result}.npz"),
    )


def files_of(kind, names=OWNERS):
    return [f"{name}_{kind}.npz" for name in names]


def until_masked(left=OWNERS):
    for name in OWNERS:
        join(name)
    for name in OWNERS:
        step(name, "share", "shares", *files_of("keys"))
    for name in left:
        step(name, "mask", "masked", *files_of("shares"))
    run(
        *(*VALUE, "close", "asked.npz", *files_of("masked", left)),
        *("--out", "left.npz"),
    )


def open_sums(left):
    run(
        *(*VALUE, "sum", "asked.npz", "--keys", *files_of("keys")),
        *("--shares", *files_of("shares"), "--masked", *files_of("masked", left)),
        *("--revealed", *files_of("revealed", left), "--out", "sums.npz"),
    )


def finish(name):
    run(
        *(*VALUE, "finish", "asked.npz", f"{name}_state.npz", "sums.npz"),
        *(f"{name}.npz", "--out", f"{name}_values.npz"),
    )
    return Values.load(f"{name}_values.npz")


@pytest.mark.left_out
def test_all_steps(capsys):
    left = OWNERS[:3]
    ask()
    until_masked(left)
    assert "nothing has come of west" in capsys.readouterr().out
    assert stat.S_IMODE(Path("north_state.npz").stat().st_mode) == 0o600
    for name in left:
        step(name, "reveal", "revealed", "left.npz")
    open_sums(left)
    parts = [np.load(f"{name}.npz") for name in left]
    x, y = (np.concatenate([part[key] for part in parts]) for key in "xy")
    val = np.load("val.npz")
    expected = jaxsel.threshold_knn_shapley(x, y, val["x"], val["y"], radius=1.5)
    found = np.concatenate([finish(name).values for name in left])
    np.testing.assert_allclose(found, expected.values, rtol=0, atol=2e-8)
    facts = json.loads(Path("sums.json").read_text())
    assert len(facts["inputs"]) == 1 + 4 + 4 + 3 + 3


def test_no_step_is_done_twice(capsys):
    ask()
    for name in OWNERS:
        join(name)
    step("north", "share", "shares", *files_of("keys"))
    again = (*VALUE, "share", "asked.npz", "north_state.npz", *files_of("keys"))
    error = refuse(capsys, *again, "--out", "other.npz")
    assert "once each" in error
    error = refuse(
        capsys,
        *(*VALUE, "join", "asked.npz", "north.npz", "--owner", "north"),
        *("--state", "north_state.npz", "--out", "other.npz"),
    )
    assert "north_state.npz exists" in error


def test_what_owners_refuse(capsys):
    ask()
    common = ("--state", "s.npz", "--out", "k.npz")
    north = (*VALUE, "join", "asked.npz", "north.npz", *common, "--owner")
    assert "must be one of those asked" in refuse(capsys, *north, "centre")
    message = refuse(capsys, *north, "north")
    assert "--max-epsilon is 1" in message
    assert "accept that with --max-epsilon inf" in message
    exact = (*north, "north", "--max-epsilon", "inf")
    assert "--min-owners 4" in refuse(capsys, *exact, "--min-owners", "4")
    assert "--max-val is 9, but" in refuse(capsys, *exact, "--max-val", "9")
    x, y = draw(9, 1)
    np.savez("wrong.npz", x=x, y=y + 3)
    wrong = (*VALUE, "join", "asked.npz", "wrong.npz", *common, "--owner", "north")
    assert "must hold classes" in refuse(capsys, *wrong)


def test_a_changed_question_is_noticed(capsys):
    ask()
    for name in OWNERS[:3]:
        join(name)
    first = Path("asked.npz").read_bytes()
    ask("--force")
    error = refuse(
        capsys,
        *(*VALUE, "share", "asked.npz", "north_state.npz", "north_keys.npz"),
        *("--out", "o.npz"),
    )
    assert "another valuation" in error
    join("west")
    Path("asked.npz").write_bytes(first)
    error = refuse(
        capsys,
        *(*VALUE, "share", "asked.npz", "north_state.npz", *files_of("keys")),
        *("--out", "o.npz"),
    )
    assert "'west' is of another round" in error
    data = bytearray(first)
    data[-300] ^= 1
    Path("asked.npz").write_bytes(data)
    error = refuse(
        capsys,
        *(*VALUE, "share", "asked.npz", "north_state.npz", "north_keys.npz"),
        *("--out", "o.npz"),
    )
    assert "asked.npz is refused" in error


def test_two_owners_must_be_wanted(capsys):
    two = (*VALUE, "ask", "val.npz", "--radius", "1", "--owners", "a,b", *("--out",))
    assert "set --allow-two" in refuse(capsys, *two, "o.npz")
    with pytest.warns(UserWarning, match="each sees the other's"):
        run(*two, "o.npz", "--allow-two")


def test_tables_by_names_of_columns(capsys):
    rng = np.random.default_rng(0)

    def write(name, columns, n=12):
        rows = [",".join([*columns, "kind"])]
        for i in range(n):
            numbers = map(str, rng.normal(size=len(columns)).round(3))
            rows.append(",".join([*numbers, ["cat", "dog"][i % 2]]))
        Path(f"{name}.csv").write_text("\n".join(rows) + "\n")

    write("val", "abc")
    write("north", "cab")
    write("south", "abd")
    kind = ("--label-column", "kind")
    asked = ask(*kind, data="val.csv")
    assert asked.schema.columns == tuple("abc")
    assert asked.schema.classes == ("cat", "dog")
    join("north", *kind, data="north.csv")
    error = refuse(
        capsys,
        *(*VALUE, "join", "asked.npz", "south.csv", *kind, "--owner", "south"),
        *("--state", "s.npz", "--out", "k.npz"),
    )
    assert "columns of the valuation" in error
    more = ask(*kind, "--classes", "cat,dog,eel", "--force", data="val.csv")
    assert more.schema.classes == ("cat", "dog", "eel")


def test_noise(capsys):
    pytest.importorskip("dp_accounting")
    asked = ask("--epsilon", "2", "--colluding", "2")
    assert asked.epsilon <= 2
    assert f"variance {asked.variance}" in capsys.readouterr().out
    join("north", "--max-epsilon", "2")
    assert "epsilon = " in capsys.readouterr().out


def test_questions_add_up_in_a_file_beside_the_state(capsys):
    pytest.importorskip("dp_accounting")
    asked = ask("--epsilon", 0.6)
    join("north", "--max-epsilon", 1)
    assert "all questions so far: epsilon = 0.5999, delta = 1e-06" in (
        capsys.readouterr().out
    )
    facts = json.loads(Path("north_keys.json").read_text())
    assert facts["config"]["total_epsilon"] == 1
    again = (*VALUE, "join", "asked.npz", "north.npz", "--owner", "north", "--force")
    again += ("--state", "s.npz", "--out", "k.npz")
    error = refuse(capsys, *again)
    assert "epsilon of all questions may be 1 in sum, but would be 1.2" in error
    assert "says north_budget.json" in error
    assert not Path("s.npz").exists()
    error = refuse(capsys, *again, "--total-epsilon", 2, "--total-delta", 1.5e-6)
    assert "delta of all questions may be 1.5e-06 in sum, but would be 2e-06" in error
    run(*again, "--total-epsilon", 2)
    run(*again, "--budget", "other.json")
    assert "a file of its own" in refuse(capsys, *again, "--budget", "k.json")
    loose = ask("--epsilon", 0.01, "--delta", 0.999999, "--force")
    assert loose.variance < 10 < asked.variance
    error = refuse(capsys, *again, "--budget", "third.json")
    assert "max_delta is 1e-05" in error
    assert "delta = 0.999999" in error
    assert not Path("third.json").exists()
    more = refuse(capsys, *again, "--max-delta", 0.9999999, "--min-colluding", 2)
    assert "at least --min-colluding 2, got 1" in more
