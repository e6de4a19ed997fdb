"""The evaluation of proxies, with a tiny model and invented texts."""

import dataclasses
import importlib.util
import json

import jax
import numpy as np
import pytest
from commands import experiment
from flax import nnx

from experiments.proxy import run
from experiments.proxy.chapter import proxies_chapter
from experiments.proxy.points import CANDIDATES, POINTS, candidates, points
from experiments.proxy.run import run_proxies
from jaxsel.demo import _reviews
from jaxsel.demo.scenes.texts import LAYERS, Sizes, Texts, deal
from jaxsel.models import Classifier, EncoderConfig, Target, Tokens
from jaxsel.proxy import Training
from jaxsel.report import Report

needs_spu = pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)

L, H, VOCAB = 8, 16, 40
CONFIG = EncoderConfig(
    kind="text",
    layers=3,
    heads=12,
    hidden=12 * 2,
    intermediate=12,
    vocab=VOCAB,
    positions=L,
    activation="relu",
)
SIZES = Sizes(pool=80, own=40, bootstrap=0.25, budget=0.5)


def invented(n_classes, n=300):
    """Texts whose class is told by one of their words."""
    rng = np.random.default_rng(n_classes)
    labels = (np.arange(n) % n_classes).astype(np.int32)
    ids = rng.integers(n_classes, VOCAB, (n, L)).astype(np.int32)
    ids[:, 1] = labels
    mask = np.arange(L) < rng.integers(4, L + 1, (n, 1))
    model = Classifier(CONFIG, n_classes, read="mean", rngs=nnx.Rngs(0))
    target = Target(
        config=CONFIG,
        **dict(zip(("graphdef", "params"), nnx.split(model), strict=True)),
        read="mean",
    )
    tokens = Tokens(ids, mask)
    return Texts(
        name=f"of {n_classes}",
        tokens=tokens,
        features=target.features(tokens, layers=(0, 1, 2, 3)),
        labels=labels,
        n_classes=n_classes,
        target=target,
        words=np.array([f"text {i}" for i in range(n)]),
    )


@pytest.fixture
def small(monkeypatch):
    """Pools of invented texts, few and short trainings; how often texts were read.

    The training of one layer diverges.
    """
    texts = {"movie_polarity": invented(2), "tweets": invented(2)}
    read = []

    def read_texts(name, most, *, progress=False):
        read.append(name)
        return texts[name]

    pools = {
        "movie_polarity": SIZES,
        "tweets": dataclasses.replace(SIZES, kept=9),
    }
    monkeypatch.setattr(run, "read_texts", read_texts)
    monkeypatch.setattr(run, "POOLS", pools)
    small = {
        name: dataclasses.replace(
            one,
            training=Training(1, 16, 1e30 if name == "1 layer" else 1e-3),
            # The paper's are all of one kind here, so that few programs are compiled.
            spec=CANDIDATES["l1 w1 d2"].spec if " w" in name else one.spec,
        )
        for name, one in CANDIDATES.items()
    }
    monkeypatch.setattr(run, "candidates", lambda full: small)
    return read


@pytest.mark.slow
def test_all_points_in_a_report(small, tmp_path):
    found = run_proxies(tmp_path / "runs", seeds=(0, 1))
    assert found.points == tuple(POINTS)
    for pool in found.pools.values():
        assert pool.spearman.shape == (2, len(POINTS))
        assert (np.abs(pool.spearman) <= 1).all()
        np.testing.assert_array_equal(pool.overlap[:, 1], 1)
        assert ((pool.overlap >= 0) & (pool.overlap <= 1)).all()
        assert (pool.bytes > 0).all()
        at = {name: pool.bytes[0, i] for i, name in enumerate(POINTS)}
        assert at["probe"] < at["hidden probe"] < at["1 layer"]
        assert at["paper, 1 phase"] < at["paper, 2 phases"] < at["paper, 3 phases"]
        assert at["words"] == at["last-layer probe"] < at["probe"]
        stopped = dict(zip(found.candidates, pool.stopped.T.tolist(), strict=True))
        assert [name for name in stopped if any(stopped[name])] == ["1 layer"]
        assert stopped["1 layer"] == [True, True]
    assert (found.pools["tweets"].rare_offered > 0.05).all()
    assert (found.pools["movie_polarity"].rare_offered == 0).all()
    # What is there is not made again.
    small.clear()
    for name in ("movie_polarity-0.npz", "tweets-1.npz"):
        with np.load(tmp_path / "runs" / name) as file:
            kept = json.loads(str(file["__jaxsel__"]))["settings"]
        assert "stopped" in kept["fields"]
    again = run_proxies(tmp_path / "runs", seeds=(0, 1))
    for name, pool in again.pools.items():
        np.testing.assert_array_equal(pool.spearman, found.pools[name].spearman)
    chapter = proxies_chapter(found)
    report = Report(title="Proxies", summary="", chapters=[chapter])
    page, numbers = report.save(tmp_path)
    text = page.read_text()
    assert "the best of the paper" in text
    assert "kept: “1 layer” in 2 and “probe, 1 layer” in 2 of the 2 seeds." in text
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    assert data["points"] == list(POINTS)


def test_deals_share_nothing():
    labels = np.arange(600) % 3
    for kept in (1, 9):
        sizes = Sizes(pool=110, own=55, kept=kept)
        dealt = deal(labels, sizes, jax.random.key(kept))
        assert not set(dealt.pool) & set(dealt.own)
        counts = np.sort(np.bincount(labels[dealt.pool]))
        assert counts.tolist() == ([37, 37, 37] if kept == 1 else [10, 10, 90])
    with pytest.raises(ValueError, match="labels must hold at least 111 of class 0"):
        deal(labels[:300], Sizes(pool=222, own=111), jax.random.key(0))


def test_ablations_come_with_the_full_run():
    more = set(candidates(full=True)) - set(CANDIDATES)
    assert more == set(points(full=True)) - set(POINTS)
    assert more == {"NoAttnSM", "NoAttnLN", "NoApprox", "2Quad", "Bolt"}
    named = {name for point in points(full=True).values() for name, _ in point.phases}
    assert named <= set(candidates(full=True))
    assert len(LAYERS) == 4
    origins = {name: point.origin for name, point in points(full=True).items()}
    assert {name for name in origins if origins[name] == "ablation"} == more
    assert {name for name in origins if origins[name] == "paper"} == {
        name for name in POINTS if name.startswith("paper, ")
    }


def random_result(stopped=()):
    """A full run of one seed, with invented figures."""
    names, made = tuple(points(full=True)), tuple(candidates(full=True))
    rng = np.random.default_rng(0)
    pool = run.ProxyPool(
        sizes=SIZES,
        accuracy=np.array([0.5]),
        prior=np.array([[0.5, 0.5]]),
        rare_offered=np.zeros(1),
        spearman=rng.random((1, len(names))),
        overlap=rng.random((1, 2 + len(names))),
        rare=np.zeros((1, 2 + len(names))),
        bytes=np.full((1, len(names)), 1e6),
        stopped=np.array([[name in stopped for name in made]]),
    )
    return run.Proxies(
        seeds=np.arange(1),
        full=True,
        points=names,
        candidates=made,
        pools={"movie_polarity": pool},
    )


def test_the_command_says_what_stopped_early(tmp_path, monkeypatch, capsys):
    result = random_result({"NoAttnLN", "l1 w1 d2"})
    monkeypatch.setattr(run, "run_proxies", lambda folder, **options: result)
    experiment("proxy", "--full", "--out", tmp_path / "out")
    told = capsys.readouterr().out.splitlines()
    early = [line for line in told if line.startswith("Training stopped early")]
    assert [line.removeprefix("Training stopped early: ") for line in early] == [
        "movie_polarity, “paper, 2 phases”: 1 of 1 seeds",
        "movie_polarity, “paper, 3 phases”: 1 of 1 seeds",
        "movie_polarity, “NoAttnLN”: 1 of 1 seeds",
    ]


def test_ablations_are_not_the_papers_in_the_figure():
    found = random_result()
    assert found.stopped_early("movie_polarity") == {}
    chapter = proxies_chapter(found)
    (figure,) = (block for block in chapter.blocks if hasattr(block, "plot"))
    axes = figure.plot.axes[0]
    drawn = {
        label: len(bars[0].get_xdata())
        for bars, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    expected = {"the paper's": 3, "ablations of the paper's": 5, "ours": 8}
    assert drawn == expected
    texts = [block for block in chapter.blocks if isinstance(block, str)]
    assert not [text for text in texts if "stopped early" in text]


def test_no_seeds(tmp_path):
    with pytest.raises(ValueError, match="at least one seed"):
        run_proxies(tmp_path, seeds=())


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        None,
        pytest.param("crypten", marks=pytest.mark.mpc),
        pytest.param("spu-aby3", marks=[pytest.mark.mpc, needs_spu]),
    ],
)
def test_the_demo_shows_texts(monkeypatch, engine):
    texts = invented(2, 400)
    monkeypatch.setattr(_reviews, "private_engine", lambda: engine)
    monkeypatch.setattr(_reviews, "read_texts", lambda *args, **kwargs: texts)
    sizes = Sizes(pool=200, own=100, bootstrap=0.1)
    monkeypatch.setattr(_reviews, "SIZES", sizes)
    found = _reviews.run_texts()
    assert (found.offered, found.bootstrap, found.chosen) == (200, 20, 20)
    assert found.left == (60, 20)
    assert found.tested == 100
    assert (found.private is not None) == (engine is not None)
    assert found.agreed >= (1 if engine is None else 0.9)
    shown = " ".join(
        block
        for block in _reviews.texts_chapter(found).blocks
        if isinstance(block, str)
    )
    if found.private is not None:
        assert found.private.engine == engine
        assert found.private.mean == pytest.approx(found.mean, abs=0.01)
        if engine == "crypten":
            # Half of the payload is counted in passes: expected ones beforehand.
            assert found.private.megabytes == pytest.approx(found.megabytes, rel=0.3)
        assert len(found.private.compared) == 2
        assert found.private.megabytes > 0
        # It says what it ran on, and what that does not protect from.
        assert ("on SPU (`spu-aby3`)" in shown) == (engine == "spu-aby3")
        assert ("measurement only" in shown) == (engine == "crypten")
    assert 0 < found.mean < np.log(2)
    assert len(set(found.texts[0]) | set(found.texts[1])) == 16
    assert found.doubts.shape == found.labels.shape == (2, 8)
    assert 0 < found.megabytes < 100
    # What ranks first is nearer to a tie than what ranks last.
    apart = np.abs(found.doubts - 0.5).mean(1)
    assert found.spearman > 0.3
    assert apart[0] < apart[1]
    chapter = _reviews.texts_chapter(found)
    tables = [block for block in chapter.blocks if hasattr(block, "rows")]
    if found.private is not None:
        sides = tables.pop(0)
        assert [row[0] for row in sides.rows][:2] == ["kept to itself", "received"]
        model, data = found.private.model_owner, found.private.data_owner
        assert min(model.received, data.received) > 0
        if engine == "crypten":  # with a helper, some goes to it and comes from it
            assert model.received == pytest.approx(data.sent, rel=1e-6)
            assert data.received == pytest.approx(model.sent, rel=1e-6)
        # The first phase has rows enough to attack with, and to judge by.
        assert -1 <= data.recovered[0] <= 1
        assert data.attacked[0] == 144
        assert found.private.seconds > model.working > 0
    assert [table.rows[0][0] for table in tables] == [found.texts[i][0] for i in (0, 1)]
