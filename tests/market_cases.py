"""Files of a trainer and three owners, and their commands, for tests of the market."""

import numpy as np
import pytest
from commands import run

from jaxsel.market import Answer, Request

CENTRES = 3 * np.random.default_rng(0).normal(size=(3, 6))
QUICK = ["--seeds", "2", "--steps", "60"]
RANK = ["market", "rank", "request.npz", "held.npz"]


class _Drawn:
    """The generator of the test that runs: no test's samples depend on another."""

    rng = np.random.default_rng(0)


def normal(*shape):
    return _Drawn.rng.normal(size=shape)


def draw(*counts):
    """Samples of three classes, so many of each."""
    y = np.repeat(np.arange(3), counts)
    return CENTRES[y] + normal(len(y), 6), y


def save(name, x, y):
    np.savez(f"{name}.npz", x=x.astype(np.float32), y=y)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Write the samples that all tests begin with."""
    monkeypatch.setattr(_Drawn, "rng", np.random.default_rng(1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    x, y = draw(30, 30, 50)
    save("val", x, y)
    np.save("predicted.npy", np.where(y == 2, 0, y))
    save("train", *draw(60, 60, 1))
    save("north", *draw(5, 5, 50))
    save("south", *draw(30, 30, 0))
    save("east", *draw(20, 20, 20))


def ask(*options, budget=16):
    run(
        *("market", "request", "val.npz", "--predictions", "predicted.npy"),
        *("--held-out-to", "held.npz", "--out", "request.npz", "--budget", budget),
        *options,
    )
    return Request.load("request.npz")


def reply(name, *options):
    run(
        *("market", "answer", "request.npz", f"{name}.npz", "--owner", name),
        *("--out", f"from_{name}.npz", *options),
    )
    return Answer.load(f"from_{name}.npz", Request.load("request.npz"))
