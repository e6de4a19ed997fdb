"""Mycroft's feature spaces and missing labels, on digits and by a tiny encoder."""

import dataclasses

import numpy as np
import pytest

from experiments._kit.judge import FAILS, HOLDS, OPEN
from experiments._kit.scenes.trainer import Sizes, images
from experiments.mycroft import spaces
from experiments.mycroft.spaces import SCENES, SPACES, space_claims, spaces_seed
from jaxsel.data import load

TINY = Sizes(
    net="mlp",
    side=8,
    own=25,
    weak=1,
    val=400,
    test=100,
    offered=400,
    shared=20,
    held_out=10,
    budgets=(4, 8),
    main=8,
    first=32,
    epochs=4,
    min_steps=32,
    cycles=(10,),
)


@pytest.mark.slow
def test_an_encoder_that_sees_backgrounds_finds_useful_samples():
    """Retrieval compares by what the encoder says, and labels by its neighbours."""
    x, y = images(load("digits"), 8)
    calls = []

    def encode(pictures):
        calls.append(len(pictures))
        rows = pictures.min(2), pictures.min(1)  # stripes: which rows are never black
        return np.concatenate([*rows, np.ones((len(pictures), 1))], 1)

    wide = dataclasses.replace(TINY, own=40, val=500)
    found = spaces_seed((x, y % 2), encode, 0, stripes=TINY, starved=wide, pair=(0, 1))
    assert calls == [400, 20, 400, 20]
    useful = dict(zip(SPACES, found["useful"], strict=True))
    assert useful["encoder"].min() > 0.9
    assert useful["pixels"].max() <= 1
    assert found["gained"].shape == (len(SPACES), 2, 2)
    assert found["unlabelled"].shape == (len(SCENES), 3, 2)
    assert found["labelled"].shape == (len(SCENES), 2)
    assert np.all((found["pseudo_right"] >= 0) & (found["pseudo_right"] <= 1))


def made_up(seeds=4):
    rng = np.random.default_rng(0)
    noise = lambda *shape: rng.normal(size=(seeds, *shape)) / 1000
    useful = np.array([0.05, 0.1, 0.6])[:, None] + noise(3, 3)
    gained = np.array([0.5, 0.4, 0.3])[None, :, None] + noise(2, 3, 2)
    gained[:, 1, 0] -= 0.2
    return {
        "useful": useful,
        "unlabelled": gained,
        "pseudo_right": 0.8 + noise(2, 3),
        "labelled": 0.52 + noise(2, 2),
    }


def test_claims_on_spaces():
    claims = space_claims(made_up(), (8, 32, 128))
    verdicts = [claim.verdict for claim in claims]
    assert verdicts == [HOLDS, HOLDS, HOLDS, FAILS, HOLDS, OPEN, HOLDS, FAILS]
    assert claims[0].measured.startswith("5% useful; less chance, 10%: -5.0")
    assert "32 samples" in claims[0].scale
    assert {claim.test for claim in claims if claim.verdict != FAILS} >= {
        "t-test, 4 seeds, Holm of 8"
    }
    (one,) = {c.verdict for c in space_claims(made_up(1), (8, 32, 128))}
    assert one == OPEN


def test_the_command_keeps_seeds_and_prints_claims(tmp_path, monkeypatch, capsys):
    ran = []

    def run(read, encode, seed):
        ran.append(seed)
        return {name: rows[seed] for name, rows in made_up().items()}

    monkeypatch.setattr(spaces, "_run", run)
    spaces.main(["--seeds", "2", "--out", str(tmp_path)])
    spaces.main(["--seeds", "3", "--out", str(tmp_path)])
    assert ran == [0, 1, 2]
    assert "Missing labels cost little" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        spaces.main(["--seeds", "0"])
    assert "--seeds must be at least 1, got 0" in capsys.readouterr().err
