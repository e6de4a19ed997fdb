"""Cells of filtering, of the study of values and of Mycroft, on tiny prepared sets."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import cells
import jax
import numpy as np
import pytest
from commands import experiment, refuse_experiment as refuse

pytest.importorskip("safetensors", reason="comes with the text extra")
pytest.importorskip("tokenizers", reason="comes with the text extra")

from experiments._kit.reading import channels_alike, read_cell, read_images
from experiments._kit.scenes.valuations import KNN, RETRAINED, knn_methods
from experiments.filter.cells import run as filtering
from experiments.mycroft.cells import run as mycroft
from experiments.mycroft.spurious import draw_backgrounds, on_background
from experiments.values import cases
from experiments.values.cells import run as values


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("cells")
    cells.photos(root / "data", n=600)
    cells.photos(root / "data", "others", n=240, grey=True, classes=5)
    cells.pairs(root / "data", n=600)
    return SimpleNamespace(
        data=root / "data",
        bert=cells.target(root / "bert", "bert"),
        distilbert=cells.target(root / "distilbert", "distilbert"),
        vit=cells.target(root / "vit", "vit", side=24),
    )


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(made.data))
    return made


@pytest.fixture
def small(monkeypatch):
    """Shrink the experiments, and what `--paper` makes of them."""
    few = {
        "clean": 60,
        "test": 30,
        "clients": 6,
        "rounds": 8,
        "fit": 5,
        "side": 6,
        "ratios": (2.0,),
    }
    tiny = dataclasses.replace(filtering.SIZES, **few, evaluate_every=4, folds=2)
    monkeypatch.setattr(filtering, "SIZES", tiny)
    cnn = dataclasses.replace(tiny, net="cnn", channels=(2, 4))
    monkeypatch.setattr(filtering, "PAPER", cnn)
    few = {"n": 30, "n_val": 15, "n_test": 30, "pool": 60, "rounds": 1, "width": 3}
    monkeypatch.setattr(values, "SIZES", dataclasses.replace(values.SIZES, **few))
    monkeypatch.setattr(values, "_OTHER", 20)
    few = {"budgets": (4,), "main": 4, "shared": 4, "held_out": 4, "min_steps": 4}
    short = {"first": 4, "cycles": (1, 2), "channels": (2, 4), "epochs": 1, "side": 8}
    for name in ("SIZES", "PAPER"):
        base = dataclasses.replace(getattr(mycroft, name), **few, **short)
        monkeypatch.setattr(mycroft, name, base)
    stripes = {"own": 40, "val": 90, "test": 30, "offered": 80, "shared": 4}
    stripes = dataclasses.replace(mycroft.STRIPES, **stripes)
    monkeypatch.setattr(mycroft, "STRIPES", stripes)
    monkeypatch.setattr(mycroft, "_STRIPED", 2 * 120 + 120)


@pytest.fixture
def quick(monkeypatch):
    """Let a closed form stand in for values that train models again."""
    value = knn_methods()["KNN-Banzhaf"]
    stand_in = lambda learner, samples: dict.fromkeys(RETRAINED, value)
    monkeypatch.setattr(cases, "retrained_methods", stand_in)
    monkeypatch.setattr(cases, "_BUYS", (KNN[0], "KNN-LOO"))


def numbers(folder):
    return json.loads((Path(folder) / "report.json").read_text())["chapters"][0]["data"]


def test_images_are_of_one_size_and_as_many_channels(here):
    read, x = read_images("photos", side=7)
    assert x.shape == (630, 7, 7, 3)
    assert (len(read.train.y), len(read.test.y), read.n_classes) == (600, 30, 3)
    assert 0 <= x.min() < x.max() <= 1
    bright = x.mean(axis=(1, 2, 3))
    y = np.concatenate([read.train.y, read.test.y])
    assert bright[y == 1].min() > bright[y != 1].max()
    few, grey = read_images("others", side=7, tested=False, most=50)
    assert (grey.shape, len(few.test.y)) == ((50, 7, 7, 1), 0)
    alike = channels_alike([x, grey])
    assert [part.shape[-1] for part in alike] == [3, 3]
    np.testing.assert_array_equal(alike[1], np.repeat(grey, 3, axis=-1))
    assert few.digest != read.digest
    task, noise, _ = filtering._read("photos", ("others",), 7, False)
    assert task[0].shape[1:] == noise[0][0].shape[1:] == (7, 7, 3)
    np.testing.assert_array_equal(np.bincount(noise[0][1]), [96, 96, 48])  # modulo 3
    alone, _, _ = filtering._read("others", (), 7, False)
    assert alone[0].shape == (240, 7, 7)


def test_a_target_encodes_images_as_it_reads_them(here):
    cell = read_cell("photos", str(here.vit), kind="image", most=8, tested=False)
    whole = cell.images()
    assert (whole.shape, whole.dtype) == ((8, 24, 24, 3), np.uint8)
    features = cell.target.features(cell.take(np.arange(8)))
    for images in (whole, whole / np.float32(255)):
        np.testing.assert_allclose(cell.encoded(images), features, atol=1e-6)


def test_stripes_behind_images_of_any_kind():
    x = np.random.default_rng(0).integers(0, 256, (6, 14, 14)).astype(np.uint8)
    args = np.arange(6) % 2 == 0, jax.random.key(0)
    grey = on_background(x / np.float32(255), *args)
    assert (grey >= x / np.float32(255)).all()
    np.testing.assert_allclose(on_background(x, *args), grey, atol=1e-6)
    colour = on_background(np.repeat(x[..., None], 3, axis=-1), *args)
    np.testing.assert_allclose(colour, np.repeat(grey[..., None], 3, -1), atol=1e-6)


def test_networks_see_stripes_through_an_encoder():
    rng = np.random.default_rng(0)
    data = rng.random((400, 8, 8)), rng.integers(0, 2, 400)
    sizes = mycroft.Sizes(
        net="linear", own=20, val=80, test=20, offered=40, shared=4, held_out=4, first=4
    )
    encode = lambda x: x.reshape(len(x), -1)[:, :5]
    key = jax.random.key(0)
    scene = draw_backgrounds(data, sizes, key, pair=(0, 1), encode=encode)
    parts = scene.natural, scene.spurious, scene.plain, scene.trainer.held_out
    assert {part[0].shape[1:] for part in parts} == {(5,)}


@pytest.mark.slow
def test_filtering_takes_other_sets_as_noise(here, small, capsys, monkeypatch):
    monkeypatch.setattr(filtering, "RATES", (1e-9, 0.2))
    cell = "filter", "--data", "photos", "--others", "others", "--seeds", 2
    experiment(*cell)
    assert (
        "6 clients have 60 clean samples; 30 are tested on" in capsys.readouterr().out
    )
    folder = "repro-filter-photos-others"
    found = numbers(folder)
    assert found["others"] == ["others"]
    assert np.shape(found["noise"]["open"]["accuracy"]) == (2, 1, 4, 2)
    assert np.shape(found["clean"]["ideal"]) == (2, 2)
    assert found["sizes"]["server_rate"] is None
    assert found["sizes"]["rate"] == filtering.RATES[1]
    page = (Path(folder) / "report.html").read_text()
    assert "photos, open-set noise, 2 : 1" in page
    # What is kept is read.
    monkeypatch.setattr(filtering, "noise_seed", None)
    monkeypatch.setattr(filtering, "clean_seed", None)
    experiment(*cell, "--force")
    assert numbers(folder) == found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:all 100 values are 0")  # of four distinct texts
@pytest.mark.parametrize("kind", ["vit", "distilbert"])
def test_values_of_a_targets_features(here, small, quick, kind, capsys):
    data = "pairs" if kind == "distilbert" else "photos"
    cell = ["values", "--data", data, "--seeds", 1, "--target", getattr(here, kind)]
    if kind == "vit":
        cell += ["--others", "others"]
    experiment(*cell)
    assert "30 are valued, 15 validate" in capsys.readouterr().out
    end = {"vit": "-vit-others", "distilbert": "-distilbert"}[kind]
    found = numbers(f"repro-values-{data}{end}")
    expected = {"noisy", "summary", "acquisition"}
    expected |= set() if kind == "distilbert" else {"pattern"}
    expected |= {"instance"} if kind == "vit" else set()
    assert {*found["applications"]} == expected
    auc = found["applications"]["noisy"]["summary"]["KNN-Shapley"]["auc"]
    assert 0 <= auc[0] <= 1
    texts = {claim["text"] for claim in found["claims"]}
    assert "KNN-Shapley finds more wrong labels than KNN-LOO" in texts


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["networks", "vit"])
def test_mycroft_by_networks_and_on_a_targets_features(here, small, kind, capsys):
    cell = ["mycroft", "--data", "photos", "--seeds", 1]
    if kind == "vit":
        cell += ["--target", here.vit, "--paper"]
    experiment(*cell)
    found = numbers("repro-mycroft-photos" + ("-vit" if kind == "vit" else ""))
    assert np.shape(found["starved classes"]["accuracy"]) == (1, 4, 1, 2)
    assert np.shape(found["stripes"]["useful"]) == (1, 4, 1)
    assert np.shape(found["permuted"]) == (1, 2, 2, 2)
    assert found["sizes"]["own"] == (63 if kind == "vit" else 21)
    said = capsys.readouterr().out
    assert "Mycroft as published less random" in said


def test_values_see_small_images_where_there_is_no_target(here, small):
    sizes = values.SIZES
    read = values.read_samples("photos", None, ("others",), sizes, most=30)
    assert read.foreign is not None
    assert read.part.x.shape[1:] == read.foreign.shape[1:] == (32, 32, 3)
    assert len(read.part.other_x) == 20
    assert read.foreign.shape[0] == 240
    seen = read.embed(read.part.x[:4])
    assert seen.shape == (4, 8 * 8 * 3)
    blocks = read.part.x[:4].reshape(4, 8, 4, 8, 4, 3).mean((2, 4))
    np.testing.assert_allclose(seen, blocks.reshape(4, -1), atol=1e-6)
    jobs, balanced = values.applications(read, sizes, paper=False)
    assert [*jobs] == ["noisy", "summary", "acquisition", "pattern", "instance"]
    assert balanced
    lone = dataclasses.replace(read, foreign=None)
    assert "instance" not in values.applications(lone, sizes, paper=True)[0]
    rare = np.flatnonzero(read.part.y != 0)
    part = dataclasses.replace(read.part, y=np.append(read.part.y[rare], 0))
    few = dataclasses.replace(read, part=part)
    assert not values.applications(few, sizes, paper=False)[1]


def test_sizes_fit_the_set():
    y = np.arange(1000) % 10
    images = np.zeros((1000, 2, 2)), y
    offered = [(np.zeros((300, 2, 2)), y[:300])]
    one = filtering.fitted("x", images, offered, filtering.SIZES, most=2000)
    assert one.test == 200
    assert one.clean == 100  # the others have three for each
    plenty = [(np.zeros((5000, 2, 2)), np.arange(5000) % 10)]
    few = dataclasses.replace(filtering.SIZES, clients=50)
    two = filtering.fitted("x", images, plenty, few, most=None)
    assert 4.1 * two.clean + two.test <= 1000 < 4.1 * (two.clean + 2) + two.test
    assert filtering.fitted("x", images, plenty, few, most=70).clean == 70
    with pytest.raises(ValueError, match="--data 'x' and --others must hold enough"):
        filtering.fitted("x", images, offered, filtering.PAPER, most=50)
    many = np.zeros((1000, 2, 2)), np.arange(1000) % 101
    with pytest.raises(ValueError, match="at most 100 classes, .* got 101"):
        filtering.fitted("x", many, plenty, filtering.SIZES, most=50)

    y = np.arange(50_000) % 10
    paper, _ = mycroft.fitted("x", y, mycroft.PAPER, paper=True)
    few, stripes = mycroft.fitted("x", y, mycroft.SIZES, paper=False)
    assert (paper.own, paper.offered, paper.weak) == (1500, 15_000, 3)
    assert paper.val + paper.test == 20_000
    assert paper.budgets == (8, 16, 32, 64, 128)
    assert (few.own, few.offered, few.val, few.test) == (130, 6000, 8000, 1000)
    assert (stripes.own, stripes.offered) == (250, 2000)
    with pytest.raises(
        ValueError, match="100 samples or more of each of its 2 classes"
    ):
        mycroft.fitted("x", np.arange(150) % 2, mycroft.SIZES, paper=False)


def test_a_cell_without_hard_samples_leaves_out_stripes(here, small, monkeypatch):
    def refused(*data, **options):
        raise ValueError("val must have hard samples")

    done = {"accuracy": np.zeros((2, 2, 2))}
    fields = [field.name for field in dataclasses.fields(mycroft.Starved)]
    shapes = {"accuracy": (4, 1, 2), "published": (1, 2), "sent": (4, 1)}
    starved = {n: np.zeros(shapes.get(n, 2)) for n in fields if n != "budgets"}
    monkeypatch.setattr(mycroft, "spurious_seed", refused)
    monkeypatch.setattr(mycroft, "permuted_seed", lambda *_: done)
    monkeypatch.setattr(mycroft, "starved_seed", lambda *_: starved)
    experiment("mycroft", "--data", "photos", "--seeds", 2)
    page = Path("repro-mycroft-photos/report.html").read_text()
    assert "Stripes are left out: val must have hard samples." in page
    monkeypatch.setattr(mycroft, "starved_seed", refused)
    cell = {"data": "photos", "seeds": (7,)}
    with pytest.raises(ValueError, match="--data 'photos' is too small: val must"):
        mycroft.run_cell("runs", **cell)


def test_refuses(here, capsys):
    for cell, message in (
        (("filter", "--data", "emnist"), "--data 'emnist' is not prepared in"),
        (("filter", "--data", "photos"), "jaxsel data prepare fashion_mnist"),
        (("filter", "--data", "pairs"), "must hold one image in each sample"),
        (("filter", "--target", "x"), "no option --target: clients train a model from"),
        (("filter", "--others", "x"), "a cell needs --data: --data is missing"),
        (
            ("filter", "--data", "photos", "--others", "photos"),
            "other sets than --data",
        ),
        (
            ("values", "--data", "photos", "--others", "photos"),
            "other sets than --data",
        ),
        (("filter", "--data", "photos", "--full"), "--full does not go with --data"),
        (("values", "--paper"), "a cell needs --data: --data is missing"),
        (("values", "--data", "pairs"), "must hold one image in each sample"),
        (("values", "--data", "photos"), "must hold 2,700 training samples"),
        (
            ("values", "--data", "pairs", "--target", here.bert, "--others", "photos"),
            "'pairs' is read as texts by this target",
        ),
        (("mycroft", "--others", "x"), "no option --others: owner and trainer share"),
        (
            ("mycroft", "--data", "pairs", "--target", here.bert),
            "must be a target of images, such as a ViT, got one of texts",
        ),
        (
            ("selectformer", "--data", "pairs"),
            "a cell needs --data and --target: --target is missing",
        ),
    ):
        assert message in refuse(capsys, *cell), cell
