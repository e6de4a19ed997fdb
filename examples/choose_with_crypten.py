"""A proxy in a plain CrypTen script: its scores are an `MPCTensor` like any other.

    python examples/choose_with_crypten.py

Which digits does a model want? Prepares the files of both parties, and starts the two
as CrypTen's parties are started: each runs this script with its RANK. CrypTen as it
ships is for measurement only: whoever sees its messages can open everything.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import mpc_bridge

POOL, CHOSEN = 319, 35


def party(rank: int, files: Path) -> None:
    """Score and choose with the other party, which has other files."""
    crypten = mpc_bridge.import_crypten()  # on the installed PyTorch
    crypten.init()

    if rank == 0:  # the model owner: weights
        proxy, read = mpc_bridge.to_crypten(files / "probe"), None
    else:  # the data owner: samples, and the public manifest
        x = np.load(files / "features.npy")
        proxy = mpc_bridge.to_crypten(mpc_bridge.read_manifest(files / "probe"))
        read = lambda rows: (x[rows], None)  # and a mask, where samples are padded
    scores = mpc_bridge.score_pool(proxy, POOL, read)

    # Whatever CrypTen does with secret tensors, it does with these.
    print(f"{type(scores).__name__} of {len(scores)} scores")
    print(f"their mean: {scores.mean().get_plain_text().item():.2f}")

    # A search that opens outcomes of comparisons alone.
    chosen = mpc_bridge.choose(scores, CHOSEN, seed=0, ledger=proxy.ledger)
    print(f"mean of {CHOSEN}: {scores[chosen.rows].mean().get_plain_text().item():.2f}")
    print("rows", *chosen.rows)
    spent = proxy.ledger.total()
    print(f"{spent.rounds} rounds, {spent.sent / 1e6:.2f} MB sent by each party")
    crypten.uninit()


def prepare(folder: Path) -> np.ndarray:
    """Write each party's files; return the rows that are chosen in the clear."""
    from jaxsel import data, proxy

    digits = data.load("digits", split="all")
    rows = np.flatnonzero(np.isin(digits.y, [8, 9]))
    x = digits.as_features()[rows].astype(np.float32)
    x, bought = x[-POOL:], x[:-POOL]
    labels = (digits.y[rows] == 9).astype(int)[: len(bought)]
    probe = proxy.fit_probe(bought, labels, loss="labels", l2=0.01)
    manifest = proxy.probe_manifest(width=x.shape[1], n_classes=2)
    made = proxy.with_bounds(proxy.Proxy.of_probe(manifest, probe), bought)

    probe_folder = mpc_bridge.export(made, folder / "model-owner" / "probe")
    public = folder / "data-owner" / "probe"
    public.mkdir(parents=True)
    shutil.copy(probe_folder / "manifest.json", public)
    np.save(folder / "data-owner" / "features.npy", x)
    scores = np.asarray(made.scores(made.logits(x)))
    return np.sort(np.argsort(-scores, kind="stable")[:CHOSEN])


def main() -> tuple[list[str], np.ndarray]:
    """Return what both parties print, and the rows that are chosen in the clear."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        clear = prepare(folder)
        parties = []
        for rank, name in enumerate(("model-owner", "data-owner")):
            environment = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "RENDEZVOUS": f"file://{folder}/rendezvous",
                "FILES": str(folder / name),
            }
            command = [sys.executable, __file__]
            parties.append(
                subprocess.Popen(
                    command, env=environment, stdout=subprocess.PIPE, text=True
                )
            )
        printed = [process.communicate()[0] for process in parties]
    if any(process.returncode for process in parties):
        raise SystemExit("a party failed: see what it says")
    print(printed[1], end="")
    return printed, clear


if __name__ == "__main__":
    if "RANK" in os.environ:
        party(int(os.environ["RANK"]), Path(os.environ["FILES"]))
    else:
        main()
