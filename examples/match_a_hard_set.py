"""Which of an owner's digits help with those that a trainer's model gets wrong?

    python examples/match_a_hard_set.py

The trainer has six eights and nines. It shows the owner half of the others that it gets
wrong; the owner sends 16 of its 700 digits, 70 % of which have a permuted label. Prints
the accuracy on the other half, after training on both, for three seeds.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxsel import data, gradients, market, match, models


def compare(seed: int, budget: int = 16) -> dict[str, float]:
    """Return the accuracy on held-out hard digits of each way to choose."""
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    digits = data.load("digits", split="all")
    x, y = digits.as_features(), digits.y.copy()
    own, owner, val = np.split(rng.permutation(len(y)), [300, 1000])
    weak = np.isin(y, [8, 9])
    own, val = np.r_[own[~weak[own]], own[weak[own]][:6]], val[weak[val]]
    y[owner] = data.permute_labels(key, y[owner], 0.7)[0]
    rngs = nnx.Rngs(seed)
    graphdef, start = nnx.split(models.MLP(64, 32, 10, rngs=rngs), nnx.Param)

    def train(rows: np.ndarray) -> models.Params:
        return models.fit(graphdef, start, x[rows], y[rows], key=key)

    def oracle(rows: np.ndarray) -> gradients.Factored:
        features = nnx.relu(teacher.layers[0](jnp.asarray(x[rows])))
        return gradients.last_layer(teacher.layers[1](features), y[rows], features)

    guess = models.predict(graphdef, train(own), x[val])
    hard = market.hard_set(guess, y[val], key=key)
    teacher = nnx.merge(graphdef, train(owner))
    found = match.grad_match(oracle(owner), oracle(val[hard.shared]), budget)
    labelled = np.flatnonzero(np.isin(y[owner], [8, 9]))
    chosen = {
        "any": rng.permutation(len(owner))[:budget],
        "any of the two classes": rng.permutation(labelled)[:budget],
        "grad_match": np.asarray(found.indices)[: len(found)],
        "all 700": np.arange(len(owner)),
    }
    scores = {}
    for name, rows in chosen.items():
        guess = models.predict(graphdef, train(np.r_[own, owner[rows]]), x[val])
        scores[name] = float((guess == y[val])[hard.held_out].mean())
    return scores


if __name__ == "__main__":
    runs = [compare(seed) for seed in range(3)]
    for name in runs[0]:
        score = np.array([run[name] for run in runs])
        print(f"{name:<24}{score.mean():.2f} ± {score.std(ddof=1):.2f}")
