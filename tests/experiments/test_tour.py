"""The tour: clients who filter noisy digits by their loss, values that find errors."""

import numpy as np
import pytest

from experiments.tour import command
from experiments.tour.clients import clients_chapter, run_clients
from experiments.tour.worth import Worth, worth_chapter
from jaxsel.report import Figure, Heading, Report
from jaxsel.tasks import Curves


@pytest.mark.slow
def test_filtering_helps_clients(tmp_path):
    clients = run_clients(tmp_path, (0,))
    found = clients.results
    none, _, crossed, _ = found["accuracy"][0, :, -1]
    assert none < crossed - 0.05 < found["ideal"][0, -1]
    assert found["removed"][0, 1] > 0.7
    assert found["kept"][0, 1] > 0.7
    chapter = clients_chapter(clients)
    Report(title="Clients", summary="", chapters=[chapter]).save(tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("cross-fitted", "Rounds to 90%", "clean samples alone"):
        assert words in text


@pytest.mark.parametrize(("auc", "words"), [(0.99, "do better"), (0.5, "do worse")])
def test_the_chapter_on_values_is_headed_by_its_numbers(auc, words):
    jitter = np.array([0.0, 0.001, 0.002])
    means = {"TMC-Shapley": 0.8, "LOO": 0.5, "Data-OOB": 0.9, "Random": 0.5}
    summary = {
        name: {"auc": mean + jitter[::-1], "found_at_bad": mean + jitter}
        for name, mean in ({"KNN-Shapley": auc, "KNN-LOO": auc} | means).items()
    }
    curves = Curves(
        name="Wrong labels",
        x=np.array([0.0, 0.5, 1.0]),
        curves={name: np.ones((3, 3)) for name in summary},
        xlabel="Inspected",
        ylabel="Found",
        summary=summary,
    )
    title = worth_chapter(Worth(curves=curves, seconds={})).title
    assert title.startswith(f"Values of KNN-Shapley {words} than those of Data-OOB")
    assert f"{auc + 0.001:.3f} against 0.901" in title


@pytest.mark.slow
def test_the_tour_has_its_chapters_and_goes_on(tmp_path):
    report, lines = command.make(tmp_path, seeds=range(1))
    purchase, requests, worth, clients = report.chapters
    assert purchase.title == "What each budget gives, by 1 seed"
    headings = [b.text for b in purchase.blocks if isinstance(b, Heading)]
    assert headings[0].startswith("Whether values rank the owners as training does can")
    figures = [b for b in purchase.blocks if isinstance(b, Figure)]
    assert "jaxsel's mean accuracy on all digits is above random's" in figures[0].alt
    assert len(figures) == 5
    assert list(requests.data["accuracy"].shape) == [1, 2, 5]
    assert requests.title.startswith("Samples that owners choose by FuncFeat")
    assert "AUC of finding wrong labels" in worth.title
    assert "cannot be told apart by 1 seed" in clients.title
    assert [line.split()[0] for line in lines.splitlines()] == [
        "Owners",
        "AUC",
        "Clients",
    ]
    kept = sorted(file.name for file in tmp_path.iterdir())
    assert kept == ["clients-0.npz", "requests-0.npz"]
