"""cleanlab's ranking with the penalty that jaxsel chooses."""

import numpy as np
import pytest

from benchmarks import _labels, searched


@pytest.mark.slow
def test_rankings_of_a_data_set(capsys, monkeypatch):
    pytest.importorskip("cleanlab")
    task = _labels.load("digits", 200)
    monkeypatch.setattr(_labels, "load", lambda name: task)
    searched.main(["digits", "--seeds", "1"])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == [
        "digits, jaxsel",
        "digits, cleanlab, default penalty",
        "digits, cleanlab, searched penalty",
    ]
    y, wrong = task.flipped(0)
    scores = searched.searched_scores(task, y)
    assert _labels.detection(scores, wrong)[0] > 0.9
    # The penalty that is chosen depends on the likelihood, not on units.
    wide = _labels.Labelled(task.x * 1000, task.y, task.n_classes)
    assert np.allclose(searched.searched_scores(wide, y), scores, atol=1e-3)
