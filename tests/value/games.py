"""Utilities that are known in full, for the tests of values that retrain models."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np


class Game:
    """The utility of every coalition of n points, drawn at random.

    Bit i of an index of the table is point i. Raises at a call, if told so, and counts
    the coalitions of points that it was asked for.
    """

    def __init__(self, n, *, seed=0, table=None, fails_at=None):
        rng = np.random.default_rng([seed, n])
        self.n = n
        self.table = rng.normal(size=2**n) if table is None else np.asarray(table)
        self.fails_at, self.calls, self.asked = fails_at, 0, 0

    def __repr__(self):
        return f"Game({self.n})"

    def __call__(self, masks, key):
        self.calls += 1
        if self.calls == self.fails_at:
            raise InterruptedError("told to")
        index = np.asarray(masks) @ (1 << np.arange(self.n))
        self.asked += int((index > 0).sum())
        return self.table[index]

    def of(self, points):
        return self.table[sum(1 << i for i in points)]


class Compiled(Game):
    """The same in JAX."""

    def __init__(self, n, **options):
        super().__init__(n, **options)
        table = jnp.asarray(self.table, jnp.float32)
        self._look_up = jax.jit(lambda masks: table[masks @ (1 << jnp.arange(n))])

    def __call__(self, masks, key):
        return self._look_up(masks)


def saturating(n, *, seed=0):
    """A game that gains ever less, with some noise: truncation ends at many places."""
    rng = np.random.default_rng([seed, n])
    members = np.arange(2**n)[:, None] >> np.arange(n) & 1
    gained = 1 - np.exp(-(members @ rng.uniform(0.02, 1.2, n)))
    return Game(n, table=gained + rng.normal(0, 0.03, 2**n) * (members.sum(1) < n))


def weight(kind, n, size, alpha=1.0, beta=1.0):
    """The weight of one coalition of `size` others: Kwon and Zou, equations 3 and 5."""
    if kind == "shapley":
        return math.factorial(size) * math.factorial(n - 1 - size) / math.factorial(n)
    if kind == "banzhaf":
        return 2.0 ** (1 - n)
    scale = math.gamma(alpha) * math.gamma(beta) / math.gamma(alpha + beta)
    upper = math.gamma(size + beta) * math.gamma(n - 1 - size + alpha)
    return upper / math.gamma(n - 1 + alpha + beta) / scale


def enumerate_values(game, kind, alpha=1.0, beta=1.0):
    """Semivalues by their definition, `[n]`."""
    values = []
    for i in range(game.n):
        others = [j for j in range(game.n) if j != i]
        total = 0.0
        for size in range(game.n):
            p = weight(kind, game.n, size, alpha, beta)
            for some in itertools.combinations(others, size):
                total += p * (game.of((*some, i)) - game.of(some))
        values.append(total)
    return np.array(values)


def honest_stderr(rows, gap=0.0):
    """Standard errors of the means of samples, `[count, n]`, also of few or equal ones.

    Args:
        rows: What each sample says of each point.
        gap: Between the utility of none and of all.
    """
    count, apart = len(rows), (rows - rows.mean(0)) ** 2
    m2 = np.maximum(apart.sum(0), apart.sum(0) * 7 / 8 + apart.max(0) * 3 / 2)
    reach = max(gap, np.ptp(rows))
    equal = np.ptp(rows, axis=0) <= 1e-6 * reach
    return np.sqrt(np.where(equal, (1.5 * reach) ** 2, m2) / (count * (count - 1)))
