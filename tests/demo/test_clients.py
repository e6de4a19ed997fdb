"""The demo's clients, who filter noisy digits by their loss."""

import pytest

from jaxsel.demo._clients import clients_chapter, run_clients
from jaxsel.report import Report


@pytest.mark.slow
def test_filtering_helps_clients(tmp_path):
    clients = run_clients((0,))
    found = clients.found
    none, _, crossed, _ = found["accuracy"][0, :, -1]
    assert none < crossed - 0.05 < found["ideal"][0, -1]
    assert found["removed"][0, 1] > 0.7
    assert found["kept"][0, 1] > 0.7
    chapter = clients_chapter(clients)
    Report(title="Clients", summary="", chapters=[chapter]).save(tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("cross-fitted", "Rounds to 90%", "clean samples alone"):
        assert words in text
