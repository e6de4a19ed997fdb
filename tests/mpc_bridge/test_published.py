"""A published proxy is run by the data owner alone, to the same choice."""

import dataclasses

import pytest
from sessions import config_of, in_the_clear

from mpc_bridge import ConfigError, Result, run, run_local

pytestmark = pytest.mark.mpc


@pytest.fixture
def config(files):
    made = config_of(files, "published", engine="published")
    folders = tuple(files / f"probe{i}" for i in range(2))
    owner = dataclasses.replace(made.data_owner, weights=folders)
    return dataclasses.replace(made, data_owner=owner, model_owner=None)


@pytest.mark.left_out
def test_the_data_owner_chooses_what_clear_scores_choose(files, config, capsys):
    result = run("data-owner", config)
    rows, _ = in_the_clear(files)
    assert list(result.rows) == rows.tolist()
    assert result == Result.read(config.data_owner.output)
    assert result.total().bytes == 0
    assert result.engine == "published"
    assert "it can choose as it likes" in capsys.readouterr().err
    assert not (config.data_owner.output / "unfinished").exists()


@pytest.mark.slow
def test_it_appraises_as_others_do(files, local, config):
    result = run("data-owner", config, force=True, notice=False)
    assert result.appraisal == pytest.approx(local[0].appraisal, abs=0.01)


def test_other_roles_and_engines_are_refused(config):
    with pytest.raises(ConfigError, match="engine 'published' has no model owner"):
        run("model-owner", config)
    for session, message in (
        ({"engine": "spu-aby3"}, "data_owner.weights is for engine 'published' only"),
        ({}, "local is for engines with two parties|local needs model_owner"),
    ):
        changed = dataclasses.replace(config.session, **session)
        with pytest.raises(ConfigError, match=message):
            run_local(dataclasses.replace(config, session=changed))
    owner = dataclasses.replace(config.data_owner, weights=())
    with pytest.raises(ConfigError, match="weights must have one entry for each"):
        run("data-owner", dataclasses.replace(config, data_owner=owner))
