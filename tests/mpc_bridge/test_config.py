"""run.toml is read strictly: every error names the field and what is allowed."""

import re
from pathlib import Path

import pytest

from mpc_bridge._config import Appraisal, Config, Inputs
from mpc_bridge._limits import Limits
from mpc_bridge._read_config import read_config
from mpc_bridge._toml import ConfigError

PUBLIC = """\
[session]
name = "reviews"
seed = 7
engine = "crypten"
rendezvous = "tcp://127.0.0.1:29500"
samples = 60
exclude = [3, 17]
[[phases]]
manifest = "one/manifest.json"
keep = 30
[[phases]]
manifest = "two/manifest.json"
keep = 10
batch_size = 16
[appraisal]
mode = "threshold"
threshold = 0.25
"""
MODEL = """\
[model_owner]
weights = ["one", "two"]
output = "out/model"
memory = "512 MiB"
"""
DATA = """\
[data_owner]
output = "out/data"
[[data_owner.inputs]]
x = "x1.npy"
[[data_owner.inputs]]
x = "x2.npy"
mask = "mask.npy"
"""


@pytest.fixture
def read(tmp_path):
    def from_text(text):
        path = tmp_path / "run.toml"
        path.write_text(text)
        return read_config(path)

    return from_text


def test_reads_all_parts(read, tmp_path):
    config = read(PUBLIC + MODEL + DATA)
    assert config.session.exclude == (3, 17)
    assert [phase.keep for phase in config.phases] == [30, 10]
    assert [phase.batch_size for phase in config.phases] == [None, 16]
    assert config.phases[0].manifest == tmp_path / "one/manifest.json"
    assert config.appraisal == Appraisal(mode="threshold", threshold=0.25)
    assert config.model_owner.memory == 512 * 2**20
    assert config.data_owner.memory == 2 * 2**30
    assert config.data_owner.inputs[1] == Inputs(
        x=tmp_path / "x2.npy", mask=tmp_path / "mask.npy"
    )


def test_what_is_measured_and_kept_is_each_partys_own(read, tmp_path):
    config = read(PUBLIC + MODEL + DATA)
    assert (config.model_owner.measure, config.model_owner.samples) == (True, ())
    assert (config.data_owner.measure, config.data_owner.pools) == (True, None)
    assert config.data_owner.few_rows == 100
    own = 'samples = [{ x = "a.npy" }, { x = "b.npy" }]\nmeasure = false\n'
    kept = DATA.replace('"out/data"', '"out/data"\npools = "pools"\nfew_rows = 7')
    config = read(PUBLIC + MODEL + own + kept)
    assert config.model_owner.measure is False
    assert [each.x.name for each in config.model_owner.samples] == ["a.npy", "b.npy"]
    assert config.data_owner.pools == tmp_path / "pools"
    assert config.data_owner.few_rows == 7
    config.write(tmp_path / "again.toml")
    assert read_config(tmp_path / "again.toml") == config
    message = "model_owner.samples must have one entry for each of the 2 phases, got 1"
    with pytest.raises(ConfigError, match=message):
        read(PUBLIC + MODEL + own.replace(', { x = "b.npy" }', ""))
    with pytest.raises(ConfigError, match="model_owner.measure must be true or false"):
        read(PUBLIC + MODEL + "measure = 1\n")


def test_limits_are_strict_unless_a_party_says_more(read, tmp_path):
    config = read(PUBLIC + MODEL + DATA)
    assert config.model_owner.limits == Limits(sessions=1, reopenings=3)
    own = "limits = { sessions = 2, openings = 900 }\n"
    config = read(PUBLIC + MODEL + own)
    assert config.model_owner.limits == Limits(sessions=2, openings=900)
    config.write(tmp_path / "again.toml")
    assert read_config(tmp_path / "again.toml") == config
    changed = config.with_limits(lambda own: own.changed(["rows=7", "sessions=3"]))
    assert changed.model_owner.limits == Limits(sessions=3, openings=900, rows=7)
    for text, message in (
        ("limits = { sessions = 0 }", "limits.sessions must be a whole number of at l"),
        ("limits = { answers = 1 }", "model_owner.limits.answers is unknown"),
    ):
        with pytest.raises(ConfigError, match=message):
            read(PUBLIC + MODEL + text)
    for change in ("sessions", "answers=1", "sessions=-1", "rows=many"):
        with pytest.raises(ConfigError, match=f"--limit must be one of .*{change!r}"):
            Limits().changed([change])
    with pytest.raises(ConfigError, match="limits.sessions must be .*, got 0"):
        Limits(sessions=0)


def test_parts_of_others_may_be_absent(read):
    config = read(PUBLIC)
    assert (config.model_owner, config.data_owner) == (None, None)


@pytest.mark.parametrize("text", [PUBLIC, PUBLIC + MODEL, PUBLIC + MODEL + DATA])
def test_what_is_written_reads_the_same(read, tmp_path, text):
    config = read(text.replace('"reviews"', r'"a \"b\" ü 😀 \\ \n"'))
    other = tmp_path / "other" / "run.toml"
    other.parent.mkdir()
    config.write(other)
    assert read_config(other) == config


def test_excluded_rows_may_lie_in_a_file(read, tmp_path):
    config = read(PUBLIC.replace("[3, 17]", '"bought.npy"'))
    assert config.session.exclude == tmp_path / "bought.npy"
    config.write(tmp_path / "written.toml")
    assert read_config(tmp_path / "written.toml") == config


FULL = PUBLIC + MODEL + DATA


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 7", "", "session.seed is missing"),
        ("seed = 7", "seed = -1", "session.seed must be a whole number of at least 0"),
        ("seed = 7", "seed = true", "got True"),
        ("seed = 7", "sed = 7", "session.seed is missing"),
        ("seed = 7", "seed = 7\nlength = 2", "session.length is unknown: there are"),
        ("[session]", "[sessions]", "session is missing"),
        (
            "[appraisal]",
            "[apraisal]",
            "apraisal is unknown: there are session, parties",
        ),
        ('"reviews"', '" "', "session.name must be a text that is not empty, got ' '"),
        ("tcp://127.0.0.1:29500", "127.0.0.1:29500", "session.rendezvous must be 'tcp"),
        (":29500", ":99999", "with a port of at most 65535"),
        ("samples = 60", "samples = 6.5", "session.samples must be a whole number"),
        ("samples = 60", "samples = 20", r"phases[0].keep must be below the 18 rows"),
        ("keep = 10", "keep = 30", r"phases[1].keep must be below the 30 rows"),
        ("keep = 10", "keep = 0", r"phases[1].keep must be a whole number of at least"),
        (
            "batch_size = 16",
            "batch_size = '16'",
            r"phases[1].batch_size must be a whole number",
        ),
        ("batch_size = 16", "size = 16", r"phases[1].size is unknown"),
        ("[3, 17]", "[3, 3]", "session.exclude must be rows that are listed once"),
        ("[3, 17]", "[-3]", "session.exclude must be an .npy file, or a list of rows"),
        ("[3, 17]", "'rows.txt'", "session.exclude must be an .npy file"),
        ('"threshold"', '"bit"', "appraisal.mode must be one of 'mean', 'threshold'"),
        ('"threshold"', '"mean"', "appraisal.threshold is for mode 'threshold' only"),
        ("threshold = 0.25", "", "appraisal.threshold is missing"),
        ("threshold = 0.25", "threshold = nan", "must be a finite number, got nan"),
        ('["one", "two"]', '["one"]', "model_owner.weights must have one entry for"),
        ('["one", "two"]', '"one"', "model_owner.weights must be a list of texts"),
        ('"512 MiB"', '"512 MB"', "model_owner.memory must be bytes, or a text such"),
        ('"512 MiB"', "0", "model_owner.memory must be bytes"),
        ('x = "x2.npy"', "", r"data_owner.inputs[1].x is missing"),
        ("mask =", "masks =", r"data_owner.inputs[1].masks is unknown: there are"),
        ('output = "out/data"', "", "data_owner.output is missing"),
        ("[session]", "[session", "is no TOML file"),
    ],
)
def test_errors_name_the_field(read, old, new, message):
    assert old in FULL
    with pytest.raises(ConfigError, match=re.escape(message)):
        read(FULL.replace(old, new, 1))


def test_errors_name_the_file(read, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path / "run.toml"))):
        read("[session]")


def test_a_configuration_needs_no_path_to_be_written(tmp_path, read):
    config = Config(session=read(PUBLIC).session)
    config.write(tmp_path / "short.toml")
    assert read_config(tmp_path / "short.toml") == config


def test_the_guide_shows_a_configuration_that_reads(read):
    guide = Path(__file__).parents[2] / "docs" / "secure-run.md"
    shown = re.findall(r"^```toml\n(.*?)^```", guide.read_text(), re.M | re.S)
    for text, phases in zip(shown, (1, 2), strict=False):
        config = read(text)
        assert len(config.phases) == phases
        assert config.model_owner is not None
        assert config.data_owner is not None
