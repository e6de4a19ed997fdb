"""Every estimator with `checkpoint=` resumes at every moment, bit for bit."""

import inspect
import os
import random
import signal
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest

import jaxsel
from jaxsel import value
from jaxsel._results.types import Values
from jaxsel._runs.checkpoints import Checkpoints
from jaxsel.value import MaxSamples, _run
from jaxsel.value._retrained import ESTIMATORS as REGISTRY

from .games import Game, saturating

KEY, N = jax.random.key(3), 7
X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
Y = np.arange(24) % 2
DATA = X[:12], Y[:12], X[12:], Y[12:]


class Started(Game):
    """A utility whose trainings start from others, so that permutations save these."""

    def evaluate(self, masks, key, start=None):
        found = self(masks, key)
        if start is not None:
            found = found + 0.01 * np.asarray(start).sum(1)
        return found, jax.numpy.asarray(masks, np.float32)


OPTIONS = {
    "tmc_shapley": {"tolerance": 0.05, "patience": 2, "stop": MaxSamples(20)},
    # Sizes beyond a few have no weight: they come of NumPy, not of Python.
    "beta_shapley": {"alpha": 300.0, "stop": MaxSamples(20)},
    "adjusted_semivalue": {"stop": MaxSamples(20)},
    "estimate_semivalue": {"method": "plain"},
    "data_oob": {"learner": value.NearestCentroid(), "x": X, "y": Y},
}
GIVEN = {
    "trainings": 24,
    "learner": value.LogisticRegression(),
    **dict(zip(("x", "y", "x_val", "y_val"), DATA, strict=True)),
    "key": KEY,
    "stop": MaxSamples(30),
    "batch_size": 8,
    "learning_rate": 0.3,
}


def retrained(name):
    def call(**options):
        utility = Started(N, table=saturating(N).table)
        given = {**GIVEN, "utility": utility, **OPTIONS.get(name, {})}
        return REGISTRY[name].bound(**given)(**options)

    return call


def streamed(**options):
    rows = jaxsel.data.open_rows(X[12:], labels=Y[12:])
    more = {"k": 3, "chunk_size": 3, "checkpoint_every": 1}
    return value.streamed_values(
        jaxsel.knn_shapley, X[:12], Y[:12], rows, **more, **options
    )


ESTIMATORS = {
    **{n: retrained(n) for n, e in REGISTRY.items() if "checkpoint" in e.arguments},
    "streamed_values": streamed,
}
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def test_each_estimator_is_here():
    takes = lambda f: "checkpoint" in inspect.signature(f).parameters
    public = {k: f for k, f in vars(value).items() if inspect.isfunction(f)}
    assert {k for k, f in public.items() if takes(f)} == ESTIMATORS.keys()


class Stored:
    """A folder of orbax in memory, and how to be killed about its saves."""

    def __init__(self, dies_at=0, *, before=False, narrow=False):
        self.saves, self.dies_at, self.before = 0, dies_at, before
        self.narrow, self.latest, self.about, self.tree = narrow, None, None, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def save(self, step, tree, custom_metadata):
        self.saves += 1
        if self.before and self.saves == self.dies_at:
            raise InterruptedError("while it was saved")
        self.latest = types.SimpleNamespace(step=step)
        self.about, self.tree = custom_metadata, dict(tree)
        if self.saves == self.dies_at:
            raise InterruptedError("once it was saved")

    def metadata(self, step):
        return types.SimpleNamespace(custom_metadata=self.about)

    def load(self, step, like):
        if not self.narrow:
            return self.tree
        # As arrays of JAX, which has no int64 by default.
        whole = lambda leaf: np.issubdtype(leaf.dtype, np.integer) and leaf.itemsize > 4
        return {
            k: jax.numpy.asarray(leaf, np.int32) if whole(leaf) else leaf
            for k, leaf in self.tree.items()
        }


def identical(a, b):
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, two)
    assert a.method == b.method


@each_estimator
@pytest.mark.every(9)
def test_resumed_at_every_moment(name, tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "SAVE_EVERY", 0.0)
    estimate = ESTIMATORS[name]
    stored = Stored()
    monkeypatch.setattr(Checkpoints, "_open", lambda self: stored)
    expected = estimate()
    identical(estimate(checkpoint=tmp_path), expected)
    saves = stored.saves
    assert saves > 2
    hows = ({}, {"before": True}, {"narrow": True})
    for at in range(1, saves + 1):
        stored = Stored(at, **hows[at % 3])
        with pytest.raises(InterruptedError):
            estimate(checkpoint=tmp_path)
        stored.dies_at = 0
        identical(estimate(checkpoint=tmp_path), expected)


@pytest.mark.parametrize("parameters", [(16.0, 1.0), (1.0, 16.0)])
def test_sizes_of_permutations_are_static(parameters):
    """NumPy's whole numbers can't be static arguments of a saved walk."""
    estimator = value._permutation._Permutations(
        method="", parameters=parameters, round=64
    )
    sizes = estimator._used(400)[1]
    assert [type(size) for size in sizes] == [int, int]
    assert sizes != (1, 399)


def test_leftovers_of_a_killed_save_are_removed(tmp_path):
    for _ in range(2):
        parts = tmp_path / "1.orbax-checkpoint-tmp" / "state" / "ocdbt.process_0" / "d"
        parts.mkdir(parents=True, exist_ok=True)
        for i in range(200):
            (parts / str(i)).write_bytes(b"x")
        kept = Checkpoints(tmp_path, "run")
        before = kept.load_arrays()
        assert not parts.exists()
        kept.save(1 if before is None else int(before["a"][0]) + 1, {"a": np.ones(2)})
        np.testing.assert_array_equal(kept.load_arrays()["a"], np.ones(2))
        for path in tmp_path.iterdir():
            assert path.name == "1"
            os.rename(path, tmp_path.with_name(f"{tmp_path.name}{time.time_ns()}"))


_SAVES = """
import sys
import numpy as np
from jaxsel._runs.checkpoints import Checkpoints

folder = Checkpoints(sys.argv[1], "run")
found = folder.load_arrays()
step = 0 if found is None else int(found["step"])
if found is not None:
    np.testing.assert_array_equal(found["a"], np.full(100_000, step))
print("ready", flush=True)
while True:
    step += 1
    folder.save(step, {"a": np.full(100_000, step), "step": np.array(step)})
"""


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    """Thirty kills, of first saves and of later ones: all are resumed at once."""
    draw = random.Random(0)
    for i in range(30):
        folder = tmp_path / str(i // 3)  # three kills each
        with subprocess.Popen(
            [sys.executable, "-c", _SAVES, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        ) as child:
            line = child.stdout.readline()
            if line:
                time.sleep(draw.uniform(0.0, 0.3))
            ended = child.poll()
            child.kill()
            errors = child.stderr.read()
        assert line == "ready\n", errors
        assert ended is None, errors
        assert child.returncode == -signal.SIGKILL


def test_checkpoints_without_extremes_are_of_earlier_versions(tmp_path, monkeypatch):
    stored = Stored()
    monkeypatch.setattr(Checkpoints, "_open", lambda self: stored)
    ESTIMATORS["banzhaf"](checkpoint=tmp_path)
    names = stored.about["names"]
    names = [name.replace("low", "least") for name in names]
    digest = Checkpoints(tmp_path, "jaxsel.value")._digest
    sha256 = digest(stored.latest.step, names, stored.tree)
    stored.about |= {"names": names, "sha256": sha256}
    with pytest.raises(ValueError, match="a run of an earlier version"):
        ESTIMATORS["banzhaf"](checkpoint=tmp_path)
    assert isinstance(ESTIMATORS["banzhaf"](), Values)
