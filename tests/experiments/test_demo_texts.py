"""The chapter of the demo that chooses texts, with a tiny model."""

import importlib.util

import jax
import numpy as np
import pytest
from invented import invented

from jaxsel.demo import _reviews

SecurePhase = pytest.importorskip("mpc_bridge._installed").SecurePhase

needs_spu = pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)


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
    monkeypatch.setattr(_reviews, "read_reviews", lambda **options: texts)
    monkeypatch.setattr(_reviews, "POOL", 200)
    monkeypatch.setattr(_reviews, "OTHERS", 100)
    missing = "" if engine == "spu-aby3" else "SPU is nowhere"
    found = _reviews.run_texts(SecurePhase(engine=engine, missing=missing))
    assert (found["offered"], found["bootstrap"], found["chosen"]) == (200, 20, 20)
    assert found["left"] == (60, 20)
    assert (found["private"] is not None) == (engine is not None)
    assert found["agreed"] >= (1 if engine is None else 0.9)
    shown = " ".join(
        block
        for block in _reviews.texts_chapter(found).blocks
        if isinstance(block, str)
    )
    if found["private"] is not None:
        assert found["private"]["engine"] == engine
        assert found["private"]["mean"] == pytest.approx(found["mean"], abs=0.01)
        if engine == "crypten":
            # Half of the payload is counted in passes: expected ones beforehand.
            assert found["private"]["megabytes"] == pytest.approx(
                found["megabytes"], rel=0.3
            )
        assert len(found["private"]["compared"]) == 2
        assert found["private"]["megabytes"] > 0
        # It says what it ran on, and what that does not protect from.
        assert ("on SPU (`spu-aby3`)" in shown) == (engine == "spu-aby3")
        assert ("measurement only" in shown) == (engine == "crypten")
    assert ("SPU is nowhere" in shown) == (engine != "spu-aby3")
    assert 0 < found["mean"] < np.log(2)
    assert len(set(found["texts"][0]) | set(found["texts"][1])) == 16
    assert found["doubts"].shape == found["labels"].shape == (2, 8)
    assert 0 < found["megabytes"] < 100
    # What ranks first is nearer to a tie than what ranks last.
    apart = np.abs(found["doubts"] - 0.5).mean(1)
    assert found["spearman"] > 0.3
    assert apart[0] < apart[1]
    chapter = _reviews.texts_chapter(found)
    tables = [block for block in chapter.blocks if hasattr(block, "rows")]
    if found["private"] is not None:
        sides = tables.pop(0)
        assert [row[0] for row in sides.rows][:2] == ["kept to itself", "received"]
        model, data = found["private"]["model_owner"], found["private"]["data_owner"]
        assert min(model["received"], data["received"]) > 0
        if engine == "crypten":  # with a helper, some goes to it and comes from it
            assert model["received"] == pytest.approx(data["sent"], rel=1e-6)
            assert data["received"] == pytest.approx(model["sent"], rel=1e-6)
        # The first phase has rows enough to attack with, and to judge by.
        assert -1 <= data["recovered"][0] <= 1
        assert data["attacked"][0] == 144
        assert found["private"]["seconds"] > model["working"] > 0
    assert [table.rows[0][0] for table in tables] == [
        found["texts"][i][0] for i in (0, 1)
    ]


def test_deals_share_nothing():
    labels = (np.arange(1600) % 2).astype(np.int32)
    offer, others = _reviews._deal(labels, jax.random.key(0))
    assert not set(offer) & set(others)
    assert np.bincount(labels[offer]).tolist() == [350, 350]
    assert np.bincount(labels[others]).tolist() == [200, 200]
