"""Which digits does a model want, chosen without showing it the others?

    python examples/choose_in_secret.py [ENGINE]

A model owner wants to tell eights from nines; a data owner has 354 of them. It sells 35
at random, which teach a probe; the probe chooses 35 more in secret, by two parties as
two processes on SPU. With engine "crypten", for measurement only as it ships, a dealer
is a third one. Prints what was chosen, and what that took.
"""

import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import mpc_bridge
from jaxsel import Selection, data, proxy


def main(engine: str = "spu-cheetah") -> tuple[Selection, np.ndarray]:
    """Return what is chosen in secret, and the rows that are chosen in the clear."""
    digits = data.load("digits", split="all")
    rows = np.flatnonzero(np.isin(digits.y, [8, 9]))
    labels = (digits.y[rows] == 9).astype(int)
    pool = proxy.Samples(features=digits.as_features()[rows])
    data_owner = proxy.DataOwner(pool=pool)
    model_owner = proxy.ModelOwner(
        schedule=[proxy.Phase(proxy.ProbeSpec(l2=0.01))],
        budget=70,
        n_classes=2,
        bootstrap=0.1,
        secret=jax.random.key(7),
    )

    key = proxy.joint_key(123, 456)  # a number of each party
    plan = model_owner.plan(data_owner.offer())
    sold = data_owner.sell(plan, lambda drawn: labels[drawn], key=key)
    prepared = model_owner.learn(plan, sold, key=key).prepare()

    with tempfile.TemporaryDirectory() as folder:
        chosen = mpc_bridge.run_selection(
            prepared,
            pool,
            engine=engine,
            appraisal="mean",
            output=folder,
            notice=False,
        )
        result = mpc_bridge.Result.read(Path(folder) / "data-owner")
    spent = result.total()
    print(f"{len(chosen)} of {len(pool)} digits, {len(sold.rows)} of them at random")
    print(f"mean entropy of the others: {result.appraisal:.3f} nats")
    print(f"{spent.rounds} rounds, {spent.bytes / 1e6:.2f} MB")

    left = np.setdiff1d(np.arange(len(pool)), sold.rows)
    clear = data_owner.choose(prepared.proxies[0], left, plan.keeps[0])
    return chosen, np.concatenate([sold.rows, clear])


if __name__ == "__main__":
    main(*sys.argv[1:])
