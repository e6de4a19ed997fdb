"""A small session: its sizes, its configuration, and its choice in the clear."""

import numpy as np
from parties import error_bound

from mpc_bridge._config import (
    Appraisal,
    Config,
    DataOwner,
    Inputs,
    ModelOwner,
    PhaseConfig,
    Session,
)

N, KEEPS, EXCLUDED = 60, (25, 7), (3, 17, 50)
WIDTHS = (6, 5)


def config_of(folder, name, **changes):
    """Return the configuration of a run, with its outputs in folders of their own."""
    engine = changes.pop("engine", "crypten")
    measure = changes.pop("measure", False)
    session = Session(
        name="reviews",
        seed=changes.pop("seed", 5),
        engine=engine,
        rendezvous="tcp://127.0.0.1:0" if engine == "crypten" else None,
        leak=changes.pop("leak", "rank"),
        timeout=changes.pop("timeout", 60.0),
        samples=changes.pop("samples", N),
        exclude=EXCLUDED,
    )
    phases = tuple(
        PhaseConfig(
            manifest=folder / f"probe{i}" / "manifest.json", keep=keep, batch_size=b
        )
        for i, (keep, b) in enumerate(zip(KEEPS, (16, None), strict=True))
    )
    weights = tuple(folder / f"probe{i}" for i in range(2))
    inputs = tuple(Inputs(x=folder / f"x{i}.npy") for i in range(2))
    parts = {
        "session": session,
        "phases": phases,
        "appraisal": Appraisal(mode="mean"),
        "model_owner": ModelOwner(
            weights=weights, output=folder / name / "model", measure=measure
        ),
        "data_owner": DataOwner(
            inputs=inputs, output=folder / name / "data", measure=measure
        ),
    }
    return Config(**parts | changes)


def border_of(manifest, scores):
    """Return a difference of scores that errors within their bound cannot turn."""
    return 2 * error_bound(manifest.score, scores)


def in_the_clear(folder):
    """Return the rows that two phases leave, and the scores of the second one."""
    from jaxsel.proxy import Manifest, Proxy
    from mpc_bridge._export import read_weights

    left = np.setdiff1d(np.arange(N), EXCLUDED)
    for i, keep in enumerate(KEEPS):
        text = (folder / f"probe{i}" / "manifest.json").read_text()
        manifest = Manifest.from_json(text)
        weights = read_weights(folder / f"probe{i}", manifest)
        proxy = Proxy.from_arrays(manifest, weights)
        logits = proxy.logits(np.load(folder / f"x{i}.npy")[left])
        scores = proxy.scores(logits)
        order = np.argsort(-scores, kind="stable")
        border = scores[order[keep - 1]] - scores[order[keep]]
        assert border >= border_of(manifest, scores)
        best = np.sort(order[:keep])
        left, logits = left[best], logits[best]
    return left, logits


def command(*arguments):
    from mpc_bridge.__main__ import main

    return main(list(map(str, arguments)))
