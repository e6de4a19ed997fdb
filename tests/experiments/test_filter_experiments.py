"""Filtering across clients in miniature: who gets what, what comes out, the chapter."""

import dataclasses
import json
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest
from commands import experiment

from experiments._kit.scenes import thresholds
from experiments._kit.scenes.federation import KINDS, FilterSizes, draw_federation
from experiments._kit.scenes.trainer import images
from experiments._kit.seeds import Workers
from experiments.filter import chapter, clients, run, writers
from experiments.filter.chapter import filter_chapter
from jaxsel.data import load
from jaxsel.report import Chapter, Report

TINY = FilterSizes(
    side=8,
    hidden=16,
    channels=(4,),
    clients=12,
    clean=240,
    test=120,
    benchmark=0.5,
    shares=(0.25,),
    ratios=(0.5, 1.5),
    fit=150,
    rounds=4,
    evaluate_every=2,
    folds=2,
    replicates=10,
)


@pytest.fixture(scope="module")
def data():
    """Digits for the task, and two data sets of noise, one without structure."""
    x, y = images(load("digits"), 8)
    rng = np.random.default_rng(0)
    noise = rng.random((400, 8, 8)).astype(np.float32), rng.integers(0, 10, 400)
    upside = x[:300, ::-1], y[:300]
    return (x, y), [noise, upside]


def federation(data, kind="both", ratio=1.0, sizes=TINY, seed=0):
    key = jax.random.key(seed)
    return draw_federation(data[0], data[1], sizes, key, kind=kind, ratio=ratio)


@pytest.mark.parametrize("kind", KINDS)
def test_each_client_has_one_class(data, kind):
    scene = federation(data, kind)
    (x, y), source = scene.samples, scene.source
    assert len(x) == len(y) == len(source) == len(scene.clients) == 480
    for client in np.unique(scene.clients):
        assert len(set(y[scene.clients == client].tolist())) == 1
    n_open = {"open": 240, "closed": 0, "both": 120}[kind]
    assert (source > 0).sum() == n_open
    assert (source == -1).sum() == 240 - n_open
    assert scene.clean.sum() == 240


def test_wrong_labels_are_wrong_and_others_right(data):
    scene = federation(data, "closed")
    true = {image.tobytes(): label for image, label in zip(*data[0], strict=True)}
    labels = np.array([true[image.tobytes()] for image in scene.samples[0]])
    right = labels == scene.samples[1]
    np.testing.assert_array_equal(right, scene.clean)


def test_no_sample_is_used_twice(data):
    scene = federation(data, "closed")
    parts = scene.samples[0], scene.benchmark[0], scene.test[0]
    seen = [image.tobytes() for part in parts for image in part]
    assert len(set(seen)) == len(seen)


def test_clean_samples_do_not_depend_on_the_noise(data):
    scenes = [federation(data, kind, 0.5) for kind in KINDS]
    small = federation(data, sizes=dataclasses.replace(TINY, benchmark=0.1))
    for other in (*scenes[1:], small):
        np.testing.assert_array_equal(other.test[0], scenes[0].test[0])
        for part in (lambda s: s.samples[0], lambda s: s.clients):
            np.testing.assert_array_equal(
                part(other)[other.clean], part(scenes[0])[scenes[0].clean]
            )
    np.testing.assert_array_equal(small.benchmark[0], scenes[0].benchmark[0][-24:])


def test_clients_that_are_writers(data):
    scene = federation(data, "both")
    dealt = clients.by_writer(scene, data[0], 12, 0)
    own = scene.source <= 0
    np.testing.assert_array_equal(dealt.clients[~own], scene.clients[~own])
    styles = writers.cluster(data[0], 12, 0)
    np.testing.assert_array_equal(
        dealt.clients[own], styles.of((scene.samples[0][own], scene.samples[1][own]))
    )
    for c in np.unique(dealt.clients[own]):
        assert len(np.unique(scene.samples[1][own & (dealt.clients == c)])) > 1


def test_shares_are_uneven(data):
    scene = federation(data, "open")
    sizes = np.bincount(scene.clients, minlength=12)
    assert sizes.max() > 1.3 * sizes.mean()


def test_too_few_samples(data):
    with pytest.raises(ValueError, match="data must hold"):
        federation(data, "closed", 30.0)
    with pytest.raises(ValueError, match="data must hold"):
        federation(data, "open", 30.0)


@pytest.fixture(scope="module")
def result(data, tmp_path_factory):
    """Two seeds of everything, with tiny data in the place of MNIST."""
    patch = pytest.MonkeyPatch()
    parts = {"mnist": data[0], "fashion_mnist": data[1][0], "digits": data[1][1]}
    patch.setattr(run, "_read", lambda name, side: parts[name])
    patch.setattr(run, "FilterSizes", lambda: TINY)
    patch.setattr(writers, "STYLES", 4)
    folder = tmp_path_factory.mktemp("runs")
    found = run.run_filtering(folder, seeds=(0, 1))
    assert len(list((folder / "default").glob("*.npz"))) == 24
    patch.undo()
    return found


@pytest.mark.slow
def test_shapes(result):
    seeds, ratios, filters = 2, 2, len(thresholds.FILTERS)
    for kind in KINDS:
        one = result.noise["mnist"][kind]
        assert one["removed"].shape == one["kept"].shape == (seeds, ratios, filters)
        assert one["accuracy"].shape == (seeds, ratios, 4, 2)
        assert one["histograms"].sum((2, 3)).tolist() == [[480, 720], [480, 720]]
        for name in ("removed", "kept", "accuracy"):
            assert ((one[name] >= 0) & (one[name] <= 1)).all()
    assert result.questions["mnist"]["rounds"].tolist() == [[2, 4], [2, 4]]
    assert result.questions["mnist"]["sweep"].shape == (seeds, 1, 2, 3)
    variant = result.variants["mnist"]["plain"]
    assert variant["accuracy"].shape == (seeds, 4, 2)
    assert variant["ideal"].shape == (seeds, 2)
    plain = result.plain["mnist"]["open"]
    np.testing.assert_array_equal(plain["accuracy"][:, 1], variant["accuracy"])
    assert result.clients["accuracy"].shape == (seeds, 2, 2, 5)
    # Clients of single classes are those of the other experiments.
    first = result.clients["accuracy"][:, 0]
    np.testing.assert_array_equal(first[:, 0, :4], variant["accuracy"][..., -1])
    np.testing.assert_array_equal(first[:, 0, 4], variant["ideal"][:, -1])
    assert (result.clients["classes"][:, 0] == 1).all()
    assert (result.clients["classes"][:, 1] > 2).all()
    # Only the training differs from the experiment with the other optimizer.
    strong = result.noise["mnist"]["open"]
    np.testing.assert_array_equal(variant["removed"], strong["removed"][:, 1])
    assert (variant["accuracy"] != strong["accuracy"][:, 1]).any()


@pytest.mark.slow
def test_a_cnn(data):
    sizes = dataclasses.replace(TINY, **run.VARIANTS["cnn"], ratios=(0.5,))
    target, others = data
    found = thresholds.variant_seed(target, others, sizes, 0)
    assert found["accuracy"].shape == (4, 2)
    assert found["benchmark"] > 0.6


def test_experiments_by_name():
    jobs = run.experiments(
        run.FULL_FILTER, ("mnist", "fashion_mnist"), (*run.VARIANTS,)
    )
    assert len(jobs) == 2 * (2 * 3 + 1 + 2 + 2) + 2
    assert "fashion_mnist-cnn" in jobs


@pytest.mark.slow
def test_noise_without_structure_is_removed(result):
    one = result.noise["mnist"]["open"]
    # More of the noise goes than of the clean samples.
    assert (one["removed"][..., 1] > 1 - one["kept"][..., 1] + 0.2).all()


@pytest.mark.slow
def test_a_class_that_the_benchmark_lacks(result):
    lacking = result.questions["mnist"]["lacking"]
    assert (lacking[:, 0, 0] < lacking[:, 0, 1]).all()
    np.testing.assert_array_equal(lacking[:, 2, 0], 1)  # "keep"


@pytest.mark.slow
def test_chapter(result, tmp_path):
    report = Report(title="Filter", summary="", chapters=[filter_chapter(result)])
    page, numbers = report.save(tmp_path)
    text = page.read_text(encoding="utf-8")
    for words in ("Noise removed", "clean samples alone", "MNIST", "by class"):
        assert words in text
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    assert data["sizes"]["clients"] == 12


@pytest.mark.slow
def test_one_seed_is_told_without_spread(result):
    only = dataclasses.replace(
        result,
        seeds=result.seeds[:1],
        noise=jax.tree.map(lambda a: a[:1], dict(result.noise)),
        questions=jax.tree.map(lambda a: a[:1], dict(result.questions)),
        variants=jax.tree.map(lambda a: a[:1], dict(result.variants)),
        best=jax.tree.map(lambda a: a[:1], dict(result.best)),
        writers=jax.tree.map(lambda a: a[:1], dict(result.writers)),
        plain=jax.tree.map(lambda a: a[:1], dict(result.plain)),
        clients=jax.tree.map(lambda a: a[:1], dict(result.clients)),
    )
    assert filter_chapter(only).title.startswith("Filtering by loss: of")


def test_seeds():
    with pytest.raises(ValueError, match="seeds must hold"):
        run.run_filtering("nowhere", seeds=())


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    called = mock.create_autospec(run.run_filtering)
    monkeypatch.setattr(run, "run_filtering", called)
    shown = Chapter(title="C", blocks=["Shown"])
    monkeypatch.setattr(chapter, "filter_chapter", lambda _: shown)
    experiment("filter", "--out", "out")
    called.assert_called_once_with(
        Path("out/runs"),
        seeds=range(5),
        full=False,
        progress=False,
        workers=Workers(),
    )
    assert "Shown" in Path("out/report.html").read_text()
    experiment("filter", "--full", "--seeds", 2, "--force", "--out", "out")
    assert called.call_args.kwargs["full"] is True
    assert "out/report.html" in capsys.readouterr().out


def test_benchmark_losses_are_of_samples_that_the_model_has_not_seen(monkeypatch):
    """A stand-in for the network, whose losses tell what it was trained on."""

    class Trained:
        def __init__(self, x=()):
            self.seen = set(np.ravel(x).tolist())

        def trained(self, x, y, steps, key):
            return Trained(x)

    def losses_of(net, samples):
        return np.array([float(value in net.seen) for value in samples[0][:, 0]])

    monkeypatch.setattr(thresholds, "losses_of", losses_of)
    benchmark = np.arange(40.0)[:, None], np.arange(40) % 4
    bench = thresholds.train_bench(benchmark, Trained(), TINY, jax.random.key(0))
    assert bench.net.seen == set(range(40))
    assert len(bench.half.seen) == 20
    assert bench.held_out.tolist() == [0] * 20
    assert bench.folds.tolist() == [0] * 40
