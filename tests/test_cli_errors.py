"""`jaxsel errors`: what it reads, finds, writes and refuses."""

import csv
import dataclasses
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

import jaxsel
from jaxsel import labels
from jaxsel.data import load

RNG = np.random.default_rng(0)
N = 90
CENTRES = 4 * RNG.normal(size=(3, 4))
TRUE = np.arange(N) % 3
X = (CENTRES[TRUE] + RNG.normal(size=(N, 4))).astype(np.float32)
WRONG = np.array([3, 17, 40, 71])
NAMES = np.array(["ant", "bee", "cow"])
Y = NAMES[TRUE]
Y[WRONG] = NAMES[(TRUE[WRONG] + 1) % 3]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))


def table(folder="errors"):
    with Path(folder, "errors.csv").open() as file:
        return list(csv.DictReader(file))


def rows(folder="errors"):
    return [int(row["row"]) for row in table(folder)]


def frame(**more):
    return pd.DataFrame({**{f"f{i}": X[:, i] for i in range(4)}, "kind": Y, **more})


def test_a_table(capsys):
    # A column on another scale: tables are standardized.
    frame(id=np.arange(N), f9=1e6 * X[:, 0]).to_csv("t.csv", index=False)
    run("errors", "t.csv", "--label", "kind", "--drop", "id")
    found = table()
    assert sorted(int(row["row"]) for row in found) == WRONG.tolist()
    for row in found:
        i = int(row["row"])
        assert row["given"] == Y[i]
        assert row["suggested"] == NAMES[TRUE[i]]
        assert 0 <= float(row["score"]) < 0.5 < float(row["wrong"]) <= 1
    shown = capsys.readouterr()
    assert shown.out.startswith("About 4 of 90 labels are wrong")
    assert "4 are suspected" in shown.out
    assert "Check:" not in shown.err
    page = Path("errors/report.html").read_text()
    assert "Wrong labels of t.csv: about 4 of 90" in page
    numbers = json.loads(Path("errors/report.json").read_text())
    assert sorted(numbers["chapters"][0]["data"]["indices"]) == WRONG.tolist()


@pytest.mark.left_out
def test_the_manifest_says_how_it_came_about():
    np.savez("t.npz", x=X, y=Y)
    run("errors", "t.npz", "--filter", "both", "--seed", 3)
    manifest = json.loads(Path("errors/manifest.json").read_text())
    assert manifest["command"] == "jaxsel errors t.npz --filter both --seed 3"
    assert manifest["config"]["filter_by"] == "both"
    assert manifest["seeds"] == [3]
    (entry,) = manifest["inputs"]
    digest = hashlib.sha256(Path("t.npz").read_bytes()).hexdigest()
    assert entry["sha256"] == digest
    for output in manifest["outputs"]:
        content = Path("errors", output["file"]).read_bytes()
        assert output["sha256"] == hashlib.sha256(content).hexdigest()
    assert len(manifest["outputs"]) == 3


@pytest.mark.left_out
def test_the_same_as_in_python():
    np.savez("t.npz", x=X, y=Y)
    run("errors", "t.npz", "--rank-by", "self_confidence", "--rank-by", "knn_shapley")
    found = jaxsel.find_label_errors(X, Y, rank_by=("self_confidence", "knn_shapley"))
    assert rows() == found.indices.tolist()


@pytest.mark.left_out
def test_probabilities_of_a_model_of_ones_own():
    probs = RNG.dirichlet(np.ones(3), N)
    np.save("p.npy", probs)
    np.save("x.npy", X)
    np.save("y.npy", Y)
    given = ["--labels", "y.npy", "--pred-probs", "p.npy"]
    for option in labels.FILTERS:
        run("errors", "x.npy", *given, "--filter", option, "--out", option)
        wanted = jaxsel.find_label_errors(None, Y, pred_probs=probs, filter_by=option)
        assert rows(option) == wanted.indices.tolist()
    # Texts have no features, and need none then.
    np.savez("t.npz", x=np.array([f"text {i}" for i in range(N)]), y=Y)
    run("errors", "t.npz", "--pred-probs", "p.npy", "--out", "texts")
    assert rows("texts") == rows("prune_by_noise_rate")
    assert f"text {rows('texts')[0]}" in Path("texts/report.html").read_text()


@pytest.mark.left_out
def test_pictures_are_in_the_report():
    digits = load("digits")
    np.save("x.npy", digits.x[:200])
    y = digits.y[:200].copy()
    y[:3] = (y[:3] + 1) % 10
    np.save("y.npy", y)
    run("errors", "x.npy", "--labels", "y.npy")
    assert len({0, 1, 2} & {*rows()}) > 1
    assert Path("errors/report.html").read_text().count("data:image/png") == 1


@pytest.mark.left_out
def test_a_prepared_data_set():
    run("errors", "digits:test", "--no-report", "--out", "new/folder")
    assert sorted(file.name for file in Path("new/folder").iterdir()) == [
        "errors.csv",
        "manifest.json",
    ]
    data = load("digits", split="test")
    wanted = jaxsel.find_label_errors(data.as_features(), data.y.astype(str))
    assert rows("new/folder") == wanted.indices.tolist()


@pytest.mark.left_out
def test_classes_are_shown_by_their_names(monkeypatch, capsys):
    from jaxsel._cli import _read

    def named(*_, **options):
        data = load("digits", split="test")
        names = tuple(f"digit {i}" for i in range(10))
        return dataclasses.replace(data, class_names=names)

    monkeypatch.setattr(_read, "load", named)
    run("errors", "digits:test", "--out", "named")
    assert {row["given"] for row in table("named")} <= {f"digit {i}" for i in range(10)}
    assert "digit" in capsys.readouterr().out
    assert "digit" in Path("named/report.html").read_text()


@pytest.mark.left_out
def test_texts_of_a_table_with_features_of_ones_own():
    texts = [f"<i>review</i> {i}" for i in range(N)]
    frame(review=texts).to_csv("t.csv", index=False)
    np.save("f.npy", X)
    run("errors", "t.csv", "--label", "kind", "--text", "review", "--features", "f.npy")
    page = Path("errors/report.html").read_text()
    assert f"&lt;i&gt;review&lt;/i&gt; {WRONG[0]}<" in page
    assert "<i>" not in page
    by_features = rows()
    run("errors", "t.csv", "--label", "kind", "--text", "review", "--force")
    assert sorted(rows()) == sorted(by_features) == WRONG.tolist()


@pytest.mark.left_out
def test_scales_are_said_where_they_make_a_difference(capsys):
    """Columns of a table are put on one scale, those of embeddings are not."""
    frame(f9=1e6 * X[:, 0]).to_csv("t.csv", index=False)
    run("errors", "t.csv", "--label", "kind", "--as-is", "--no-report")
    assert "Check" not in capsys.readouterr().err
    x = np.column_stack([X, RNG.normal(size=(N, 40)) * 1e5])
    np.savez("wide.npz", x=x, y=Y)
    run("errors", "wide.npz", "--no-report", "--force")
    assert "Check: columns of the features differ in scale" in capsys.readouterr().err


@pytest.mark.left_out
def test_columns_that_tell_most_are_shown():
    towns = np.array(["Ur", "Uruk", "Kish"])[TRUE]
    words = [f"word {i}" for i in range(N)]
    more = {"town": towns, "score": X[:, 0], "said": words, "flat": np.ones(N)}
    frame(key=np.arange(N) + 500, **more).to_csv("t.csv", index=False)
    given = ["--label", "kind", "--id-column", "key", "--text", "said"]
    run("errors", "t.csv", *given, "--encode", "auto")
    first, *_ = table()
    head = list(first)
    assert head[:6] == ["row", "id", "given", "suggested", "score", "wrong"]
    # The town says it all; a column called as one of ours is told from it.
    assert head[6] == "town"
    assert "table.score" in head
    assert not {"kind", "key", "said", "flat"} & {*head}
    i = int(first["row"])
    assert first["town"] == towns[i]
    assert first["id"] == str(i + 500)
    assert float(first["table.score"]) == pytest.approx(X[i, 0])
    page = Path("errors/report.html").read_text()
    assert towns[i] in page
    assert str(i + 500) in page


@pytest.mark.left_out
def test_overlapping_classes_are_said(capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    np.savez("t.npz", x=rng.normal(size=(300, 2)) + y[:, None], y=y)
    run("errors", "t.npz", "--no-report")
    shown = capsys.readouterr()
    assert "Check: models agree with " in shown.err
    assert "Classes overlap" in shown.out


@pytest.mark.left_out
def test_a_few_suspects_are_no_doubt(capsys):
    """They are printed, all of them: a line on features helps nobody."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.normal(size=(200, 4)) + 5 * y[:, None]
    y[7] = 1 - y[7]
    np.savez("t.npz", x=x, y=y)
    run("errors", "t.npz", "--no-report")
    shown = capsys.readouterr()
    assert "1 is suspected" in shown.out
    assert "Check:" not in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t.csv"], "--label-column"),
        (["t.csv", "--label", "sort"], "has no column 'sort'"),
        (["t.csv", "--label", "f0", "--drop", "kind"], "must hold class labels"),
        (["t.csv", "--label", "kind", "--text", "story"], "has no column 'story'"),
        (["t.npz", "--text", "review"], "is none"),
        (["t.npz", "--encoder", "minilm"], "--encoder is for texts"),
        (["texts.npz"], "give --encoder minilm"),
        (["texts.npz", "--encoder", "gpt"], "--encoder must be one of"),
        (["nan.npz"], "TABLE must be finite, but row 3"),
        (["one.npz"], "two classes or more"),
        (["t.npz", "--folds", "1"], "folds must be at least 2"),
        (["t.npz", "--filter", "all"], "must be one of"),
        (["t.npz", "--rank-by", "data_oob"], "--seed must be given for --rank-by"),
        (["t.npz", "--pred-probs", "t.npz"], "no array 'pred_probs'"),
        (["t.npz", "--pred-probs", "p.npy"], "must have the same length"),
        (["t.npz", "--features", "p.npy", "--encoder", "minilm"], "not both"),
        (["nothing.npz"], "nothing.npz is not there"),
        (["what"], "neither a file"),
    ],
)
def test_what_is_refused(capsys, arguments, message):
    frame().to_csv("t.csv", index=False)
    np.savez("t.npz", x=X, y=Y)
    np.savez("texts.npz", x=np.array(["a"] * N), y=Y)
    np.savez("nan.npz", x=np.where(np.arange(N)[:, None] == 3, np.nan, X), y=Y)
    np.savez("one.npz", x=X, y=np.zeros(N, int))
    np.save("p.npy", np.full((5, 3), 1 / 3))
    assert message in refuse(capsys, "errors", *arguments)


def test_what_is_there_is_not_replaced(capsys):
    np.savez("t.npz", x=X, y=Y)
    Path("errors").mkdir()
    Path("errors/errors.csv").write_text("mine")
    assert "--force replaces it" in refuse(capsys, "errors", "t.npz")
    assert Path("errors/errors.csv").read_text() == "mine"


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
@pytest.mark.left_out
def test_without_what_a_report_needs(capsys, monkeypatch, package):
    np.savez("t.npz", x=X, y=Y)
    monkeypatch.setitem(sys.modules, package, None)
    said = refuse(capsys, "errors", "t.npz")
    assert package in said
    assert "jaxsel[data,report,text]" in said
    assert not Path("errors").exists()
    run("errors", "t.npz", "--no-report")
