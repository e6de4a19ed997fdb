"""`python -m experiments`, without its experiments."""

import json
import os
from pathlib import Path
from unittest import mock

import pytest
from commands import experiment, refuse_experiment as refuse

from experiments.__main__ import PAPERS, main
from experiments._kit.seeds import (
    Work,
    Workers,
    each_seed,
    lines_of_progress,
    one_thread_each,
)
from experiments.mycroft import chapter, run
from jaxsel.report import Chapter


@pytest.fixture
def mycroft(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = mock.create_autospec(run.run_mycroft)
    monkeypatch.setattr(run, "run_mycroft", called)
    chapters = lambda _: [Chapter(title="Shown", blocks=["Text."], data={"x": 1.5})]
    monkeypatch.setattr(chapter, "mycroft_chapters", chapters)
    return called


def test_writes_a_report(mycroft, capsys):
    experiment("mycroft", "--seeds", 2)
    mycroft.assert_called_once_with(
        Path("repro-mycroft/runs"),
        seeds=range(2),
        full=False,
        progress=False,
        workers=Workers("threads", None),
    )
    said = capsys.readouterr().out
    assert "2 seeds: 17 minutes on two cores" in said
    assert "repro-mycroft/runs" in said
    assert "Open repro-mycroft/report.html" in said
    assert "Shown" in Path("repro-mycroft/report.html").read_text()
    facts = json.loads(Path("repro-mycroft/manifest.json").read_text())
    assert facts["seeds"] == [0, 1]
    assert facts["config"] == {"paper": "mycroft", "full": False}

    message = refuse(capsys, "mycroft")
    assert "repro-mycroft/report.html exists: --force replaces it" in message
    experiment("mycroft", "--full", "--force")
    assert mycroft.call_args.kwargs["full"] is True
    assert mycroft.call_args.kwargs["seeds"] == range(8)

    experiment("mycroft", "--executor", "processes", "--workers", 3, "--force")
    assert mycroft.call_args.kwargs["workers"] == Workers("processes", 3)


def test_a_paper_never_replaces_anothers_report(mycroft, capsys):
    from experiments.__main__ import make_parser

    for name in PAPERS:
        args = make_parser().parse_args([name])
        assert args.out is None  # a folder of its own, once it is known what runs
    assert f"(default: repro-{name})" in help_of(name, capsys)
    Path("repro-values").mkdir()
    Path("repro-values/report.html").write_text("another's")
    experiment("mycroft", "--force")
    assert Path("repro-values/report.html").read_text() == "another's"
    experiment("mycroft", "--out", "here")
    assert Path("here/report.html").is_file()


def help_of(paper, capsys):
    with pytest.raises(SystemExit):
        main([paper, "--help"])
    return " ".join(capsys.readouterr().out.split())


def test_a_line_for_each_result_where_no_bar_is(tmp_path, capsys):
    work = Work(lambda: {"one": lambda seed: {"x": seed}, "two": lambda seed: {"x": 0}})

    def run(*, shown):
        with lines_of_progress(shown=shown):
            file = lambda name, seed: (tmp_path / f"{name}-{seed}-{shown}.npz", {})
            each_seed(work, (4, 5), file, label="Runs", progress=False)
        return capsys.readouterr().out.splitlines()

    lines = run(shown=True)
    assert len(lines) == 4
    assert lines[0].startswith("Runs: one, seed 4, 1 of 4 after 0.")
    assert lines[3].startswith("Runs: two, seed 5, 4 of 4 after 0.")
    assert run(shown=False) == []


def test_refuses(mycroft, capsys):
    message = refuse(capsys, "mycroft", "--seeds", "0")
    assert "--seeds must be at least 1, got 0" in message
    assert "must be one of" in refuse(capsys, "other")
    message = refuse(capsys, "mycroft", "--workers", "0")
    assert "workers must be at least 1, got 0" in message
    assert "got 'slurm'" in refuse(capsys, "mycroft", "--executor", "slurm")
    # Its figures are seconds, which other runs at the same time would change.
    assert "--workers" in refuse(capsys, "secure", "--workers", "2")
    mycroft.assert_not_called()


def test_help_teaches(capsys):
    assert main([]) == 0
    overview = capsys.readouterr().out
    for paper in PAPERS:
        with pytest.raises(SystemExit) as caught:
            main([paper, "--help"])
        assert caught.value.code == 0
        assert "minutes on two cores" in " ".join(capsys.readouterr().out.split())
        assert f"python -m experiments {paper}" in overview


def test_experiments_have_one_thread_each(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    one_thread_each()
    own = "--xla_cpu_multi_thread_eigen=false"
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=here {own}"
    # What the user says stays.
    theirs = "--xla_cpu_multi_thread_eigen=true"
    monkeypatch.setenv("XLA_FLAGS", theirs)
    one_thread_each()
    assert os.environ["XLA_FLAGS"] == theirs
