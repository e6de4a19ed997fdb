"""`jaxsel market datasets`: vectors, offers, the table, and refusals."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

from jaxsel import market

RNG = np.random.default_rng(0)
TARGET = RNG.normal(size=(30, 5)) + [3, 2, 0, 0, 0]
ROWS = {
    "north": RNG.normal(size=(20, 5)) + [4, 0, 0, 0, 0],
    "south": RNG.normal(size=(10, 5)) + [0, 3, 0, 0, 0],
    "west": RNG.normal(size=(40, 5)) - [0, 0, 9, 0, 0],
}
OWNERS = [f"{name}.npy" for name in ROWS]
COMMAND = ("market", "datasets", "target.npy", *OWNERS)
OUT = ("--out", "d.csv")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("target.npy", TARGET)
    for name, rows in ROWS.items():
        np.save(f"{name}.npy", rows)
    prices = {"owner": ["west", "north", "south"], "price": [1.0, 5.0, 2.0]}
    pd.DataFrame(prices).to_csv("offers.csv", index=False)


def test_rows_are_averaged_and_counted(capsys):
    run(*COMMAND, *OUT)
    expected = market.value_datasets(
        np.stack([rows.mean(0) for rows in ROWS.values()]),
        TARGET,
        counts=[20, 10, 40],
        owners=[*ROWS],
    )
    table = pd.read_csv("d.csv", index_col="owner")
    pd.testing.assert_frame_equal(table, expected.to_pandas(), rtol=1e-12)
    out = capsys.readouterr().out
    assert expected.summary[0] in out
    assert "d.csv, d.json" in out
    facts = json.loads(Path("d.json").read_text())
    assert [entry["source"] for entry in facts["inputs"]] == ["target.npy", *OWNERS]


def test_offers_budget_curvature_and_a_picture():
    np.savez("target.npz", v=TARGET.mean(0))
    for name, rows in ROWS.items():
        np.savez(f"{name}.npz", v=rows.mean(0))
    np.savez("h.npz", v=np.diag([1.0, 2, 3, 4, 5]))
    files = ["target.npz", *(f"{name}.npz" for name in ROWS)]
    options = ("--key", "v", "--offers", "offers.csv", "--budget", 4)
    options += ("--curvature", "h.npz", "--plot", "d.svg")
    run("market", "datasets", *files, *options, *OUT)
    expected = market.value_datasets(
        np.stack([rows.mean(0) for rows in ROWS.values()]),
        TARGET.mean(0),
        prices=[5, 2, 1],
        budget=4,
        owners=[*ROWS],
        curvature=np.diag([1.0, 2, 3, 4, 5]),
    )
    table = pd.read_csv("d.csv", index_col="owner")
    pd.testing.assert_frame_equal(table, expected.to_pandas(), rtol=1e-12)
    assert table.index[table.bought].tolist() == ["south"]
    assert "north" in Path("d.svg").read_text()


def test_counts_of_offers():
    offers = {"owner": [*ROWS], "count": [1, 1000, 1]}
    pd.DataFrame(offers).to_csv("counts.csv", index=False)
    run(*COMMAND, "--offers", "counts.csv", *OUT)
    vectors = np.stack([rows.mean(0) for rows in ROWS.values()])
    expected = market.value_datasets(
        vectors, TARGET, counts=[1, 1000, 1], owners=[*ROWS]
    )
    weights = pd.read_csv("d.csv", index_col="owner").weight[[*ROWS]]
    np.testing.assert_allclose(weights, expected.weights)


def test_many_owners_draw():
    names = [f"o{i}" for i in range(22)]
    for name in names:
        np.save(f"{name}.npy", RNG.normal(size=5))
    files = [f"{name}.npy" for name in names]
    run("market", "datasets", "target.npy", *files, "--seed", 3, *OUT)
    assert json.loads(Path("d.json").read_text())["seeds"] == [3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--out", "d.npz"], "--out must end in .csv"),
        ([*OUT, "--plot", "d.gif"], "--plot must end in .png"),
        (["north.npy", *OUT], "owners must have files of different names, got north"),
        (["wide.npy", *OUT], "vectors of one length"),
        (["texts.npy", *OUT], "texts.npy must hold numbers of shape [d] or [n, d]"),
        ([*OUT, "--offers", "west.csv"], "lacks north"),
        ([*OUT, "--offers", "names.csv"], "must have the columns owner and price"),
        ([*OUT, "--offers", "twice.csv"], "must name each owner once"),
        ([*OUT, "--budget", -1], "budget"),
        (["missing.npy", *OUT], "missing.npy"),
    ],
)
def test_refusals(options, expected, capsys):
    np.save("wide.npy", np.ones(6))
    np.save("texts.npy", np.array(["a", "b"]))
    frame = pd.read_csv("offers.csv")
    frame[:1].to_csv("west.csv", index=False)
    frame[["owner"]].to_csv("names.csv", index=False)
    pd.concat([frame, frame]).to_csv("twice.csv", index=False)
    assert expected in refuse(capsys, *COMMAND, *options)
