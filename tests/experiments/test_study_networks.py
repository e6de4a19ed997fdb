"""Attributions beside retrained networks, on a small linear head."""

import numpy as np
import pytest

from experiments._kit.scenes.samples import Part
from experiments.values.networks import COLUMNS, SCENES, NetworkSizes, networks_seed
from jaxsel.tasks import RANDOM

HEAD = SCENES.index("reviews, MiniLM's head")


@pytest.mark.slow
def test_attributions_predict_the_losses_of_a_head():
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 60)
    x = (rng.normal(size=(120, 6)) + y[:, None]).astype(np.float32)
    sizes = NetworkSizes(n=80, n_val=40, subsets=20, networks=2, epochs=20)
    part = Part(x, y, x[:0], y[:0])
    result = networks_seed({SCENES[HEAD]: part}, sizes, seed=0)
    assert result["lds"].shape == (len(SCENES), len(COLUMNS))
    missing = np.arange(len(SCENES)) != HEAD
    for scores in result.values():
        assert np.isnan(scores[missing]).all()
        assert np.isfinite(scores[HEAD]).all()
    scores = dict(zip(COLUMNS, result["lds"][HEAD], strict=True))
    assert scores["network_influence"] > 0.5
    assert scores["metagradient"] > 0.5
    assert abs(scores[RANDOM]) < 0.2
    assert result["ceiling"][HEAD] > scores["network_influence"]
    assert result["accuracy"][HEAD] > 0.7
    again = networks_seed({SCENES[HEAD]: part}, sizes, seed=0)
    np.testing.assert_array_equal(again["lds"], result["lds"])
