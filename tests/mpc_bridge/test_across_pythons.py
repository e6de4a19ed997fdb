"""Proxies and pools of a newer Python, jax and NumPy, run on SPU under this one.

SPU has wheels for CPython 3.10 and 3.11 only. Needs a Python of 3.12 or newer, on PATH
or of pyenv, in which the newest releases are installed first; JAXSEL_NEWER_PYTHON names
the interpreter of an environment that has them.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from parties import needs_spu
from waits import PATIENCE

ROOT = Path(__file__).parents[2]
NEWEST = ("3.15", "3.14", "3.13", "3.12")

pytestmark = [pytest.mark.slow, pytest.mark.mpc, pytest.mark.multihost, needs_spu]

# The model owner's two proxies, a probe and a layer, and the data owner's samples; then
# both phases in secret by the interpreter that is named, and in the clear here.
SCRIPT = """
import json, sys
from pathlib import Path
import jax, numpy as np
import mpc_bridge
from jaxsel import proxy

folder, interpreter = Path(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
images = rng.uniform(-1, 1, size=(60, 6, 8)).astype(np.float32)
features = images.reshape(60, 48)
probe = proxy.fit_probe(features[:30], np.arange(30) % 2, loss="labels")
manifest = proxy.probe_manifest(width=48, n_classes=2)
spec = proxy.Spec(1, 2, attention="quadratic", norm="polynomial")
sizes = dict(layers=1, heads=2, head_width=4, hidden=8, length=6)
layer = proxy.manifest(spec, **sizes, n_classes=2, kind="patches")
shapes = proxy.array_shapes(layer)
weights = {name: rng.normal(0, 0.4, shape) for name, shape in shapes.items()}
made = {
    "probe": (proxy.Proxy.of_probe(manifest, probe), features),
    "layer": (proxy.Proxy.from_arrays(layer, weights), images),
}
toml = '''
[session]
name = "across"
engine = "spu-aby3"
leak = "set"
seed = 0
samples = 60
[model_owner]
weights = ["probe", "layer"]
output = "model"
[data_owner]
inputs = [{ x = "probe.npy" }, { x = "layer.npy" }]
output = "data"
'''
rows = np.arange(60)
for (name, (source, x)), keep in zip(made.items(), (30, 10)):
    mpc_bridge.export(proxy.with_bounds(source, x), folder / name)
    np.save(folder / f"{name}.npy", x)
    toml += f'[[phases]]\\nmanifest = "{name}/manifest.json"\\nkeep = {keep}\\n'
    scores = np.asarray(source.scores(source.logits(x)))
    rows = rows[np.argsort(-scores[rows], kind="stable")[:keep]]
(folder / "run.toml").write_text(toml)
result = mpc_bridge.run_local(folder / "run.toml", python=interpreter, notice=False)
layers = [sorted(map(int, rows)), list(result.rows)]

pool = proxy.Samples(features=features)
data_owner = proxy.DataOwner(pool=pool)
model_owner = proxy.ModelOwner(
    schedule=[proxy.Phase(proxy.ProbeSpec())],
    budget=16,
    n_classes=2,
    bootstrap=0.1,
    secret=jax.random.key(7),
)
key = proxy.joint_key(123, 456)
plan = model_owner.plan(data_owner.offer())
sold = data_owner.sell(plan, lambda rows: rows % 2, key=key)
prepared = model_owner.learn(plan, sold, key=key).prepare()
chosen = mpc_bridge.run_selection(prepared, pool, python=interpreter, notice=False)
left = np.setdiff1d(np.arange(60), sold.rows)
clear = data_owner.choose(prepared.proxies[0], left, plan.keeps[0])
probes = [sorted({*map(int, sold.rows), *map(int, clear)}), chosen.indices.tolist()]
print(
    json.dumps(
        {
            "python": sys.version_info[:2],
            "versions": [jax.__version__, np.__version__],
            "theirs": result.versions,
            "layers": layers,
            "probes": [probes[0], sorted(probes[1])],
        }
    )
)
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """The interpreter of an environment with the newest releases."""
    if path := os.environ.get("JAXSEL_NEWER_PYTHON"):
        return path
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    installed = [shutil.which(f"python{version}") for version in NEWEST]
    for version in NEWEST:
        installed += sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    for python in filter(None, installed):
        environment = tmp_path_factory.mktemp("newer")
        # A stub of pyenv on PATH is no interpreter.
        command = [python, "-m", "venv", environment]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip(f"no Python of {', '.join(NEWEST)} on PATH or of pyenv")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["spu"]]
    python = environment / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *needed],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"pip can't install the newest releases: {done.stderr[-300:]}")
    return python


@pytest.mark.network
def test_what_a_newer_python_exports_runs_on_spu_under_this_one(newer, tmp_path):
    done = subprocess.run(
        [newer, "-c", SCRIPT, tmp_path, sys.executable],
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["python"] >= [3, 12]
    assert facts["theirs"]["spu"] == "0.9.5"
    for clear, secret in (facts["layers"], facts["probes"]):
        # In fixed point, scores at the border may swap.
        assert len({*clear} & {*secret}) >= len(clear) - 1
        assert len(secret) == len(clear)
