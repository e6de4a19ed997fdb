"""The ratchet of strict types: that it holds, and that it would slip."""

import tomllib

import pytest

from . import __main__ as strict


@pytest.mark.slow
def test_no_room_has_more_errors(capsys):
    recorded = tomllib.loads(strict.TABLE.read_text())["versions"]
    if recorded != strict.versions():
        pytest.skip(f"numbers are of {recorded}: run python -m tests.strict --update")
    status = strict.main([])
    assert status == 0, capsys.readouterr().out


def test_more_and_fewer():
    verdict = strict.compare({"match": 3, "value": 5}, {"match": 4, "value": 4})
    assert verdict == (["value"], ["match"])
    assert "mend them" in verdict.messages()[0]
    assert len(verdict.messages()) == 1
    assert "--update" in strict.Verdict([], ["match"]).messages()[0]
    assert not strict.Verdict([], []).messages()
    assert "update" not in strict.Verdict(["value"], []).messages()[0]


def test_all_rooms_are_recorded():
    table = tomllib.loads(strict.TABLE.read_text())
    assert list(table["versions"]) == list(strict.VERSIONS)
    rooms = "value neighbors gradients match retrieve filter proxy market"
    rooms += " labels tables estimators"
    assert list(table["errors"]) == rooms.split()
