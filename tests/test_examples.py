"""The scripts in examples/ run, and find what they say they find."""

import dataclasses
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args
from unittest import mock

import jax
import numpy as np
import pytest
from ports import free_address
from waits import PATIENCE

import jaxsel
import mpc_bridge
from jaxsel import data, models
from jaxsel.data._catalog import CATALOG
from jaxsel.proxy import families
from jaxsel.proxy.families._place import Kind
from mpc_bridge.engines import ENGINES

pytest.importorskip("sklearn")
FOLDER = Path(__file__).parents[1] / "examples"
EXTENSIONS = ("value", "oracle", "learner", "family", "engine", "dataset")


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_test():
    names = {path.stem for path in FOLDER.glob("*.py")}
    expected = {"wrong_labels", "enough_validation", "match_a_hard_set", "multihost"}
    expected |= {"choose_in_secret", "choose_with_crypten", "harmful_images"}
    expected |= {"choose_to_finetune"}
    assert names == expected | {f"extend_{part}" for part in EXTENSIONS}


@pytest.mark.every(3)
@pytest.mark.parametrize("part", EXTENSIONS)
def test_extensions(part, monkeypatch):
    """Each compares with something independent of jaxsel."""
    monkeypatch.syspath_prepend(FOLDER)  # the family runs on the example of an engine
    name = f"extend_{part}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with mock.patch.dict(CATALOG), mock.patch.dict(families.ATTENTIONS):
        importlib.import_module(name).main()


def test_the_guide_has_every_extension():
    guide = (FOLDER.parent / "docs" / "extending.md").read_text("utf-8")
    included = re.findall(r'^--8<-- "examples/extend_(\w+).py"$', guide, re.MULTILINE)
    assert included == [*EXTENSIONS]
    kinds = [kind for kind in get_args(Kind) if f"`{kind}`" not in guide]
    assert not kinds, "operations that an engine may be asked for"


@pytest.mark.slow
def test_wrong_labels(capsys):
    areas = load("wrong_labels").main(["--seeds", "2"])
    means = {name: area.mean() for name, area in areas.items()}
    assert len(capsys.readouterr().out.splitlines()) == len(means) == 8
    # Within four standard deviations of the ten seeds in docs/knn-values.md.
    assert means["knn_shapley"] > 0.985
    assert means["knn_loo"] < 0.93
    assert max(means.values()) <= 1


@pytest.mark.slow
def test_harmful_images(capsys, tmp_path):
    losses = load("harmful_images").main(["--out", str(tmp_path / "harmful.png")])
    lines = capsys.readouterr().out.splitlines()
    removed = {line.split()[0]: int(line.split()[1]) for line in lines[1:5]}
    assert removed["influence"] >= 20 > removed["random"]
    (loss, error), (without, of_without) = losses["nothing"], losses["influence"]
    assert loss - without > (error**2 + of_without**2) ** 0.5
    assert (tmp_path / "harmful.png").stat().st_size > 1000


@pytest.mark.slow
def test_choose_to_finetune(capsys, tmp_path):
    prepared = {info.name: info.path for info in models.available_models()}
    sets = {info.name: info.prepared for info in data.available()}
    if prepared["minilm"] is None or not sets["newsgroups"]:
        pytest.skip("minilm or newsgroups is not prepared")
    picture = tmp_path / "shares.png"
    example = load("choose_to_finetune")
    shares = example.main(["--epochs", "0.1", "--out", str(picture)])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("  test accuracy")]) == 4
    assert len([line for line in lines if line.startswith("     serves")]) == 5
    right = {name: share[0] for name, share in shares.items()}
    assert all(share.sum() == pytest.approx(1) for share in shares.values())
    # Within .1 of the shares in docs/finetuning.md.
    assert right["gradients"] > 0.74
    assert right["nearest texts"] < 0.6
    assert right["random"] < 0.35
    assert picture.stat().st_size > 1000


@pytest.mark.slow
def test_enough_validation(capsys):
    example = load("enough_validation")
    some = example.main(["--sure", "0.5"])
    assert example.share_sure(some) >= 0.5
    lines = capsys.readouterr().out.splitlines()
    assert int(some.count) == 32 * len(lines)

    # Values in batches are those of one call.
    train, val = data.load("digits"), data.load("digits", split="test")
    y, _ = data.flip_labels(jax.random.key(0), train.y, 0.1, n_classes=10)
    rows = slice(0, int(some.count))
    whole = jaxsel.knn_shapley(
        train.as_features(), y, val.as_features()[rows], val.y[rows]
    )
    # Near-ties may swap between chunks of other shapes: one swap moves one value in
    # one of `count` means by at most 1 / K.
    difference = np.abs(some.values - whole.values)
    assert np.median(difference) < 1e-6
    assert difference.max() < 0.2 / int(some.count)


@pytest.mark.slow
def test_match_a_hard_set():
    runs = [load("match_a_hard_set").compare(seed) for seed in range(3)]
    mean = {name: np.mean([run[name] for run in runs]) for name in runs[0]}
    assert mean["grad_match"] > mean["any of the two classes"] + 0.1
    assert mean["any of the two classes"] > mean["any"]


needs_spu = pytest.mark.skipif(
    importlib.util.find_spec("spu") is None, reason="SPU is not installed"
)


@pytest.mark.slow
@pytest.mark.mpc
@pytest.mark.multihost
@pytest.mark.parametrize(
    "engine", ["crypten", pytest.param("spu-cheetah", marks=needs_spu)]
)
def test_choose_in_secret(capsys, engine):
    chosen, clear = load("choose_in_secret").main(engine)
    assert chosen.n_valid == len(clear) == 70
    # In fixed point, scores at the border may swap.
    assert len(np.intersect1d(chosen.indices, clear)) >= 69
    assert "70 of 354 digits, 35 of them at random" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.mpc
@pytest.mark.multihost
def test_choose_with_crypten():
    (one, two), clear = load("choose_with_crypten").main()
    assert one == two
    (rows,) = re.findall(r"^rows ([\d ]+)$", one, re.MULTILINE)
    assert len(np.intersect1d(np.array(rows.split(), int), clear)) >= len(clear) - 1


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The files of the engines' run.toml, and the scores of their two proxies."""
    folder = tmp_path_factory.mktemp("digits")
    return folder, load("engines/prepare").main(folder)


def chosen_in_the_clear(scores, phases):
    left = np.arange(len(scores[0]))
    for phase, of_phase in zip(phases, scores, strict=False):
        left = left[np.argsort(-of_phase[left], kind="stable")[: phase.keep]]
    return left


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_has_a_run_toml(digits, engine):
    config = mpc_bridge.read_config(digits[0] / f"{engine}.toml")
    assert config.session.engine == engine
    assert config.session.samples == len(digits[1][0])
    written = [phase.manifest for phase in config.phases]
    written += [each.x for each in config.data_owner.inputs]
    written += (config.model_owner or config.data_owner).weights
    assert all(path.exists() for path in written)
    # Each names how it is run, and all parties that the engine has.
    text = (FOLDER / "engines" / f"{engine}.toml").read_text()
    assert ("local --config" in text) == (engine != "published")
    for role in ("model-owner", "data-owner", "third-party"):
        plays = engine != "published" and (role != "third-party" or "-ch" not in engine)
        plays |= role == "data-owner"
        assert (f"mpc_bridge {role} --config {engine}.toml" in text) == plays


@pytest.mark.parametrize("engine", [e for e in ENGINES if e.startswith("spu")])
def test_the_command_in_a_run_toml_makes_its_certificates(
    digits, engine, monkeypatch, capsys
):
    pytest.importorskip("cryptography")
    from mpc_bridge.__main__ import main

    text = (FOLDER / "engines" / f"{engine}.toml").read_text()
    (command,) = re.findall(r"python -m mpc_bridge (certs .+)", text)
    monkeypatch.chdir(digits[0])
    assert main([*command.split(), "--force"]) == 0
    config = mpc_bridge.read_config(f"{engine}.toml")
    for role in ("model_owner", "data_owner", "third_party"):
        if (part := getattr(config, role)) is not None:
            name = getattr(config.parties, role).name
            assert main(["certs", "show", "--folder", str(part.certificates)]) == 0
            assert f"own: {name}," in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.mpc
@pytest.mark.multihost
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=needs_spu if name.startswith("spu") else ())
        for name in ENGINES
    ],
)
def test_a_run_toml_runs_on_its_engine(digits, engine):
    folder, scores = digits
    config = mpc_bridge.read_config(folder / f"{engine}.toml")
    if engine == "published":
        result = mpc_bridge.run("data-owner", config, notice=False)
    else:
        # A port that nobody holds: this machine may run other tests.
        if engine == "crypten":
            session = dataclasses.replace(
                config.session, rendezvous="tcp://127.0.0.1:0"
            )
            config = dataclasses.replace(config, session=session)
        result = mpc_bridge.run_local(config, notice=False)
    clear = chosen_in_the_clear(scores, config.phases)
    # In fixed point, scores at the border may swap.
    assert len(np.intersect1d(result.rows, clear)) >= len(clear) - 1


@pytest.mark.slow
@pytest.mark.multihost
def test_multihost():
    command = [sys.executable, str(FOLDER / "multihost.py"), free_address(), "2"]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    processes = [
        subprocess.Popen(
            [*command, str(i)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for i in range(2)
    ]
    try:
        said = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]

    train, val = data.load("digits"), data.load("digits", split="test")
    values = jaxsel.knn_shapley(train.as_features(), train.y, val.as_features(), val.y)
    best = values.top(5).tolist()
    assert f"2 devices; the five best digits: {best}" in said[0]
    assert "best" not in said[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "coordinator_address should be defined"),
        (["localhost:1"], "expected an address and two numbers, or nothing"),
        (["localhost:1", "two", "0"], "invalid literal for int"),
    ],
)
def test_multihost_alone_says_how_it_is_started(arguments, message, monkeypatch):
    def initialize(address, processes, process):
        if address is None:
            raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(SystemExit) as error:
        load("multihost").main(arguments)
    assert message in error.value.code
    assert "python examples/multihost.py localhost:12345 2 0" in error.value.code


def test_pods_of_a_jobset_find_process_0():
    """What jobset.yaml says in several places agrees; see JobSet's names of pods."""
    yaml = pytest.importorskip("yaml")
    jobset = yaml.safe_load((FOLDER / "cluster" / "jobset.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
    )
    name, spec = jobset["metadata"]["name"], jobset["spec"]
    assert spec["network"] == {
        "enableDNSHostnames": True,
        "publishNotReadyAddresses": True,
    }
    (job,) = spec["replicatedJobs"]
    assert job["replicas"] == 1
    pods = job["template"]["spec"]
    assert pods["completionMode"] == "Indexed"
    # All at once: a run of JAX needs all its processes, and ends with any of them.
    assert pods["completions"] == pods["parallelism"] == 4
    assert pods["backoffLimit"] == 0 < spec["failurePolicy"]["maxRestarts"]
    assert pods["template"]["spec"]["restartPolicy"] == "Never"
    (container,) = pods["template"]["spec"]["containers"]
    (port,) = container["ports"]
    (line,) = container["args"]
    command = line.split()
    assert (FOLDER.parent / command[1]).is_file()
    assert command[2] == f"{name}-{job['name']}-0-0.{name}:{port['containerPort']}"
    assert command[3:] == [str(pods["completions"]), '"$JOB_COMPLETION_INDEX"']
