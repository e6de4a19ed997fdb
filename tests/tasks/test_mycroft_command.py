"""`jaxsel repro mycroft`, without its experiments."""

import json
from pathlib import Path
from unittest import mock

import pytest
from commands import refuse, run

from jaxsel import tasks
from jaxsel.report import Chapter


@pytest.fixture
def experiments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = mock.create_autospec(tasks.run_mycroft)
    monkeypatch.setattr(tasks, "run_mycroft", called)
    chapters = lambda _: [Chapter(title="Shown", blocks=["Text."], data={"x": 1.5})]
    monkeypatch.setattr(tasks, "mycroft_chapters", chapters)
    return called


def test_writes_a_report(experiments, capsys):
    run("repro", "mycroft", "--seeds", 2)
    experiments.assert_called_once_with(
        Path("repro/runs"), seeds=range(2), full=False, progress=False
    )
    assert "repro/report.html" in capsys.readouterr().out
    assert "Shown" in Path("repro/report.html").read_text()
    facts = json.loads(Path("repro/manifest.json").read_text())
    assert facts["seeds"] == [0, 1]
    assert facts["config"] == {"paper": "mycroft", "full": False}

    message = refuse(capsys, "repro", "mycroft")
    assert "repro/report.html exists: --force replaces it" in message
    run("repro", "mycroft", "--full", "--force")
    assert experiments.call_args.kwargs["full"] is True
    assert experiments.call_args.kwargs["seeds"] == range(5)


def test_refuses(experiments, capsys):
    message = refuse(capsys, "repro", "mycroft", "--seeds", "0")
    assert "--seeds must be at least 1, got 0" in message
    assert "invalid choice" in refuse(capsys, "repro", "other")
    experiments.assert_not_called()
